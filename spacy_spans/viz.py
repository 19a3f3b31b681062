"""One self-contained HTML page that shows the spans of documents: payload, escaping, assembly.

The page's own files lie in `spacy_spans/viewer`. Python says what is where, the browser draws it.
"""

import base64
import colorsys
import hashlib
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any, TypeAlias

from spacy.tokens import Doc, Span
from spacy.util import escape_html

from spacy_spans.errors import DataError
from spacy_spans.groups import fragments

Json: TypeAlias = dict[str, Any]
# Documents of one source, in the order of the page.
Side: TypeAlias = tuple[str, Sequence[Doc]]

CANDIDATES_KEY = "candidates"
KEPT_KEY = "kept_tokens"

# In this order they are one program.
_SCRIPTS = ("model.js", "layout.js", "list.js", "controls.js", "viewer.js")
_PAGES = ("#ffffff", "#16181d")  # The background of the page, light and dark; as in viewer.css.
_CONTRAST = 5.0  # WCAG asks for 4.5.
# Characters that end a script element or start a comment in it, and halves of surrogate pairs,
# which UTF-8 has no bytes for.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def render_page(
    sides: Sequence[Side], *, spans_keys: Sequence[str] = (), title: str = "Spans"
) -> str:
    """Write one self-contained page that shows groups of `doc.spans` as layers over the text.

    sides (Sequence[Side]): Name and documents of each source: "gold" and "predicted", which are
        compared where both have a key, or one with another name or none. The documents of all
        sides have the same texts; they may be tokenized differently.
    spans_keys (Sequence[str]): Keys to show; none for all.
    title (str): Heading of the page.
    RETURNS (str): HTML; nothing of text, labels and title is read as markup or run. No documents
        give a page that says so.
    """
    payload = make_payload(sides, spans_keys=spans_keys)
    colors = choose_colors(payload["labels"])
    style = "\n".join([_read("viewer.css"), *_write_rules(colors)])
    script = "\n".join(['(() => {"use strict";', *map(_read, _SCRIPTS), "})();"])
    return Template(_read("viewer.html")).substitute(
        title=escape_html(title),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=dump_json(payload),
    )


def check_keys(sides: Sequence[Side], spans_keys: Sequence[str] = ()) -> list[str]:
    """Look for keys that are asked for and not there, or cannot be compared.

    sides, spans_keys: As for `render_page`.
    RETURNS (list): A sentence for each thing to know. No documents give none.
    RAISES (DataError): A key is in no document, or none has any key.
    """
    there = {side: {key for doc in docs for key in doc.spans} for side, docs in sides}
    if not any(docs for _, docs in sides):
        return []
    lists = "; ".join(
        f"{_owner(side)} {'have' if side == '' else 'has'} {sorted(keys) or 'no keys at all'}"
        for side, keys in there.items()
    )
    known = set().union(*there.values())
    for key in spans_keys:
        if key not in known:
            raise DataError(f"There is no doc.spans[{key!r}]: {lists}. Pass others as --spans-key")
    if not known:
        raise DataError(f"There is nothing to show in doc.spans: {lists}")
    if len(there) < 2:
        return []
    shown = set(spans_keys or known)
    gold, predicted = (keys & shown for keys in there.values())
    found = [f"Nothing is compared, as no key is on both sides: {lists}."]
    return [] if gold & predicted else found


def make_payload(sides: Sequence[Side], *, spans_keys: Sequence[str] = ()) -> Json:
    """Read documents into plain data for the page.

    sides, spans_keys: As for `render_page`.
    RETURNS (Json): "labels": their names, sorted. "layers": for each its "side", "key", "kind"
        ("spans", "candidates" or "kept"), "range" (lowest and highest score; None without any) and
        "spans", their number. "docs": for each its "text", "dir" ("rtl" or "auto"), "lang", and
        "spans": by number of the layer, a row for each mention: label, score or None, tokens,
        then start and end of each fragment in UTF-16 units, as JavaScript counts. A layer that a
        document has not is not there, one without spans is empty.
    """
    names = [(side, key) for side, docs in sides for key in _list_keys(docs, spans_keys)]
    docs_of = dict(sides)
    labels = sorted({s.label_ for side, key in names for s in _all_spans(docs_of[side], key)})
    label_ids = {label: i for i, label in enumerate(labels)}
    layers: list[Json] = []
    n_docs = max((len(docs) for _, docs in sides), default=0)
    rows: list[Json] = [_describe(sides[0][1][i]) for i in range(n_docs)]
    for number, (side, key) in enumerate(names):
        scores: list[float] = []
        n_spans = 0
        for doc, row in zip(docs_of[side], rows, strict=True):
            if key in doc.spans:
                mentions = _read_mentions(doc, key, label_ids)
                row["spans"][str(number)] = mentions
                scores += [x[1] for x in mentions if x[1] is not None]
                n_spans += len(mentions)
        bounds = [min(scores), max(scores)] if scores else None
        kind = _kind(key, docs_of[side])
        layer = {"side": side, "key": key, "kind": kind, "range": bounds, "spans": n_spans}
        layers.append(layer)
    return {"labels": labels, "layers": layers, "docs": rows}


def dump_json(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it ends that element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def choose_colors(labels: Sequence[str]) -> list[tuple[str, str]]:
    """A colour on the light and one on the dark page for each label; grey for the empty label.

    The golden angle keeps neighbours apart. Each has a contrast of 5 to its page, as text and as
    page-coloured text on it.
    """
    colors = []
    for i, label in enumerate(labels):
        saturation = (0.85, 0.5)[i // 10 % 2] if label else 0.0
        light, dark = (_readable(0.58 + i * 0.381966, saturation, page) for page in _PAGES)
        colors.append((light, dark))
    return colors


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours (#rrggbb) as WCAG defines it, 1 to 21."""
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _readable(hue: float, saturation: float, page: str) -> str:
    """The colour of a hue that is nearest to the page's and still readable on it."""
    steps = [x / 100 for x in range(101)]
    for lightness in steps if _luminance(page) < 0.5 else reversed(steps):
        rgb = colorsys.hls_to_rgb(hue % 1, lightness, saturation)
        color = "#" + "".join(f"{round(255 * x):02x}" for x in rgb)
        if contrast(color, page) >= _CONTRAST:
            return color
    raise AssertionError("black or white is readable on every page")


def _write_rules(colors: Sequence[tuple[str, str]]) -> list[str]:
    light = "".join(f".c{i}{{--c:{color}}}" for i, (color, _) in enumerate(colors))
    dark = "".join(f".c{i}{{--c:{color}}}" for i, (_, color) in enumerate(colors))
    return [light, f"@media (prefers-color-scheme: dark) {{{dark}}}"]


def _owner(side: str) -> str:
    return {"gold": "the data", "predicted": "the pipeline's output"}.get(side, "the documents")


def _list_keys(docs: Sequence[Doc], spans_keys: Sequence[str]) -> list[str]:
    there = {key for doc in docs for key in doc.spans}
    return [key for key in dict.fromkeys(spans_keys) if key in there] or (
        [] if spans_keys else sorted(there)
    )


def _all_spans(docs: Sequence[Doc], key: str) -> list[Span]:
    return [span for doc in docs for span in doc.spans.get(key, ())]


def _kind(key: str, docs: Sequence[Doc]) -> str:
    """Kept tokens and candidates have names of their own, and no labels."""
    if key == KEPT_KEY:
        return "kept"
    spans = _all_spans(docs, key)
    unlabelled = bool(spans) and not any(span.label for span in spans)
    return "candidates" if key == CANDIDATES_KEY or unlabelled else "spans"


def _describe(doc: Doc) -> Json:
    # The first strong character decides, unless the language is written from the right: there a
    # Latin name may come first.
    is_rtl = doc.vocab.writing_system.get("direction") == "rtl"
    return {
        "text": doc.text,
        "dir": "rtl" if is_rtl else "auto",
        "lang": doc.lang_,
        "spans": {},
    }


def _read_mentions(doc: Doc, key: str, label_ids: dict[str, int]) -> list[list[Any]]:
    group = doc.spans[key]
    scores = group.attrs.get("scores")
    # Something else wrote them, or they were not kept in step with the spans.
    if scores is None or len(scores) != len(group):
        scores = [None] * len(group)
    # Equal spans may have scores of their own; `fragments` leaves them in their order.
    scores_of: defaultdict[Any, deque[float | None]] = defaultdict(deque)
    for span, score in zip(group, scores, strict=True):
        scores_of[_identity(span)].append(_clean_score(score))
    units = _unit_offsets(doc.text)
    return [
        [
            label_ids[mention[0].label_],
            scores_of[_identity(mention[0])].popleft(),
            sum(len(span) for span in mention),
            *(units(x) for span in mention for x in (span.start_char, span.end_char)),
        ]
        for mention in fragments(doc, key)
    ]


def _identity(span: Span) -> tuple[int, int, int, int]:
    return span.start, span.end, span.label, span.id


def _clean_score(score: Any) -> float | None:
    """Six digits say all that single precision does; what is no finite number is no score."""
    try:
        value = float(f"{float(score):.6g}")
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _unit_offsets(text: str) -> Any:
    """A function from characters to UTF-16 units, in which JavaScript counts."""
    if not text or max(text) <= "\uffff":
        return int
    units = [0]
    for character in text:
        units.append(units[-1] + (2 if character > "\uffff" else 1))
    return units.__getitem__


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _read(name: str) -> str:
    return (files("spacy_spans") / "viewer" / name).read_text(encoding="utf8")
