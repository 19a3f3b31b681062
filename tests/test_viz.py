"""The payload and the assembly of the page of spans; `tests/browser` looks at the page itself."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span, SpanGroup

from spacy_spans import viz, write_fragments
from spacy_spans.errors import DataError

pytestmark = pytest.mark.installed


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def make_doc(nlp, text, spans=(), key="sc", scores=None):
    """Spans are (start token, end token, label)."""
    doc = nlp.make_doc(text)
    if key is not None:
        group = [Span(doc, start, end, label=label) for start, end, label in spans]
        attrs = {} if scores is None else {"scores": scores}
        doc.spans[key] = SpanGroup(doc, name=key, spans=group, attrs=attrs)
    return doc


class Page(HTMLParser):
    """Collects the elements of a page, and the content of each script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.inside = ""
        self.attrs: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {"script": [], "style": [], "title": [], "h1": []}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.inside = tag
        self.attrs.append((tag, dict(attrs)))
        if tag in self.contents:
            self.contents[tag].append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside in self.contents:
            self.contents[self.inside][-1] += data


def read_payload(html):
    return json.loads(Page(html).contents["script"][0])


def test_a_payload_has_every_key_of_each_side_as_a_layer(nlp):
    gold = make_doc(nlp, "Write unit tests", [(0, 3, "DUTY"), (1, 3, "SKILL")])
    predicted = make_doc(nlp, "Write unit tests", [(0, 3, "DUTY")], scores=[0.123456789])
    predicted.spans["kept_tokens"] = SpanGroup(
        predicted, name="kept_tokens", spans=[Span(predicted, 0, 1)], attrs={"scores": [1.0]}
    )
    predicted.spans["other"] = SpanGroup(predicted, name="other", spans=[Span(predicted, 0, 1)])
    payload = viz.make_payload([("gold", [gold]), ("predicted", [predicted])])
    assert payload["labels"] == ["", "DUTY", "SKILL"]
    assert [
        (x["side"], x["key"], x["kind"], x["range"], x["spans"]) for x in payload["layers"]
    ] == [
        ("gold", "sc", "spans", None, 2),
        ("predicted", "kept_tokens", "kept", [1.0, 1.0], 1),
        ("predicted", "other", "candidates", None, 1),
        ("predicted", "sc", "spans", [0.123457, 0.123457], 1),
    ]
    assert payload["docs"] == [
        {
            "text": "Write unit tests",
            "dir": "auto",
            "lang": "en",
            "spans": {
                "0": [[1, None, 3, 0, 16], [2, None, 2, 6, 16]],
                "1": [[0, 1.0, 1, 0, 5]],
                "2": [[0, None, 1, 0, 5]],
                "3": [[1, 0.123457, 3, 0, 16]],
            },
        }
    ]
    only = viz.make_payload([("gold", [gold]), ("predicted", [predicted])], spans_keys=["other"])
    assert [(x["side"], x["key"]) for x in only["layers"]] == [("predicted", "other")]


def test_a_document_without_a_key_is_not_one_without_spans(nlp):
    docs = [make_doc(nlp, "no key", key=None), make_doc(nlp, "no spans"), make_doc(nlp, "")]
    payload = viz.make_payload([("", docs)])
    assert [doc["spans"] for doc in payload["docs"]] == [{}, {"0": []}, {"0": []}]
    assert payload["docs"][2]["text"] == ""
    assert viz.make_payload([("", [])]) == {"labels": [], "layers": [], "docs": []}


def test_fragments_of_a_mention_are_one_row(nlp):
    doc = nlp.make_doc("left and right arm")
    left, right, arm = (doc.char_span(*x, label="BODY") for x in ((0, 4), (9, 18), (15, 18)))
    write_fragments(doc, "body", [[left, arm], [right]], scores=[0.25, 0.75])
    (row,) = viz.make_payload([("", [doc])])["docs"]
    assert row["spans"] == {"0": [[0, 0.25, 2, 0, 4, 15, 18], [0, 0.75, 2, 9, 18]]}


def test_equal_spans_keep_their_scores_and_bad_ones_are_none(nlp):
    def scores_of(scores):
        spans = [(0, 1, "A"), (0, 1, "A"), (1, 2, "B")]
        doc = make_doc(nlp, "a b c", spans, scores=scores)
        return [x[1] for x in viz.make_payload([("", [doc])])["docs"][0]["spans"]["0"]]

    assert scores_of([0.5, 0.25, 2.0]) == [0.5, 0.25, 2.0]
    assert scores_of([float("nan"), "x", float("inf")]) == [None, None, None]
    assert scores_of([0.5, 0.25]) == [None, None, None]


def test_offsets_are_in_utf16_units(nlp):
    doc = make_doc(nlp, "a 😀 b 🌍 c", [(1, 2, "E"), (4, 5, "C")])
    (row,) = viz.make_payload([("", [doc])])["docs"]
    for (_, _, _, start, end), text in zip(row["spans"]["0"], ["😀", "c"], strict=True):
        units = row["text"].encode("utf-16-le")
        assert units[2 * start : 2 * end].decode("utf-16-le") == text


def test_languages_written_from_the_right_say_so():
    assert viz.make_payload([("", [spacy.blank("he")("שלום")])])["docs"][0]["dir"] == "rtl"
    assert viz.make_payload([("", [spacy.blank("xx")("שלום")])])["docs"][0]["dir"] == "auto"


def test_nothing_that_a_user_wrote_is_markup(nlp):
    evil = "</script><script>alert(1)</script><!--\u2028\ud800&amp;$style"
    doc = Doc(nlp.vocab, words=[evil.replace("\ud800", "")])
    doc.spans[evil[:-20]] = SpanGroup(
        doc, name=evil[:-20], spans=[Span(doc, 0, 1, label=evil[:30])]
    )
    harmless = viz.render_page([("", [])], title="x")
    html = viz.render_page([("", [doc])], title=evil)
    page = Page(html)
    assert page.names == Page(harmless).names
    assert len(page.attrs) == len(Page(harmless).attrs)
    assert "<script>alert" not in html
    assert "".join(page.contents["title"]).strip() == evil
    payload = read_payload(html)
    assert payload["docs"][0]["text"] == doc.text
    assert payload["labels"] == [evil[:30]]
    assert json.loads(viz.dump_json([evil])) == [evil]
    viz.dump_json([evil]).encode("utf8")


def test_the_policy_allows_the_one_script_and_style_only(nlp):
    page = Page(viz.render_page([("", [make_doc(nlp, "a", [(0, 1, "A")])])]))
    (policy,) = (attrs["content"] for _, attrs in page.attrs if "http-equiv" in attrs)

    def sha(content):
        return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    assert policy == (
        f"default-src 'none'; script-src '{sha(page.contents['script'][1])}'; "
        f"style-src '{sha(page.contents['style'][0])}'; base-uri 'none'; form-action 'none'"
    )
    names = {name for _, attrs in page.attrs for name in attrs}
    assert not {"src", "href", "style"} & names
    assert not [name for name in names if name.startswith("on")]


def test_colours_are_readable_and_differ_also_by_case():
    labels = ["", *sorted(f"{name}{i}" for i in range(12) for name in ("a", "A"))]
    colors = viz.choose_colors(labels)
    for light, dark in colors:
        assert viz.contrast(light, "#ffffff") >= 4.5
        assert viz.contrast(dark, "#16181d") >= 4.5
    assert len(set(colors)) == len(labels)
    red, green, blue = (int(colors[0][0][i : i + 2], 16) for i in (1, 3, 5))
    assert red == green == blue
    assert viz.choose_colors([]) == []
    assert viz.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert viz.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_keys_that_are_missing_or_on_one_side(nlp):
    one, other = make_doc(nlp, "a", [(0, 1, "A")]), make_doc(nlp, "a", [(0, 1, "A")], key="x")
    both = [("gold", [one]), ("predicted", [other])]
    assert viz.check_keys([("gold", [one]), ("predicted", [one])], ["sc"]) == []
    assert viz.check_keys([("", [one])]) == viz.check_keys([("", [])], ["sc"]) == []
    (line,) = viz.check_keys(both)
    assert re.search(r"Nothing is compared.*data has \['sc'\].*output has \['x'\]", line)
    with pytest.raises(DataError, match=r"no doc\.spans\['y'\].*\['sc'\].*--spans-key"):
        viz.check_keys(both, ["y"])
    with pytest.raises(DataError, match=r"nothing to show.*no keys at all"):
        viz.check_keys([("", [make_doc(nlp, "a", key=None)])])


def test_spans_of_a_file_come_through_unchanged(nlp):
    docs = DocBin(docs=[make_doc(nlp, "a b", [(0, 2, "A")], scores=[0.5])]).to_bytes()
    again = list(DocBin().from_bytes(docs).get_docs(spacy.blank("xx").vocab))
    assert viz.make_payload([("", again)])["docs"][0]["spans"] == {"0": [[0, 0.5, 2, 0, 3]]}
