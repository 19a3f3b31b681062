"""Tokens that the encoder would never see: windows of more word pieces than it takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.training import Example

from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides
from spacy_spans.errors import SpansError
from spacy_spans.groups import spans_of
from spacy_spans.pipeline.gold_report import amount, shorten
from spacy_spans.truncation import LOSES_NONE, find_spans_on, find_truncated, piece_limit
from spacy_spans.types import LongArray

OURS = "spacy-spans."
N_SHOWN = 3


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
    for side, examples in sides.items():
        _check_side(section, side, examples, tokenizer, model.attrs["get_spans"], keys)


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
    get_spans: Any,
    keys: Sequence[str],
) -> None:
    n_docs = n_tokens = n_gold = 0
    shown: list[str] = []
    docs = [example.predicted for example in examples]
    for i, lost in find_truncated(docs, tokenizer, get_spans):
        n_docs += 1
        n_tokens += len(lost)
        gold = [span for key in keys for span in spans_of(examples[i].reference, key)]
        n_gold += len(find_spans_on(docs[i], lost, gold))
        if len(shown) < N_SHOWN:
            shown.append(f"document {i}: {_ranges(lost)} of {len(docs[i]):,}")
    limit = piece_limit(tokenizer)
    if not n_docs:
        seen = f"is among the first {limit} pieces of a window" if limit else "is seen"
        section.add("good", f"{side}: each token {seen}")
        return
    section.add(
        "warning",
        f"{side}: the encoder cuts off {amount(n_tokens, 'token')} of "
        f"{amount(n_docs, 'document')}, and {amount(n_gold, 'gold span')} there, where windows "
        f"have more than {limit} word pieces ({'; '.join(shown)}). {LOSES_NONE}",
    )


def _ranges(tokens: LongArray) -> str:
    """As "tokens 3 to 5, 9 to 9", the first few."""
    breaks = np.flatnonzero(np.diff(tokens) > 1)
    firsts = tokens[np.append(0, breaks + 1)][:N_SHOWN].tolist()
    lasts = tokens[np.append(breaks, len(tokens) - 1)][:N_SHOWN].tolist()
    shown = ", ".join(f"{a} to {b}" for a, b in zip(firsts, lasts, strict=True))
    return f"tokens {shown}" + (", ..." if len(breaks) >= N_SHOWN else "")
