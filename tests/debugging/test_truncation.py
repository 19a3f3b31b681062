"""Which tokens an encoder with a limit would not see."""

import numpy as np
import pytest

from spacy_spans.debugging.truncation import _ranges, find_lost
from spacy_spans.pieces import Pieces


def pieces_of(counts):
    ends = np.cumsum(counts)
    return Pieces(np.arange(sum(counts)), ends - counts, ends)


@pytest.mark.parametrize(
    ("counts", "windows", "limit", "lost"),
    [
        ([1, 1, 1, 1], [(0, 4)], 4, []),
        ([1, 1, 1, 1], [(0, 4)], 3, [3]),
        # Its first pieces are seen.
        ([1, 4, 1], [(0, 3)], 3, [2]),
        # Another window begins later.
        ([3, 3, 1, 1], [(0, 3), (2, 4)], 4, []),
        # White space has no piece to lose.
        ([3, 0, 1], [(0, 3)], 3, [2]),
        ([], [], 3, []),
    ],
)
def test_lost_tokens(counts, windows, limit, lost):
    assert find_lost(pieces_of(np.asarray(counts, int)), windows, limit).tolist() == lost


def test_ranges_are_shown_in_short():
    assert _ranges(np.asarray([3, 4, 5, 9])) == "tokens 3 to 5, 9 to 9"
    assert _ranges(np.asarray([1, 3, 5, 7])) == "tokens 1 to 1, 3 to 3, 5 to 5, ..."
