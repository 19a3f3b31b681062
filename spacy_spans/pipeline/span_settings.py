"""What the settings of `span_enumerator` may be."""

from collections.abc import Mapping
from typing import Any

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.decoding import OVERLAP_POLICIES
from spacy_spans.keys import check_spans_key

LOSSES = ("sigmoid", "softmax")


def check_settings(
    cfg: Mapping[str, Any],
    *,
    loss: str,
    negative_ratio: float | None,
    boundary_smoothing: float,
    read: set[str | None],
    candidates_key: str | None,
) -> None:
    """Raise SettingsError on settings out of range, or that work against each other.

    cfg (Mapping): The settings that may change after training.
    read (set): Spans keys that the component reads from; None stands for none.
    """
    if loss not in LOSSES:
        raise SettingsError(f"Got loss = {loss!r}. Expected one of {LOSSES}.")
    if cfg["overlap"] not in OVERLAP_POLICIES:
        raise SettingsError(
            f"Got overlap = {cfg['overlap']!r}. Expected one of {tuple(OVERLAP_POLICIES)}."
        )
    for key, value in {"threshold": cfg["threshold"], **cfg["label_thresholds"]}.items():
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise SettingsError(
                f"Got a threshold of {value!r} for {key!r}. Expected a probability, 0 to 1."
            )
    if cfg["top_k"] is not None and cfg["top_k"] < 1:
        raise SettingsError(f"Got top_k = {cfg['top_k']}. Expected at least 1, or null.")
    if not 0 <= boundary_smoothing < 0.5:
        raise SettingsError(
            f"Got boundary_smoothing = {boundary_smoothing}. Expected 0 to below 0.5, so that a "
            "gold span keeps the larger share of its target."
        )
    if negative_ratio is not None and negative_ratio <= 0:
        raise SettingsError(
            f"Got negative_ratio = {negative_ratio}. Expected above 0, or null for all."
        )
    check_spans_key(cfg["spans_key"])
    written = [key for key in (cfg["spans_key"], candidates_key) if key is not None]
    if len({*written}) < len(written) or read & {*written}:
        raise SettingsError(
            f"The component is to write to {written} and to read from "
            f"{sorted(key for key in read if key is not None)}: spans_key, candidates_key, "
            "kept_key and the key that candidates are read from have to differ."
        )
