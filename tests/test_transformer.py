"""Rows of word pieces: spacy_spans.pieces, the span getters, and the model that runs them."""

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.training import Example
from spacy_transformers.layers.trfs2arrays import trfs2arrays
from thinc.api import Adam, reduce_mean

from spacy_spans.errors import SettingsError, SpansWarning
from spacy_spans.kernels.enumeration import segment_limits
from spacy_spans.pieces import Pieces, Windows, lay_out_rows
from spacy_spans.span_getters import build_kept_spans_v1, build_piece_windows_v1

from .encoder import TRANSFORMER_LISTENER
from .pipeline import make_examples, write_spans

STRIDED = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 12, "stride": 8}
PIECES = {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 16, "overlap": 4}
KEPT = {"@span_getters": "spacy-spans.kept_spans.v1", "max_pieces": 16}
OURS = "spacy-spans.PrunedTransformerModel.v1"
STOCK = "spacy-transformers.TransformerModel.v3"
TEXTS = [
    "The fox's unbelievably-long tail can't be seen. It isn't there at all, say the zoologists.",
    "",
    "short  \n text",
    " ",
    "żółć ﷺ 日本語 naïve 🙂",
]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def make(encoder):
    def make_pipeline(get_spans, architecture=OURS):
        nlp = spacy.blank("en")
        model = {"@architectures": architecture, "name": str(encoder), "get_spans": get_spans}
        model["transformer_config"] = dict.fromkeys(
            ["hidden_dropout_prob", "attention_probs_dropout_prob"], 0.0
        )
        if architecture == STOCK:
            model["tokenizer_config"] = {"use_fast": True}
        else:
            model["autocast"] = "none"
        nlp.add_pipe("transformer", config={"model": model})
        nlp.get_pipe("transformer").model.initialize()
        return nlp

    return make_pipeline


@pytest.fixture(scope="module")
def kept_nlp(make):
    return make(KEPT)


def data_of(nlp, docs):
    trf = nlp.get_pipe("transformer")
    docs = [nlp.make_doc(doc) if isinstance(doc, str) else doc for doc in docs]
    trf.set_annotations(docs, trf.predict(docs))
    return [doc._.trf_data for doc in docs]


def vectors(nlp, docs):
    return trfs2arrays(reduce_mean(), 1.0).predict(data_of(nlp, docs))


# Rows, by value


def slow_rows(pieces, windows, capacity):
    """Rows as lists of (token, piece), filled one piece after the other."""
    wanted = {}
    for (start, end), row in zip(windows.ranges.tolist(), windows.rows.tolist(), strict=True):
        wanted.setdefault(row, []).append((start, end))
    rows = []
    for _, ranges in sorted(wanted.items()):
        places = []
        for start, end in ranges:
            for piece in range(pieces.firsts[start], pieces.ends[end - 1]):
                owners = [
                    t for t in range(start, end) if pieces.firsts[t] <= piece < pieces.ends[t]
                ]
                places.append((piece, owners))
        rows += [places[i : i + capacity] for i in range(0, len(places), capacity)]
    return rows or [[]]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rows_are_those_of_the_slow_loop(data):
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=10))
    n = len(sizes)
    # Pieces between tokens, or shared by two.
    steps = [data.draw(st.integers(-1 if i else 0, 1)) for i in range(n)]
    firsts, ends, at = [], [], 0
    for size, step in zip(sizes, steps, strict=True):
        firsts.append(max([*firsts[-1:], at + step]))
        ends.append(max(at, firsts[-1] + size))
        at = ends[-1]
    pieces = Pieces(np.arange(100, 101 + at), np.asarray(firsts), np.asarray(ends))
    spans = st.integers(0, n - 1).flatmap(lambda s: st.tuples(st.just(s), st.integers(s + 1, n)))
    ranges = sorted(data.draw(st.lists(spans, max_size=4)))
    rows = np.cumsum(data.draw(st.lists(st.booleans(), min_size=len(ranges), max_size=len(ranges))))
    windows = Windows(np.asarray(ranges, dtype="i").reshape(-1, 2), rows.astype("i"))
    laid_out = lay_out_rows(pieces, windows, capacity := data.draw(st.integers(1, 9)))
    expected = slow_rows(pieces, windows, capacity)
    assert laid_out.lengths.tolist() == [len(row) for row in expected]
    assert laid_out.ids.tolist() == [100 + piece for row in expected for piece, _ in row]
    places = [
        sorted(
            (number, i)
            for number, row in enumerate(expected)
            for i, (_, owners) in enumerate(row)
            if token in owners
        )
        for token in range(n)
    ]
    assert laid_out.counts.tolist() == [len(own) for own in places]
    split = np.split(laid_out.places, np.cumsum(laid_out.counts)[:-1])
    assert [sorted(map(tuple, own.tolist())) for own in split] == places


# As stock, where stock loses nothing


def test_equals_the_stock_model_under_a_stock_span_getter(make):
    # Stock splits "can|not" anew where a window starts between two tokens that share a piece.
    texts = [text.replace("can't", "will") for text in TEXTS] + ["one two three four five " * 6]
    for own, theirs in zip(
        vectors(make(STRIDED), texts), vectors(make(STRIDED, STOCK), texts), strict=True
    ):
        np.testing.assert_allclose(own, theirs, atol=1e-5)


# Windows of pieces


def test_no_window_has_more_pieces_than_asked_and_no_token_is_without(make):
    nlp = make(PIECES)
    for doc, data in zip(map(nlp.make_doc, TEXTS), data_of(nlp, TEXTS), strict=True):
        assert all(length <= 16 + 2 for length in data.wordpieces.lengths)
        assert len(data.align.lengths) == len(doc)
        for token, count in zip(doc, data.align.lengths.tolist(), strict=True):
            assert (count > 0) is (not token.is_space)


def test_windows_end_with_sentences():
    doc = Doc(spacy.blank("en").vocab, words=["w"] * 6, sent_starts=[True, 0, 0, True, 0, 0])
    windows = build_piece_windows_v1(max_pieces=4).cut(
        [doc, doc[:0].as_doc()], [np.ones(6, "i"), []]
    )
    assert [own.ranges.tolist() for own in windows] == [[[0, 3], [3, 6]], []]


def test_a_token_with_more_pieces_than_a_window_is_pooled_from_several(make):
    nlp = make(PIECES)
    doc = Doc(nlp.vocab, words=["a", "-" * 40, "b"])
    with pytest.warns(SpansWarning, match=r"1 tokens .* more than one window"):
        (data,) = data_of(nlp, [doc])
    assert data.align.lengths.tolist() == [1, 40, 1]
    assert data.wordpieces.lengths == [3, 18, 18, 10, 3]
    rows = data.model_output.last_hidden_state
    rows = rows.reshape(-1, rows.shape[-1])
    places = data.align.dataXd[1:41]
    np.testing.assert_allclose(vectors(nlp, [doc])[0][1], rows[places].mean(axis=0), atol=1e-5)


def test_a_stock_window_above_the_limit_of_the_model_loses_nothing(make):
    nlp = make({"@span_getters": "spacy-transformers.doc_spans.v1"})
    doc = Doc(nlp.vocab, words=["a"] + ["unbelievably"] * 200)
    with pytest.warns(SpansWarning, match="more than one window"):
        (found,) = vectors(nlp, [doc])
    assert (np.abs(found).sum(axis=1) > 0).all()


def test_a_budget_above_the_limit_of_the_model_is_an_error(make):
    with pytest.raises(SettingsError, match="takes 510 pieces"):
        vectors(make({**PIECES, "max_pieces": 511}), ["a"])


@pytest.mark.parametrize("getter", [PIECES, KEPT])
def test_the_stock_model_cannot_count_pieces(getter, encoder):
    nlp = spacy.blank("en")
    model = {"@architectures": STOCK, "name": str(encoder), "get_spans": getter}
    nlp.add_pipe("transformer", config={"model": model})
    with pytest.raises(SettingsError, match=OURS):
        nlp.initialize()


@pytest.mark.parametrize(
    "settings", [{"max_pieces": 0}, {"overlap": -1}, {"max_pieces": 4, "overlap": 4}]
)
def test_settings_of_windows_out_of_range(settings):
    with pytest.raises(SettingsError, match="Expected at least 1 piece"):
        build_piece_windows_v1(**settings)


def test_a_slow_tokenizer_is_an_error(encoder):
    nlp = spacy.blank("en")
    model = {"@architectures": OURS, "name": str(encoder), "get_spans": PIECES}
    model["tokenizer_config"] = {"use_fast": False}
    nlp.add_pipe("transformer", config={"model": model})
    nlp.get_pipe("transformer").model.initialize()
    with pytest.raises(SettingsError, match='"use_fast": true'):
        nlp("a")


# Kept runs


def kept_doc(nlp, n, runs):
    doc = Doc(nlp.vocab, words=[f"w{i}" for i in range(n)])
    return doc if runs is None else write_spans(doc, "kept_tokens", runs)


def test_rows_hold_the_runs_of_a_document_one_behind_the_other(kept_nlp):
    doc = kept_doc(kept_nlp, 12, [(1, 2), (5, 7), (11, 12)])
    (data,) = data_of(kept_nlp, [doc])
    assert data.align.lengths.tolist() == [2 * (i in (1, 5, 6, 11)) for i in range(12)]
    assert data.wordpieces.strings == ["[CLS] w ##1 w ##5 w ##6 w ##11 [SEP]".split()]
    assert data.align.dataXd.tolist() == list(range(1, 9))


def test_tokens_outside_of_runs_have_zero_vectors_wherever_they_are(kept_nlp):
    docs = [kept_doc(kept_nlp, 9, [(3, 5)]), kept_doc(kept_nlp, 3, [(1, 2)])]
    for found, kept in zip(vectors(kept_nlp, docs), ({3, 4}, {1}), strict=True):
        assert {i for i, row in enumerate(found) if row.any()} == kept


def test_context_widens_runs(make):
    nlp = make({**KEPT, "context": 2})
    (found,) = vectors(nlp, [kept_doc(nlp, 9, [(3, 4), (8, 9)])])
    assert [i for i, row in enumerate(found) if row.any()] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_one_run_alone_is_encoded_as_a_document_of_its_own(kept_nlp):
    doc = write_spans(kept_nlp.make_doc("We pay our cooks well today"), "kept_tokens", [(2, 5)])
    (found,) = vectors(kept_nlp, [doc])
    whole = write_spans(kept_nlp.make_doc("our cooks well"), "kept_tokens", [(0, 3)])
    np.testing.assert_allclose(found[2:5], vectors(kept_nlp, [whole])[0], atol=1e-5)


@pytest.mark.parametrize("runs", [[[], []], [[], [(0, 2)]], [[(0, 1)], None]])
def test_documents_and_batches_of_which_nothing_was_kept(kept_nlp, runs):
    docs = [kept_doc(kept_nlp, 4, own) for own in runs] + [kept_doc(kept_nlp, 0, [])]
    found = vectors(kept_nlp, docs)
    for own, rows in zip([*runs, []], found, strict=True):
        own = [(0, len(rows))] if own is None else own
        kept = {i for start, end in own for i in range(start, end)}
        assert {i for i, row in enumerate(rows) if row.any()} == kept
    assert [len(rows) for rows in found] == [4, 4, 0]


def test_a_batch_without_the_key_is_encoded_whole_and_warned_of_once(make):
    nlp = make({**KEPT, "kept_key": "kept"})
    with pytest.warns(SpansWarning, match=r"'kept'\].*encodes them whole"):
        (found,) = vectors(nlp, [kept_doc(nlp, 30, [(0, 1)])])
    assert found.any(axis=1).all()
    vectors(nlp, [kept_doc(nlp, 2, None)])


def test_the_middle_of_each_dropped_run_may_stand_in_for_it(make):
    nlp = make({**KEPT, "dropped": "sample"})
    docs = [kept_doc(nlp, 12, [(3, 5), (6, 7)]), kept_doc(nlp, 3, []), kept_doc(nlp, 2, [(0, 2)])]
    encoded = [[i for i, row in enumerate(rows) if row.any()] for rows in vectors(nlp, docs)]
    assert encoded == [[1, 3, 4, 5, 6, 9], [], [0, 1]]


def test_an_unknown_stand_in_is_an_error():
    with pytest.raises(SettingsError, match=r"dropped = 'pool'. Expected one of \('drop'"):
        build_kept_spans_v1(dropped="pool")


def test_context_below_zero_is_an_error():
    with pytest.raises(SettingsError, match="context = -1"):
        build_kept_spans_v1(context=-1)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_runs_are_encoded_and_nothing_else(kept_nlp, data):
    # Pooling wants one document with tokens.
    docs, kept = [kept_doc(kept_nlp, 1, [(0, 1)])], [[True]]
    for n in data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3)):
        mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        limits = segment_limits([1] * n)
        runs = [(i, int(limits[i])) for i in range(n) if mask[i]]
        docs.append(kept_doc(kept_nlp, n, runs))
        kept.append(mask)
    for mask, rows, data_ in zip(
        kept, vectors(kept_nlp, docs), data_of(kept_nlp, docs), strict=True
    ):
        assert [bool(row.any()) for row in rows] == mask
        assert all(length <= 16 + 2 for length in data_.wordpieces.lengths)


# Training, and the rest of its life


def listening(make, get_spans):
    spacy.util.fix_random_seed(0)
    nlp = make(get_spans)
    model = {"tok2vec": TRANSFORMER_LISTENER}
    nlp.add_pipe("span_enumerator", config={"model": model, "within_kept": get_spans == KEPT})
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    return nlp


def test_the_gradient_is_that_of_the_stock_model(make):
    grads = []
    docs = [Doc(spacy.blank("en").vocab, words=words) for words in (["a", "b", "cde"], [], ["f"])]
    for nlp in (make(PIECES), make(STRIDED, STOCK)):
        trf = nlp.get_pipe("transformer").model
        batch, backprop = trf.begin_update(docs)
        arrays, backprop_arrays = trfs2arrays(reduce_mean(), 1.0)(batch.doc_data, True)
        # Not ones, which cancel in the last normalisation.
        d_data = backprop_arrays(
            [np.arange(own.size, dtype="f").reshape(own.shape) for own in arrays]
        )
        backprop(batch.unsplit_by_doc([list(own.tensors) for own in d_data]))
        grads.append(trf.transformer.embeddings.word_embeddings.weight.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-5)
    assert np.abs(grads[0]).sum() > 0


@pytest.mark.parametrize("get_spans", [PIECES, KEPT], ids=["pieces", "kept"])
def test_learns_and_round_trips(make, get_spans, tmp_path):
    nlp = listening(make, get_spans)
    examples = make_examples(nlp)
    if get_spans == KEPT:
        for example in examples:
            n = len(example.predicted)
            write_spans(example.predicted, "kept_tokens", [(0, n)] if n > 3 else [])
    optimizer = Adam(0.003)
    before = nlp.get_pipe("transformer").model.to_bytes()
    losses = [nlp.update(examples, sgd=optimizer)["span_enumerator"] for _ in range(20)]
    assert losses[-1] < losses[0] / 2
    assert nlp.get_pipe("transformer").model.to_bytes() != before
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    for own, theirs in zip(
        vectors(nlp, [eg.predicted for eg in examples]),
        vectors(loaded, [eg.predicted for eg in examples]),
        strict=True,
    ):
        np.testing.assert_array_equal(own, theirs)


def test_replaced_listeners_keep_the_windows(make, tmp_path):
    nlp = listening(make, PIECES)
    docs = [nlp.make_doc(text) for text in TEXTS]
    expected = [nlp.get_pipe("span_enumerator").predict([doc]).spans[0] for doc in nlp.pipe(TEXTS)]
    nlp.replace_listeners("transformer", "span_enumerator", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    nlp.to_disk(tmp_path)
    for pipeline in (nlp, spacy.load(tmp_path)):
        pipe = pipeline.get_pipe("span_enumerator")
        for doc, own in zip(docs, expected, strict=True):
            np.testing.assert_allclose(pipe.predict([doc]).spans[0].scores, own.scores, atol=1e-5)


def test_nothing_but_empty_documents_is_an_update_of_nothing(make):
    nlp = listening(make, PIECES)
    doc = nlp.make_doc("")
    assert nlp.update([Example(doc, doc.copy())], sgd=Adam(0.1))["span_enumerator"] == 0.0
