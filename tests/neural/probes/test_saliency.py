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
    """A small classifier of three labels, in double precision and eval mode."""
    torch.manual_seed(3)
    config = ClassifyConfig(**{"hidden": 8, "embedding": 6, **settings})
    classifier: TextClassifier = TextClassifier(config, VOCABULARY, 3).double().eval()
    return classifier


def log_odds(classifier: TextClassifier, row: Ids, label: int, other_label: int) -> float:
    """F = log p(label) − log p(other)."""
    ids = torch.from_numpy(row)[None]
    with torch.no_grad():
        log_p = classifier(ids, torch.ones_like(ids, dtype=torch.bool))[0].log_softmax(dim=0)
    return float(log_p[label] - log_p[other_label])


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_contributions_sum_to_the_log_odds_difference(family: Any, pooling: Any) -> None:
    """Their sum is F(x) − F(0), where F(0) has all vectors zero but that of `<s>`."""
    classifier = network(family=family, pooling=pooling)
    contributions = saliency.integrated_gradients(classifier, ROW, 2, 0, steps=2000)
    log_odds_ = log_odds(classifier, ROW, 2, 0)
    with torch.no_grad():
        classifier.reader.embedding[1:] = 0
    assert contributions.shape == (5,)
    assert contributions.sum() == pytest.approx(log_odds_ - log_odds(classifier, ROW, 2, 0), rel=1e-3)


def test_contributions_equal_finite_differences() -> None:
    """∂F/∂x at the midpoint x/2 from F alone: x · ∂F ≈ [F(x/2 + h x_t) − F(x/2 − h x_t)] / 2h."""
    classifier = network(family="gru", pooling="mean")
    row = np.array([BOS, 3, 4, 5, EOS])
    contributions = saliency.integrated_gradients(classifier, row, 1, 0, steps=1)
    E = classifier.reader.embedding.detach().clone()
    for place, word in enumerate(row[1:]):
        slopes = []
        for h in (1e-5, -1e-5):
            with torch.no_grad():
                classifier.reader.embedding.copy_(E / 2)
                classifier.reader.embedding[BOS] = E[BOS]
                classifier.reader.embedding[word] += h * E[word]
            slopes.append(log_odds(classifier, row, 1, 0) / 2e-5)
        assert contributions[place] == pytest.approx(slopes[0] - slopes[1], rel=1e-4)


def toy() -> TextClassifier:
    """One forward cell, h_t = tanh(x_t): word 3 reads as 1, word 4 as −1, all others as 0; F = 2 mean_t h_t."""
    classifier = network(family="rnn", directions="forward", hidden=1, embedding=1, pooling="mean")
    values = torch.zeros(9, 1, dtype=torch.float64)
    values[3], values[4] = 1, -1
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.zero_()
        classifier.reader.embedding.copy_(values)  # the scale is √1
        classifier.reader.encoder.forwards[0].W.fill_(1)
        classifier.output.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
    return classifier


def test_contributions_have_the_expected_signs() -> None:
    """Logits (m, −m, 0) of m = mean(tanh x): F = 2 m. Words are independent, so each contributes 2 tanh(x_t) /
    5.
    """
    contributions = saliency.integrated_gradients(toy(), ROW, 0, 1, steps=200)
    part = 2 * math.tanh(1) / 5
    assert contributions.tolist() == pytest.approx([part, 0, -part, -part, 0], rel=1e-4)
    assert saliency.integrated_gradients(toy(), ROW, 1, 0, steps=200).tolist() == pytest.approx(
        (-contributions).tolist()
    )
    assert saliency.integrated_gradients(toy(), np.array([BOS, EOS]), 0, 1).tolist() == [0]  # a text without words


def test_saliency_gradients_use_full_precision() -> None:
    """No TF32 products, forwards or backwards, and the previous setting is restored."""
    classifier = network()
    precisions: list[tuple[str, bool]] = []

    def record_forward(*_: Any) -> None:
        precisions.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))

    def record_backward(_module: Any, _inputs: Any, read: Any) -> None:
        record_forward()
        read.hidden.register_hook(record_forward)

    classifier.reader.register_forward_hook(record_backward)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        saliency.integrated_gradients(classifier, ROW, 0, 1)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert precisions == [("highest", False)] * 2


def test_saliency_leaves_the_classifier_unchanged() -> None:
    classifier = network(pooling="attention")
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    saliency.integrated_gradients(classifier, ROW, 0, 1)
    saliency.pooling_weights(classifier, ROW)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.state_dict().items())
    assert all(parameter.grad is None for parameter in classifier.parameters())


def test_attention_weights_of_a_text() -> None:
    classifier = network(pooling="attention")
    weights = saliency.pooling_weights(classifier, ROW)
    assert weights.shape == (5,)  # `<s>` is not pooled
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()
    with pytest.raises(ConfigError, match="pools by 'max' and has no attention"):
        saliency.pooling_weights(network(), ROW)
