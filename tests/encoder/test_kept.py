"""What a pruning encoder kept, from scores of pieces to `doc.spans`."""

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch, WordpieceBatch
from transformers.file_utils import ModelOutput

from spacy_spans.encoder.kept import PrunedTransformerBatch, build_kept_tokens_v1
from spacy_spans.errors import SettingsError
from spacy_spans.pieces import Pieces, Windows, lay_out_rows
from spacy_spans.transformer import Tokenized

from ..pipeline import scored

VOCAB = spacy.blank("en").vocab
N_BEFORE = 1
INF = np.inf


def make_batch(sizes, ranges, capacity, piece_scores=None):
    """One batch; for each document the number of pieces of its tokens, and its windows."""
    rows, windows = [], []
    for own_sizes, own_ranges in zip(sizes, ranges, strict=True):
        if not own_sizes:
            rows.append(None)
            continue
        ends = np.cumsum(own_sizes)
        pieces = Pieces(np.arange(ends[-1]), ends - own_sizes, ends)
        array = np.asarray(own_ranges, dtype="i").reshape(-1, 2)
        windows.append(Windows(array, np.arange(len(array))))
        rows.append(lay_out_rows(pieces, windows[-1], capacity))
    tokenized = Tokenized([], WordpieceBatch.empty(), rows, windows, N_BEFORE)
    return PrunedTransformerBatch(
        [],
        WordpieceBatch.empty(),
        ModelOutput(),
        None,
        tokenized=tokenized,
        piece_scores=piece_scores,
    )


def make_docs(sizes):
    return [Doc(VOCAB, words=["w"] * len(own)) for own in sizes]


def test_runs_have_the_best_score_of_their_tokens():
    # Two rows: tokens 0 to 2, and 2 to 5. Token 2 is kept in the second; token 3 has two pieces.
    scores = np.asarray(
        [[1, 0.9, -INF, -INF, 1, 0], [1, 0.2, 0.6, 0.6, -INF, 1]],
        dtype="f",
    )
    sizes = [[1, 1, 1, 2, 1], []]
    batch = make_batch(sizes, [[(0, 3), (2, 5)], []], 4, scores)
    docs = make_docs(sizes)
    build_kept_tokens_v1("kept")(docs, batch)
    runs = docs[0].spans["kept"]
    assert [(run.start, run.end) for run in runs] == [(0, 1), (2, 4)]
    assert runs.attrs["scores"] == [pytest.approx(0.9), pytest.approx(0.6)]
    assert scored(docs[1], "kept") == []
    assert docs[1].spans["kept"].attrs["scores"] == []


def test_where_nothing_chose_all_that_was_encoded_is_kept():
    sizes = [[1, 0, 2], [1, 1, 1, 1], [0, 0]]
    batch = make_batch(sizes, [[(0, 3)], [(1, 2), (3, 4)], [(0, 2)]], 9)
    docs = make_docs(sizes)
    build_kept_tokens_v1()(docs, batch)
    assert [scored(doc, "kept_tokens") for doc in docs] == [
        [(0, 3, "", 1.0)],
        [(1, 2, "", 1.0), (3, 4, "", 1.0)],
        [(0, 2, "", 1.0)],
    ]


@pytest.mark.parametrize(
    ("sizes", "dropped", "expected"),
    [
        ([1, 0, 1], [], [True] * 3),
        ([1, 0, 1], [0], [False, False, True]),
        ([1, 0, 1], [2], [True, False, False]),
        ([0, 1, 0, 0], [], [True] * 4),
        ([0, 1, 0, 0], [1], [False] * 4),
        ([0, 0], [], [True] * 2),
    ],
)
def test_white_space_goes_with_its_neighbours(sizes, dropped, expected):
    ends = np.cumsum(sizes)
    scores = np.ones((1, 9), dtype="f")
    for token in dropped:
        scores[0, N_BEFORE + ends[token] - sizes[token] : N_BEFORE + ends[token]] = -INF
    (kept,) = make_batch([sizes], [[(0, len(sizes))]], 9, scores).kept_tokens()
    assert kept.mask.tolist() == expected


@given(st.data())
def test_a_token_is_kept_if_any_of_its_pieces_is(data):
    """Against a loop over the pieces of every row."""
    sizes, ranges = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        n = data.draw(st.integers(0, 6))
        sizes.append(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
        starts = sorted(data.draw(st.sets(st.integers(0, max(0, n - 1)), max_size=2))) if n else []
        ranges.append([(start, data.draw(st.integers(start + 1, n))) for start in starts])
    batch = make_batch(sizes, ranges, 4)
    n_rows = sum(len(own.lengths) for own in batch.tokenized.rows if own is not None)
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = generator.random((n_rows, 4 + N_BEFORE)).astype("f")
    scores[generator.random(scores.shape) < 0.5] = -INF
    batch.piece_scores = scores
    start = 0
    for own_sizes, rows, kept in zip(sizes, batch.tokenized.rows, batch.kept_tokens(), strict=True):
        assert len(kept.mask) == len(kept.scores) == len(own_sizes)
        if rows is None:
            continue
        best = np.full(len(own_sizes), -INF)
        for token, (row, place) in zip(
            np.repeat(np.arange(len(own_sizes)), rows.counts).tolist(),
            rows.places.tolist(),
            strict=True,
        ):
            best[token] = max(best[token], scores[start + row, place + N_BEFORE])
        start += len(rows.lengths)
        assert kept.mask.tolist() == np.isfinite(best).tolist()
        np.testing.assert_array_equal(kept.scores[kept.mask], best[kept.mask].astype("f"))


def test_other_transformers_have_nothing_to_write():
    setter = build_kept_tokens_v1()
    docs = make_docs([[1]])
    with pytest.raises(SettingsError, match=r"PrunedTransformerModel\.v1"):
        setter(docs, FullTransformerBatch.empty(1))
    empty = make_docs([[], []])
    setter(empty, FullTransformerBatch.empty(2))
    assert [scored(doc, "kept_tokens") for doc in empty] == [[], []]
