"""Gradient flow against closed forms, hand-worked gradients and autograd."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from chainrule.gradients import elman as elman_by_hand
from chainrule.gradients import gru as gru_by_hand
from chainrule.gradients import lstm as lstm_by_hand
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.model import NeuralModel
from neural.adaptation_models import WORDS, make, some_ids
from neural.gradient_flow_models import fill, last_row, recurrent

# Closed forms.

ROTATION = 0.8 * np.array([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
LINEAR: dict[str, tuple[Floats, list[float], Callable[[Any], Any]]] = {
    # 0.8 times a rotation: all vectors shrink alike.
    "normal": (ROTATION, [2.0, 1.0], lambda k: 0.8**k),
    # Eigenvalues ½ and 9/10; the error at lag 0 is equally large along both.
    "diagonal": (np.diag([0.5, 0.9]), [1.0, 1.0], lambda k: np.sqrt((0.25**k + 0.81**k) / 2)),
    # Eigenvalues 1.1: it grows.
    "growing": (np.diag([1.1, 1.1]), [1.0, 1.0], lambda k: 1.1**k),
    # Eigenvectors (1, 1) with 0.9 and (1, −1) with 0.5; the error is along the first.
    "symmetric": (np.array([[0.7, 0.2], [0.2, 0.7]]), [1.0, 1.0], lambda k: 0.9**k),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_linear_recurrence_decays_by_its_eigenvalues(kind: str) -> None:
    """h_t = relu(R h_{t−1} + b) stays positive, so ∂h_T/∂h_{T−k} = R^k; all rows of W_o are along (1, 1)."""
    R, b, expected = LINEAR[kind]
    lm = recurrent(rnn, hidden=2, nonlinearity="relu", tie=False)
    W_o = np.outer(np.linspace(-1, 1, WORDS.size), [1.0, 1.0])
    fill(lm, layers__0__R=R, layers__0__b_W=b, output__weight=W_o)
    flow = last_row(lm, some_ids(30))["h"]
    k = np.arange(23.0)  # those available at a quarter of the 30 positions, 8
    assert_allclose(flow.relative()[0], expected(k), rtol=1e-9)
    assert_allclose(flow.norms[0, -1] / flow.norms[0, -1, 0], expected(np.arange(30.0)), rtol=1e-9)
    if kind != "diagonal":
        half = math.log(2) / -math.log(expected(1.0)) if expected(1.0) < 1 else math.inf
        assert flow.half_life(0) == pytest.approx(half)


def test_constant_forget_gate_gives_exponential_decay() -> None:
    """σ(log 9) = 0.9, and R = 0 leaves no path through h: ∂L_T/∂c_{T−k} = 0.9^k ∂L_T/∂c_T; h_{T−k} gets no
    gradient.
    """
    lm = recurrent(lstm, hidden=3, tie=False)
    E, W_o = np.random.default_rng(0).normal(size=(2, WORDS.size, 3))
    W = np.zeros((12, 3))
    W[6:9] = np.eye(3)  # g = tanh(x): the written value depends on the word
    b = np.repeat([0.0, math.log(9), 0.0, 0.0], 3)
    fill(lm, embedding=E, layers__0__W=W, layers__0__b_W=b, output__weight=W_o)
    flows = last_row(lm, some_ids(40))
    k = np.arange(flows["c"].lags)
    assert len(k) == 31  # 10 of 40 positions have 30 tokens before them
    assert_allclose(flows["c"].relative()[0], 0.9**k, rtol=1e-9)
    product = flows["c"].forget_product()
    assert product is not None
    assert_allclose(product[0], 0.9**k, rtol=1e-9)
    assert flows["c"].half_life(0) == pytest.approx(math.log(2) / -math.log(0.9))  # 6.58 tokens
    assert_allclose(flows["h"].relative()[0], k == 0, atol=1e-12)


def test_gradient_flow_of_the_documented_example() -> None:
    """docs/gradients.md: W_hh = ½, a state of 0, ∂L_T/∂h_T = −1: norms 1, ½, ¼, ⅛."""
    words = Vocabulary(size=3, bos=0, eos=1, unk=None)  # two possible words
    lm = recurrent(rnn, words, hidden=1, tie=False)
    fill(lm, layers__0__W=1.0, layers__0__R=0.5, output__weight=np.array([[0.0], [1.0], [-1.0]]))
    flow = last_row(lm, np.ones(4, np.int32))["h"]
    assert_allclose(flow.norms[0, -1], [1, 0.5, 0.25, 0.125])
    assert_allclose(flow.norms[0, 1], [1, 0.5, np.nan, np.nan])


# Gradients worked by hand.


def numbers(x: Tensor) -> Floats:
    array: Floats = x.detach().numpy()
    return array


def hand_parameters(lm: NeuralModel) -> dict[str, Floats]:
    layer: Any = lm.network.layers[0]
    W, R, b_W, b_R = map(numbers, (layer.W, layer.R, layer.b_W, layer.b_R))
    output = lm.network.output
    ends = {"E": numbers(lm.network.embedding), "W_o": numbers(output.weight), "b_o": numbers(output.masked_bias())}
    return {"W": W, "R": R, "b_W": b_W, "b_R": b_R, **ends}


@pytest.mark.parametrize("kind", ["tanh", "relu", "leaky", "sigmoid", "lstm", "before", "after"])
def test_gradient_flow_equals_hand_derived_gradients(kind: str) -> None:
    ids = some_ids(12)
    read = np.concatenate([[WORDS.eos], ids[:-1]])
    if kind == "lstm":
        lm = recurrent(lstm)
        p = hand_parameters(lm)
        cell = lstm_by_hand.Parameters(
            E=p["E"], W=p["W"], R=p["R"], b=p["b_W"] + p["b_R"], W_o=p["W_o"], b_o=p["b_o"]
        )
        trace = lstm_by_hand.forward(cell, read, ids)
        signals = lstm_by_hand.last_loss_gradients(cell, trace)
        result = last_row(lm, ids)
        assert_allclose(result["c"].norms[0, -1], np.linalg.norm(signals.c[::-1], axis=1), rtol=1e-9)
        product = np.cumprod(np.vstack([np.ones(8), trace.f[:0:-1]]), axis=0)  # 1, f_T, f_{T−1} f_T, …
        assert result["c"].forget is not None
        assert_allclose(result["c"].forget[0, -1], product.mean(axis=1), rtol=1e-9)
        expected = signals.h
    elif kind in ("before", "after"):
        lm = recurrent(gru, reset=kind)
        p = hand_parameters(lm)
        b = p["b_W"] + np.concatenate([p["b_R"][:16], np.zeros(8)])
        unit = gru_by_hand.Parameters(
            E=p["E"], W=p["W"], R=p["R"], b=b, b_R=p["b_R"][16:], W_o=p["W_o"], b_o=p["b_o"]
        )
        trace_g = gru_by_hand.forward(unit, read, ids, reset=kind)  # type: ignore[arg-type]
        result, expected = last_row(lm, ids), gru_by_hand.last_loss_gradients(unit, trace_g).h
    else:
        lm = recurrent(rnn, nonlinearity=kind)
        p = hand_parameters(lm)
        net = elman_by_hand.Parameters(
            E=p["E"], W_xh=p["W"], W_hh=p["R"], b=p["b_W"] + p["b_R"], W_o=p["W_o"], b_o=p["b_o"]
        )
        trace_e = elman_by_hand.forward(net, read, ids, activation=kind)  # type: ignore[arg-type]
        result, expected = last_row(lm, ids), elman_by_hand.last_loss_gradients(net, trace_e).h
    assert_allclose(result["h"].norms[0, -1], np.linalg.norm(expected[::-1], axis=1), rtol=1e-9)


# All paths.


def gradient_at_carried_state(lm: NeuralModel, ids: Ids, k: int) -> float:
    """‖∂L_T/∂(h of the top layer after T−k)‖ with the text read in two parts, so that all paths lead through it."""
    network: Any = lm.network
    read = torch.from_numpy(lm.map_boundaries(np.concatenate([[WORDS.bos], ids[:-1]])))[None]
    n = sum(layer.n_states for layer in network.layers)
    state = network(read[:, : len(ids) - k], network.start(1)).state
    state = tuple(s.detach().requires_grad_() if s.is_floating_point() else s for s in state)
    hidden = network(read[:, len(ids) - k :], state).hidden
    loss = -network.output.log_probs(hidden[:, -1])[0, int(ids[-1])]
    (slope,) = torch.autograd.grad(loss, state[n - network.layers[-1].n_states])
    return float(slope.norm())


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (lstm, {"layers": 2}),
        (lstm, {"layers": 2, "layer_norm": True}),
        (lstm, {"layers": 2, "embedding": 5}),
        (lstm, {"layers": 1, "learned_start": True}),
        (lstm, {"layers": 2, "output": "adaptive", "tie": False}),
        (gru, {"layers": 2, "output": "sampled", "samples": 4}),
        (gru, {"layers": 2, "reset": "before", "output": "nce", "samples": 4}),
        (rnn, {"layers": 3}),
    ],
)
def test_gradient_flow_equals_the_gradient_at_the_carried_state(module: Any, settings: dict[str, Any]) -> None:
    lm, ids = recurrent(module, **settings), some_ids(10)
    flows = last_row(lm, ids)
    for k in range(1, 10):
        assert flows["h"].norms[-1, -1, k] == pytest.approx(gradient_at_carried_state(lm, ids, k), rel=1e-8)


def test_attention_is_a_gradient_path() -> None:
    """R = 0 and a cell that keeps nothing: without attention no gradient flows back, with it some to the last 3."""
    b = np.repeat([0.0, -800.0, 0.0, 0.0], 4)
    E, W_o = np.random.default_rng(0).normal(size=(2, WORDS.size, 4))
    W = np.random.default_rng(1).normal(size=(16, 4))
    reach = {}
    for attention in ("none", "dot"):
        lm = recurrent(lstm, hidden=4, tie=False, attention=attention, memory=3)
        fill(lm, embedding=E, layers__0__W=W, layers__0__b_W=b, output__weight=W_o)
        norms = last_row(lm, some_ids(9))["h"].norms[0, -1]
        reach[attention] = np.flatnonzero(norms > 1e-12).tolist()
    assert reach == {"none": [0], "dot": [0, 1, 2, 3]}


# Word vectors.

DISTINCT = np.array([3, 4, 5, 6, 7, 8], dtype=np.int32)  # each position has its own word; `<s>` is read first
VECTORS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"positions": "sinusoidal"}),
    ("transformer", {"positions": "learned", "norm": "post"}),
    ("feedforward", {}),
    ("feedforward", {"layers": 2, "direct": True}),
]


@pytest.mark.parametrize(("family", "settings"), VECTORS)
def test_word_vector_gradients_equal_embedding_row_gradients(family: str, settings: dict[str, Any]) -> None:
    """With distinct words and untied weights, the gradient at a position is that of its embedding row."""
    lm = make(family, "line", tie=False, **settings)
    network: Any = lm.network.double()
    read = torch.tensor([[WORDS.bos, *DISTINCT[:-1]]])
    log_p = network.output.log_probs(network(read, network.start(1)).hidden[:, -1])[0, int(DISTINCT[-1])]
    (slope,) = torch.autograd.grad(-log_p, network.embedding)
    expected = slope.norm(dim=1)[read[0]].flip(0)
    flows = last_row(lm, DISTINCT)["embedding"].norms[0, -1]
    known = slice(0, 5 if family == "feedforward" else 6)  # a window that begins before the line reads `<s>` again
    assert_allclose(flows[known], expected[known], rtol=1e-9)


@pytest.mark.parametrize(("family", "settings"), VECTORS)
def test_tied_embedding_counts_only_where_it_is_read(family: str, settings: dict[str, Any]) -> None:
    tied = make(family, "line", **settings)
    loose = copy.deepcopy(tied)
    loose.network.output.weight = torch.nn.Parameter(tied.network.embedding.detach().clone())
    for tied_flow, loose_flow in zip(
        last_row(tied, some_ids(20)).values(), last_row(loose, some_ids(20)).values(), strict=True
    ):
        assert_allclose(tied_flow.norms, loose_flow.norms, rtol=1e-5)


def test_residual_gradient_at_the_first_block_equals_word_vectors() -> None:
    flows = last_row(make("transformer", "line"), DISTINCT)
    assert flows["residual"].norms.shape == (2, 6, 6)
    assert_allclose(flows["residual"].norms[:1], flows["embedding"].norms, rtol=1e-6)
    flows = last_row(make("transformer", "line", positions="sinusoidal"), DISTINCT)  # its vectors are scaled by √8
    assert_allclose(flows["residual"].norms[:1] * math.sqrt(8), flows["embedding"].norms, rtol=1e-5)


def test_feedforward_gradient_flow_is_limited_to_its_window() -> None:
    flow = last_row(make("feedforward", "stream"), some_ids(20))["embedding"]  # order 4: three words
    assert (flow.relative()[0] > 0).tolist() == [True] * 3 + [False] * 13
