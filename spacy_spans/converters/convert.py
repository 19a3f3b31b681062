"""From annotated files to a `.spacy` file."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from tqdm import tqdm

from spacy_spans.converters.align import ALIGNMENT_MODES, TokenEdges, align_annotation
from spacy_spans.converters.formats import get_format, guess_format, list_files
from spacy_spans.converters.records import Annotation, Offsets, ReaderOptions, Record
from spacy_spans.converters.report import ConversionReport, FileReport
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.files import check_writable, replacing
from spacy_spans.groups import mention_name
from spacy_spans.keys import CHARACTERS_KEY, check_spans_key


@dataclass(frozen=True)
class ConvertSettings:
    """How to convert; checked on creation.

    format (str | None): jsonl, prodigy, conll, brat or toxic. None: guessed from the input.
    spans_key (str): The key of `doc.spans` to write to.
    lang (str): Language code of the tokenizer, for formats without tokens.
    alignment_mode (str): strict, contract or expand, as in `Doc.char_span`.
    labels (tuple): Labels where the format has none: one a tag column (conll), or one (toxic).
    columns (tuple): Tag columns, counted from 1, the token column (conll). Empty: all others.
    n_sents (int | None): Sentences in a document (conll); 0 for all up to the next -DOCSTART-.

    Raises SettingsError for a value that cannot be.
    """

    format: str | None = None
    spans_key: str = "sc"
    lang: str = "en"
    alignment_mode: str = "strict"
    labels: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()
    n_sents: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            get_format(self.format)
        if self.alignment_mode not in ALIGNMENT_MODES:
            raise SettingsError(
                f"Unknown alignment mode {self.alignment_mode!r}, expected one of: "
                f"{', '.join(ALIGNMENT_MODES)}."
            )
        check_spans_key(self.spans_key)
        for name in (self.spans_key, *self.labels):
            # Bytes on the command line that are no text arrive as halves of surrogate pairs.
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise SettingsError(f"The name {name!r} is no Unicode text. Choose another one.")
        if not all(label.strip() for label in self.labels):
            raise SettingsError(f"An empty label among {self.labels}, expected names.")
        if self.n_sents is not None and self.n_sents < 0:
            raise SettingsError(f"n_sents is {self.n_sents}, expected 0 or more.")

    def reader_options(self, format: str) -> ReaderOptions:
        """What concerns the reader of a format.

        Raises SettingsError for an option this format has no use for.
        """
        known = get_format(format).options
        for option in fields(ReaderOptions):
            if getattr(self, option.name) not in ((), None) and option.name not in known:
                raise SettingsError(
                    f"{option.name} was given, but format {format} has no use for it. Leave it out."
                )
        return ReaderOptions(self.labels, self.columns, self.n_sents)


def convert(
    input_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    settings: ConvertSettings | None = None,
    *,
    progress: bool = False,
) -> ConversionReport:
    """Convert annotated files to one `.spacy` file with span groups.

    input_path (str | PathLike): A file, or a folder of files of one format.
    output_path (str | PathLike): Ends in `.spacy`. Written whole or not at all: on any error
        the file that was there before stays.
    settings (ConvertSettings | None): None for the defaults.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (ConversionReport): What was read, kept, moved and lost, file by file.

    Raises DataError for input that cannot be read, or without a single document; SettingsError
    for settings or an output path that cannot work.
    """
    settings = settings or ConvertSettings()
    output = check_writable(output_path, suffix=".spacy", inputs=[input_path])
    nlp = make_tokenizer(settings.lang)
    report, documents = read_docs(input_path, nlp, settings)
    report.output = str(output)
    docbin = DocBin(store_user_data=True)
    # None is tqdm's word for silence where there is no terminal.
    for doc in tqdm(documents, unit=" docs", leave=False, disable=None if progress else True):
        docbin.add(doc)
    if not len(docbin):
        skipped = report.total().skipped.items()
        reasons = ", ".join(f"{count} x {reason}" for reason, count in skipped)
        raise DataError(
            f"{input_path}: no documents, expected at least one. Left out: {reasons or 'none'}."
        )
    with replacing(output) as temporary:
        docbin.to_disk(temporary)
    return report


def make_tokenizer(lang: str) -> Language:
    """A blank pipeline. Raises SettingsError when spaCy has none for the language."""
    try:
        return spacy.blank(lang)
    # Any module beside the languages is taken for one, such as spacy.lang.punctuation.
    except Exception as error:
        raise SettingsError(
            f"No tokenizer for language {lang!r}: {error}. Expected a code that spaCy knows, "
            "such as 'en', or 'xx' for any language."
        ) from error


def read_docs(
    input_path: str | os.PathLike[str], nlp: Language, settings: ConvertSettings | None = None
) -> tuple[ConversionReport, Iterator[Doc]]:
    """Read annotated files as documents, one at a time.

    input_path (str | PathLike): A file, or a folder of files of one format.
    nlp (Language): Whose tokenizer and vocabulary to use.
    settings (ConvertSettings | None): None for the defaults.
    RETURNS (tuple): The report, which fills up while documents are taken, and the documents.
        Each has `doc.spans[settings.spans_key]`, also when there are no spans.

    Raises DataError or SettingsError, here or while documents are taken.
    """
    settings = settings or ConvertSettings()
    path = Path(input_path)
    format, guessed = (settings.format, "") if settings.format else guess_format(path)
    files, left_out = list_files(path, format)
    options = settings.reader_options(format)
    report = ConversionReport(
        input=str(path),
        output="",
        format=format,
        guessed=guessed,
        spans_key=settings.spans_key,
        lang=settings.lang,
        alignment_mode=settings.alignment_mode,
        left_out=[str(file) for file in left_out],
    )
    return report, _read_files(files, report, nlp, options)


def _read_files(
    files: list[Path], report: ConversionReport, nlp: Language, options: ReaderOptions
) -> Iterator[Doc]:
    reader = get_format(report.format).read
    n_docs = 0
    for file in files:
        counts = FileReport(str(file))
        report.files.append(counts)
        for record in reader(file, counts, options):
            doc = make_doc(record, nlp)
            add_spans(doc, record, report.spans_key, report.alignment_mode, counts, n_docs)
            n_docs += 1
            counts.documents += 1
            yield doc


def make_doc(record: Record, nlp: Language) -> Doc:
    """Make the document of a record, from its tokens if it has any, else with the tokenizer.

    Raises DataError when the tokenizer changes the text, since offsets would not fit.
    """
    if record.words is not None:
        return Doc(
            nlp.vocab, words=record.words, spaces=record.spaces, sent_starts=record.sent_starts
        )
    # Not nlp.make_doc: its limit on the length is there for the parser.
    doc = nlp.tokenizer(record.text)
    if doc.text != record.text:
        raise DataError(
            f"{record.where}: the tokenizer of language {nlp.lang!r} changes the text, so that "
            "offsets do not fit. Use another language, such as 'xx'."
        )
    return doc


def add_spans(
    doc: Doc, record: Record, key: str, mode: str, counts: FileReport, index: int = 0
) -> None:
    """Write a record's annotations to `doc.spans[key]`, and count their fates.

    doc (Doc): With the text of the record.
    key (str): The group to write; replaced when it is there, empty without annotations.
    mode (str): The alignment mode.
    counts (FileReport): Filled up, all but `documents`.
    index (int): The number of the document, for examples.
    """
    edges = TokenEdges(doc)
    distinct = dict.fromkeys(record.annotations)
    aligned: dict[tuple[str, tuple[Offsets, ...]], bool] = {}
    for annotation in distinct:
        found = align_annotation(edges, annotation, mode)
        if isinstance(found, str):
            counts.lose(found, _example(annotation, record, index))
            continue
        fragments, moved = found
        mention = (annotation.label, fragments)
        if mention in aligned:
            counts.merged += 1
            # One of the annotations was exact: then the mention is.
            aligned[mention] &= moved
            continue
        aligned[mention] = moved
        counts.labels[annotation.label] += 1
        counts.joined += len(fragments) == 1 < len(annotation.fragments)
    counts.moved += sum(aligned.values())
    counts.annotations += len(record.annotations)
    counts.duplicates += len(record.annotations) - len(distinct)
    counts.mentions += len(aligned)
    spans = _make_spans(doc, list(aligned))
    counts.spans += len(spans)
    counts.discontinuous += sum(len(fragments) > 1 for _, fragments in aligned)
    doc.spans[key] = SpanGroup(doc, name=key, spans=spans)
    if len(aligned) < len(distinct) or any(aligned.values()):
        doc.user_data[CHARACTERS_KEY] = {key: [[a.label, a.fragments] for a in distinct]}


def _make_spans(doc: Doc, mentions: list[tuple[str, tuple[Offsets, ...]]]) -> list[Span]:
    rows: list[tuple[int, int, str, str]] = []
    n_discontinuous = 0
    # Numbered in order of appearance, so that equal annotations give equal files.
    for label, fragments in sorted(mentions, key=lambda mention: (mention[1], mention[0])):
        n_discontinuous += len(fragments) > 1
        name = mention_name(n_discontinuous if len(fragments) > 1 else 0)
        rows.extend((start, end, label, name) for start, end in fragments)
    return [
        Span(doc, start, end, label=label, span_id=name) for start, end, label, name in sorted(rows)
    ]


def _example(annotation: Annotation, record: Record, index: int) -> dict[str, Any]:
    start, end = annotation.fragments[0][0], annotation.fragments[-1][1]
    text = record.text[start:end]
    return {
        "where": record.where,
        "doc": index,
        "start": start,
        "end": end,
        "label": annotation.label,
        "text": text if len(text) <= 80 else f"{text[:38]}...{text[-38:]}",
        "fragments": len(annotation.fragments),
    }
