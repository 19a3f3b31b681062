"""The page of gold and predicted spans."""

import re
from html.parser import HTMLParser

import pytest
import spacy
from spacy.tokens import Doc, SpanGroup

from spacy_spans import viz

pytestmark = pytest.mark.installed


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def make_doc(nlp, text, spans=(), key="sc"):
    """Spans are (start token, end token, label)."""
    doc = nlp.make_doc(text)
    if key is not None:
        group = [doc[start:end] for start, end, _ in spans]
        group = [spacy.tokens.Span(doc, start, end, label=label) for start, end, label in spans]
        doc.spans[key] = SpanGroup(doc, name=key, spans=group)
    return doc


class Page(HTMLParser):
    """Checks that elements close in order, and collects text and element names."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.parts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in {"style", "script"}:
            self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())


def test_a_page_shows_gold_and_predicted_of_each_document(nlp):
    gold = make_doc(nlp, "Write unit tests in Python", [(0, 5, "DUTY"), (4, 5, "KNOWLEDGE")])
    predicted = make_doc(nlp, "Write unit tests in Python", [(0, 5, "DUTY"), (1, 3, "SKILL")])
    page = Page(viz.render_page([(gold, predicted)], title="My page"))
    assert "My page 1 of 1 documents differ from gold: 1 spans missed, 1 wrong." in page.text
    assert (
        "Document 1: 1 missed, 1 wrong Gold Write DUTY unit tests in Python KNOWLEDGE" in page.text
    )
    assert "Predicted Write DUTY unit SKILL tests in Python" in page.text


def test_everything_a_user_wrote_is_escaped(nlp):
    evil = "<script>alert(1)</script>"
    doc = make_doc(nlp, f"{evil} & more", [(0, 1, evil), (0, 2, '" onclick="x')])
    html = viz.render_page([(doc, doc)], title=evil)
    page = Page(html)
    assert page.names == set("html head meta title style body h1 h2 h3 p span div section".split())
    assert evil not in html
    # The title element, the heading, the legend, and a label in each of two blocks; the text is
    # cut into tokens.
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5
    assert "&amp; more" in html


def test_a_label_has_one_colour_everywhere(nlp):
    gold = make_doc(nlp, "a b c", [(0, 1, "A"), (1, 2, "<b>")])
    predicted = make_doc(nlp, "a b c", [(2, 3, "A"), (1, 2, "<b>")])
    html = viz.render_page([(gold, predicted)])
    colors = {
        label: re.search(rf'background: (hsl[^"]+)">{label}</span>', html).group(1)
        for label in ("A", "&lt;b&gt;")
    }
    assert len(set(colors.values())) == 2
    # In the legend, then twice a line, its rounded start and the badge with the label.
    for color in colors.values():
        assert html.count(f"background: {color}") == 1 + 3 * 2
    assert "#ddd" not in html


def test_documents_with_errors_come_first(nlp):
    right = make_doc(nlp, "fine", [(0, 1, "A")])
    wrong = make_doc(nlp, "fine", [(0, 1, "B")])
    html = viz.render_page([(right, right), (right, wrong)])
    assert html.index("Document 2: 1 missed, 1 wrong") < html.index("Document 1: 0 missed, 0 wrong")


def test_tokenization_does_not_make_errors(nlp):
    gold = Doc(nlp.vocab, words=["C", "++"], spaces=[False, False])
    gold.spans["sc"] = SpanGroup(gold, name="sc", spans=[gold.char_span(0, 3, label="A")])
    predicted = Doc(nlp.vocab, words=["C++"], spaces=[False])
    predicted.spans["sc"] = SpanGroup(
        predicted, name="sc", spans=[predicted.char_span(0, 3, label="A")]
    )
    assert "0 missed, 0 wrong" in viz.render_page([(gold, predicted)])


def test_documents_without_spans_key_or_text_are_drawn(nlp):
    pairs = [
        (make_doc(nlp, "no key", key=None), make_doc(nlp, "no spans")),
        (make_doc(nlp, ""), make_doc(nlp, "")),
        (make_doc(nlp, " \n "), make_doc(nlp, " \n ")),
    ]
    page = Page(viz.render_page(pairs))
    assert "0 of 3 documents differ" in page.text
    assert page.text.count("No spans.") == 4
    assert page.text.count("No text.") == 2


def test_no_documents_give_a_page_that_says_so():
    assert "There are no documents to show." in Page(viz.render_page([])).text


def test_long_documents_are_cut_between_spans(nlp):
    spans = [(i, i + 2, "A") for i in range(190, 220)]
    pieces = list(viz._cut(500, spans))
    assert pieces == [(0, 221), (221, 421), (421, 500)]
    # A span that is longer than any piece is cut, and drawn in each.
    pieces = list(viz._cut(2_500, [(0, 2_500, "A")]))
    assert pieces == [(0, 1_000), (1_000, 2_000), (2_000, 2_500)]
    assert list(viz._cut(0, [])) == []
    doc = make_doc(nlp, "word " * 2_500, [(0, 2_500, "LONG")])
    page = Page(viz.render_page([(doc, doc)]))
    assert page.text.count("word") == 2 * 2_500
    assert page.text.count("LONG") == 1 + 2 * 3
