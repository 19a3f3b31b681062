"""Which tokens an encoder with a limit would not see."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.debugging.truncation import _ranges, check_truncation, find_lost
from spacy_spans.pieces import Pieces, split_into_pieces


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
        # No window has the last token, by the getter's choice: nothing cuts it off.
        ([1, 1, 1], [(0, 2)], 1, [1]),
        ([], [], 3, []),
    ],
)
def test_lost_tokens(counts, windows, limit, lost):
    assert find_lost(pieces_of(np.asarray(counts, int)), windows, limit).tolist() == lost


def test_ranges_are_shown_in_short():
    assert _ranges(np.asarray([3, 4, 5, 9])) == "tokens 3 to 5, 9 to 9"
    assert _ranges(np.asarray([1, 3, 5, 7])) == "tokens 1 to 1, 3 to 3, 5 to 5, ..."


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A Bert with random weights that takes 8 word pieces, each of them a letter."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    letters = [chr(i) for i in range(ord("a"), ord("z") + 1)]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + x for x in letters)]
    (folder / "vocab.txt").write_text("\n".join(names), encoding="utf8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=8).save_pretrained(
        folder
    )
    config = transformers.BertConfig(
        vocab_size=len(names),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


STRIDED = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 3, "stride": 2}
STOCK = "spacy-transformers.TransformerModel.v3"


def make_nlp(encoder, architecture=STOCK, getter=STRIDED):
    nlp = spacy.blank("en")
    model = {
        "@architectures": architecture,
        "name": str(encoder),
        "get_spans": getter,
        "tokenizer_config": {"use_fast": True},
    }
    nlp.add_pipe("transformer", config={"model": model})
    return nlp


def make_sides(nlp):
    """Texts of which the first and third have windows of more pieces than there is room for."""
    examples = []
    for text in ("", "aaaa bbbb cccc dd e", "a b c", "aaaaaaa b ccccccc d e f"):
        gold = Doc(nlp.vocab, words=text.split())
        gold.spans["sc"] = [Span(gold, len(gold) - 1, len(gold), "A")] if text else []
        gold.spans["sc"] += [Span(gold, 1, 3, "A")] if text else []
        examples.append(Example(Doc(nlp.vocab, words=text.split()), gold))
    return {"train": examples}


def check(nlp, keys=("sc",)):
    return check_truncation(nlp, nlp.config.interpolate(), make_sides(nlp), keys).findings


def test_lost_tokens_are_those_that_stock_loses(tiny):
    nlp = make_nlp(tiny)
    docs = [e.predicted for e in make_sides(nlp)["train"]][1:]
    model = nlp.get_pipe("transformer").model
    model.initialize(X=docs)
    lost = []
    for doc, data in zip(docs, nlp.get_pipe("transformer").predict(docs).doc_data, strict=True):
        (pieces,) = split_into_pieces(model.tokenizer, [doc])
        windows = [(s.start, s.end) for s in model.attrs["get_spans"]([doc])[0]]
        lost.append(find_lost(pieces, windows, 7).tolist())
        assert lost[-1] == np.flatnonzero(np.asarray(data.align.lengths) == 0).tolist()
    # The windows begin with every second token.
    assert lost == [[], [], [1, 3]]


def test_what_is_cut_off_is_said_for_stock_and_not_for_ours(tiny):
    ((level, message),) = check(make_nlp(tiny))
    assert level == "warning"
    assert message.startswith(
        "train: the encoder cuts off 2 tokens of 1 document, and 1 gold span there, where "
        "windows have more than 7 word pieces (document 3: tokens 1 to 1, 3 to 3 of 6)"
    )
    ours = make_nlp(tiny, "spacy-spans.PrunedTransformerModel.v1")
    assert check(ours) == [
        ("good", "transformer: windows are counted in word pieces, none is cut off")
    ]
    assert check(spacy.blank("en"))[0][1].startswith("no transformer")


def test_what_cannot_be_checked_is_a_warning(tiny, tmp_path):
    ((level, message),) = check(make_nlp(tmp_path / "none"))
    assert level == "warning"
    assert message.startswith("transformer: not checked, so tokens may be cut off (")
    by_sentence = make_nlp(tiny, getter={"@span_getters": "spacy-transformers.sent_spans.v1"})
    ((level, message),) = check(by_sentence)
    assert level == "warning"
    assert "not checked, so tokens may be cut off (ValueError: [E030]" in message
