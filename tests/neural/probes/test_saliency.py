"""Saliency: completeness, sign, exactness, no side effects."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary
from chainrule.neural.encoders.classifier import ClassifyConfig, TextClassifier
from chainrule.neural.probes import saliency

BOS, EOS, UNK = 0, 1, 2
VOCABULARY = Vocabulary(9, BOS, EOS, UNK)
ROW = np.array([BOS, 3, 7, 4, 4, EOS])


def network(**settings: Any) -> TextClassifier:
    """Of three labels, small, in double precision, not learning."""
    torch.manual_seed(3)
    config = ClassifyConfig(**{"hidden": 8, "embedding": 6, **settings})
    made: TextClassifier = TextClassifier(config, VOCABULARY, 3).double().eval()
    return made


def log_odds(made: TextClassifier, row: Ids, label: int, other: int) -> float:
    """F = log p(label) − log p(other)."""
    ids = torch.from_numpy(row)[None]
    with torch.no_grad():
        log_p = made(ids, torch.ones_like(ids, dtype=torch.bool))[0].log_softmax(dim=0)
    return float(log_p[label] - log_p[other])


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_contributions_add_up(family: Any, pooling: Any) -> None:
    """Their sum is F(x) − F(0), F(0) that of the same network with all vectors zero but that of `<s>`."""
    made = network(family=family, pooling=pooling)
    found = saliency.integrated_gradients(made, ROW, 2, 0, steps=2000)
    whole = log_odds(made, ROW, 2, 0)
    with torch.no_grad():
        made.reader.embedding[1:] = 0
    assert found.shape == (5,)
    assert found.sum() == pytest.approx(whole - log_odds(made, ROW, 2, 0), rel=1e-3)


def test_contributions_by_differences() -> None:
    """∂F/∂x at the middle of one piece, x/2, from F alone: x · ∂F ≈ [F(x/2 + h x_t) − F(x/2 − h x_t)] / 2h."""
    made = network(family="gru", pooling="mean")
    row = np.array([BOS, 3, 4, 5, EOS])
    found = saliency.integrated_gradients(made, row, 1, 0, steps=1)
    E = made.reader.embedding.detach().clone()
    for place, word in enumerate(row[1:]):
        slopes = []
        for h in (1e-5, -1e-5):
            with torch.no_grad():
                made.reader.embedding.copy_(E / 2)
                made.reader.embedding[BOS] = E[BOS]
                made.reader.embedding[word] += h * E[word]
            slopes.append(log_odds(made, row, 1, 0) / 2e-5)
        assert found[place] == pytest.approx(slopes[0] - slopes[1], rel=1e-4)


def toy() -> TextClassifier:
    """One forward cell, h_t = tanh(x_t): word 3 is read as 1, word 4 as −1, all others as 0; F = 2 mean_t h_t."""
    made = network(family="rnn", directions="forward", hidden=1, embedding=1, pooling="mean")
    values = torch.zeros(9, 1, dtype=torch.float64)
    values[3], values[4] = 1, -1
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.reader.embedding.copy_(values)  # the scale is √1
        made.reader.encoder.forwards[0].W.fill_(1)
        made.output.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
    return made


def test_signs_on_a_toy() -> None:
    """Logits (m, −m, 0) of m = mean(tanh x): F = 2 m. Words apart, so each gives 2 tanh(x_t) / 5 itself."""
    found = saliency.integrated_gradients(toy(), ROW, 0, 1, steps=200)
    part = 2 * math.tanh(1) / 5
    assert found.tolist() == pytest.approx([part, 0, -part, -part, 0], rel=1e-4)
    assert saliency.integrated_gradients(toy(), ROW, 1, 0, steps=200).tolist() == pytest.approx((-found).tolist())
    assert saliency.integrated_gradients(toy(), np.array([BOS, EOS]), 0, 1).tolist() == [0]  # a text without words


def test_gradients_are_exact_as_evaluation_is() -> None:
    """No products rounded to ten bits, forwards or backwards, and what was allowed before is so again."""
    made = network()
    seen: list[tuple[str, bool]] = []

    def look(*_: Any) -> None:
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))

    def look_back(_module: Any, _inputs: Any, read: Any) -> None:
        look()
        read.hidden.register_hook(look)

    made.reader.register_forward_hook(look_back)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        saliency.integrated_gradients(made, ROW, 0, 1)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == [("highest", False)] * 2


def test_explaining_changes_nothing() -> None:
    made = network(pooling="attention")
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    saliency.integrated_gradients(made, ROW, 0, 1)
    saliency.attention_weights(made, ROW)
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.state_dict().items())
    assert all(parameter.grad is None for parameter in made.parameters())


def test_where_it_looked() -> None:
    made = network(pooling="attention")
    found = saliency.attention_weights(made, ROW)
    assert found.shape == (5,)  # `<s>` is not pooled
    assert found.sum() == pytest.approx(1)
    assert (found > 0).all()
    with pytest.raises(ConfigError, match="pools by 'max' and has no attention"):
        saliency.attention_weights(network(), ROW)
