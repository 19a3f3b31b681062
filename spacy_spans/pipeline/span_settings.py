"""What the settings of components may be."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from thinc.api import Config

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.decoding import OVERLAP_POLICIES
from spacy_spans.kernels.schemes import BoundaryScheme, ChainScheme, TagScheme
from spacy_spans.keys import check_spans_key

LOSSES = ("sigmoid", "softmax")
TAG_LOSSES = ("crf", "token")
LAYERS = ("auto", "per_label", "shared")
ALIGNMENT_MODES = ("strict", "contract", "expand")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise SettingsError unless the value is one of the choices."""
    if value not in choices:
        raise SettingsError(f"Got {name} = {value!r}. Expected one of {tuple(choices)}.")


def check_thresholds(cfg: Mapping[str, Any]) -> None:
    """Raise SettingsError unless all thresholds are probabilities."""
    for key, value in {"threshold": cfg["threshold"], **cfg["label_thresholds"]}.items():
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise SettingsError(
                f"Got a threshold of {value!r} for {key!r}. Expected a probability, 0 to 1."
            )


def check_storable(label_thresholds: Mapping[str, float]) -> None:
    """Raise SettingsError on labels that would be lost, or read as others, from a saved config:
    to a config file, "#a" is a comment, "[a]" a section and "a=b" a setting "a".
    """
    for label in label_thresholds:
        try:
            text = Config({"label_thresholds": {label: 0.5}}).to_str()
            same = Config().from_str(text) == {"label_thresholds": {label: 0.5}}
        # Of many types, such as what the config parser raises on "".
        except Exception:
            same = False
        if not same:
            raise SettingsError(
                f"Got label_thresholds with the label {label!r}, which no config file can hold as "
                "the name of a setting. Set its threshold on the trained component, which stores "
                f'it with the weights: nlp.get_pipe(NAME).cfg["label_thresholds"][{label!r}] = 0.5.'
            )


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
    check_choice("loss", loss, LOSSES)
    check_choice("overlap", cfg["overlap"], tuple(OVERLAP_POLICIES))
    check_thresholds(cfg)
    if cfg["top_k"] is not None and cfg["top_k"] < 1:
        raise SettingsError(f"Got top_k = {cfg['top_k']}. Expected at least 1, or null.")
    if not 0 <= boundary_smoothing < 0.5:
        raise SettingsError(
            f"Got boundary_smoothing = {boundary_smoothing}. Expected 0 to below 0.5, so that a "
            "gold span keeps the larger share of its target."
        )
    if negative_ratio is not None and not (negative_ratio > 0 and isfinite(negative_ratio)):
        raise SettingsError(
            f"Got negative_ratio = {negative_ratio}. Expected a number above 0, or null for all."
        )
    check_spans_key(cfg["spans_key"])
    written = [key for key in (cfg["spans_key"], candidates_key) if key is not None]
    if len({*written}) < len(written) or read & {*written}:
        raise SettingsError(
            f"The component is to write to {written} and to read from "
            f"{sorted(key for key in read if key is not None)}: spans_key, candidates_key, "
            "kept_key and the key that candidates are read from have to differ."
        )


def check_tagger_settings(
    cfg: Mapping[str, Any],
    *,
    scheme: TagScheme,
    layers: str,
    discontinuous: bool | str,
    max_gap: int,
    loss: str,
    outside_weight: float,
    alignment_mode: str,
    kept_key: str | None = None,
) -> None:
    """Raise SettingsError on settings of `multispan_tagger` out of range, or that do not fit.

    cfg (Mapping): The settings that may change after training.
    kept_key (str | None): Key that kept runs are read from, if they are.
    """
    if not isinstance(scheme, (ChainScheme, BoundaryScheme)):
        raise SettingsError(
            f"Got scheme = {scheme!r}. Expected a scheme, such as "
            '{"@misc": "spacy-spans.bio_scheme.v1"}; there are io, bio, bioes and boundary.'
        )
    check_choice("loss", loss, TAG_LOSSES)
    check_choice("layers", layers, LAYERS)
    check_choice("alignment_mode", alignment_mode, ALIGNMENT_MODES)
    if discontinuous not in (True, False, "auto"):
        raise SettingsError(f"Got discontinuous = {discontinuous!r}. Expected true, false, 'auto'.")
    check_thresholds(cfg)
    check_spans_key(cfg["spans_key"])
    if cfg["spans_key"] == kept_key:
        raise SettingsError(
            f"Got {kept_key!r} both as spans_key and as kept_key. Expected two keys: what is read "
            "would be overwritten."
        )
    shortest, longest = cfg["min_length"], cfg["max_length"]
    if shortest < 1 or (longest is not None and longest < shortest):
        raise SettingsError(
            f"Got min_length = {shortest}, max_length = {longest}. Expected at least 1 token, and "
            "a max_length of null or no less than min_length."
        )
    if max_gap < 1 or not (outside_weight > 0 and isfinite(outside_weight)):
        raise SettingsError(
            f"Got max_gap = {max_gap}, outside_weight = {outside_weight}. Expected at least 1, and "
            "a number above 0."
        )
    if isinstance(scheme, BoundaryScheme) and (loss == "crf" or layers == "shared"):
        raise SettingsError(
            f"Got loss = {loss!r} and layers = {layers!r} with the boundary scheme, whose start "
            'and end bits are independent. Expected loss = "token" and layers = "per_label" or '
            '"auto".'
        )
