"""An HTML page of predicted spans against gold, drawn by displaCy."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from spacy import displacy
from spacy.tokens import Doc
from spacy.util import escape_html

DocPair: TypeAlias = tuple[Doc, Doc]

# displaCy looks at every span for every token; pieces of a long document keep that linear.
PIECE_LENGTH = 200
# Without a token to cut at that no span crosses, cut through spans.
LONGEST_PIECE = 1000

_PAGE = """<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 2rem; }}
h2 {{ font-size: 1.1rem; margin: 3rem 0 0; }}
h3 {{ font-size: .8rem; margin: 1rem 0 0; color: #666; }}
.legend span {{ border-radius: 3px; color: #000; margin-right: .5em; padding: .1em .4em; }}
.spans {{ overflow-wrap: anywhere; }}
/* displaCy's label tags may not break inside a word. */
.spans span span span {{ overflow-wrap: normal !important; white-space: nowrap !important; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
<p class="legend">{legend}</p>
{content}
</body>
</html>
"""


def render_page(
    pairs: Sequence[DocPair], *, spans_key: str = "sc", title: str = "Gold and predicted spans"
) -> str:
    """Write one self-contained page: for each document its gold spans, then the predicted ones.

    Documents come with the most errors first. A span is right when its characters and its label
    are; the two documents of a pair may be tokenized differently.

    pairs (Sequence[DocPair]): Gold and predicted document of the same text.
    spans_key (str): Key in doc.spans; a document without it is drawn without spans.
    title (str): Heading of the page.
    RETURNS (str): HTML; all text and labels are escaped. No pairs give a page that says so.
    """
    labels = {
        span.label_ for pair in pairs for doc in pair for span in doc.spans.get(spans_key, ())
    }
    colors = _choose_colors(labels)
    counted = [(*_count_errors(*pair, spans_key), i) for i, pair in enumerate(pairs)]
    counted.sort(key=lambda x: (-x[0] - x[1], x[2]))
    blocks = []
    for missed, wrong, i in counted:
        gold, predicted = pairs[i]
        heading = f"Document {i + 1}: {missed} missed, {wrong} wrong"
        blocks.append(f"<section>\n<h2>{heading}</h2>")
        for name, doc in (("Gold", gold), ("Predicted", predicted)):
            blocks.append(f"<h3>{name}</h3>\n{_render_doc(doc, spans_key, colors)}")
        blocks.append("</section>")
    legend = "".join(
        f'<span style="background: {color}">{escape_html(label)}</span>'
        for label, color in colors.items()
    )
    return _PAGE.format(
        lang=escape_html(pairs[0][0].lang_ or "en") if pairs else "en",
        title=escape_html(title),
        summary=_summarize(counted),
        legend=legend,
        content="\n".join(blocks),
    )


def _count_errors(gold: Doc, predicted: Doc, spans_key: str) -> tuple[int, int]:
    """Gold spans that were not predicted, and predicted spans that are not gold."""
    wanted, found = (
        {(span.start_char, span.end_char, span.label_) for span in doc.spans.get(spans_key, ())}
        for doc in (gold, predicted)
    )
    return len(wanted - found), len(found - wanted)


def _summarize(counted: list[tuple[int, int, int]]) -> str:
    if not counted:
        return "There are no documents to show."
    faulty = sum(missed + wrong > 0 for missed, wrong, _ in counted)
    return (
        f"{faulty} of {len(counted)} documents differ from gold: "
        f"{sum(x[0] for x in counted)} spans missed, {sum(x[1] for x in counted)} wrong. "
        "Documents with the most errors come first."
    )


def _choose_colors(labels: set[str]) -> dict[str, str]:
    """One light colour per label; the golden angle keeps neighbours apart."""
    return {
        label: f"hsl({round(i * 137.508) % 360}, 75%, {80 - 8 * (i // 8 % 3)}%)"
        for i, label in enumerate(sorted(labels))
    }


def _render_doc(doc: Doc, spans_key: str, colors: dict[str, str]) -> str:
    if len(doc) == 0:
        return "<p><em>No text.</em></p>"
    spans = [(span.start, span.end, span.label_) for span in doc.spans.get(spans_key, ())]
    settings = {"lang": doc.lang_, "direction": doc.vocab.writing_system.get("direction", "ltr")}
    words = [token.text for token in doc]
    pieces: list[dict[str, Any]] = []
    for first, stop in _cut(len(doc), spans):
        inside = [
            # displaCy escapes the text, but not the labels.
            {
                "start_token": max(start, first) - first,
                "end_token": min(end, stop) - first,
                "label": escape_html(label),
            }
            for start, end, label in spans
            if max(start, first) < min(end, stop)
        ]
        pieces.append({"tokens": words[first:stop], "spans": inside, "settings": settings})
    # displaCy looks colours up by the label it is given, in upper case.
    options = {"colors": {escape_html(label): color for label, color in colors.items()}}
    html = displacy.render(pieces, style="span", manual=True, jupyter=False, options=options)
    return html if spans else f"{html}\n<p><em>No spans.</em></p>"


def _cut(n_tokens: int, spans: list[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
    """Split a document into pieces, where possible between spans."""
    inside = np.zeros(n_tokens + 1, dtype=np.int64)
    for start, end, _ in spans:
        # A cut before token i severs the spans with start < i < end.
        inside[start + 1 : end] += 1
    first = 0
    while n_tokens - first > PIECE_LENGTH:
        (free,) = np.nonzero(inside[first + PIECE_LENGTH : first + LONGEST_PIECE] == 0)
        stop = min(
            first + PIECE_LENGTH + int(free[0]) if len(free) else first + LONGEST_PIECE, n_tokens
        )
        yield first, stop
        first = stop
    if first < n_tokens:
        yield first, n_tokens
