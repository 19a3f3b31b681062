"""Both components on the runs of tokens that a pruner kept: nothing reaches out of them."""

import warnings

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from thinc.api import Adam

from spacy_spans.errors import SettingsError, SpansWarning
from spacy_spans.kernels.schemes import BIO, BIOES, BOUNDARY
from spacy_spans.pipeline.tag_decoding import decode, list_pairs
from spacy_spans.pipeline.tag_layout import TagLayout
from spacy_spans.pipeline.tagging import encode, make_batch

from . import (
    CANDIDATES,
    DATA,
    SCHEMES,
    found,
    make_example,
    make_examples,
    make_initialized,
    make_pipe,
    make_trained,
    mentions,
    train_on,
    write_spans,
)
from .test_tagging import gold_of

TEXT = "a b c d e f g h"
CONFIGS = [
    {},
    {"layers": "shared"},
    {"scheme": SCHEMES["bioes"]},
    {"scheme": SCHEMES["boundary"], "loss": "token"},
]


def keep(nlp, runs, text=TEXT):
    return write_spans(nlp.make_doc(text), "kept_tokens", runs)


# Arrays


def test_a_batch_of_kept_tokens_by_hand():
    # Texts of 4, 0, 3, 2 and 1 tokens. Runs that touch across texts stay apart.
    kept = np.asarray([1, 0, 1, 1, 1, 0, 1, 0, 0, 1], dtype=bool)
    batch = make_batch([4, 0, 3, 2, 1], kept)
    assert batch.lengths.tolist() == [1, 2, 1, 1, 1]
    assert batch.doc_of.tolist() == [0, 1, 1, 2, 3, 4]
    assert batch.is_first.tolist() == [True, True, False, True, True, True]
    assert batch.text_of.tolist() == [0, 0, 2, 2, 4]
    assert batch.text_starts.tolist() == [0, 4, 4, 7, 9]
    assert batch.tokens.tolist() == [0, 2, 3, 4, 6, 9]
    spans = [(0, 1), (0, 3), (1, 2), (2, 4), (3, 4), (0, 1), (0, 3), (2, 3), (0, 1), (0, 1)]
    texts = np.asarray([0, 0, 0, 0, 0, 2, 2, 2, 3, 4], dtype="i")
    offsets, docs, inside = batch.place(np.asarray(spans, dtype="i"), texts)
    assert inside.tolist() == [True, False, False, True, True, True, False, True, False, True]
    assert docs[inside].tolist() == [0, 1, 1, 2, 3, 4]
    assert offsets[inside].tolist() == [[0, 1], [0, 2], [1, 2], [0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize("lengths", [[], [0], [0, 2]])
def test_where_nothing_is_kept_nothing_is_inside(lengths):
    batch = make_batch(lengths, np.zeros(sum(lengths), dtype=bool))
    assert len(batch.lengths) == len(batch.tokens) == len(batch.text_of) == 0
    offsets = np.zeros((0, 2), "i") if len(lengths) < 2 else np.asarray([[0, 1], [0, 2]], "i")
    texts = np.full(len(offsets), 1, "i")
    assert not batch.place(offsets, texts)[2].any()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=4))
def test_all_spans_are_placed_as_a_loop_would(masks):
    kept = np.asarray([one for mask in masks for one in mask], dtype=bool)
    batch = make_batch([len(mask) for mask in masks], kept)
    rows = [
        (text, start, end)
        for text, mask in enumerate(masks)
        for start in range(len(mask))
        for end in range(start + 1, len(mask) + 1)
    ]
    table = np.asarray(rows, dtype="i").reshape(-1, 3)
    offsets, docs, inside = batch.place(table[:, 1:], table[:, 0])
    assert inside.tolist() == [all(masks[text][start:end]) for text, start, end in rows]
    # The way back.
    tokens = batch.tokens[offsets[inside] + batch.starts[docs[inside]][:, None] - [0, 1]] + [0, 1]
    own = table[inside]
    assert tokens.tolist() == (own[:, 1:] + batch.text_starts[own[:, 0]][:, None]).tolist()
    assert batch.text_of[docs[inside]].tolist() == own[:, 0].tolist()


@pytest.mark.parametrize("scheme", [BIO, BIOES, BOUNDARY], ids=lambda scheme: scheme.name)
def test_gold_outside_has_no_tag_and_is_told_apart(scheme):
    layout = TagLayout(scheme, 1, shared=False, links=False)
    gold, _ = gold_of([6], [(0, 0, ((0, 2),)), (0, 0, ((2, 5),)), (0, 0, ((5, 6),))])
    batch = make_batch([6], np.asarray([1, 1, 1, 0, 1, 1], dtype=bool))
    targets = encode(layout, gold, batch, 3)
    assert targets.outside.tolist() == [False, True, False]
    assert targets.expressed.tolist() == [True, False, True]
    alone = encode(layout, gold_of([6], [(0, 0, ((0, 2),)), (0, 0, ((5, 6),))])[0], batch, 3)
    assert targets.tags.tolist() == alone.tags.tolist()
    assert len(targets.tags) == 5


def test_an_end_in_a_later_run_ends_no_span():
    layout = TagLayout(BOUNDARY, 1, shared=False, links=False)
    # A start in the first run, an end in the second.
    rows = np.asarray([[9, -9], [-9, -9], [-9, 9]], dtype="f")
    batch = make_batch([4], np.asarray([1, 1, 0, 1], dtype=bool))
    spans, _, _ = decode(layout, rows, np.zeros(0, "f"), batch)
    assert spans.tolist() == []
    assert decode(layout, rows, np.zeros(0, "f"), make_batch([3]))[0].tolist() == [[0, 3]]


def test_links_join_fragments_of_one_text_across_runs():
    layout = TagLayout(BIO, 1, shared=False, links=True)
    gold, _ = gold_of([5, 2], [(0, 0, ((0, 1), (4, 5))), (1, 0, ((0, 1),))])
    batch = make_batch([5, 2], np.asarray([1, 0, 0, 1, 1, 1, 0], dtype=bool))
    # One kept token between them.
    targets = encode(layout, gold, batch, 1)
    assert targets.expressed.tolist() == [True, True]
    assert targets.fragments.tolist() == [[0, 1], [2, 3]]
    fragments = np.asarray([[0, 1], [2, 3], [3, 4]])
    assert list_pairs(fragments, batch, 5).tolist() == [[0, 1]]
    # Without its other fragment a mention is another one.
    batch = make_batch([5, 2], np.asarray([1, 1, 1, 1, 0, 1, 1], dtype=bool))
    targets = encode(layout, gold, batch, 4)
    assert targets.outside.tolist() == [True, False]
    assert not targets.fragment_tags.any()
    assert not targets.links.size


# The tagger


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("runs", [[], [(0, 3), (4, 7)], [(1, 2)], [(0, 8)], [(0, 3), (2, 6)]])
def test_a_kept_run_is_tagged_as_a_document_of_its_own(config, runs):
    # Tokens apart, whatever is around them: then a run reads like a text.
    tok2vec = {"@architectures": "spacy.HashEmbedCNN.v2", "width": 16, "depth": 1}
    tok2vec |= {"embed_size": 100, "window_size": 0, "maxout_pieces": 2}
    tok2vec |= {"subword_features": False, "pretrained_vectors": None}
    model = {"tok2vec": tok2vec, "context_window": 0}
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("multispan_tagger", config={"model": model, "within_kept": True, **config})
    examples = make_examples(nlp, [(TEXT, [(0, 2, "A"), (3, 4, "B"), (5, 8, "A")])])
    nlp.initialize(lambda: examples)
    # Weights at random find many spans.
    random = np.random.default_rng(1)
    for _, parameter in pipe.model.get_ref("projector").shims[0].module.named_parameters():
        parameter.data[:] = parameter.new_tensor(random.normal(size=parameter.shape))
    doc, before = keep(nlp, runs), keep(nlp, [(2, 4)])
    _, doc = nlp.pipe([before, doc])
    covered = sorted({token for start, end in runs for token in range(start, end)})
    stretches = np.split(covered, np.flatnonzero(np.diff(covered) > 1) + 1) if covered else []
    expected = []
    for stretch in stretches:
        words = [doc[int(token)].text for token in stretch]
        alone = write_spans(Doc(nlp.vocab, words=words), "kept_tokens", [(0, len(words))])
        shift = int(stretch[0])
        expected += [(a + shift, b + shift, label) for a, b, label in found(nlp(alone))]
    assert found(doc) == sorted(expected)
    assert len(doc.spans["sc"].attrs["scores"]) == len(expected)


def test_tokens_outside_count_neither_as_gold_nor_as_none():
    nlp, pipe, _ = make_initialized(
        [(TEXT, [(0, 3, "A"), (5, 6, "A")])], factory="multispan_tagger", within_kept=True
    )
    example = make_example(nlp, TEXT, [(0, 3, "A"), (5, 6, "A")])
    write_spans(example.predicted, "kept_tokens", [(0, 2), (4, 7)])
    outputs = pipe.model.predict([example.predicted])
    message = r"^multispan_tagger: 1 of the 2 gold spans in 'sc' of a training batch do not lie"
    with pytest.warns(SpansWarning, match=message):
        loss, (d_rows, d_edges) = pipe.get_loss([example], outputs)
    assert np.abs(d_rows).sum(axis=1).astype(bool).tolist() == [1, 1, 0, 0, 1, 1, 1, 0]
    # As of two texts with the kept tokens, but per token of the whole one; said once.
    rows = np.asarray(outputs[0])
    pieces = []
    for start, end, spans in ((0, 2, []), (4, 7, [(1, 2, "A")])):
        piece = make_example(nlp, " ".join(TEXT.split()[start:end]), spans)
        write_spans(piece.predicted, "kept_tokens", [(0, end - start)])
        pieces.append((piece, rows[start:end]))
    examples = [piece for piece, _ in pieces]
    both = np.concatenate([own for _, own in pieces]), outputs[1]
    other_loss, (other_rows, other_edges) = pipe.get_loss(examples, both)
    assert loss == pytest.approx(other_loss * 5 / 8)
    np.testing.assert_allclose(d_rows[[0, 1, 4, 5, 6]], other_rows * 5 / 8, rtol=1e-5)
    np.testing.assert_allclose(d_edges, other_edges * 5 / 8, rtol=1e-5)
    pipe.get_loss([example], outputs)


def test_gold_outside_is_counted_at_initialize_where_it_is_known():
    nlp, _ = make_pipe(factory="multispan_tagger", within_kept=True)
    examples = make_examples(nlp, [(TEXT, [(0, 3, "A"), (5, 6, "A")])])
    write_spans(examples[0].predicted, "kept_tokens", [(5, 7)])
    message = r"1 of 2 gold spans in 'sc' do not lie inside one kept run.*\(A 1; e.g. 'a b c'\)"
    with pytest.warns(SpansWarning, match=message) as caught:
        nlp.initialize(lambda: examples)
    assert len(caught) == 1
    # Once is enough.
    train_on(nlp, examples, steps=2)


def test_the_tagger_learns_within_kept_runs():
    nlp, _ = make_pipe(factory="multispan_tagger", within_kept=True)
    data = [(TEXT, [(0, 2, "A"), (6, 8, "A"), (4, 5, "B")]), ("", []), ("a b", [])]
    examples = make_examples(nlp, data)
    for example, runs in zip(examples, ([(0, 3), (4, 6)], [], []), strict=True):
        write_spans(example.predicted, "kept_tokens", runs)
    with pytest.warns(SpansWarning, match="1 of 3 gold spans"):
        nlp.initialize(lambda: examples)
    train_on(nlp, examples)
    pipe = nlp.get_pipe("multispan_tagger")
    docs = list(pipe.pipe([example.predicted for example in examples]))
    assert [found(doc) for doc in docs] == [[(0, 2, "A"), (4, 5, "B")], [], []]


def test_discontinuous_mentions_are_learned_across_kept_runs():
    nlp, _ = make_pipe(factory="multispan_tagger", within_kept=True, discontinuous=True)
    examples = make_examples(nlp, [(TEXT, [(0, 2, "A", "m1"), (5, 6, "A", "m1")])])
    write_spans(examples[0].predicted, "kept_tokens", [(0, 2), (4, 7)])
    nlp.initialize(lambda: examples)
    train_on(nlp, examples, steps=80)
    doc = nlp.get_pipe("multispan_tagger")(examples[0].predicted)
    assert mentions(doc) == [("A", (0, 2), (5, 6))]


@pytest.mark.parametrize("links", [False, True])
def test_training_where_nothing_was_kept_costs_nothing(links):
    nlp, _, examples = make_initialized(
        [(TEXT, [(0, 2, "A")])], factory="multispan_tagger", within_kept=True, discontinuous=links
    )
    write_spans(examples[0].predicted, "kept_tokens", [])
    with pytest.warns(SpansWarning, match="1 of the 1 gold spans"):
        losses = nlp.update(examples, sgd=Adam(0.1))
    assert losses["multispan_tagger"] == 0.0
    assert found(nlp(keep(nlp, []))) == []


def test_kept_runs_are_ignored_by_the_tagger_unless_asked_for():
    data = [("a b c", [(0, 2, "A")])]
    nlp = make_trained(data, factory="multispan_tagger")
    assert found(nlp(keep(nlp, [(2, 3)], "a b c"))) == [(0, 2, "A")]


def test_documents_without_kept_runs_are_warned_of_once_and_tagged_whole():
    with pytest.warns(SpansWarning, match=r"'mine'.*all their tokens are tagged") as caught:
        nlp = make_trained(
            [("a b c", [(0, 2, "A")])],
            factory="multispan_tagger",
            within_kept=True,
            kept_key="mine",
        )
    assert len(caught) == 1
    assert found(nlp("a b c")) == [(0, 2, "A")]
    doc = write_spans(nlp.make_doc("a b c"), "mine", [(2, 3)])
    assert found(nlp(doc)) == []


def test_the_kept_key_is_not_written_over():
    with pytest.raises(SettingsError, match=r"Got 'sc' both as spans_key and as kept_key"):
        make_pipe(factory="multispan_tagger", within_kept=True, kept_key="sc")
    make_pipe(factory="multispan_tagger", kept_key="sc")


# The enumerator


def test_boundary_scores_learn_from_kept_tokens_only():
    nlp, pipe, _ = make_initialized(
        within_kept=True, candidates=CANDIDATES["boundary"], threshold=0.0
    )
    example = make_example(nlp, DATA[0][0], DATA[0][1])
    write_spans(example.predicted, "kept_tokens", [(0, 4)])
    tokens, _ = pipe.model.get_ref("tokens").begin_update([example.predicted])
    gold = [pipe._gold(example)]
    with pytest.warns(SpansWarning, match=r"1 of the 5 gold spans in 'sc' of a training batch"):
        kept = pipe.listing.kept_gold(gold, [example.predicted], pipe.name, pipe.key)
    assert (0, 6) not in {*map(tuple, kept[0].tolist())}
    loss, gradient = pipe._boundary_loss([example.predicted], kept, [True], tokens)
    assert loss > 0
    assert gradient.any(axis=1).tolist() == [True] * 4 + [False] * 2
    # A span ends at the fourth token, none at the second.
    assert gradient[3, 1] < 0 < gradient[1, 1]


def test_the_enumerator_says_once_what_training_cannot_reach():
    nlp, _, examples = make_initialized(within_kept=True)
    for example in examples:
        runs = [(0, min(4, len(example.predicted)))] if len(example.predicted) else []
        write_spans(example.predicted, "kept_tokens", runs)
    with pytest.warns(SpansWarning, match=r"^span_enumerator: 3 of the 7 gold spans") as caught:
        train_on(nlp, examples, steps=2)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_on(nlp, examples, steps=1)
