"""Fit the threshold of a `token_pruner` on data, and show what other thresholds would do."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tqdm import tqdm
from wasabi.tables import table

from spacy_spans.errors import SettingsError
from spacy_spans.pipelines import predict

Report: TypeAlias = dict[str, Any]

# Recalls that the report shows beside the one asked for.
RECALLS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


def calibrate_pruner(
    nlp: Language, gold: Sequence[Doc], *, name: str | None = None, progress: bool = False
) -> Report:
    """Fit the threshold of a pruner with the policy `spacy-spans.recall_target_policy.v1`.

    nlp (Language): A trained pipeline; changed in place.
    gold (Sequence[Doc]): Documents with gold spans that it was not trained on.
    name (str | None): Name of the pruner; None where there is only one.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): Plain data, ready for JSON: "component", "recall", "fitted", and "trade_off",
        a list. These have "threshold", "span_recall" and "keep_ratio", the latter also "recall".
    RAISES (SettingsError): There is no such pruner, or it has another policy.
    RAISES (SpansError): The data has no gold spans, or the pruner cannot be fitted.
    """
    name = _find_pruner(nlp, name)
    pruner: Any = nlp.get_pipe(name)
    # What comes after it has no say.
    with nlp.select_pipes(enable=nlp.pipe_names[: nlp.pipe_names.index(name)]):
        docs = predict(nlp, gold)
        silent = None if progress else True
        predicted = list(tqdm(docs, total=len(gold), unit=" docs", leave=False, disable=silent))
    examples = [Example(*pair) for pair in zip(predicted, gold, strict=True)]
    fitted = pruner.calibrate(examples)
    others = pruner.trade_off(examples, RECALLS)
    return {
        "component": name,
        "recall": pruner.policy.recall,
        "fitted": fitted._asdict(),
        "trade_off": [
            {"recall": recall, **other._asdict()}
            for recall, other in zip(RECALLS, others, strict=True)
        ],
    }


def format_report(report: Report) -> str:
    """Write a report as a table for people, without a line break at the end."""
    rows = [(f"{row['recall']:.3f}", *_format(row)) for row in report["trade_off"]]
    rows.append((f"{report['recall']:.3f} (fitted)", *_format(report["fitted"])))
    header = ("recall", "threshold", "spans whole", "tokens kept")
    return str(table(rows, header=header, divider=True, aligns=("l", "r", "r", "r"))).strip("\n")


def _format(row: Report) -> tuple[str, str, str]:
    return f"{row['threshold']:.4g}", f"{row['span_recall']:.3f}", f"{row['keep_ratio']:.3f}"


def _find_pruner(nlp: Language, name: str | None) -> str:
    pruners = [own for own, pipe in nlp.pipeline if hasattr(pipe, "calibrate")]
    if name is None and len(pruners) == 1:
        return pruners[0]
    if name in pruners:
        return name
    raise SettingsError(
        f"Got the pruner {name!r}, but the pipeline's are {pruners}. Name one of them, or add a "
        "token_pruner and train it."
    )
