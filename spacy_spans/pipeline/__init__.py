"""spaCy glue: one component a file."""
