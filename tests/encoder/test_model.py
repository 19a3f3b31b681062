"""The pruning encoder in pipelines: beside the stock one, trained gates, saved and loaded."""

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from spacy_transformers import Transformer

from spacy_spans.encoder.criteria import build_attention_criterion_v1, build_norm_criterion_v1
from spacy_spans.encoder.families import FAMILIES
from spacy_spans.encoder.forward import UNKNOWN
from spacy_spans.encoder.model import build_pruned_transformer_model_v1
from spacy_spans.errors import SettingsError, SpansWarning
from spacy_spans.pipeline.pruned_transformer import PrunedTransformer, mark_relevant
from spacy_spans.span_getters import build_piece_windows_v1

from ..pipeline import write_spans
from . import TRANSFORMER_LISTENER

pytestmark = pytest.mark.slow

TEXTS = [
    "The stable sits behind the mill, and nobody rings the bell there any more.",
    "",
    "Rain again.",
    "We walked for hours along the river until the towers of the old town came in sight.",
]
WINDOWS = {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 16}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def make_nlp(encoder, factory="pruned_transformer", **settings):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    model = {
        "@architectures": "spacy-spans.PrunedTransformerModel.v1",
        "name": str(encoder),
        "tokenizer_config": {"use_fast": True},
        "get_spans": WINDOWS,
        "autocast": "none",
        "warmup_steps": 0,
        **settings,
    }
    nlp.add_pipe(factory, name="transformer", config={"model": model})
    nlp.add_pipe("span_enumerator", config={"model": {"tok2vec": TRANSFORMER_LISTENER}})
    return nlp


def make_examples(nlp):
    """Every word with a "w" is a span: in the texts, relevant words are few."""
    examples = []
    for text in TEXTS:
        gold = nlp.make_doc(text)
        spans = [(i, i + 1, "W") for i, token in enumerate(gold) if "w" in token.text]
        examples.append(Example(nlp.make_doc(text), write_spans(gold, "sc", spans)))
    return examples


@pytest.fixture(scope="module")
def trained(encoder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        nlp = make_nlp(encoder, gates=[1, 3], keep_ratio=0.5)
        optimizer = nlp.initialize(lambda: make_examples(nlp))
        optimizer.learn_rate = 1e-3
        for _ in range(80):
            nlp.update(make_examples(nlp), sgd=optimizer)
        yield nlp


def vectors(nlp, text, **attrs):
    model = nlp.get_pipe("transformer").model
    before = dict(model.attrs)
    model.attrs.update(attrs)
    doc = nlp(text)
    model.attrs.update(before)
    return doc._.trf_data.model_output.last_hidden_state, doc


def texts_of(doc):
    return [span.text for span in doc.spans["sc"]]


@pytest.mark.parametrize("has_adapter", [True, False])
def test_without_gates_the_vectors_are_those_of_the_model_itself(encoder, has_adapter, monkeypatch):
    if not has_adapter:
        monkeypatch.delitem(FAMILIES, "bert")
    nlp = make_nlp(encoder, factory="transformer", max_batch_pieces=32)
    nlp.initialize(lambda: make_examples(nlp))
    trf = nlp.get_pipe("transformer")
    ours = trf.predict([nlp.make_doc(text) for text in TEXTS])
    pieces = ours.wordpieces
    with torch.no_grad():
        theirs = trf.model.transformer(
            input_ids=torch.as_tensor(pieces.input_ids),
            attention_mask=torch.as_tensor(pieces.attention_mask),
        )
    mask = torch.as_tensor(pieces.attention_mask) > 0
    torch.testing.assert_close(
        ours.model_output.last_hidden_state[mask],
        theirs.last_hidden_state[mask],
        atol=1e-4,
        rtol=0,
    )


def test_a_family_without_adapter_learns_and_has_no_gates(encoder, monkeypatch):
    monkeypatch.delitem(FAMILIES, "bert")
    nlp = make_nlp(encoder, factory="transformer")
    optimizer = nlp.initialize(lambda: make_examples(nlp))
    before = nlp.get_pipe("transformer").model.to_bytes()
    nlp.update(make_examples(nlp), sgd=optimizer)
    assert nlp.get_pipe("transformer").model.to_bytes() != before
    nlp = make_nlp(encoder, gates=[1])
    with pytest.raises(SettingsError, match=r"family 'bert'.*leave gates empty"):
        nlp.initialize(lambda: make_examples(nlp))


def test_the_size_of_batches_changes_nothing(encoder):
    nlp = make_nlp(encoder, factory="transformer", max_batch_pieces=1)
    nlp.initialize(lambda: make_examples(nlp))
    docs = [nlp.make_doc(text) for text in TEXTS]
    trf = nlp.get_pipe("transformer")
    alone = trf.predict(docs).model_output.last_hidden_state
    trf.model.attrs["max_batch_pieces"] = 4096
    batch = trf.predict(docs)
    mask = torch.as_tensor(batch.wordpieces.attention_mask) > 0
    together = batch.model_output.last_hidden_state
    torch.testing.assert_close(together[mask], alone[mask], atol=1e-4, rtol=0)


def test_untrained_gates_keep_everything(encoder):
    nlp = make_nlp(encoder, gates=[2], keep_ratio=0.2)
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.warns(SpansWarning, match="gates .* have not learned from gold spans"):
        pruned, _ = vectors(nlp, TEXTS[0])
    whole, _ = vectors(nlp, TEXTS[0], keep_ratio=1.0)
    np.testing.assert_array_equal(pruned, whole)


def test_trained_gates_find_what_is_relevant_at_any_ratio(trained):
    for text in (TEXTS[0], TEXTS[3]):
        whole, _ = vectors(trained, text, keep_ratio=1.0)
        for ratio in (0.5, 0.3):
            pruned, doc = vectors(trained, text, keep_ratio=ratio)
            assert not np.allclose(pruned, whole, atol=1e-3)
            found = {span.text for span in doc.spans["sc"]}
            assert found == {token.text for token in doc if "w" in token.text}


def test_a_gate_before_the_first_layer_learns_from_embeddings(encoder):
    nlp = make_nlp(encoder, gates=[0], keep_ratio=0.4)
    optimizer = nlp.initialize(lambda: make_examples(nlp))
    optimizer.learn_rate = 1e-3
    for _ in range(80):
        nlp.update(make_examples(nlp), sgd=optimizer)
    for text in (TEXTS[0], TEXTS[3]):
        doc = nlp(text)
        relevant = {token.text for token in doc if "w" in token.text}
        kept = {token.text for span in doc.spans["kept_tokens"] for token in span}
        assert relevant <= kept < {token.text for token in doc}
        assert set(texts_of(doc)) == relevant


def test_batches_of_documents_give_what_single_ones_do(trained):
    trained.get_pipe("transformer").model.attrs["keep_ratio"] = 0.4
    single = [trained(text)._.trf_data.model_output for text in TEXTS]
    together = [doc._.trf_data.model_output for doc in trained.pipe(TEXTS)]
    for one, other in zip(single, together, strict=True):
        assert set(one) == set(other)
        if one:
            n_pieces = one.last_hidden_state.shape[1]
            np.testing.assert_allclose(
                one.last_hidden_state, other.last_hidden_state[:, :n_pieces], atol=1e-4
            )


def test_saved_pipelines_keep_their_gates(trained, tmp_path):
    trained.get_pipe("transformer").model.attrs["keep_ratio"] = 0.3
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.get_pipe("transformer").model.attrs["gates_trained"]
    expected, _ = vectors(trained, TEXTS[3])
    found, _ = vectors(loaded, TEXTS[3])
    np.testing.assert_array_equal(found, expected)


def test_replaced_listeners_keep_their_gates(trained, tmp_path):
    trained.get_pipe("transformer").model.attrs["keep_ratio"] = 0.3
    expected = texts_of(trained(TEXTS[3]))
    trained.to_disk(tmp_path / "whole")
    nlp = spacy.load(tmp_path / "whole")
    nlp.replace_listeners("transformer", "span_enumerator", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    nlp.to_disk(tmp_path / "replaced")
    assert texts_of(nlp(TEXTS[3])) == expected
    loaded = spacy.load(tmp_path / "replaced")
    assert texts_of(loaded(TEXTS[3])) == expected


def test_relevant_tokens_are_those_in_gold_spans_of_any_of_the_keys():
    nlp = spacy.blank("en")
    gold = nlp.make_doc("a b c d e")
    write_spans(gold, "one", [(0, 2, "X"), (1, 2, "Y")])
    write_spans(gold, "two", [(4, 5, "X")])
    example = Example(nlp.make_doc("a b c d e"), gold)
    assert mark_relevant(example, ["one"]).tolist() == [1, 1, 0, 0, 0]
    assert mark_relevant(example, ["one", "two", "none"]).tolist() == [1, 1, 0, 0, 1]
    assert mark_relevant(example, ["none"]).tolist() == [UNKNOWN] * 5
    assert mark_relevant(Example(nlp.make_doc(""), nlp.make_doc("")), ["one"]).tolist() == []


def test_the_component_is_a_transformer(trained):
    assert isinstance(trained.get_pipe("transformer"), PrunedTransformer)
    assert issubclass(PrunedTransformer, Transformer)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gates": [2, 1]}, r"gates = \[2, 1\]"),
        ({"gates": [-1]}, r"gates = \[-1\]"),
        (
            {"gates": [0], "criterion": build_attention_criterion_v1(), "keep_ratio": 0.5},
            r"gates = \[0\] for the criterion 'attention'",
        ),
        ({"keep_ratio": 0.0}, "keep_ratio = 0.0"),
        ({"train_keep_ratio": 1.5}, "train_keep_ratio = 1.5"),
        ({"threshold": 2.0}, "threshold = 2.0"),
        ({"dropped": "hide"}, "dropped = 'hide'"),
        ({"autocast": "float16"}, "autocast = 'float16'"),
        ({"max_batch_pieces": 0}, "max_batch_pieces = 0"),
        ({"warmup_steps": -1}, "warmup_steps = -1"),
        ({"gates": [1], "criterion": build_norm_criterion_v1()}, "keep_ratio = None.* 'norm'"),
    ],
)
def test_settings_out_of_range_are_errors(settings, message):
    with pytest.raises(SettingsError, match=f"Got {message}"):
        build_pruned_transformer_model_v1("a", build_piece_windows_v1(), **settings)


def test_gates_after_the_last_layer_are_errors(encoder):
    nlp = make_nlp(encoder, gates=[6])
    with pytest.raises(SettingsError, match="an encoder of 6 layers"):
        nlp.initialize(lambda: make_examples(nlp))


def test_other_architectures_have_no_gates(encoder):
    model = {"@architectures": "spacy-transformers.TransformerModel.v3", "name": str(encoder)}
    model["get_spans"] = {"@span_getters": "spacy-transformers.doc_spans.v1"}
    with pytest.raises(SettingsError, match=r"Expected spacy-spans\.PrunedTransformerModel\.v1"):
        spacy.blank("en").add_pipe("pruned_transformer", config={"model": model})


def test_gates_without_gold_keep_everything_in_training_too(encoder):
    """Under the stock factory nothing teaches the gates: they must not drop words by chance."""
    nlp = make_nlp(encoder, factory="transformer", gates=[2])
    nlp.initialize(lambda: make_examples(nlp))
    model = nlp.get_pipe("transformer").model
    docs = [nlp.make_doc(text) for text in TEXTS]
    for layer in model.transformer.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    config = model.transformer.config
    config.attention_probs_dropout_prob = 0.0
    for layer in model.transformer.encoder.layer:
        layer.attention.self.dropout_prob = 0.0
    trained, _ = model.begin_update(docs)
    with pytest.warns(SpansWarning, match="All words are kept"):
        predicted = model.predict(docs)
    mask = torch.as_tensor(predicted.wordpieces.attention_mask) > 0
    torch.testing.assert_close(
        trained.model_output.last_hidden_state[mask],
        predicted.model_output.last_hidden_state[mask],
        atol=1e-4,
        rtol=0,
    )
    assert not model.attrs["gates_trained"]
