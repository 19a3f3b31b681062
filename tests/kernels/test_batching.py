"""Batches of like length: everything once, nothing over the limit, little padding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spacy_spans.kernels.batching import length_batches


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 60))
def test_batches_hold_every_row_once_within_the_limit(lengths, max_items):
    batches = [rows.tolist() for rows in length_batches(lengths, max_items)]
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    order = [lengths[row] for rows in batches for row in rows]
    assert order == sorted(lengths, reverse=True)
    for rows in batches:
        assert len(rows) == 1 or lengths[rows[0]] * len(rows) <= max_items
    for rows in batches[:-1]:
        # As full as can be.
        assert max(1, lengths[rows[0]]) * (len(rows) + 1) > max_items


def test_no_sequences_make_no_batches():
    assert length_batches(np.zeros(0, "i"), 10) == []
