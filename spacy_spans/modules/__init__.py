"""torch modules: tensors in, tensors out, no spaCy and no thinc."""
