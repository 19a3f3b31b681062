"""Nested, overlapping and very long spans for spaCy.

Nothing is imported here: spaCy finds the components through the entry points in `setup.cfg`.
"""

__version__ = "0.1.0"
