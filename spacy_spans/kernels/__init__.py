"""Arrays in, arrays out: no spaCy, no torch modules, no state."""
