"""Wrap a torch module as a thinc layer: sized late, stored safely, with a learning rate of its own.

thinc's own wrapper wants the module before its sizes are known, and stores it with `torch.save`.
Here the module is built at `initialize` (or when weights are loaded), and its weights travel as
safetensors, which hold numbers and nothing that could be executed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import srsly
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from thinc.api import Model, Optimizer, PyTorchShim, get_torch_default_device, torch2xp, xp2torch
from thinc.layers.pytorchwrapper import forward as pytorch_forward

from spacy_spans.errors import DataError

# From the sizes of a module to the module.
ModuleBuilder = Callable[..., torch.nn.Module]


def _use_one_thread() -> None:
    torch.set_num_threads(1)


# A forked process (`nlp.pipe(n_process=2)`) inherits OpenMP's idea of its threads but not the
# threads, and would wait for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)


class TorchLayerShim(PyTorchShim):
    """Holds the module, or None until its sizes are known.

    thinc's optimizer has one learning rate for the whole pipeline, but layers that start from
    nothing want a larger one than a pretrained encoder: `learn_rate_factor` multiplies it here.
    """

    def __init__(self, build: ModuleBuilder, learn_rate_factor: float) -> None:
        self.build = build
        self.learn_rate_factor = learn_rate_factor
        self.sizes: tuple[int, ...] | None = None
        super().__init__(None, serialize_model=self._serialize, deserialize_model=self._deserialize)

    @property
    def module(self) -> Any:
        return self._model

    def build_module(self, *sizes: int) -> None:
        self.set_module(self.build(*sizes), *sizes)

    def set_module(self, module: torch.nn.Module, *sizes: int) -> None:
        self._model = module.to(get_torch_default_device())
        self.sizes = sizes

    def finish_update(self, optimizer: Optimizer) -> None:
        """As thinc's, with the learning rate scaled."""
        if self._model is None:
            return
        for name, parameter in self._model.named_parameters():
            # Where there is nothing to update, torch would warn of the strides that come back.
            if parameter.grad is not None and parameter.numel():
                value: Any = torch2xp(parameter.data)
                gradient: Any = torch2xp(parameter.grad)
                updated, _ = optimizer(
                    (self.id, name),
                    value,
                    gradient,
                    lr_scale=self.learn_rate_factor,
                )
                parameter.data = xp2torch(updated, requires_grad=True, device=parameter.device)
                parameter.grad.zero_()

    @contextmanager
    def use_params(self, params: dict) -> Iterator[None]:
        """Use other weights for a while, e.g. averaged ones.

        thinc looks for keys here that its optimizer does not write, so averages would be ignored.
        """
        parameters = dict(self._model.named_parameters()) if self._model is not None else {}
        given = {name: params[self.id, name] for name in parameters if (self.id, name) in params}
        backup = {name: parameters[name].data for name in given}
        try:
            for name, value in given.items():
                device = parameters[name].device
                parameters[name].data = xp2torch(value, device=device).clone()
            yield
        finally:
            for name, value in backup.items():
                parameters[name].data = value

    def to_device(self, device_type: str, device_id: int) -> None:
        """Move the module, if there is one yet."""
        if self._model is not None:
            super().to_device(device_type, device_id)

    def _serialize(self, module: torch.nn.Module | None) -> bytes:
        if module is None:
            return b""
        state = {name: value.contiguous() for name, value in module.state_dict().items()}
        return srsly.msgpack_dumps({"sizes": self.sizes, "weights": save_tensors(state)})

    def _deserialize(
        self, module: torch.nn.Module | None, data: bytes, device: "torch.device"
    ) -> torch.nn.Module | None:
        if not data:
            return None
        try:
            message = srsly.msgpack_loads(data)
            sizes = tuple(message["sizes"])
            module = self.build(*sizes)
            module.load_state_dict(load_tensors(message["weights"]))
        except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"the weights do not fit the model ({error})") from error
        self.sizes = sizes
        return module.to(device)


def torch_layer(
    name: str,
    build: ModuleBuilder,
    convert_inputs: Callable,
    convert_outputs: Callable,
    *,
    init: Callable,
    learn_rate_factor: float = 1.0,
) -> Model:
    """Make a thinc layer of a torch module that is built when its sizes are known.

    build (Callable): Makes the module from its sizes, most often input and output width.
    convert_inputs, convert_outputs (Callable): As for `thinc.api.PyTorchWrapper`.
    init (Callable): thinc's `init`; has to call `layer_shim(model).build_module`.
    learn_rate_factor (float): Multiplies the optimizer's learning rate.
    """
    return Model(
        name,
        pytorch_forward,
        init=init,
        attrs={"convert_inputs": convert_inputs, "convert_outputs": convert_outputs},
        shims=[TorchLayerShim(build, learn_rate_factor)],
        dims={"nI": None, "nO": None},
    )


def layer_shim(model: Model) -> TorchLayerShim:
    """The shim of a layer made by `torch_layer`."""
    shim = model.shims[0]
    assert isinstance(shim, TorchLayerShim)
    return shim


@contextmanager
def keeping_gradients(model: Model) -> Iterator[None]:
    """Let a layer made by `torch_layer` learn nothing from what happens meanwhile."""
    module = layer_shim(model).module
    parameters = list(module.parameters()) if module is not None else []
    kept = [None if own.grad is None else own.grad.clone() for own in parameters]
    try:
        yield
    finally:
        for own, gradient in zip(parameters, kept, strict=True):
            own.grad = gradient


def replace_module(model: Model, module: torch.nn.Module, *sizes: int) -> None:
    """Put another module, e.g. one with more outputs, into a layer made by `torch_layer`."""
    old = layer_shim(model)
    new = TorchLayerShim(old.build, old.learn_rate_factor)  # A new id: the optimizer starts afresh.
    new.set_module(module, *sizes)
    model.shims[0] = new
