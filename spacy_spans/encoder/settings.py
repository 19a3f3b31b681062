"""Settings of a model that may change after it is built, in the config or in `model.attrs`.

thinc stores `attrs` with the weights, and what is stored replaces what the config says when a
pipeline is loaded. So the values that the config had are stored as well: a setting that the config
now has another value of was overridden, and counts; all others are as they were stored.
"""

from typing import Any

import srsly
from thinc.api import Model, deserialize_attr, serialize_attr

NAME = "configured"


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
