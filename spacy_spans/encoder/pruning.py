"""Choose words to keep, and make sequences shorter and whole again. Torch functions, no state.

Windows are rows, padded on the right. Every piece has the number of its word in the window,
`NO_WORD` for special pieces, which are always kept, and for padding.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from spacy_spans.kernels.enumeration import ROUNDING

NO_WORD = -1


def word_scores(scores: Tensor, words: Tensor) -> Tensor:
    """The best score among the pieces of each word.

    scores (Tensor): Shape (n_windows, n_pieces).
    words (Tensor): Word of each piece, or NO_WORD. The same shape.
    RETURNS (Tensor): Shape (n_windows, n_words), -inf where a window has fewer words.
    """
    n_words = int(words.max()) + 1 if words.numel() else 0
    best = scores.new_full((len(scores), n_words + 1), -torch.inf)
    best = best.scatter_reduce(1, words + 1, scores, "amax")
    return best[:, 1:]


def best_words(scores: Tensor, ratio: float) -> Tensor:
    """The best of each window's words: `ratio` of them, rounded up.

    scores (Tensor): As of `word_scores`.
    RETURNS (Tensor): Mask. Shape (n_windows, n_words).
    """
    exists = scores > -torch.inf
    # Without what rounding adds: 0.3 of ten words are three.
    wanted = (exists.sum(dim=1, keepdim=True).double() * ratio - ROUNDING).ceil()
    # The rank of each word in its window, best first, earlier words first among equals.
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    )
    return exists & (ranks < wanted)


def kept_pieces(kept_words: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    """Pieces of kept words, and special ones.

    kept_words (Tensor): Shape (n_windows, n_words), bool.
    mask (Tensor): Which pieces are none of the padding. Shape (n_windows, n_pieces).
    RETURNS (Tensor): Shape (n_windows, n_pieces), bool.
    """
    special = kept_words.new_ones((len(kept_words), 1))
    return torch.cat([special, kept_words], dim=1).gather(1, words + 1) & mask


def spread_words(scores: Tensor, words: Tensor) -> Tensor:
    """The score of each piece's word, -inf for pieces of none.

    scores (Tensor): As of `word_scores`; there may be fewer columns than words. The others have
        none.
    RETURNS (Tensor): Shape (n_windows, n_pieces).
    """
    missing = scores.new_full((len(scores), 1), -torch.inf)
    columns = torch.where(words < scores.shape[1], words + 1, 0)
    return torch.cat([missing, scores], dim=1).gather(1, columns)


class Shortened(NamedTuple):
    """Windows after pruning, and the way back.

    hidden (Tensor): Shape (n_windows, n_short, width).
    mask (Tensor): Which rows are none of the padding. Shape (n_windows, n_short).
    source (Tensor): A piece that each row stands for: itself, or the first of a pooled run.
        Shape (n_windows, n_short).
    row_of (Tensor): Row of each piece, n_short for those without. Shape (n_windows, n_pieces).
    """

    hidden: Tensor
    mask: Tensor
    source: Tensor
    row_of: Tensor


def shorten(hidden: Tensor, kept: Tensor, mask: Tensor, *, pool: bool) -> Shortened:
    """Leave out pieces, or let the mean of each run of them stand in for it.

    hidden (Tensor): Shape (n_windows, n_pieces, width).
    kept (Tensor): Pieces to keep. Shape (n_windows, n_pieces), bool.
    mask (Tensor): Which pieces are none of the padding. The same shape.
    pool (bool): One row for each run of dropped pieces. Pooling leaves no hole in the context.
    """
    starts = kept.clone()
    if pool:
        dropped = mask & ~kept
        starts |= dropped & ~torch.nn.functional.pad(dropped, (1, 0))[:, :-1]
    n_short = int(starts.sum(dim=1).max()) if starts.numel() else 0
    rows = starts.cumsum(dim=1) - 1
    has_row = kept | (mask if pool else kept)
    row_of = torch.where(has_row, rows, n_short)
    # Sums over the pieces of each row; what has none is summed up in a row that is cut off. Whole
    # rows are added: `scatter_add` would look up an index for every number of them.
    shape = (len(hidden), n_short + 1, hidden.shape[2])
    flat = hidden.new_zeros(shape[0] * shape[1], shape[2])
    summed = flat.index_add(0, _flat(row_of, n_short), hidden.flatten(0, 1)).view(shape)
    counts = hidden.new_zeros(shape[:2]).scatter_add(1, row_of, torch.ones_like(hidden[..., 0]))
    short = (summed / counts.clamp(min=1)[:, :, None])[:, :n_short]
    positions = torch.arange(hidden.shape[1], device=hidden.device).expand_as(row_of)
    first = torch.full(shape[:2], hidden.shape[1], device=hidden.device, dtype=torch.long)
    first = first.scatter_reduce(1, row_of, positions, "amin")[:, :n_short]
    return Shortened(short, counts[:, :n_short] > 0, first.clamp(max=hidden.shape[1] - 1), row_of)


def restore(before: Tensor, shortened: Shortened, after: Tensor) -> Tensor:
    """Give every piece a row again: where it had one, its state plus what the layers changed in
    that row; else its state before, as in Transkimmer (https://aclanthology.org/2022.acl-long.502).

    A kept piece so gets exactly its row; the pieces of a pooled run stay apart.

    before (Tensor): Before `shorten`. Shape (n_windows, n_pieces, width).
    after (Tensor): The rows after the layers. Shape (n_windows, n_short, width).
    """
    change = torch.nn.functional.pad(after - shortened.hidden, (0, 0, 0, 1))
    index = _flat(shortened.row_of, after.shape[1])
    return before + change.flatten(0, 1).index_select(0, index).view_as(before)


def _flat(row_of: Tensor, n_short: int) -> Tensor:
    """Rows counted over all windows, each with one more than n_short. Shape (n_pieces of all,)."""
    first = torch.arange(len(row_of), device=row_of.device)[:, None] * (n_short + 1)
    return (row_of + first).flatten()
