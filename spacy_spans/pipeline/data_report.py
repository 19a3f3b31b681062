"""Say what looks wrong in training data, whichever component learns from it.

The checks are those of `spacy spans debug`, which lists all they find, and compares train with dev.
Here each is one sentence with a count and an example, and most have a bar, since good data has some
of everything: of nine public corpora none passes one without reason. Repeated documents with the
same spans say nothing against training, and are left to `debug`.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from spacy_spans.groups import is_annotated_for, spans_of
from spacy_spans.pipeline.gold_report import FEW_EXAMPLES, amount, format_counts, shorten
from spacy_spans.pipeline.stored_pipe import TRANSFORMER_LISTENER
from spacy_spans.suspicious import (
    AFTER_PUNCTUATION,
    AT_SPACE,
    BEFORE_PUNCTUATION,
    MIN_DOCS,
    OddEdges,
    find_odd_edges,
    find_relabelled,
    find_uneven,
    group_by_text,
    is_contradictory,
)
from spacy_spans.truncation import LOSES_NONE, find_spans_on, find_truncated, piece_limit

# Of streamed data spaCy shows components the first 100 documents when it initializes them. What is
# rare, or occurs once, among so few says nothing of the rest.
FEW_DOCS = 100
# Of a label's spans, those at punctuation: up to 6 % in careful data; most, where it belongs there.
STRAY, USUAL = 0.1, 0.5
# Of documents, those at odds with another one of their text: below 1 % in good data.
MANY_AT_ODDS = 0.05
# Of strings that are annotated in several documents, those that more documents leave unannotated,
# or that have another label in several. In good data up to 38 % and 3 %; where half of all spans
# were never annotated, 24 to 70 %.
MOST_UNEVEN, MANY_RELABELLED = 0.5, 0.1
# Shares of fewer strings say nothing.
FEW_STRINGS = 20
N_SHOWN = 3
SEE_DEBUG = "Run `python -m spacy spans debug` for all."
# Some tokenizers and windows cannot be looked into: no reason for a warning, training does without.
logger = logging.getLogger("spacy.spans")
logger.setLevel(logger.level or logging.INFO)


def describe_oddities(examples: Sequence[Example], key: str) -> list[str]:
    """Messages on annotations; none for good data, nor for none."""
    every = [example.reference for example in examples]
    docs = [doc for doc in every if is_annotated_for(doc, key)]
    edges = find_odd_edges(docs, key)
    messages = _describe_spaces(edges, key)
    if len(docs) > FEW_DOCS:
        n_of = Counter(span.label_ for doc in docs for span in spans_of(doc, key))
        messages += _describe_few(n_of, key)
        messages += _describe_punctuation(edges, n_of, key)
        messages += _describe_contradictions(docs, key)
        messages += _describe_strings(docs, key)
    return [f"{message} {SEE_DEBUG}" for message in messages]


def find_encoders(pipe: Any, nlp: Language | None) -> list[tuple[str, Any]]:
    """Initialized encoders of stock architectures that a component has or listens to, with the
    names of their components. Those of this package cut off nothing.
    """
    pipes = [(pipe.name, pipe)]
    if nlp is not None and any(node.name == TRANSFORMER_LISTENER for node in pipe.model.walk()):
        # Frozen ones, which are disabled meanwhile, too.
        pipes += [(name, own) for name, own in nlp.components if own is not pipe]
    return [
        (name, node)
        for name, own in pipes
        if isinstance(getattr(own, "model", None), Model)
        for node in own.model.walk()
        if "get_spans" in node.attrs
        and getattr(node, "tokenizer", None) is not None
        # To import the class would be to import transformers.
        and not type(node).__module__.startswith("spacy_spans.")
    ]


def describe_truncation(examples: Sequence[Example], key: str, name: str, model: Any) -> list[str]:
    """The message that an encoder does not see all of the gold spans; none where it does.

    name (str), model (TransformerModel): One of `find_encoders`.
    """
    with_gold = [example for example in examples if len(spans_of(example.reference, key))]
    docs = [example.predicted for example in with_gold]
    n_docs = n_gold = 0
    first = ""
    try:
        for i, lost in find_truncated(docs, model.tokenizer, model.attrs["get_spans"]):
            found = find_spans_on(docs[i], lost, spans_of(with_gold[i].reference, key))
            n_docs += bool(found)
            n_gold += len(found)
            first = first or (found[0].text if found else "")
    # A tokenizer that does not say where its pieces come from; windows that need sentences.
    except ValueError as error:
        logger.info(f"{name}: not checked for tokens that it cuts off ({shorten(str(error), 200)})")
        return []
    if not n_gold:
        return []
    return [
        f"{name} cuts off {amount(n_gold, 'gold span')} in {key!r}, of "
        f"{amount(n_docs, 'document')}, where windows have more than "
        f"{piece_limit(model.tokenizer)} word pieces (e.g. {shorten(first)!r}). {LOSES_NONE} "
        f"{SEE_DEBUG}"
    ]


def _describe_spaces(edges: dict[str, OddEdges], key: str) -> list[str]:
    odd = edges.get(AT_SPACE)
    if odd is None:
        return []
    first, *_ = odd.first_of_label.values()
    return [
        f"{amount(odd.of_label.total(), 'gold span')} in {key!r} {AT_SPACE} "
        f"({format_counts(odd.of_label)}; e.g. {shorten(first.text)!r}), which is learned as part "
        "of them. Leave it out."
    ]


def _describe_few(n_of: Counter[str], key: str) -> list[str]:
    few = [(label, n) for label, n in sorted(n_of.items()) if n < FEW_EXAMPLES]
    if not few:
        return []
    return [
        f"{amount(len(few), 'label')} with fewer than {FEW_EXAMPLES} training examples in {key!r} "
        f"({format_counts(dict(few[:N_SHOWN]))}{', ...' if len(few) > N_SHOWN else ''}): hardly to "
        "be learned. Annotate more, or leave these labels out."
    ]


def _describe_punctuation(edges: dict[str, OddEdges], n_of: Counter[str], key: str) -> list[str]:
    messages = []
    for kind in (AFTER_PUNCTUATION, BEFORE_PUNCTUATION):
        if kind not in edges:
            continue
        odd = edges[kind]
        stray = {
            label: n
            for label, n in odd.of_label.items()
            if n >= FEW_EXAMPLES and STRAY < n / n_of[label] < USUAL
        }
        if stray:
            first = odd.first_of_label[next(iter(stray))]
            messages.append(
                f"{amount(sum(stray.values()), 'gold span')} in {key!r} {kind}, unlike most of "
                f"their label ({format_counts(stray)}; e.g. {shorten(first.text)!r}). Annotate "
                "boundaries alike."
            )
    return messages


def _describe_contradictions(docs: Sequence[Doc], key: str) -> list[str]:
    repeated = [(text, own) for text, own in group_by_text(docs).items() if len(own) > 1]
    at_odds = [(text, own) for text, own in repeated if is_contradictory(own, key)]
    n_docs = sum(len(own) for _, own in at_odds)
    if n_docs <= MANY_AT_ODDS * len(docs):
        return []
    return [
        f"{n_docs:,} of {amount(len(docs), 'training document')} with the text of another have "
        f"other spans in {key!r} (e.g. {shorten(at_odds[0][0])!r}): what one teaches the other "
        "contradicts. Annotate them alike, or keep one of each."
    ]


def _describe_strings(docs: Sequence[Doc], key: str) -> list[str]:
    uneven, n_strings = find_uneven(docs, key)
    if n_strings < FEW_STRINGS:
        return []
    messages = []
    of_all = (
        f"of {n_strings:,} strings that are annotated in {MIN_DOCS} documents or more in {key!r}"
    )
    free = [row for row in uneven if row.n_without > row.n_with]
    if len(free) > MOST_UNEVEN * n_strings:
        messages.append(
            f"{len(free):,} {of_all} occur in more that have no span on them (e.g. "
            f"{shorten(free[0].text)!r} in {free[0].n_with:,} and not in {free[0].n_without:,}). "
            "Annotations may be missing: what is not annotated is learned as no span."
        )
    relabelled = find_relabelled(docs, key)
    if len(relabelled) > MANY_RELABELLED * n_strings:
        text, n_of = relabelled[0]
        messages.append(
            f"{len(relabelled):,} {of_all} have one label in some and another in others (e.g. "
            f"{shorten(text)!r}: {format_counts(n_of)}). Annotate them alike, unless it is their "
            "context that decides."
        )
    return messages
