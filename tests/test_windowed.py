"""A windowed encoder gives the vectors of the encoder itself, in bounded pieces."""

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_spans.architectures import build_windowed_tok2vec_v1
from spacy_spans.errors import SettingsError
from spacy_spans.windowed import tokens_seen

WORDS = ["we", "need", "Python", ",", "3.5", "naïve", "🚀", "\n"]


@pytest.fixture(scope="module")
def encoder():
    spacy.registry.ensure_populated()
    registry = spacy.registry.architectures
    tok2vec = registry.get("spacy.Tok2Vec.v2")(
        registry.get("spacy.MultiHashEmbed.v2")(
            width=8, attrs=["NORM", "SHAPE"], rows=[50, 50], include_static_vectors=False
        ),
        registry.get("spacy.MaxoutWindowEncoder.v2")(
            width=8, window_size=1, maxout_pieces=2, depth=3
        ),
    )
    tok2vec.initialize()
    return tok2vec


def make_docs(lengths):
    vocab = spacy.blank("en").vocab
    return [Doc(vocab, words=[WORDS[(i * 7 + n) % 8] for i in range(n)]) for n in lengths]


@given(
    # spaCy's components never hand over a batch without any token.
    lengths=st.lists(st.integers(0, 40), max_size=6).filter(any),
    window=st.integers(1, 30),
)
@settings(max_examples=60, deadline=None)
def test_windows_change_no_vector(encoder, lengths, window):
    docs = make_docs(lengths)
    model = build_windowed_tok2vec_v1(encoder, window=window)
    expected = encoder.predict(docs)
    vectors = model.predict(docs)
    assert [v.shape for v in vectors] == [(n, 8) for n in lengths]
    for own, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(own, wanted, atol=1e-5)


def test_no_piece_is_longer_than_window_and_context(encoder, monkeypatch):
    seen = []
    predict = type(encoder).predict

    def spy(self, spans):
        if self is encoder:
            seen.append([len(span) for span in spans])
        return predict(self, spans)

    monkeypatch.setattr(type(encoder), "predict", spy)
    model = build_windowed_tok2vec_v1(encoder, window=10)
    model.predict(make_docs([25, 4, 3, 0, 12]))
    # Three layers see one token more each: windows of 10 are read with 3 tokens on either side.
    assert seen == [[13], [16], [8, 4], [3], [12], [5]]


def test_training_sees_whole_documents_and_their_gradient(encoder):
    docs = make_docs([5, 0, 9])
    model = build_windowed_tok2vec_v1(encoder, window=2)
    vectors, backprop = model.begin_update(docs)
    expected, _ = encoder.begin_update(docs)
    for own, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_array_equal(own, wanted)
    backprop([np.ones_like(own) for own in vectors])
    gradients = [node.get_grad("W") for node in model.walk() if node.has_grad("W")]
    assert gradients
    assert any(np.abs(gradient).sum() > 0 for gradient in gradients)


def test_what_a_token_sees_is_read_from_the_layers(encoder):
    assert tokens_seen(encoder) == 3


def test_characters_are_read_by_windows_too():
    registry = spacy.registry.architectures
    tok2vec = registry.get("spacy.Tok2Vec.v2")(
        registry.get("spacy.CharacterEmbed.v2")(
            width=8, rows=50, nM=4, nC=4, include_static_vectors=False
        ),
        registry.get("spacy.MaxoutWindowEncoder.v2")(
            width=8, window_size=2, maxout_pieces=2, depth=1
        ),
    )
    docs = make_docs([40, 3])
    tok2vec.initialize()
    model = build_windowed_tok2vec_v1(tok2vec, window=7)
    for own, wanted in zip(model.predict(docs), tok2vec.predict(docs), strict=True):
        np.testing.assert_allclose(own, wanted, atol=1e-5)


def test_encoders_that_see_whole_documents_are_refused():
    registry = spacy.registry.architectures
    listener = registry.get("spacy.Tok2VecListener.v1")(width=8)
    with pytest.raises(SettingsError, match=r"listener.*whose tokens may see the whole document"):
        build_windowed_tok2vec_v1(listener)


def test_lstms_and_torch_layers_are_refused(encoder):
    from spacy.ml.models.tok2vec import MultiHashEmbed
    from thinc.api import LSTM, PyTorchWrapper, chain, list2padded, padded2list, with_array
    from torch import nn

    embed = MultiHashEmbed(width=8, attrs=["NORM"], rows=[50], include_static_vectors=False)
    lstm = chain(embed, list2padded(), LSTM(8, 8), padded2list())
    torch_layer = chain(embed, with_array(PyTorchWrapper(nn.Linear(8, 8))))
    for refused in (lstm, torch_layer):
        with pytest.raises(SettingsError, match="whose tokens may see the whole document"):
            build_windowed_tok2vec_v1(refused)


def test_windows_have_no_context_setting(encoder):
    with pytest.raises(TypeError, match="context"):
        build_windowed_tok2vec_v1(encoder, context=8)


def test_windows_need_a_size():
    with pytest.raises(SettingsError, match="Got window = 0"):
        build_windowed_tok2vec_v1(None, window=0)
