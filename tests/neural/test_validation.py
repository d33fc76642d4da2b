"""Validation loss: equal to the evaluation of lines, and close to that of a stream."""

from typing import Any

import numpy as np
import pytest
import torch

from chainrule.data.encoded import EncodedText
from chainrule.lm import Context, Vocabulary
from chainrule.neural import family as neural_family
from chainrule.neural import lstm, transformer
from chainrule.neural.family import mean_nats
from chainrule.neural.model import NeuralModel

BOS, EOS, UNK = 0, 1, 2


def model(context: Context, closed: bool = False, **settings: Any) -> NeuralModel:
    torch.manual_seed(2)
    vocabulary = Vocabulary(7, BOS, EOS, UNK, closed)
    if settings:
        network = transformer.build(transformer.Config(hidden=8, heads=2, layers=1, **settings), vocabulary, None)
    else:
        network = lstm.build(lstm.Config(hidden=6, init="normal", init_range=1.0), vocabulary, None)
    return NeuralModel(network.double(), vocabulary, context)


def text(size: int, lowest: int = 2) -> EncodedText:
    ids = np.random.default_rng(3).integers(lowest, 7, size).astype(np.int32)
    ids[4::5] = EOS
    ids[-1] = EOS
    return EncodedText(ids, EOS, UNK, 0, 0, 0)


def nats(lm: NeuralModel, rows: list[list[int]], firsts: list[int]) -> list[float]:
    """−log p of every token of these rows, each from an empty state, one at a time."""
    values = []
    for row, first in zip(rows, firsts, strict=True):
        state, before = lm.start(1), first
        for token in row:
            log_p, state = lm.step(state, np.array([before]))
            values.append(-float(log_p[0, token]))
            before = token
    return values


def test_validation_scores_lines_separately() -> None:
    lm, ids = model("line"), text(38)
    lines = [line.tolist() for line in np.split(ids.ids, np.flatnonzero(ids.ids == EOS)[:-1] + 1)]
    assert mean_nats(lm, ids) == pytest.approx(np.mean(nats(lm, lines, [BOS] * len(lines))), rel=1e-10)


@pytest.mark.parametrize("settings", [{}, {"window": 4}])
def test_validation_reads_a_short_stream_as_one(settings: dict[str, Any]) -> None:
    lm, ids = model("stream", **settings), text(60)
    assert mean_nats(lm, ids) == pytest.approx(np.mean(nats(lm, [ids.ids.tolist()], [BOS])), rel=1e-10)


def test_validation_reads_a_long_stream_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 tokens in 3 columns of 21, one left over, read 8 at a time; a column continues from the token before
    it.
    """
    monkeypatch.setattr(neural_family, "COLUMNS", 3)
    monkeypatch.setattr(neural_family, "SHORTEST_COLUMN", 10)
    monkeypatch.setattr(neural_family, "TOKENS_AT_ONCE", 8)
    lm, ids = model("stream"), text(64)
    whole = ids.ids.tolist()
    columns = [whole[:21], whole[21:42], whole[42:63]]
    expected = nats(lm, columns, [BOS, whole[20], whole[41]])
    assert mean_nats(lm, ids) == pytest.approx(np.mean(expected), rel=1e-10)


@pytest.mark.parametrize("context", ["line", "stream"])
def test_validation_ignores_impossible_tokens(context: Any) -> None:
    lm, ids = model(context, closed=True), text(40)
    assert (ids.ids == UNK).any()
    rows = [ids.ids.tolist()]
    if context == "line":
        rows = [line.tolist() for line in np.split(ids.ids, np.flatnonzero(ids.ids == EOS)[:-1] + 1)]
    every = np.array(nats(lm, rows, [BOS] * len(rows)))
    assert np.isinf(every).sum() == (ids.ids == UNK).sum()
    assert mean_nats(lm, ids) == pytest.approx(every[np.isfinite(every)].mean(), rel=1e-10)
