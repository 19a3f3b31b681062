"""What `spacy spans debug` checks: a file for each family of checks; `run` joins them."""
