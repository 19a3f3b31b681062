"""Tokens that the encoder would never see: windows of more word pieces than it takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides
from spacy_spans.errors import SpansError
from spacy_spans.groups import spans_of
from spacy_spans.pieces import Pieces, split_into_pieces
from spacy_spans.pipeline.gold_report import amount, shorten
from spacy_spans.types import LongArray

OURS = "spacy-spans."
N_SHOWN = 3
# Tokenizers that know no limit say an astronomic one.
NO_LIMIT = 1_000_000
BATCH = 64


def check_truncation(
    nlp: Language, config: Mapping[str, Any], sides: Sides, keys: Sequence[str]
) -> Section:
    """Count documents, tokens and gold spans that the windows of transformers cut off.

    Encoders are found by the span getter in their settings, whichever component they are part of.
    """
    section = Section("Windows of the encoder")
    components = {name: config["components"].get(name, {}) for name in nlp.pipe_names}
    found = [(name, own) for name, settings in components.items() for own in _encoders(settings)]
    for name, settings in found:
        if settings["@architectures"].startswith(OURS):
            section.add("good", f"{name}: windows are counted in word pieces, none is cut off")
            continue
        try:
            _check_encoder(section, nlp.get_pipe(name), settings, sides, keys)
        # No such model, or no network; a getter that needs sentences; a tokenizer that is slow.
        except (OSError, ValueError, SpansError) as error:
            section.add(
                "warning",
                f"{name}: not checked, so tokens may be cut off "
                f"({type(error).__name__}: {shorten(str(error), 200)})",
            )
    named = {name for name, _ in found}
    for name in components:
        if "transformer" in nlp.get_pipe_meta(name).factory and name not in named:
            section.add(
                "warning",
                f"{name}: not checked, so tokens may be cut off: its architecture has no setting "
                "get_spans, as those of spacy-transformers have",
            )
    if not section.findings:
        section.add("good", "no transformer: every token is seen, whatever the document's length")
    return section


def _encoders(settings: Any) -> list[Mapping[str, Any]]:
    """Blocks of a component's settings that name an architecture and a span getter."""
    if not isinstance(settings, Mapping):
        return []
    own = [settings] if "get_spans" in settings and "@architectures" in settings else []
    return own + [found for value in settings.values() for found in _encoders(value)]


def _check_encoder(
    section: Section, pipe: Any, settings: Mapping[str, Any], sides: Sides, keys: Sequence[str]
) -> None:
    model = next(node for node in pipe.model.walk() if "get_spans" in node.attrs)
    tokenizer = _tokenizer(model, settings)
    # What is too long is cut at its end, special pieces there included.
    mask = tokenizer("a", return_special_tokens_mask=True, verbose=False)["special_tokens_mask"]
    limit = tokenizer.model_max_length - mask.index(0)
    for side, examples in sides.items():
        _check_side(section, side, examples, tokenizer, limit, model.attrs["get_spans"], keys)


def _tokenizer(model: Any, settings: Mapping[str, Any]) -> Any:
    """Of a trained model; else the one that training would load."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            settings["name"], **settings.get("tokenizer_config", {})
        )
    return tokenizer


def _check_side(
    section: Section,
    side: str,
    examples: Sequence[Example],
    tokenizer: Any,
    limit: int,
    get_spans: Any,
    keys: Sequence[str],
) -> None:
    n_docs = n_tokens = n_gold = 0
    shown: list[str] = []
    docs = [(i, eg.predicted, eg.reference) for i, eg in enumerate(examples) if len(eg.predicted)]
    for batch in minibatch(docs if limit < NO_LIMIT else [], BATCH):
        pieces = split_into_pieces(tokenizer, [doc for _, doc, _ in batch])
        for (i, doc, gold), own in zip(batch, pieces, strict=True):
            lost = find_lost(own, _windows(get_spans, doc), limit)
            if not len(lost):
                continue
            n_docs += 1
            n_tokens += len(lost)
            n_gold += _count_gold(doc, gold, lost, keys)
            if len(shown) < N_SHOWN:
                shown.append(f"document {i}: {_ranges(lost)} of {len(doc):,}")
    if not n_docs:
        section.add("good", f"{side}: each token is among the first {limit} pieces of a window")
        return
    section.add(
        "warning",
        f"{side}: the encoder cuts off {amount(n_tokens, 'token')} of "
        f"{amount(n_docs, 'document')}, and {amount(n_gold, 'gold span')} there, where windows "
        f"have more than {limit} word pieces ({'; '.join(shown)}). The architecture "
        "spacy-spans.PrunedTransformerModel.v1 with spacy-spans.piece_windows.v1 loses none.",
    )


def _windows(get_spans: Any, doc: Doc) -> list[tuple[int, int]]:
    return [(span.start, span.end) for spans in get_spans([doc]) for span in spans if len(span)]


def find_lost(pieces: Pieces, windows: Sequence[tuple[int, int]], limit: int) -> LongArray:
    """Tokens of which no window has any piece, though some window has the token.

    limit (int): Pieces of a window; the first so many are seen.
    RETURNS (ndarray): Ascending, without tokens that have no piece. Shape (n,).
    """
    seen = pieces.ends <= pieces.firsts
    inside = np.zeros(len(seen), dtype=bool)
    for start, end in windows:
        inside[start:end] = True
        seen[start:end] |= pieces.firsts[start:end] - pieces.firsts[start] < limit
    return np.flatnonzero(inside & ~seen)


def _count_gold(doc: Doc, gold: Doc, lost: LongArray, keys: Sequence[str]) -> int:
    """Gold spans with a token among the lost ones, by characters."""
    starts = np.asarray([doc[i].idx for i in lost.tolist()])
    ends = starts + np.asarray([len(doc[i]) for i in lost.tolist()])
    return sum(
        bool(((starts < span.end_char) & (ends > span.start_char)).any())
        for key in keys
        for span in spans_of(gold, key)
    )


def _ranges(tokens: LongArray) -> str:
    """As "tokens 3 to 5, 9 to 9", the first few."""
    breaks = np.flatnonzero(np.diff(tokens) > 1)
    firsts = tokens[np.append(0, breaks + 1)][:N_SHOWN].tolist()
    lasts = tokens[np.append(breaks, len(tokens) - 1)][:N_SHOWN].tolist()
    shown = ", ".join(f"{a} to {b}" for a, b in zip(firsts, lasts, strict=True))
    return f"tokens {shown}" + (", ..." if len(breaks) >= N_SHOWN else "")
