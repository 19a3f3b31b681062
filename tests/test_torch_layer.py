"""The thinc layer around a torch module: sizes, storage without pickle, learning rate, averages."""

import os
import pickle
import pickletools
import subprocess
import sys

import numpy as np
import pytest
import srsly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from thinc.api import Adam, Optimizer
from thinc.layers.pytorchwrapper import (
    convert_pytorch_default_inputs,
    convert_pytorch_default_outputs,
)

from spacy_spans.errors import DataError
from spacy_spans.torch_layer import layer_shim, torch_layer

N_IN, N_OUT = 3, 2
X = np.asarray([[1.0, 2.0, -1.0], [0.5, 0.0, 4.0]], dtype="f")


def build_linear(n_in, n_out):
    if not 0 < n_in * n_out < 10_000:
        raise ValueError(f"{n_in} to {n_out} is no size for a test")
    return torch.nn.Linear(n_in, n_out)


def build_deeper(n_in, n_out):
    return torch.nn.Sequential(torch.nn.Linear(n_in, n_out), torch.nn.Linear(n_out, n_out))


def init(model, X=None, Y=None):
    n_in, n_out = model.get_dim("nI"), model.get_dim("nO")
    layer_shim(model).build_module(n_in, n_out)
    return model


def make_layer(build=build_linear, learn_rate_factor=1.0, sizes=(N_IN, N_OUT), seed=0):
    """A layer; with weights if it has sizes."""
    layer = torch_layer(
        "test_layer",
        build,
        convert_pytorch_default_inputs,
        convert_pytorch_default_outputs,
        init=init,
        learn_rate_factor=learn_rate_factor,
    )
    if sizes is not None:
        torch.manual_seed(seed)
        layer.set_dim("nI", sizes[0])
        layer.set_dim("nO", sizes[1])
        layer.initialize()
    return layer


def weights_of(layer):
    module = layer_shim(layer).module
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def assert_same_weights(layer, weights):
    found = weights_of(layer)
    assert sorted(found) == sorted(weights)
    for name, value in weights.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


def plain_descent(learn_rate, **settings):
    """An optimizer without momentum: a step is learn_rate times the gradient."""
    return Optimizer(learn_rate, beta1=0.0, beta2=0.0, L2=0.0, grad_clip=0.0, **settings)


def test_forward_and_backward_are_those_of_the_module():
    layer = make_layer()
    weights = weights_of(layer)
    output, backprop = layer.begin_update(X)
    np.testing.assert_allclose(output, X @ weights["weight"].T + weights["bias"], rtol=1e-6)
    np.testing.assert_array_equal(layer.predict(X), output)
    d_output = np.asarray([[1.0, -1.0], [2.0, 0.5]], dtype="f")
    np.testing.assert_allclose(backprop(d_output), d_output @ weights["weight"], rtol=1e-6)


# Storage


@pytest.mark.parametrize("build", [build_linear, build_deeper])
def test_weights_are_bitwise_the_same_after_a_round_trip_into_an_unsized_layer(build):
    layer = make_layer(build)
    loaded = make_layer(build, sizes=None).from_bytes(layer.to_bytes())
    assert_same_weights(loaded, weights_of(layer))
    assert layer_shim(loaded).sizes == (N_IN, N_OUT)
    assert (loaded.get_dim("nI"), loaded.get_dim("nO")) == (N_IN, N_OUT)
    np.testing.assert_array_equal(loaded.predict(X), layer.predict(X))
    assert loaded.to_bytes() == layer.to_bytes()


def test_round_trip_through_a_file(tmp_path):
    layer = make_layer()
    layer.to_disk(tmp_path / "layer")
    loaded = make_layer(sizes=None).from_disk(tmp_path / "layer")
    assert_same_weights(loaded, weights_of(layer))


def test_a_layer_without_sizes_makes_the_round_trip_and_can_be_initialized_after():
    loaded = make_layer(sizes=None).from_bytes(make_layer(sizes=None).to_bytes())
    assert layer_shim(loaded).module is None
    assert layer_shim(loaded).sizes is None
    loaded.set_dim("nI", N_IN)
    loaded.set_dim("nO", N_OUT)
    loaded.initialize()
    assert loaded.predict(X).shape == (2, N_OUT)


def test_a_layer_without_weights_can_be_updated_and_averaged():
    layer = make_layer(sizes=None)
    layer.finish_update(plain_descent(0.1))
    with layer.use_params({(layer_shim(layer).id, "weight"): X}):
        assert layer_shim(layer).module is None


def test_a_layer_without_weights_can_be_moved_between_devices():
    layer = make_layer(sizes=None)
    layer.to_cpu()
    assert layer_shim(layer).module is None


def test_a_copy_has_its_own_weights():
    layer = make_layer()
    before = weights_of(layer)
    copied = layer.copy()
    with torch.no_grad():
        layer_shim(copied).module.weight.zero_()
    assert_same_weights(layer, before)
    assert_same_weights(make_layer(sizes=None).from_bytes(copied.to_bytes()), weights_of(copied))


def test_loaded_layers_can_be_trained():
    loaded = make_layer(sizes=None).from_bytes(make_layer().to_bytes())
    before = weights_of(loaded)
    _, backprop = loaded.begin_update(X)
    backprop(np.ones((2, N_OUT), dtype="f"))
    loaded.finish_update(plain_descent(0.1))
    np.testing.assert_allclose(weights_of(loaded)["bias"], before["bias"] - 0.2, rtol=1e-5)


def opcodes(data):
    """Pickle operations at the start of the data, up to what is none."""
    found = []
    try:
        found += [opcode.name for opcode, _, _ in pickletools.genops(data)]
    except Exception:  # Not a pickle: any error will do.
        return found
    return [*found, "complete"]


def test_nothing_is_pickled_or_unpickled(monkeypatch):
    layer = make_layer()

    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for module, names in (
        (pickle, ["load", "loads", "dump", "dumps", "Unpickler", "Pickler"]),
        (torch, ["load", "save"]),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    data = layer.to_bytes()
    loaded = make_layer(sizes=None).from_bytes(data)
    monkeypatch.undo()
    assert_same_weights(loaded, weights_of(layer))
    state = srsly.msgpack_loads(layer_shim(layer).to_bytes())["state"]
    message = srsly.msgpack_loads(state)
    assert message.keys() == {"sizes", "weights"}
    assert message["sizes"] == [N_IN, N_OUT]
    # As written by safetensors alone, which has no way to name code.
    assert message["weights"] == save(layer_shim(layer).module.state_dict())
    for part in (data, state, message["weights"]):
        assert "complete" not in opcodes(part)


def state_of(layer):
    return srsly.msgpack_loads(layer_shim(layer).to_bytes())["state"]


def load_state(state, build=build_linear):
    layer = make_layer(build, sizes=None)
    layer_shim(layer).from_bytes(srsly.msgpack_dumps({"config": {}, "state": state}))
    return layer


STATE = state_of(make_layer())
CANNOT_BE_READ = "the weights do not fit the model"


@pytest.mark.parametrize("n_bytes", range(1, len(STATE), 7))
def test_truncated_weights_are_an_error(n_bytes):
    with pytest.raises(DataError, match=CANNOT_BE_READ):
        load_state(STATE[:n_bytes])


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(b"no weights at all", id="text"),
        pytest.param(STATE + b"x", id="longer"),
        pytest.param(srsly.msgpack_dumps(5), id="number"),
        pytest.param(srsly.msgpack_dumps([]), id="list"),
        pytest.param(srsly.msgpack_dumps(None), id="nothing"),
        pytest.param(srsly.msgpack_dumps({}), id="no sizes"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3, 2]}), id="no weights"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3], "weights": b""}), id="one size"),
        pytest.param(srsly.msgpack_dumps({"sizes": None, "weights": b""}), id="sizes are null"),
        pytest.param(srsly.msgpack_dumps({"sizes": ["3", "2"], "weights": b""}), id="size text"),
        pytest.param(srsly.msgpack_dumps({"sizes": [-3, 2], "weights": b""}), id="negative size"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3, 2], "weights": b""}), id="empty weights"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3, 2], "weights": "x"}), id="text as weights"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3, 2], "weights": None}), id="null as weights"),
        pytest.param(srsly.msgpack_dumps({"sizes": [3, 2], "weights": [1, 2]}), id="list weights"),
        pytest.param(
            srsly.msgpack_dumps({"sizes": [3, 2], "weights": pickle.dumps({"weight": 1})}),
            id="pickle",
        ),
        pytest.param(
            srsly.msgpack_dumps({"sizes": [3, 2], "weights": save({"other": torch.zeros(1)})}),
            id="other names",
        ),
        pytest.param(
            srsly.msgpack_dumps(
                {
                    "sizes": [3, 2],
                    "weights": save({"weight": torch.zeros(9, 9), "bias": torch.zeros(2)}),
                }
            ),
            id="other shapes",
        ),
    ],
)
def test_altered_weights_are_an_error(state):
    with pytest.raises(DataError, match=CANNOT_BE_READ):
        load_state(state)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(STATE) - 1), st.integers(1, 255))
def test_one_altered_byte_is_an_error_or_one_altered_weight(position, change):
    altered = bytearray(STATE)
    altered[position] ^= change
    try:
        layer = load_state(bytes(altered))
    except DataError:
        return
    original = weights_of(load_state(STATE))
    differing = 0
    for name, value in weights_of(layer).items():
        assert value.shape == original[name].shape
        differing += int((value.view("int32") != original[name].view("int32")).sum())
    assert differing <= 1


def test_weights_of_another_architecture_are_an_error():
    with pytest.raises(DataError, match="the weights do not fit the model"):
        load_state(STATE, build_deeper)


def test_a_failed_load_leaves_the_layer_as_it_was():
    layer = make_layer()
    before = weights_of(layer)
    with pytest.raises(DataError, match=CANNOT_BE_READ):
        layer_shim(layer).from_bytes(srsly.msgpack_dumps({"config": {}, "state": STATE[:-3]}))
    assert_same_weights(layer, before)
    assert layer_shim(layer).sizes == (N_IN, N_OUT)


# Learning


@pytest.mark.parametrize("factor", [1.0, 5.0, 0.1])
def test_learn_rate_factor_multiplies_the_step(factor):
    layer = make_layer(learn_rate_factor=factor)
    before = weights_of(layer)
    d_output = np.asarray([[1.0, -1.0], [2.0, 0.5]], dtype="f")
    for n_steps in (1, 2):
        _, backprop = layer.begin_update(X)
        backprop(d_output)
        layer.finish_update(plain_descent(0.01))
        after = weights_of(layer)
        # The gradient of a linear layer is the same in both steps, and not added up.
        step = n_steps * factor * 0.01
        np.testing.assert_allclose(
            after["weight"], before["weight"] - step * (d_output.T @ X), rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(
            after["bias"], before["bias"] - step * d_output.sum(axis=0), rtol=1e-4, atol=1e-6
        )


def test_learn_rate_factor_reaches_the_first_step_of_adam():
    # Adam's first step is the learning rate, whatever the gradient.
    steps = []
    for factor in (1.0, 3.0):
        layer = make_layer(learn_rate_factor=factor)
        before = weights_of(layer)["bias"]
        _, backprop = layer.begin_update(X)
        backprop(np.asarray([[1.0, -1.0], [2.0, 0.5]], dtype="f"))
        layer.finish_update(Adam(0.01, L2=0.0, grad_clip=0.0))
        steps.append(np.abs(weights_of(layer)["bias"] - before))
    np.testing.assert_allclose(steps[1], 3 * steps[0], rtol=1e-3)


def test_a_second_gradient_before_the_step_is_added():
    layer = make_layer()
    before = weights_of(layer)
    for _ in range(2):
        _, backprop = layer.begin_update(X)
        backprop(np.ones((2, N_OUT), dtype="f"))
    layer.finish_update(plain_descent(0.1))
    np.testing.assert_allclose(weights_of(layer)["bias"], before["bias"] - 0.4, rtol=1e-4)


def test_without_a_gradient_a_step_changes_nothing():
    layer = make_layer()
    before = weights_of(layer)
    layer.finish_update(plain_descent(0.1))
    assert_same_weights(layer, before)


def test_averaged_weights_are_used_and_put_back():
    layer = make_layer()
    optimizer = plain_descent(0.1, use_averages=True)
    for _ in range(3):
        _, backprop = layer.begin_update(X)
        backprop(np.ones((2, N_OUT), dtype="f"))
        layer.finish_update(optimizer)
    last = weights_of(layer)
    averages = {name: value for (_, name), value in optimizer.averages.items()}
    assert sorted(averages) == ["bias", "weight"]
    assert not np.allclose(averages["bias"], last["bias"])
    with layer.use_params(optimizer.averages):
        assert_same_weights(layer, averages)
        np.testing.assert_allclose(
            layer.predict(X), X @ averages["weight"].T + averages["bias"], rtol=1e-5
        )
        stored = make_layer(sizes=None).from_bytes(layer.to_bytes())
    assert_same_weights(layer, last)
    # What `spacy train` writes as best model, under `use_params`.
    assert_same_weights(stored, averages)


def test_parameters_of_other_layers_are_not_used():
    layer = make_layer()
    before = weights_of(layer)
    with layer.use_params({(layer_shim(layer).id + 1000, "bias"): np.zeros(N_OUT, dtype="f")}):
        assert_same_weights(layer, before)
    assert_same_weights(layer, before)


FORK_AFTER_THREADS = """
import torch
torch.set_num_threads(2)
import spacy
from spacy.training import Example
nlp = spacy.blank("en")
nlp.add_pipe("span_enumerator")
text = "Write clear reports in Excel"
gold = {"spans": {"sc": [(0, 28, "DUTY")]}}
nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(text), gold)])
# Starts the threads that a fork does not take along.
list(nlp.pipe([text * 200] * 4))
print(len(list(nlp.pipe([text * 200] * 4, n_process=2, batch_size=1))))
"""


def test_forked_processes_do_not_wait_for_threads_they_do_not_have():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_AFTER_THREADS],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    assert result.stdout == "4\n", result.stderr
