"""Gates and states over a text against single steps, the equations, and hand-set cells."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.lm import Context
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes import activations
from chainrule.neural.probes.activations import read_gate_activations
from neural.adaptation_models import WORDS, encoded, some_ids

SIZES: dict[str, Any] = {"hidden": 6, "embedding": 5, "layers": 2, "tie": False}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (lstm, {}),
    "gru": (gru, {}),
    "gru-before": (gru, {"reset": "before"}),
    "rnn": (rnn, {}),
    "rnn-relu": (rnn, {"nonlinearity": "relu"}),
    "normed": (lstm, {"layer_norm": True}),
    "learned-start": (lstm, {"learned_start": True}),
    "attentive": (lstm, {"attention": "dot", "memory": 3}),
    "attention-in-state": (lstm, {"attention": "dot", "attention_use": "state", "memory": 3}),
}


def make(kind: str, context: Context = "stream") -> NeuralModel:
    module, chosen = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = module.build(module.Config(**SIZES, **chosen), WORDS, None)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.4)
    return NeuralModel(network, WORDS, context)


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "attention-in-state"])
def test_recorded_states_equal_stepwise_states(
    kind: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`<s>`, then token by token: the state after each step, with lines reset by the context rule."""
    monkeypatch.setattr(activations, "STEPS_AT_ONCE", 7)
    monkeypatch.setattr(activations, "GATE_CHUNK_TOKENS", 16)
    model, ids = make(kind, context), some_ids(41, lines=9)
    ids[5] = WORDS.eos  # lines of different lengths
    layers = read_gate_activations(model, encoded(ids))
    _, state = model.step(model.start(1), np.array([WORDS.bos]))
    for t, token in enumerate(ids):
        _, state = model.step(state, np.array([token]))
        tensors = iter(state.tensors)
        for layer in layers:
            assert_allclose(layer.h[t], next(tensors)[0].numpy(), atol=1e-5)
            if layer.c is not None:
                assert_allclose(layer.c[t], next(tensors)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("context", ["stream", "line"])
def test_recorded_gates_satisfy_the_equations(context: Context) -> None:
    """c_t = f c_{t−1} + i g and h_t = o tanh(c_t); h_t = (1 − z) n + z h_{t−1}: within a line, or throughout."""
    ids = some_ids(30, lines=10)
    goes_on = np.flatnonzero(ids[1:] != WORDS.eos) + 1 if context == "line" else np.arange(1, 30)
    for layer in read_gate_activations(make("lstm", context), encoded(ids)):
        i, f, g, o = (layer.gates[name] for name in "ifgo")
        assert layer.c is not None
        assert_allclose(layer.c[goes_on], (f * np.roll(layer.c, 1, axis=0) + i * g)[goes_on], atol=1e-6)
        assert_allclose(layer.h, o * np.tanh(layer.c), atol=1e-6)
    for layer in read_gate_activations(make("gru", context), encoded(ids)):
        z, n = layer.gates["z"], layer.gates["n"]
        assert_allclose(layer.h[goes_on], ((1 - z) * n + z * np.roll(layer.h, 1, axis=0))[goes_on], atol=1e-6)


def test_line_model_has_the_same_state_at_every_line_end() -> None:
    ids = some_ids(20, lines=5)
    for layer in read_gate_activations(make("lstm", "line"), encoded(ids)):
        ends = layer.h[ids == WORDS.eos]
        assert_allclose(ends, np.tile(ends[0], (len(ends), 1)), atol=1e-6)


def test_gate_activations_with_attention_in_the_state() -> None:
    layers = read_gate_activations(make("attention-in-state"), encoded(some_ids(12)))
    assert all(np.isfinite(layer.h).all() and layer.h.shape == (12, 6) for layer in layers)


def test_gate_activations_describe_their_layer() -> None:
    assert [layer.layer for layer in read_gate_activations(make("lstm"), encoded(some_ids(3)))] == [1, 2]
    assert read_gate_activations(make("rnn-relu"), encoded(some_ids(3)))[0].nonlinearity == "relu"
    assert read_gate_activations(make("rnn"), encoded(some_ids(3)))[0].gates == {}
    assert list(read_gate_activations(make("gru"), encoded(some_ids(3)))[0].gates) == ["r", "z", "n"]


def test_gate_activations_truncate_to_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # two layers of six cells, six arrays each, four bytes per number: 288 bytes per token
    monkeypatch.setattr(activations, "MOST_BYTES", 288 * 10 + 287)
    model, text = make("lstm"), encoded(some_ids(30))
    layers = read_gate_activations(model, text)
    assert [layer.h.shape for layer in layers] == [(10, 6), (10, 6)]
    shared = read_gate_activations(model, text, models=2)
    assert [layer.h.shape for layer in shared] == [(5, 6), (5, 6)]
    monkeypatch.setattr(activations, "MOST_BYTES", 1)
    assert len(read_gate_activations(model, text)[0].h) == 1
    assert_allclose(read_gate_activations(model, text)[0].h[0], layers[0].h[0], rtol=1e-5)


@pytest.mark.parametrize("context", ["stream", "line"])
def test_gate_activations_of_one_token_and_one_cell(context: Context) -> None:
    network = gru.build(gru.Config(hidden=1, embedding=1), WORDS, None)
    layers = read_gate_activations(
        NeuralModel(network, WORDS, context), encoded(np.array([WORDS.eos], dtype=np.int32))
    )
    assert layers[0].h.shape == (1, 1)


def test_gate_activations_leave_the_network_unchanged() -> None:
    model, calls = make("lstm"), list[tuple[int, int | None]]()
    before = model.network.layers[0]
    read_gate_activations(model, encoded(some_ids(20)), lambda what, done, total: calls.append((done, total)))
    assert calls[-1] == (20, 20)
    assert model.network.layers[0] is before
    assert "cell" not in vars(before)


def test_constant_forget_gate_is_recorded() -> None:
    """σ(ln 9) = 0.9 at every token, whatever is read."""
    network: Any = lstm.build(lstm.Config(hidden=3, embedding=3), WORDS, None)
    with torch.no_grad():
        network.layers[0].W.zero_()
        network.layers[0].R.zero_()
        network.layers[0].b_W[3:6] = math.log(9.0)
    (layer,) = read_gate_activations(NeuralModel(network, WORDS, "stream"), encoded(some_ids(25)))
    assert_allclose(layer.gates["f"], 0.9, atol=1e-6)
    assert_allclose(layer.gates["i"], 0.5)
