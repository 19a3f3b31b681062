"""Nested, overlapping and very long spans for spaCy.

spaCy finds the components through the entry points in `setup.cfg`. Here is what reads and writes
mentions of several fragments.
"""

from spacy_spans.groups import fragments, write_fragments

__all__ = ["fragments", "write_fragments"]

__version__ = "0.1.0"
