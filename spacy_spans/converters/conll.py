"""Columns: a token, then one tag for each layer of spans.

A document is one sentence, unless the file has -DOCSTART- lines, which then start the documents.
`n_sents` groups sentences, never across a -DOCSTART- line. Columns are parted by tabs where a
line has one, else by spaces. A blank line, or one with nothing but white space, ends a sentence.
Words are joined by single spaces; sentence starts are kept.

Tags may be IO, IOB1, IOB2, BIOES or BILOU: O ends a span; B, S and U start one; so does I, E or L
that continues nothing, which is also how spaCy reads it. Where the column is IOB2, such a tag is a
slip, repaired that way and counted in `report.repaired`. That BIOES and BILOU spans end with their
own tag is not checked. Comments, lines that start with "# " and hold no tag, are counted in
`report.ignored`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spacy_spans.converters.records import Annotation, ReaderOptions, Record, fail, read_lines
from spacy_spans.converters.report import FileReport
from spacy_spans.errors import SettingsError

DOC_START = "-DOCSTART-"
TAG = re.compile(r"O|([BIESLU])(?:-(.+))?")


class Tag(NamedTuple):
    """A letter and a label. Outside of every span: ("O", "")."""

    position: str
    label: str


class Row(NamedTuple):
    line: int
    word: str
    tags: tuple[str, ...]


@dataclass
class Layer:
    """A tag column, and what has been seen in it.

    typed (bool): Tags that name their label, such as B-LOC.
    untyped (bool): Tags that do not, such as B.
    strict (bool): A B that follows an O: the column is not IO or IOB1.
    slips (list): Lines of tags inside of a span that started one.
    """

    column: int
    default_label: str
    typed: bool = False
    untyped: bool = False
    strict: bool = False
    slips: list[int] = field(default_factory=list)


class TaggedSpan(NamedTuple):
    """Tokens start to end, end exclusive; whether its first tag was not one that starts spans."""

    start: int
    end: int
    label: str
    slip: bool


def read_conll(path: Path, report: FileReport, options: ReaderOptions) -> Iterator[Record]:
    """Read token and tag columns; every tag column becomes a layer of spans of its own.

    Tags without a label take `options.labels` of their column, else LAYER1, LAYER2, ...
    Raises DataError for ragged lines and for anything but tags, SettingsError for labels or
    columns that do not fit the file. A file without tokens yields nothing.
    """
    documents = _read_sentences(path, report)
    first = next((row for document in documents for sentence in document for row in sentence), None)
    if first is None:
        return
    layers = _make_layers(path, first, options)
    # What comes before the first -DOCSTART- is documents[0], empty where that is the first line.
    n_sents = options.n_sents if options.n_sents is not None else int(len(documents) == 1)
    for document in documents:
        for sentences in _group(document, n_sents):
            yield _make_record(sentences, layers, path)
    _finish(layers, path, report, options)


def parse_tag(tag: str) -> Tag | None:
    """Split a tag such as B-LOC, B or O. None when it is not a tag; label "" when it has none."""
    match = TAG.fullmatch(tag)
    if match is None:
        return None
    return Tag(match[1] or "O", match[2] or "")


def decode_tags(tags: Sequence[Tag]) -> list[TaggedSpan]:
    """Spans of one sentence and column, in order. No tags, or none but O, give []."""
    spans: list[TaggedSpan] = []
    start, label, slip = -1, "", False

    def close(end: int) -> None:
        if start >= 0:
            spans.append(TaggedSpan(start, end, label, slip))

    for index, tag in enumerate(tags):
        inside = tag.position in "IEL"
        if not (inside and start >= 0 and tag.label == label):
            close(index)
            start = -1
            if tag.position != "O":
                start, label, slip = index, tag.label, inside
        if start >= 0 and tag.position in "ELSU":
            close(index + 1)
            start = -1
    close(len(tags))
    return spans


def _read_sentences(path: Path, report: FileReport) -> list[list[list[Row]]]:
    """Documents, as -DOCSTART- lines part them, of sentences of rows. The first may be empty."""
    documents: list[list[list[Row]]] = [[[]]]
    width = 0
    for number, line in read_lines(path):
        if not line.strip():
            documents[-1].append([])
            continue
        cells = split_columns(line)
        if cells[0] == DOC_START:
            documents.append([[]])
            continue
        if is_comment(line):
            report.ignored["comments"] += 1
            continue
        width = width or len(cells)
        where = f"{path}, line {number}"
        if len(cells) != width:
            fail(where, f"{len(cells)} columns, expected {width} as in the lines before it.")
        if not all(cells):
            fail(where, f"column {cells.index('') + 1} is empty, expected a token and its tags.")
        documents[-1][-1].append(Row(number, cells[0], tuple(cells)))
    return [[sentence for sentence in document if sentence] for document in documents]


def split_columns(line: str) -> list[str]:
    """Cells of a line: parted by tabs where it has one inside, else by spaces.

    Other white space may be part of a token, as in tables from the web.
    """
    line = line.rstrip("\t ")
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return re.split(" +", line.lstrip(" "))


def is_comment(line: str) -> bool:
    """Whether a line starts with "# " and has no tag: "#" is a common token, too."""
    return line.startswith("# ") and not any(map(parse_tag, re.split("[\t ]+", line)))


def _make_layers(path: Path, first: Row, options: ReaderOptions) -> list[Layer]:
    width = len(first.tags)
    if width < 2:
        fail(
            f"{path}, line {first.line}",
            "1 column, expected at least two: a token, then its tags, parted by tabs or spaces.",
        )
    columns = options.columns or tuple(range(2, width + 1))
    for column in columns:
        if not 2 <= column <= width:
            raise SettingsError(
                f"Tag column {column} was asked for, but {path} has columns 1 to {width}, and "
                "the first one holds the tokens."
            )
    if options.labels and len(options.labels) != len(columns):
        raise SettingsError(
            f"{len(options.labels)} labels were given ({', '.join(options.labels)}), expected "
            f"{len(columns)}: one for each tag column of {path}."
        )
    labels = options.labels or tuple(f"LAYER{i}" for i in range(1, len(columns) + 1))
    return [Layer(column, label) for column, label in zip(columns, labels, strict=True)]


def _group(document: list[list[Row]], n_sents: int) -> Iterator[list[list[Row]]]:
    step = n_sents or max(1, len(document))
    for start in range(0, len(document), step):
        yield document[start : start + step]


def _make_record(sentences: list[list[Row]], layers: list[Layer], path: Path) -> Record:
    words = [row.word for sentence in sentences for row in sentence]
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    annotations: list[Annotation] = []
    for layer in layers:
        n_before = 0
        for sentence in sentences:
            for start, end, label, slip in decode_tags(_read_tags(sentence, layer, path)):
                first, last = n_before + start, n_before + end - 1
                offsets = (starts[first], starts[last] + len(words[last]))
                annotations.append(Annotation(label, (offsets,)))
                if slip:
                    layer.slips.append(sentence[start].line)
            n_before += len(sentence)
    return Record(
        " ".join(words),
        annotations,
        f"{path}, line {sentences[0][0].line}",
        words,
        [True] * (len(words) - 1) + [False],
        [index == 0 for sentence in sentences for index in range(len(sentence))],
    )


def _read_tags(sentence: list[Row], layer: Layer, path: Path) -> list[Tag]:
    tags: list[Tag] = []
    for row in sentence:
        cell = row.tags[layer.column - 1]
        tag = parse_tag(cell)
        if tag is None:
            fail(
                f"{path}, line {row.line}",
                f"column {layer.column} holds {cell!r}, expected a tag: O, or B or I (also E, S, "
                "L, U), alone or with a label as in B-LOC. Name the columns that hold tags with "
                f"--columns, for instance --columns {len(row.tags)}.",
            )
        if tag.position != "O":
            layer.typed |= bool(tag.label)
            layer.untyped |= not tag.label
            layer.strict |= tag.position == "B" and (not tags or tags[-1].position == "O")
            tag = Tag(tag.position, tag.label or layer.default_label)
        tags.append(tag)
    return tags


def _finish(layers: list[Layer], path: Path, report: FileReport, options: ReaderOptions) -> None:
    for layer in layers:
        for line in layer.slips if layer.strict else ():
            report.repaired.add(f"{path}, line {line}, column {layer.column}")
    typed = [layer.column for layer in layers if layer.typed]
    if options.labels and typed and not any(layer.untyped for layer in layers):
        raise SettingsError(
            f"Labels were given ({', '.join(options.labels)}), which name tags without one, but "
            f"every tag in column {typed[0]} of {path} has its own. Leave --labels out."
        )
