"""On a Hugging Face encoder: train, predict, store, and documents longer than a window."""

import shutil

import numpy as np
import pytest
import spacy
from spacy.util import load_config, load_model_from_config
from thinc.api import Adam

from spacy_spans.errors import SpansError

from . import DATA, DATA_FOR, TAG_DATA, found, make_examples, mentions, scored

pytestmark = pytest.mark.slow

TEXTS = [text for text, _ in DATA]
CONFIGS = {"span_enumerator": "enumerator", "multispan_tagger": "tagger"}


@pytest.fixture(scope="module", autouse=True)
def _offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def data(factory):
    return DATA_FOR[factory]


@pytest.fixture(scope="module")
def config_path(repository, factory):
    return repository / "configs" / f"{CONFIGS[factory]}_trf.cfg"


@pytest.fixture(scope="module")
def folder(factory, tmp_path_factory):
    return tmp_path_factory.mktemp(factory)


@pytest.fixture(scope="module")
def encoder_copy(encoder, folder):
    """The encoder in a folder that can be taken away."""
    shutil.copytree(encoder, folder / "encoder")
    return folder / "encoder"


@pytest.fixture(scope="module")
def trained(factory, data, config_path, encoder_copy):
    """A pipeline that knows its data by heart."""
    spacy.util.fix_random_seed(0)
    config = load_config(
        config_path, overrides={"paths.encoder": str(encoder_copy)}, interpolate=True
    )
    nlp = load_model_from_config(config, auto_fill=True)
    examples = make_examples(nlp, data)
    nlp.initialize(lambda: examples)
    optimizer = Adam(0.003)
    for _ in range(40):
        losses = nlp.update(examples, sgd=optimizer)
    assert losses[factory] < 0.05
    return nlp


def spans_of(data):
    return [[span[:3] for span in spans] for _, spans in data]


def test_overfits_overlapping_spans(trained, data):
    docs = list(trained.pipe(TEXTS))
    assert [found(doc) for doc in docs] == spans_of(data)
    if data is TAG_DATA:
        assert mentions(docs[2]) == [("DUTY", (0, 1), (2, 3))]
    scores = trained.evaluate(make_examples(trained, data))
    assert scores["spans_sc_f"] == 1.0


def test_pipe_equals_calls_one_by_one(trained, factory):
    settings = trained.get_pipe(factory).cfg
    threshold = settings["threshold"]
    settings["threshold"] = 0.001
    try:
        together = [scored(doc) for doc in trained.pipe(TEXTS)]
        alone = [scored(trained(text)) for text in TEXTS]
    finally:
        settings["threshold"] = threshold
    for own, other in zip(together, alone, strict=True):
        shared = {span[:3]: span[3] for span in other}
        for *span, score in own:
            # Padding changes the encoder's sums a little.
            assert shared.get(tuple(span), 0.001) == pytest.approx(score, abs=1e-3)


def test_a_listener_without_its_transformer_is_an_error(trained):
    with trained.select_pipes(disable="transformer"):
        with pytest.raises(SpansError, match="listens to a tok2vec or transformer component"):
            trained(TEXTS[0])
        assert found(trained("")) == []


def test_gradient_reaches_the_encoder(trained, data):
    transformer = trained.get_pipe("transformer")
    before = transformer.model.to_bytes()
    copy = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    copy.update(make_examples(copy, data), sgd=Adam(0.001))
    assert copy.get_pipe("transformer").model.to_bytes() != before
    assert transformer.model.to_bytes() == before


def test_round_trip_with_the_encoder_folder_gone(trained, folder, encoder_copy):
    expected = [scored(doc) for doc in trained.pipe(TEXTS)]
    trained.to_disk(folder / "pipeline")
    hidden = encoder_copy.with_name("hidden")
    encoder_copy.rename(hidden)
    try:
        loaded = spacy.load(folder / "pipeline")
        assert [scored(doc) for doc in loaded.pipe(TEXTS)] == expected
    finally:
        hidden.rename(encoder_copy)


def test_documents_longer_than_the_window_are_scored_to_the_end(trained):
    # The sentence it knows, at the start and at the end of 1,200 words.
    filler = "We pay well . " * 300
    sentence = TEXTS[0] + " . "
    doc = trained(sentence + filler + sentence)
    assert len(doc) > 1200
    starts = {span.start for span in doc.spans["sc"]}
    assert min(starts) < 6
    last = len(doc) - 7
    assert max(starts) >= last, "nothing found in the last sentence"
    assert len(doc.spans["sc"].attrs["scores"]) == len(doc.spans["sc"])
    norms = np.asarray([np.linalg.norm(row) for row in token_rows(trained, doc)])
    assert (norms > 0).all()


def token_rows(nlp, doc):
    """What the layers above the encoder say of each token; the tagger's have sequences beside."""
    rows = nlp.get_pipe(nlp.pipe_names[-1]).model.get_ref("tokens").predict([doc])
    return rows[0] if isinstance(rows, tuple) else rows


@pytest.mark.parametrize(
    "text",
    ["1" * 600, "number " + "1234567890" * 60 + " end", "🙂" * 300, " ", "\n" * 50, ""],
    ids=["digits", "digits inside", "emoji", "space", "newlines", "empty"],
)
def test_odd_documents_are_scored(trained, data, text):
    doc = trained(text)
    assert len(doc.spans["sc"].attrs["scores"]) == len(doc.spans["sc"])
    assert np.isfinite(doc.spans["sc"].attrs["scores"]).all()
    # Alone and in a batch with others.
    (again, other) = trained.pipe([text, TEXTS[0]])
    assert found(other) == spans_of(data)[0]
    assert found(again) == found(doc)


def test_training_on_odd_documents_is_finite(trained, factory):
    copy = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    data = [("1" * 600, []), ("", []), (" ", []), ("We pay well . " * 100, [(3, 5, "SKILL")])]
    losses = copy.update(make_examples(copy, data), sgd=Adam(0.0001))
    assert np.isfinite(losses[factory])
    assert all(np.isfinite(row).all() for row in token_rows(copy, copy("We pay well")))
