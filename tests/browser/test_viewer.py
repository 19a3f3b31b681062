"""The page of spans in a real browser."""

import time
from itertools import pairwise

import pytest
import spacy

from spacy_spans import write_fragments

pytestmark = pytest.mark.slow

# The line of each span on each row of text: its boxes without the room above it.
LINES = """
return [...document.querySelectorAll('.bar')].flatMap(bar => [...bar.getClientRects()]
  .filter(box => box.width > 0)
  .map(box => ({span: bar.dataset.span, left: box.left, right: box.right,
    bottom: box.bottom, top: box.bottom - parseFloat(getComputedStyle(bar).borderBottomWidth)})))
"""
# The boxes of the text itself.
TEXT_ROWS = """
const walker = document.createTreeWalker(document.querySelector('.text'), NodeFilter.SHOW_TEXT);
const range = document.createRange(), rows = [];
while (walker.nextNode()) {
  range.selectNodeContents(walker.currentNode);
  for (const x of range.getClientRects()) rows.push({top: x.top, bottom: x.bottom});
}
return rows;
"""


def meet(a, b):
    return (
        a["span"] != b["span"]
        and a["left"] < b["right"] - 0.5
        and b["left"] < a["right"] - 0.5
        and a["top"] < b["bottom"] - 0.5
        and b["top"] < a["bottom"] - 0.5
    )


def number(browser):
    """P, R and F as the page shows them."""
    return browser.texts(".prf b")


@pytest.fixture
def compared(nlp, add):
    """Three gold spans; predicted: one right at 0.9, one right at 0.4, one short, one spurious."""
    text = "Write unit tests in Python and read the old logs"
    gold = add(nlp(text), "sc", [(0, 5, "DUTY"), (1, 3, "SKILL"), (6, 10, "DUTY")])
    found = [(0, 5, "DUTY"), (1, 3, "SKILL"), (6, 9, "DUTY"), (4, 5, "skill")]
    return [("gold", [gold]), ("predicted", [add(nlp(text), "sc", found, [0.9, 0.4, 0.7, 0.3])])]


@pytest.mark.parametrize("width", [420, 700, 1200])
@pytest.mark.parametrize("names", ["", "#names=0"])
def test_no_two_spans_on_one_line_meet(browser, nlp, add, width, names):
    doc = nlp("one two three four five six seven eight nine ten eleven twelve " * 4)
    deep = [(i, 40 - i, f"L{i}") for i in range(10)]
    crossing = [(i, i + 5, "CROSS") for i in range(10, 40, 3)]
    browser.open([("", [add(doc, "sc", deep + crossing)])], names, width=width)
    lines = browser.js(LINES)
    assert {int(line["span"]) for line in lines} == set(range(20))
    assert not [(a, b) for a in lines for b in lines if meet(a, b)]
    # At least eight tracks, and text that wraps.
    bottoms = {round(line["bottom"]) for line in lines if line["span"] in map(str, range(10))}
    assert len(bottoms) >= 10
    rows = browser.js(TEXT_ROWS)
    tops = sorted({round(row["top"]) for row in rows})
    assert len(tops) > 2
    # No line of a span runs through text.
    assert not [
        (line, row)
        for line in lines
        for row in rows
        if line["top"] < row["bottom"] - 3 and line["bottom"] > row["top"] + 3
    ]


def test_the_threshold_hides_spans_and_changes_scores(browser, compared):
    browser.open(compared)
    # 2 right of 4 predicted and of 3 gold: P 2/4, R 2/3, F 4/7.
    assert number(browser) == ["50.0", "66.7", "57.1"]
    slide = """
    const slider = document.querySelector('.slide input');
    slider.value = arguments[0];
    slider.dispatchEvent(new Event('input'));
    """
    shown = "document.querySelectorAll('.bar.spans[data-name]').length"
    # From 0.5 on: 1 right of 2 predicted: P 1/2, R 1/3, F 2/5. Beyond 0.8: 1 of 1, F 2/4.
    for value, n_spans, scores in (
        (0.5, 2, ["50.0", "33.3", "40.0"]),
        (0.8, 1, ["100.0", "33.3", "50.0"]),
        (0.95, 0, ["\u2013", "0.0", "0.0"]),
        (0, 4, ["50.0", "66.7", "57.1"]),
    ):
        browser.js(slide, value)
        browser.wait(f"{shown} === {n_spans}")
        assert number(browser) == scores


def test_a_mention_with_fragments_is_joined_and_counts_as_one(browser, nlp):
    def make(*parts):
        doc = nlp("left and right arm near it")
        spans = [doc[start:end] for start, end in parts]
        for span in spans:
            span.label_ = "BODY"
        write_fragments(doc, "sc", [spans], scores=[0.5])
        return doc

    right, wrong = make((0, 1), (3, 4)), make((0, 1), (2, 3))
    browser.open([("gold", [right, right]), ("predicted", [make((0, 1), (3, 4)), wrong])])
    assert number(browser) == ["50.0", "50.0", "50.0"]
    assert browser.texts(".doc[data-doc='0'] .bar.gap.gold") == [" and right "]
    lines = browser.js(LINES.replace("'.bar'", "'.doc[data-doc=\"0\"] .bar.gold'"))
    lines.sort(key=lambda line: line["left"])
    assert len({round(line["bottom"]) for line in lines}) == 1
    for before, after in pairwise(lines):
        assert abs(before["right"] - after["left"]) < 1


def test_only_errors(browser, compared):
    browser.open(compared)
    assert browser.texts("#errors .count") == ["0", "1", "0", "2"]
    names = ".bar[data-name]"
    browser.js("document.querySelector('#errors input[value=boundary]').click()")
    assert sorted(
        browser.js(f"return [...document.querySelectorAll('{names}')].map(x => x.dataset.name)")
    ) == [
        "DUTY 0.7 ↔ boundary",
        "DUTY ↔ boundary",
    ]
    browser.js("document.querySelector('#errors input[value=boundary]').click()")
    browser.js("document.querySelector('#errors input[value=label]').click()")
    assert browser.texts(".doc") == []
    assert "No document" in browser.texts("#list")[0]


def test_labels_layers_and_search(browser, nlp, add, compared):
    other = nlp("Nothing here")
    sides = [(side, [*docs, add(nlp("Nothing here"), "sc", [])]) for side, docs in compared]
    browser.open(sides)
    colour = """
    const name = document.querySelector(`#labels [value=${arguments[0]}] ~ .name`);
    return getComputedStyle(name).color;
    """
    assert browser.js(colour, "skill") != browser.js(colour, "SKILL")
    browser.js("document.querySelector('#labels input[value=DUTY]').click()")
    assert browser.js("return document.querySelectorAll('.bar[data-name]').length") == 3
    # Gold SKILL is found, "skill" is one too many.
    assert number(browser) == ["50.0", "100.0", "66.7"]
    browser.js("document.querySelector('#layers input[value=\"gold:sc\"]').click()")
    assert browser.js("return document.querySelectorAll('.bar[data-name]').length") == 2
    browser.press("/", "NOTHING")
    browser.wait("document.querySelectorAll('.doc').length === 1")
    assert browser.texts(".found") == ["Nothing"]
    assert browser.texts("#summary") == ["1 of 2 documents"]
    for character in "(-/[\\":
        browser.js("document.querySelector('#query').value = ''")
        browser.press(character)
        assert browser.texts("#summary") == ["0 of 2 documents"]
    assert other.text == "Nothing here"


def test_keys_move_between_spans_and_documents(browser, nlp, add):
    docs = [add(nlp("a b c"), "sc", [(0, 3, "A"), (1, 2, "B")], [0.25, 0.5]) for _ in range(50)]
    browser.open([("", docs)])
    active = "return document.activeElement.getAttribute('aria-label')"
    browser.press("n")
    assert browser.js(active) == "A, score 0.25, key sc, 3 tokens, 5 characters"
    assert "A score 0.25 · key sc · 3 tokens, 5 characters" in browser.texts("#tip")[0]
    browser.press("n")
    assert browser.js(active) == "B, score 0.5, key sc, 1 token, 1 character"
    where = "return document.activeElement.closest('.doc')?.dataset.doc"
    browser.press(*"nnn")
    assert browser.js(where) == "2"
    browser.press(*"ppp")
    assert (browser.js(where), browser.js(active)[0]) == ("0", "B")
    browser.press(*"pp")
    assert (browser.js(where), browser.js(active)[0]) == ("49", "B")
    browser.press("\ue00c")
    assert browser.js(where) is None
    browser.open([("", docs)])
    browser.press(*"jjj")
    top = "return document.elementFromPoint(600, 20).closest('.doc').dataset.doc"
    assert browser.js(top) == "3"
    browser.press("k")
    assert browser.js(top) == "2"


def test_a_view_comes_back_from_its_address(browser, compared):
    browser.open(compared)
    browser.press("l")
    browser.js("document.querySelector('#labels input[value=skill]').click()")
    browser.js(
        "const s = document.querySelector('.slide input'); s.value = 0.35;"
        "s.dispatchEvent(new Event('input'))"
    )
    browser.js("document.querySelector('#errors input[value=boundary]').click()")
    browser.press("n")
    browser.wait("location.hash.includes('span=') && location.hash.includes('min=0.35')")
    state = """return [location.hash, document.querySelector('.text').innerHTML,
        document.querySelector('.prf').textContent, document.activeElement.ariaLabel,
        [...document.querySelectorAll('#panel input')].map(x => [x.checked, x.value].join())]"""
    before = browser.js(state)
    assert before[3].startswith("DUTY")
    browser.go(before[0])
    assert browser.js(state) == before
    # What does not belong to this page is passed over.
    browser.go("#min=x~y&on=zz&hide=zz&error=zz&doc=99&span=7.7")
    assert number(browser) == ["50.0", "66.7", "57.1"]


def test_copied_text_is_the_original(browser, nlp, add):
    text = 'Two  spaces,\n\n\ta tab, "quotes" &amp; <b>bold</b> e\u0301 😀 end '
    doc = nlp(text)
    browser.open([("", [add(doc, "sc", [(0, len(doc), "LABEL"), (2, 9, "OTHER")])])])
    select = "getSelection().selectAllChildren(document.querySelector(arguments[0]));"
    assert browser.js(f"{select} return getSelection().toString()", ".text") == text
    assert browser.texts(".text") == [text]


def test_text_from_right_to_left(browser, add):
    nlp = spacy.blank("he")
    doc = add(nlp("שלום עולם גדול"), "sc", [(0, 1, "A"), (1, 3, "B")])
    browser.open([("", [doc])])
    assert browser.js("return getComputedStyle(document.querySelector('.text')).direction") == "rtl"
    boxes = browser.js(LINES)
    first = min(box["left"] for box in boxes if box["span"] == "0")
    second = max(box["right"] for box in boxes if box["span"] == "1")
    assert second <= first
    assert browser.texts(".text") == [doc.text]


def test_tokens_outside_of_kept_runs_are_grey_while_the_layer_is_on(browser, nlp, add):
    doc = add(add(nlp("a b c d"), "kept_tokens", [(1, 3, "")]), "sc", [(0, 4, "A")])
    browser.open([("", [doc])])
    # Nothing is compared, so that there are no errors to choose or sort by.
    for name in ("errors-section", "worst-row"):
        assert browser.js("return document.getElementById(arguments[0]).offsetHeight", name) == 0
    assert "".join(browser.texts(".pruned")) == "a  d"
    browser.js("document.querySelector('#layers input[value=kept_tokens]').click()")
    assert browser.texts(".pruned") == []


def test_what_users_wrote_does_not_run(browser, nlp, add):
    evil = "<script>window.hit=1</script><img src=x onerror='window.hit=1'>\"</script>"
    doc = add(nlp(evil), "sc", [(0, 2, evil)])
    browser.open([("", [doc])], title=evil)
    browser.press("n")
    assert browser.js("return window.hit") is None
    assert browser.texts(".text") == [evil]
    assert browser.texts("h1") == [evil]
    assert browser.texts("#labels .name") == [evil]
    assert evil in browser.texts("#tip")[0]
    assert browser.js("return document.querySelectorAll('img').length") == 0


def test_the_policy_stops_what_is_added(browser, nlp, add):
    browser.open([("", [add(nlp("a"), "sc", [(0, 1, "A")])])])
    browser.js(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
        "document.body.append(s);"
        "document.body.insertAdjacentHTML('beforeend', '<i onclick=\"window.hit=1\">x</i>');"
        "document.querySelector('i').click();"
    )
    assert browser.js("return window.hit") is None
    refused = browser.errors()
    assert len(refused) == 2
    assert all("Content Security Policy" in line for line in refused)


def test_two_thousand_documents_open_at_once(browser, nlp, add):
    text = "Plan and run weekly stock counts in two languages with the whole team. " * 8
    spans = [(i, i + 4, f"L{i % 5}") for i in range(0, 96, 6)]
    one = add(nlp(text), "sc", spans, [i / 100 for i in range(len(spans))])
    docs = [one] * 2_000
    browser.open([("gold", docs), ("predicted", docs)])
    start = time.perf_counter()
    browser.go()
    browser.wait("document.querySelectorAll('.doc').length > 0")
    seconds = time.perf_counter() - start
    assert seconds < 2
    assert browser.texts("#summary") == ["2,000 documents"]
    assert browser.js("return document.querySelectorAll('*').length") < 5_000
    browser.js("const s = document.querySelector('#scroller'); s.scrollTop = s.scrollHeight")
    browser.wait("document.querySelector('.doc[data-doc=\"1999\"]')")
    assert browser.js("return document.querySelectorAll('.doc').length") < 20


def test_empty_pages(browser, nlp):
    browser.open([("", [])])
    assert browser.texts("#list") == ["There are no documents to show."]
    browser.press(*"npjkel")
    browser.open([("", [nlp(""), nlp(" \n ")])])
    assert "No text." in browser.texts("#list")[0]
    browser.press(*"npjkel")


def test_the_pointer_shows_what_lies_under_it(browser, nlp, add):
    from selenium.webdriver import ActionChains

    doc = add(nlp("one two three"), "sc", [(0, 3, "ALL"), (1, 2, "PART")], [0.5, 0.75])
    browser.open([("", [doc])])
    boxes = {x["span"]: x for x in browser.js(LINES) if 340 < x["left"] < x["right"] - 20}

    def tip(box, above=0):
        y = (box["top"] + box["bottom"]) / 2 - above
        pointer = ActionChains(browser.driver)
        pointer.w3c_actions.pointer_action.move_to_location(
            int((box["left"] + box["right"]) / 2), int(y)
        )
        pointer.perform()
        return browser.texts("#tip:not([hidden]) div")

    part = boxes["1"]
    assert tip(part) == ["PART score 0.75 · key sc · 1 token, 3 characterstwo"]
    whole = "ALL score 0.5 · key sc · 3 tokens, 13 charactersone two three"
    # On the text, all that cover it; on a track, that span alone.
    assert tip(part, above=15) == ["PART score 0.75 · key sc · 1 token, 3 characterstwo", whole]
    assert tip(part | {"top": boxes["0"]["top"], "bottom": boxes["0"]["bottom"]}) == [whole]
    assert set(
        browser.js("return [...document.querySelectorAll('.on')].map(x => x.dataset.span)")
    ) == {"0"}
    assert tip({"left": 700, "right": 720, "top": 500, "bottom": 502}) == []


def test_spans_deeper_than_the_tracks_are_counted(browser, nlp, add):
    doc = nlp("word " * 80)
    browser.open([("", [add(doc, "sc", [(i, 80 - i, "A") for i in range(30)])])])
    assert "6 spans not drawn" in browser.texts(".head")[0]
    browser.press("p")
    assert browser.js("return document.activeElement.className").startswith("bar")
