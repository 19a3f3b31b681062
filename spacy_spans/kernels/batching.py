"""Group sequences so that little is padding."""

import numpy as np
import numpy.typing as npt

from spacy_spans.types import LongArray


def length_batches(lengths: npt.ArrayLike, max_items: int) -> list[LongArray]:
    """Batches of like length, the longest first.

    lengths (ArrayLike): Items of each sequence.
    max_items (int): Most items in a batch once padded; a sequence that is longer is alone.
    RETURNS (list): Rows of each batch, ordered by length, then row; none for no sequences.

    >>> [rows.tolist() for rows in length_batches([2, 5, 2, 1], max_items=5)]
    [[1], [0, 2], [3]]
    """
    sizes = np.asarray(lengths, dtype=np.int64).reshape(-1)
    order = np.argsort(-sizes, kind="stable")
    batches = []
    first = 0
    while first < len(order):
        n_rows = max(1, max_items // max(1, int(sizes[order[first]])))
        batches.append(order[first : first + n_rows])
        first += n_rows
    return batches
