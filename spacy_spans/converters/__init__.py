"""Convert span annotations to spaCy's `.spacy` files.

| format | input |
|---|---|
| jsonl | one `{"text", "spans": [{"start", "end", "label"}]}` a line, Unicode offsets |
| prodigy | Prodigy's JSON lines: tokens and answers are heeded |
| conll | a token a line, then one tag column for each layer of spans |
| brat | `.txt` files with `.ann` files beside them |
| toxic | SemEval-2021 toxic spans: CSV with lists of character indices |

**What is written.** Every document has `doc.spans[key]`, sorted by start, end and label; its name
is its key. Identical annotations are kept once. Offsets count Unicode characters, ends are
exclusive. Ids and other fields of the source are not kept; documents stay in order.

**Discontinuous mentions** are one `Span` for each fragment, in the same group, that share a
`Span.id`. It is not 0, and no other mention of the document has it (`Span.id_` reads "m1", "m2"
and so on). All other spans have id 0. Two mentions may share a fragment: then the group holds
that span twice, with different ids. Fragments parted by nothing but white space, or touching once
they are tokens, are joined. When one fragment cannot be aligned, the whole mention is lost, and
counted: a part of it would be another mention.

**Original offsets.** Where tokens cannot hold the annotations as they are, because some were
moved, lost or merged, `doc.user_data["spacy_spans.characters"][key]` lists all of the document's
distinct ones as `(label, ((start, end), ...))` in characters. Documents without it are exact.
"""

from spacy_spans.converters.align import ALIGNMENT_MODES
from spacy_spans.converters.convert import CHARACTERS_KEY, ConvertSettings, convert, read_docs
from spacy_spans.converters.formats import FORMATS, guess_format
from spacy_spans.converters.report import Cases, ConversionReport, FileReport

__all__ = [
    "ALIGNMENT_MODES",
    "CHARACTERS_KEY",
    "FORMATS",
    "Cases",
    "ConversionReport",
    "ConvertSettings",
    "FileReport",
    "convert",
    "guess_format",
    "read_docs",
]
