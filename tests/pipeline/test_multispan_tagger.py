"""The tagger's life: overfit, predict, round trip, score; layers; settings; batches; empties."""

import pickle

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import DocBin

from spacy_spans.errors import DataError, SettingsError, SpansError

from . import (
    FLAT_DATA,
    LABELS,
    LISTENER,
    SCHEMES,
    TAG_DATA,
    TAGGER,
    TEXTS,
    found,
    found_in,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    mentions,
    scored,
    spans_of,
    train,
    write_spans,
)

# Every scheme with the losses and the layers that it allows.
VARIANTS = [
    (scheme, loss, layers)
    for scheme in ("io", "bio", "bioes")
    for loss in ("crf", "token")
    for layers in ("per_label", "shared")
] + [("boundary", "token", "per_label")]


# Overfit, predict, round trip, score


@pytest.fixture(scope="module", params=VARIANTS, ids="-".join)
def overfitted(request):
    """A pipeline that knows its data by heart, and the data."""
    scheme, loss, layers = request.param
    data = [*(FLAT_DATA if layers == "shared" else TAG_DATA)[:2], *TAG_DATA[2:]]
    if scheme == "io" and layers == "shared":
        # What io holds apart are labels.
        assert data[0][1][0][1] == data[0][1][1][0]
    nlp = make_nlp(**TAGGER, scheme=SCHEMES[scheme], loss=loss, layers=layers)
    losses = train(nlp, make_examples(nlp, data), steps=60)
    assert 0 < losses["multispan_tagger"] < 0.01
    return nlp, data


def test_overfits_overlapping_and_discontinuous_mentions(overfitted):
    nlp, data = overfitted
    assert found_in(nlp, data) == spans_of(data)
    for text, _ in data:
        doc = nlp(text)
        assert all(0.9 < score <= 1 for *_, score in scored(doc))
        assert doc.spans["sc"].name == "sc"
        assert not doc.ents
        assert mentions(doc) == ([("DUTY", (0, 1), (2, 3))] if text == "We pay well" else [])


def test_round_trips_predict_bitwise_the_same(overfitted, tmp_path):
    nlp, data = overfitted
    nlp.to_disk(tmp_path)
    from_bytes = spacy.blank("en").from_config(nlp.config)
    from_bytes.from_bytes(nlp.to_bytes())
    for loaded in (spacy.load(tmp_path), from_bytes):
        assert loaded.get_pipe("multispan_tagger").labels == LABELS
        for text, _ in data:
            assert scored(loaded(text)) == scored(nlp(text))
            assert mentions(loaded(text)) == mentions(nlp(text))
        assert loaded.to_bytes() == nlp.to_bytes()


def test_component_round_trips_alone(overfitted, tmp_path):
    nlp, data = overfitted
    pipe = nlp.get_pipe("multispan_tagger")
    pipe.to_disk(tmp_path / "pipe")
    docs = [nlp(text) for text, _ in data]
    for load in (
        lambda new: new.from_bytes(pipe.to_bytes()),
        lambda new: new.from_disk(tmp_path / "pipe"),
        lambda _: pickle.loads(pickle.dumps(pipe)),
    ):
        _, new = make_pipe(**TAGGER, scheme=SCHEMES[pipe.scheme.name], loss=pipe.loss)
        new = load(new)
        copies = [nlp.make_doc(text) for text, _ in data]
        new.set_annotations(copies, new.predict(copies))
        assert [scored(copy) for copy in copies] == [scored(doc) for doc in docs]


def test_scores_of_perfect_predictions(overfitted):
    nlp, data = overfitted
    scores = nlp.evaluate(make_examples(nlp, data))
    for name in ("p", "r", "f", "boundary_f", "partial_f", "char_f", "mention_f"):
        assert scores[f"spans_sc_{name}"] == 1.0, name
    assert scores["spans_sc_discontinuous_f"] == 1.0
    perfect = {"p": 1.0, "r": 1.0, "f": 1.0}
    assert scores["spans_sc_per_type"] == dict.fromkeys(LABELS, perfect)


def test_scores_of_imperfect_predictions():
    nlp, pipe = make_pipe(**TAGGER)
    example = make_example(nlp, "a b c d", [(0, 1, "A"), (0, 2, "A"), (2, 4, "B")])
    write_spans(example.predicted, "sc", [(0, 1, "A"), (2, 4, "A"), (3, 4, "A")])
    scores = pipe.score([example])
    assert scores["spans_sc_p"] == scores["spans_sc_r"] == pytest.approx(1 / 3)
    assert scores["spans_sc_boundary_f"] == pytest.approx(2 / 3)
    assert scores["spans_sc_per_type"]["B"] == {"p": 0.0, "r": 0.0, "f": 0.0}
    assert "spans_sc_candidate_recall" not in scores


def test_scores_without_any_span_are_none_and_without_a_scorer_there_are_none():
    nlp, pipe = make_pipe(**TAGGER)
    for data in ([], [("", [])]):
        scores = pipe.score(make_examples(nlp, data))
        assert {scores[f"spans_sc_{name}"] for name in ("p", "r", "f", "partial_f")} == {None}
    nlp, pipe = make_pipe(**TAGGER, scorer=None)
    assert pipe.score(make_examples(nlp)) == {}


# Layers


@pytest.mark.parametrize("layers", ["per_label", "shared"])
def test_layers_as_configured(layers):
    _, pipe, _ = make_initialized(FLAT_DATA, **TAGGER, layers=layers)
    assert pipe.layout.shared == (layers == "shared")
    assert pipe.layout.n_scores == (1 + 3 * 2 if layers == "shared" else 3 * 3)
    assert pipe.model.get_dim("nO") == pipe.layout.n_scores


def many_labels(n):
    return [("a b c", [(0, 2, f"L{i}")]) for i in range(n)]


@pytest.mark.parametrize(
    ("data", "scheme", "message"),
    [
        (FLAT_DATA, "bio", "one layer for all labels (no two labels overlap in the training data)"),
        (TAG_DATA, "bio", "a layer per label (labels overlap in the training data)"),
        ([("a b", [(0, 2, "A"), (0, 2, "B")])], "io", "a layer per label (labels overlap in"),
        ([("a b", [(0, 1, "A")])], "bio", "a layer per label (there is only one)"),
        (FLAT_DATA, "boundary", "a layer per label (the scheme 'boundary' has no other way)"),
        # 1 + 7 * 2 and 1 + 8 * 2 tags; io has room for 15 labels.
        (many_labels(7), "bio", "one layer for all labels"),
        (many_labels(8), "bio", "a layer per label (one for all would need 17 tags)"),
        (many_labels(15), "io", "one layer for all labels"),
        (many_labels(16), "io", "a layer per label (one for all would need 17 tags)"),
    ],
)
def test_auto_chooses_layers_by_the_data_and_says_so(data, scheme, message, said):
    loss = "token" if scheme == "boundary" else "crf"
    _, pipe, _ = make_initialized(data, **TAGGER, scheme=SCHEMES[scheme], loss=loss)
    assert pipe.layout.shared == message.startswith("one layer")
    assert [text for text in said() if text.startswith(f"multispan_tagger: {message}")]


def test_touching_spans_and_spans_that_end_together_where_the_scheme_holds_them():
    touching = [("a b c d", [(0, 2, "A"), (2, 3, "A"), (3, 4, "A")])]
    for scheme in ("bio", "bioes"):
        assert found_in(make_trained(touching, **TAGGER, scheme=SCHEMES[scheme]), touching) == (
            spans_of(touching)
        )
    together = [("a b c d", [(0, 4, "A"), (2, 4, "A"), (3, 4, "A")])]
    nlp = make_trained(together, **TAGGER, scheme=SCHEMES["boundary"], loss="token")
    assert found_in(nlp, together) == spans_of(together)


def test_weights_of_another_scheme_are_an_error_when_loaded(tmp_path):
    # io and boundary have equally many outputs.
    make_trained(
        steps=1, data=FLAT_DATA, **TAGGER, scheme=SCHEMES["io"], layers="per_label"
    ).to_disk(tmp_path)
    for scheme, message in (("bio", "have 6 outputs.*make 9"), ("boundary", "of another scheme")):
        overrides = {
            "components.multispan_tagger.scheme": SCHEMES[scheme],
            "components.multispan_tagger.loss": "token",
        }
        with pytest.raises(DataError, match=message):
            spacy.load(tmp_path, config=overrides)


# Settings that are stored


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threshold", 0.31),
        ("label_thresholds", {"SKILL": 0.2}),
        ("min_length", 2),
        ("max_length", 3),
        ("max_length", None),
    ],
)
def test_a_setting_changed_at_run_time_survives_saving(tmp_path, setting, value):
    given_length = {"max_length": 9} if value is None else {}
    nlp, pipe, _ = make_initialized(TAG_DATA, **TAGGER, **given_length)
    pipe.cfg[setting] = value
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe("multispan_tagger").cfg == pipe.cfg


def test_settings_can_be_overridden_when_loading(tmp_path):
    make_trained(TAG_DATA, **TAGGER).to_disk(tmp_path)
    config = {"components.multispan_tagger.min_length": 4}
    nlp = spacy.load(tmp_path, config=config)
    assert found(nlp(TEXTS[0])) == [(0, 6, "DUTY")]


def test_saved_settings_out_of_range_are_an_error_when_loaded():
    nlp, pipe, _ = make_initialized(TAG_DATA, **TAGGER)
    pipe.cfg["min_length"] = 0
    with pytest.raises(SettingsError, match="min_length = 0"):
        make_nlp(**TAGGER).from_bytes(nlp.to_bytes())


# Groups, batches, empties


def test_groups_are_complete_and_survive_a_docbin():
    nlp = make_nlp(**TAGGER, spans_key="skills")
    train(nlp, make_examples(nlp, TAG_DATA, "skills"))
    docs = list(nlp.pipe(TEXTS))
    copies = list(DocBin().from_bytes(DocBin(docs=docs).to_bytes()).get_docs(nlp.vocab))
    for doc, copy in zip(docs, copies, strict=True):
        group = doc.spans["skills"]
        assert group.name == "skills"
        assert list(doc.spans) == ["skills"]
        assert all(type(score) is float for score in group.attrs["scores"])
        assert scored(copy, "skills") == scored(doc, "skills")
        assert mentions(copy, "skills") == mentions(doc, "skills")
    assert [len(doc.spans["skills"]) for doc in docs] == [3, 2, 2, 0]


def test_groups_are_rebuilt_on_each_pass_and_others_left_alone():
    nlp = make_trained(TAG_DATA, **TAGGER)
    doc = write_spans(nlp(TEXTS[0]), "mine", [(0, 1, "X"), (0, 2, "Y")])
    assert found(nlp(doc)) == spans_of(TAG_DATA)[0]
    assert found(doc, "mine") == [(0, 1, "X"), (0, 2, "Y")]


def test_predict_writes_nothing():
    nlp = make_trained(TAG_DATA, **TAGGER)
    docs = [nlp.make_doc(text) for text in TEXTS]
    before = [doc.to_bytes() for doc in docs]
    assert len(nlp.get_pipe("multispan_tagger").predict(docs)) == len(docs)
    assert [doc.to_bytes() for doc in docs] == before


any_text = st.text(st.one_of(st.sampled_from(" \n\t.,é漢🙂\u200d"), st.characters()), max_size=20)


@pytest.fixture(scope="module")
def trained():
    return make_trained(TAG_DATA, **TAGGER)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(any_text, st.sampled_from([*TEXTS, " ", "\n\n"])), max_size=6))
def test_pipe_equals_calls_one_by_one(trained, texts):
    texts = [text.encode(errors="ignore").decode() for text in texts]
    for batch_size in (1, 3, 100):
        for doc, other in zip(
            trained.pipe(texts, batch_size=batch_size), map(trained, texts), strict=True
        ):
            assert found(doc) == found(other)
            assert mentions(doc) == mentions(other)
            np.testing.assert_allclose(
                [span[3] for span in scored(doc)], [span[3] for span in scored(other)], atol=1e-5
            )


def test_predictions_do_not_depend_on_the_rest_of_the_batch(trained):
    for others in (["x"], ["", " ", "a b c " * 100], [TEXTS[1]] * 30):
        texts = [*others, *TEXTS, *others]
        docs = list(trained.pipe(texts))[len(others) : len(others) + len(TEXTS)]
        assert [found(doc) for doc in docs] == spans_of(TAG_DATA)


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""], [" "], ["\n \t", "", "\u00a0" * 99]])
def test_empty_and_white_space_documents_have_empty_groups(trained, texts):
    docs = list(trained.pipe(texts))
    assert [scored(doc) for doc in docs] == [[] for _ in texts]
    assert [doc.spans["sc"].attrs["scores"] for doc in docs] == [[] for _ in texts]
    assert trained.get_pipe("multispan_tagger").predict([]) == []


def test_prediction_before_initialize_is_an_error_and_empty_documents_pass():
    nlp, pipe = make_pipe(**TAGGER)
    assert scored(nlp("")) == []
    pipe.add_label("A")
    with pytest.raises(SpansError, match="'multispan_tagger' has no labels or no weights"):
        nlp("text")
    with pytest.raises(SpansError, match="no labels or no weights"):
        pipe.update([make_example(nlp, "text", [(0, 1, "A")])])


def test_a_listener_with_nothing_to_listen_to_is_an_error():
    nlp = make_trained(TAG_DATA, **TAGGER, tok2vec=LISTENER, upstream=("tok2vec",))
    assert found_in(nlp, TAG_DATA) == spans_of(TAG_DATA)
    with nlp.select_pipes(disable="tok2vec"):
        with pytest.raises(SpansError, match="'multispan_tagger' listens to a tok2vec"):
            nlp(TEXTS[0])
        assert scored(nlp("")) == []
