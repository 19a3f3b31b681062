"""Which tokens an encoder with a limit would not see."""

import numpy as np
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.debugging.truncation import _ranges, check_truncation


def test_ranges_are_shown_in_short():
    assert _ranges(np.asarray([3, 4, 5, 9])) == "tokens 3 to 5, 9 to 9"
    assert _ranges(np.asarray([1, 3, 5, 7])) == "tokens 1 to 1, 3 to 3, 5 to 5, ..."


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


def test_what_is_cut_off_is_said_for_stock_and_not_for_ours(letters):
    ((level, message),) = check(make_nlp(letters))
    assert level == "warning"
    assert message.startswith(
        "train: the encoder cuts off 2 tokens of 1 document, and 1 gold span there, where "
        "windows have more than 7 word pieces (document 3: tokens 1 to 1, 3 to 3 of 6)"
    )
    ours = make_nlp(letters, "spacy-spans.PrunedTransformerModel.v1")
    assert check(ours) == [
        ("good", "transformer: windows are counted in word pieces, none is cut off")
    ]
    assert check(spacy.blank("en"))[0][1].startswith("no transformer")


def test_what_cannot_be_checked_is_a_warning(letters, tmp_path):
    ((level, message),) = check(make_nlp(tmp_path / "none"))
    assert level == "warning"
    assert message.startswith("transformer: not checked, so tokens may be cut off (")
    by_sentence = make_nlp(letters, getter={"@span_getters": "spacy-transformers.sent_spans.v1"})
    ((level, message),) = check(by_sentence)
    assert level == "warning"
    assert "not checked, so tokens may be cut off (ValueError: [E030]" in message
