"""Settings of a model that may change after it is built, in the config or in `model.attrs`.

thinc stores `attrs` with the weights, and what is stored replaces what the config says when a
pipeline is loaded. So the values that the config had are stored as well: a setting that the config
now has another value of was overridden, and counts; all others are as they were stored.
"""

from collections.abc import Mapping
from typing import Any

import srsly
from thinc.api import Model, deserialize_attr, serialize_attr

from spacy_spans.encoder.criteria import Criterion
from spacy_spans.errors import SettingsError

NAME = "configured"
AUTOCAST = ("auto", "bfloat16", "none")
DROPPED = ("pool", "drop")


def check_settings(settings: Mapping[str, Any], criterion: Criterion) -> None:
    """Raise SettingsError on settings out of range."""
    gates = settings["gates"]
    if sorted(set(gates)) != gates or any(gate < 0 for gate in gates):
        raise SettingsError(
            f"Got gates = {gates}. Expected numbers of layers, ascending; 0: before the first."
        )
    if 0 in gates and criterion.needs_attention:
        raise SettingsError(
            f"Got gates = {gates} for the criterion {criterion.name!r}. There is no attention "
            "before the first layer: set gates from 1 on."
        )
    for setting in ("keep_ratio", "train_keep_ratio"):
        ratio = settings[setting]
        if ratio is not None and not 0 < ratio <= 1:
            raise SettingsError(f"Got {setting} = {ratio}. Expected above 0, at most 1.")
    if not 0 <= settings["threshold"] <= 1:
        found = settings["threshold"]
        raise SettingsError(f"Got threshold = {found}. Expected a probability, 0 to 1.")
    for setting, choices in (("dropped", DROPPED), ("autocast", AUTOCAST)):
        if settings[setting] not in choices:
            found = settings[setting]
            raise SettingsError(f"Got {setting} = {found!r}. Expected one of {choices}.")
    for setting, least in (("max_batch_pieces", 1), ("warmup_steps", 0)):
        found = settings[setting]
        if found is not None and found < least:
            raise SettingsError(f"Got {setting} = {found}. Expected at least {least}.")
    _check_ratio(gates, criterion, settings["keep_ratio"])


def _check_ratio(gates: list[int], criterion: Criterion, keep_ratio: float | None) -> None:
    """Raise SettingsError for scores that are no probabilities, without a ratio."""
    if gates and not criterion.learns and keep_ratio is None:
        raise SettingsError(
            f"Got keep_ratio = None for the criterion {criterion.name!r}. Its scores are no "
            "probabilities that could be compared with a threshold: set keep_ratio above 0, at "
            "most 1, or take spacy-spans.gate_criterion.v1."
        )


class Configured:
    """values (dict): Each setting as the config has it."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def attach(self, model: Model) -> None:
        """Set the settings as `attrs` of a model. Settings that are attached later are not stored
        in the right order: attach once, after all others.
        """
        model.attrs.update(self.values)
        model.attrs[NAME] = self


@serialize_attr.register(Configured)
def _serialize(_: Configured, value: Configured, name: str, model: Model) -> bytes:
    data: bytes = srsly.msgpack_dumps(value.values)
    return data


@deserialize_attr.register(Configured)
def _deserialize(now: Configured, value: bytes, name: str, model: Model) -> Configured:
    """Attributes are stored in order, so those of the settings have been restored by now."""
    stored = srsly.msgpack_loads(value)
    changed = {key: own for key, own in now.values.items() if stored.get(key, own) != own}
    model.attrs.update(changed)
    return now
