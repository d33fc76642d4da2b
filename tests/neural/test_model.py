"""Parallel and sequential views of a network against a token-by-token reference."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn

from chainrule.errors import ChainruleError
from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.neural import feedforward, gru, lstm, rnn, transformer
from chainrule.neural import model as adapter
from chainrule.neural.model import NeuralModel, NeuralState
from chainrule.neural.network import Network, NetworkOutput, Tensors

BOS, EOS = 0, 1
VOCABULARY = Vocabulary(7, BOS, EOS, 2)
FREQUENCIES = torch.arange(1.0, 8.0, dtype=torch.float64)


def log_probs(hidden: Tensor) -> Tensor:
    """(N, 1) -> (N, V): a different distribution for every state."""
    return torch.log_softmax(torch.sin(hidden * FREQUENCIES) * 2, dim=-1)


class Memory(Network):
    """h_t = h_{t−1} / 8 + id: all ids read, in base 8; and their number."""

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        self.window = window
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.output: Any = SimpleNamespace(log_probs=log_probs)

    def start(self, rows: int) -> Tensors:
        return torch.zeros(rows, 1, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64)

    def position(self, state: Tensors) -> Tensor | None:
        return None if self.window is None else state[1]

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        h, read = state
        columns = []
        for t in range(ids.shape[1]):
            h = h / 8 + ids[:, t : t + 1]
            columns.append(h)
        assert self.window is None or bool((read + ids.shape[1] <= self.window).all())
        return NetworkOutput(torch.stack(columns, dim=1), (h, read + ids.shape[1]))


class Slow:
    """One row of the same, token by token."""

    def __init__(self, window: int | None, context: Context) -> None:
        self.window, self.context = window, context
        self.h, self.read = 0.0, 0

    def next(self, token: int) -> Floats:
        """(V,) log p after this token."""
        if self.context == "line" and token == EOS:
            self.h, self.read, token = 0.0, 0, BOS
        if self.context == "stream" and token == BOS:
            token = EOS  # a stream begins as after a line
        if self.window is not None and self.read >= self.window:
            self.h, self.read = 0.0, 0
        self.h, self.read = self.h / 8 + token, self.read + 1
        result: Floats = log_probs(torch.tensor([[self.h]], dtype=torch.float64))[0].numpy()
        return result


@st.composite
def rows_of_text(draw: Any) -> tuple[Ids, list[list[int]]]:
    """(B, N) tokens, and the lengths each call reads; a row may read nothing."""
    B, calls = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths = [[draw(st.integers(0, 7)) for _ in range(B)] for _ in range(calls)]
    tokens = draw(
        st.lists(st.lists(st.sampled_from([EOS, 2, 3, 4]), min_size=22, max_size=22), min_size=B, max_size=B)
    )
    return np.array(tokens), lengths


@given(
    rows_of_text(),
    st.sampled_from([None, 1, 2, 3, 5]),
    st.sampled_from(["line", "stream"]),
    st.sampled_from([1, 3, 1 << 15]),
)
def test_scores_equal_token_by_token_reading(
    text: tuple[Ids, list[list[int]]], window: int | None, context: Any, at_once: int
) -> None:
    """Several calls with carried state, rows that end early or read nothing, and small chunks."""
    tokens, calls = text
    model = NeuralModel(Memory(window), VOCABULARY, context)
    slow = [Slow(window, context) for _ in tokens]
    done, state = [0] * len(tokens), model.start(len(tokens))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "TOKENS_AT_ONCE", at_once)
        patch.setattr(adapter, "LARGEST_PIECE", 7 * at_once)
        for lengths in calls:
            T = max(*lengths, 1)
            inputs, targets = np.full((2, len(tokens), T), EOS)
            for r, length in enumerate(lengths):
                inputs[r, :length] = tokens[r, done[r] : done[r] + length]
                targets[r, :length] = tokens[r, done[r] + 1 : done[r] + 1 + length]
                done[r] += length
            mask = np.arange(T) < np.array(lengths)[:, None]
            scores, state = model.score(Batch(inputs, targets, mask), state)
            for r, length in enumerate(lengths):
                expected = [slow[r].next(int(inputs[r, t]))[targets[r, t]] for t in range(length)]
                assert_allclose(scores[r, :length], expected, rtol=1e-12)
    assert [float(h) for h in state.tensors[0][:, 0]] == [item.h for item in slow]
    assert state.tensors[1].tolist() == [item.read for item in slow]


@given(rows_of_text(), st.sampled_from([None, 1, 3]), st.sampled_from(["line", "stream"]))
def test_steps_equal_token_by_token_reading(
    text: tuple[Ids, list[list[int]]], window: int | None, context: Any
) -> None:
    tokens, _ = text
    model = NeuralModel(Memory(window), VOCABULARY, context)
    slow, state = [Slow(window, context) for _ in tokens], model.start(len(tokens))
    for t in range(8):
        log_p, state = model.step(state, tokens[:, t])
        assert_allclose(log_p, [item.next(int(x)) for item, x in zip(slow, tokens[:, t], strict=True)], rtol=1e-12)
    assert log_p.dtype == np.float64


NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "feedforward": (feedforward, {}),
    "rnn": (rnn, {"learned_start": True}),
    "lstm": (lstm, {"layers": 2, "attention": "scaled-dot", "memory": 2}),
    "gru": (gru, {"reset": "before"}),
    "transformer": (transformer, {"window": 4, "heads": 2, "layers": 2}),
    "transformer-wide": (transformer, {"window": 64, "heads": 2, "layers": 1, "positions": "learned"}),
}


def model_of(name: str, context: Context = "line") -> NeuralModel:
    module, settings = NETWORKS[name]
    torch.manual_seed(1)
    config = module.Config(hidden=8, init="normal", init_range=1.0, **settings)
    return NeuralModel(module.build(config, VOCABULARY, None).double(), VOCABULARY, context)


def row(ids: list[int]) -> Batch:
    inputs = np.array([[BOS, *ids[:-1]]])
    return Batch(inputs, np.array([ids]), np.ones(inputs.shape, dtype=bool))


LINES = [[2, 3, 4, 5, 6, 2, EOS], [EOS], [5, EOS], [3, 3, 3, 4, EOS], [EOS], [6, 5, 4, 3, 2, EOS]]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_line_model_reads_a_stream_as_separate_lines(name: str, piece: int) -> None:
    """As in a mixture with a stream model: one row that continues over line ends, in pieces."""
    model = model_of(name)
    alone = np.concatenate([model.score(row(line), model.start(1))[0][0] for line in LINES])
    full, state, result = row([token for line in LINES for token in line]), model.start(1), []
    for first in range(0, len(alone), piece):
        cut = slice(first, first + piece)
        scores, state = model.score(Batch(full.inputs[:, cut], full.targets[:, cut], full.mask[:, cut]), state)
        result.append(scores[0])
    assert_allclose(np.concatenate(result), alone, rtol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_that_read_nothing_keep_their_state(name: str) -> None:
    model = model_of(name, "stream")
    _, before = model.step(model.start(3), np.array([2, 3, 4]))
    inputs = np.full((3, 2), 5)
    mask = np.array([[False, False], [True, True], [False, False]])
    scores, after = model.score(Batch(inputs, inputs, mask), before)
    assert np.isfinite(scores).all()
    expected, _ = model.step(before, np.array([6, 6, 6]))
    result, _ = model.step(after, np.array([6, 6, 6]))
    assert_allclose(result[[0, 2]], expected[[0, 2]], rtol=1e-10)
    assert not np.allclose(result[1], expected[1])


def test_fully_masked_batch_changes_nothing() -> None:
    model = model_of("lstm")
    state = model.start(2)
    empty = np.zeros((2, 3), dtype=int)
    scores, after = model.score(Batch(empty, empty, np.zeros((2, 3), dtype=bool)), state)
    assert_array_equal(scores, np.zeros((2, 3)))
    assert after is state
    scores, after = model.score(Batch(empty[:, :0], empty[:, :0], np.zeros((2, 0), dtype=bool)), state)
    assert scores.shape == (2, 0)


def test_state_select_repeats_and_reorders_rows() -> None:
    state = NeuralState((torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([4, 5, 6])))
    chosen = state.select(np.array([2, 0, 0]))
    assert chosen.tensors[0].tolist() == [[3], [1], [1]]
    assert chosen.tensors[1].tolist() == [6, 4, 4]
    assert state.tensors[1].tolist() == [4, 5, 6]


def test_log_probs_are_normalised_in_fp64() -> None:
    torch.manual_seed(1)
    config = rnn.Config(hidden=8, init="normal", init_range=3.0)
    model = NeuralModel(rnn.build(config, VOCABULARY, None), VOCABULARY, "stream")  # fp32
    log_p, _ = model.step(model.start(2), np.array([2, 3]))
    assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-14)
    assert np.isneginf(log_p[:, BOS]).all()


def test_model_interface_disables_gradients_and_dropout() -> None:
    module, _ = NETWORKS["rnn"]
    model = NeuralModel(
        module.build(module.Config(hidden=8, dropout=0.9), VOCABULARY, None).train(), VOCABULARY, "line"
    )
    first, state = model.step(model.start(1), np.array([BOS]))
    again, _ = model.step(model.start(1), np.array([BOS]))
    assert_array_equal(first, again)
    assert not any(tensor.requires_grad for tensor in state.tensors)


def test_many_short_lines_do_not_copy_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that restarts needs none of the cache before it: it must not be copied for each line."""
    model = model_of("transformer-wide")
    _, state = model.score(row([2] * 50 + [EOS]), model.start(1))
    copied: list[int] = []
    real = NeuralState.select

    def recorded_select(self: NeuralState, rows: Ids) -> NeuralState:
        copied.append(len(rows) * sum(tensor[0].numel() for tensor in self.tensors))
        return real(self, rows)

    monkeypatch.setattr(NeuralState, "select", recorded_select)
    inputs = np.array([[EOS] * 200])
    model.score(Batch(inputs, inputs, np.ones((1, 200), dtype=bool)), state)
    assert sum(copied) < 5000  # 200 copies of a cache of 51 · 8 · 2 numbers would be 160,000


def test_overflowing_model_raises_instead_of_returning_nan() -> None:
    network = lstm.build(lstm.Config(hidden=4), VOCABULARY, None)
    nn.init.constant_(network.output.bias, torch.nan)
    model = NeuralModel(network, VOCABULARY, "line")
    row = np.array([[BOS, 3]])
    with pytest.raises(ChainruleError, match="overflowed to infinity"):
        model.score(Batch(row, row, row >= 0), model.start(1))
    with pytest.raises(ChainruleError, match="overflowed to infinity"):
        model.step(model.start(1), np.array([BOS]))
