"""Documents that are in the data and never reach training: readers and batchers leave some out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spacy.training import Example

from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides
from spacy_spans.debugging.plan import corpus_settings
from spacy_spans.groups import spans_of
from spacy_spans.keys import ENTITIES
from spacy_spans.pipeline.gold_report import amount


def check_reader(sides: Sides, config: Mapping[str, Any], keys: Sequence[str]) -> Section:
    """Count documents that spaCy's reader and batchers drop without a word, with their spans."""
    section = Section("Documents that training leaves out")
    for side, examples in sides.items():
        remaining = list(examples)
        for why, is_left_out in _filters(config, side, keys):
            left_out = [example for example in remaining if is_left_out(example)]
            remaining = [example for example in remaining if not is_left_out(example)]
            if left_out:
                n_spans = sum(len(spans_of(eg.reference, key)) for eg in left_out for key in keys)
                section.add(
                    "warning" if remaining else "error",
                    f"{side}: {len(left_out):,} of {amount(len(examples), 'document')} left out, "
                    f"with {amount(n_spans, 'span')}: {why}",
                )
    if not section.findings:
        section.add("good", "none")
    return section


def _filters(
    config: Mapping[str, Any], side: str, keys: Sequence[str]
) -> Iterable[tuple[str, Callable[[Example], bool]]]:
    """Reasons, and whether they hold for an example, in the order they apply."""
    reader = corpus_settings(config, side)
    # Sentences that the reader makes of a document have its entities, but no doc.spans.
    spans_are_learned = any(key != ENTITIES for key in keys)
    limit = reader.get("max_length") or 0
    if reader.get("@readers") == "spacy.Corpus.v1":
        if reader.get("gold_preproc") and spans_are_learned:
            yield (
                "the reader has gold_preproc = true, and the sentences that it makes of documents "
                "have no doc.spans. Set it to false.",
                lambda eg: eg.reference.has_annotation("SENT_START"),
            )
        if limit > 0:
            yield (
                f"the reader has max_length = {limit}, and what it makes of longer documents has "
                "no doc.spans, or is nothing. Set it to 0, and let the batcher see to memory.",
                lambda eg: (
                    len(eg.reference) >= limit
                    and (spans_are_learned or not eg.reference.has_annotation("SENT_START"))
                ),
            )
    batcher = (config.get("training") or {}).get("batcher") or {}
    if side == "train" and batcher.get("discard_oversize"):
        most = _most_words(batcher)
        yield (
            f"[training.batcher] has discard_oversize = true and takes no document of more than "
            f"{most:,.0f} tokens. Set it to false: a long one is then a batch of its own.",
            lambda eg: len(eg.predicted) > most,
        )


def _most_words(batcher: Mapping[str, Any]) -> float:
    """The longest document that is ever in a batch; infinite where that is not known."""
    size = batcher.get("size")
    if isinstance(size, Mapping):
        # Of a schedule that goes from one size to another.
        size = max((size[name] for name in ("start", "stop") if name in size), default=None)
    if not isinstance(size, (int, float)):
        return float("inf")
    if batcher.get("@batchers") == "spacy.batch_by_words.v1":
        return size * (1 + batcher.get("tolerance", 0.2))
    # Of `spacy.batch_by_padded.v1`, which drops what has just its size too.
    return size - 1 if batcher.get("@batchers") == "spacy.batch_by_padded.v1" else float("inf")
