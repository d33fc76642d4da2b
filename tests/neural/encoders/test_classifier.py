"""Pooling and losses worked by hand, boundary markers, invariance to padding."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary
from chainrule.neural.encoders import classifier
from chainrule.neural.encoders.classifier import (
    ClassifierCollator,
    ClassifyConfig,
    LabelBatch,
    TextClassifier,
    label_loss,
)
from chainrule.neural.encoders.encoder import EncoderOutput
from chainrule.training.batches import pad_to_device

BOS, EOS, UNK = 0, 1, 2
VOCABULARY = Vocabulary(9, BOS, EOS, UNK)
CPU = torch.device("cpu")
POOLINGS = ("last", "mean", "max", "attention")
FAMILIES = ("rnn", "lstm", "gru", "transformer")


def network(**settings: Any) -> TextClassifier:
    """A small classifier of three labels, in double precision and eval mode."""
    torch.manual_seed(3)
    config = ClassifyConfig(**{"hidden": 8, "embedding": 6, **settings})
    classifier_: TextClassifier = TextClassifier(config, VOCABULARY, 3).double().eval()
    return classifier_


def texts(*lengths: int) -> list[Ids]:
    """Framed texts of these lengths including both boundary symbols."""
    rng = np.random.default_rng(5)
    return [np.array([BOS, *rng.integers(2, 9, n - 2).tolist(), EOS]) for n in lengths]


def logits(classifier_: TextClassifier, rows: list[Ids]) -> Any:
    ids, mask = pad_to_device(rows, EOS, CPU)
    with torch.no_grad():
        return classifier_(ids, mask).numpy()


def test_pooling_worked_by_hand() -> None:
    hidden = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [0.0, 0.0]]])  # the third position is padding
    read = EncoderOutput(hidden, torch.tensor([[7.0, 8.0]]))
    mask = torch.tensor([[True, True, False]])
    pooled = {how: network(hidden=2, pooling=how).float().pool(read, mask)[0] for how in POOLINGS}
    assert pooled["last"].tolist() == [7, 8]
    assert pooled["mean"].tolist() == [2, -3]
    assert pooled["max"].tolist() == [3, -1]  # not the 0 of the padding


def test_attention_pooling_worked_by_hand() -> None:
    # W = I, b = 0, v = (ln 2 / tanh 1) (1, 0): e = ln 2 for h = (1, ·), −ln 2 for (−1, ·), so α = 4/5, 1/5.
    net = network(hidden=2, pooling="attention")
    assert net.attention is not None
    with torch.no_grad():
        net.attention.W.weight.copy_(torch.eye(2))
        net.attention.v.weight.copy_(torch.tensor([[math.log(2) / math.tanh(1), 0.0]]))
    hidden = torch.tensor([[[1.0, 5.0], [-1.0, 10.0], [9.0, 9.0]]]).double()
    mask = torch.tensor([[True, True, False]])
    with torch.no_grad():
        assert_allclose(net.attention(hidden, mask), [[0.8, 0.2, 0.0]], rtol=1e-6)
        # 4/5 (1, 5) + 1/5 (−1, 10)
        assert_allclose(net.pool(EncoderOutput(hidden, hidden[:, 0]), mask), [[0.6, 6.0]], rtol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_classifier_logits_do_not_depend_on_the_batch(family: Any, pooling: Any) -> None:
    net = network(family=family, pooling=pooling, layers=2)
    rows = texts(7, 2, 3, 12)  # the second has no words
    together = logits(net, rows)
    for row, row_logits in zip(rows, together, strict=True):
        assert_allclose(logits(net, [row])[0], row_logits, rtol=1e-5, atol=1e-9)
    assert len({tuple(row) for row in together.round(6).tolist()}) == 4


@pytest.mark.parametrize("pooling", POOLINGS)
def test_classifier_depends_on_word_order(pooling: Any) -> None:
    """A bag of words would give both texts the same logits."""
    net = network(pooling=pooling)
    forward, backward = logits(net, [np.array([BOS, 3, 4, 5, EOS]), np.array([BOS, 5, 4, 3, EOS])])
    assert np.abs(forward - backward).max() > 1e-4


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_bos_is_read_but_not_pooled(family: Any, pooling: Any) -> None:
    """Against the encoder's states pooled by NumPy: those of the words and of `</s>`."""
    net = network(family=family, pooling=pooling)
    (row,) = texts(6)
    ids = torch.from_numpy(row)[None]
    with torch.no_grad():
        hidden, last = (x[0] for x in net.reader(ids, torch.ones_like(ids, dtype=torch.bool)))
        h = hidden[1:].numpy()
        if net.attention is not None:
            e = (net.attention.W(hidden[1:]).tanh() @ net.attention.v.weight[0]).numpy()
            pooled = (np.exp(e) / np.exp(e).sum()) @ h
        else:
            pooled = {"last": last.numpy(), "mean": h.mean(axis=0), "max": h.max(axis=0)}[pooling]
        W, b = net.output.weight.numpy(), net.output.bias.numpy()
    assert_allclose(logits(net, [row])[0], W @ pooled + b, rtol=1e-5)
    changed = row.copy()
    changed[0] = 5  # it is read: another id changes the result
    assert np.abs(logits(net, [changed])[0] - logits(net, [row])[0]).max() > 1e-6


@pytest.mark.parametrize("pooling", POOLINGS)
def test_texts_without_words_can_be_pooled(pooling: Any) -> None:
    all_logits = logits(network(pooling=pooling), texts(2, 2))
    assert np.isfinite(all_logits).all()
    assert_array_equal(all_logits[0], all_logits[1])


class Fixed:
    """p = (3/4, 1/4) for every text."""

    def __init__(self, label_smoothing: float) -> None:
        self.config = ClassifyConfig(label_smoothing=label_smoothing)

    def __call__(self, ids: Any, mask: Any) -> Any:
        return torch.tensor([[math.log(3), 0.0]]).repeat(len(ids), 1)


def test_classifier_loss_worked_by_hand() -> None:
    # Nats: ln 4/3 and ln 4, their mean ln 4 − ln 3 / 2. Weights 1 and 2: (ln 4/3 + 2 ln 4) / 2.
    batch = LabelBatch(
        torch.zeros(2, 1, dtype=torch.long),
        torch.ones(2, 1, dtype=torch.bool),
        torch.tensor([0, 1]),
        torch.tensor([1.0, 2.0]),
    )
    loss, nats, state = label_loss(Fixed(0.0), batch, ())  # type: ignore[arg-type]
    assert state == ()
    assert float(nats) == pytest.approx(math.log(4) - math.log(3) / 2, rel=1e-6)
    assert float(loss) == pytest.approx((math.log(4 / 3) + 2 * math.log(4)) / 2, rel=1e-6)
    # Smoothed with ε = 0.2: per text 0.8 of the above and 0.2 of (ln 4/3 + ln 4)/2.
    loss, nats, _ = label_loss(Fixed(0.2), batch, ())  # type: ignore[arg-type]
    spread = (math.log(4 / 3) + math.log(4)) / 2
    expected = (0.8 * math.log(4 / 3) + 0.2 * spread + 2 * (0.8 * math.log(4) + 0.2 * spread)) / 2
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert float(nats) == pytest.approx(math.log(4) - math.log(3) / 2, rel=1e-6)


def test_class_weights_worked_by_hand() -> None:
    # 40 texts, 2 labels: 40 / (2 · 30) and 40 / (2 · 10); over the texts (30 · 2/3 + 10 · 2)/40 = 1.
    assert_allclose(classifier.class_weights(np.array([30, 10]), "balanced"), [2 / 3, 2])
    assert_array_equal(classifier.class_weights(np.array([30, 10]), "none"), [1, 1])


def test_classifier_batch_worked_by_hand() -> None:
    rows = texts(3, 2, 5)
    collate = ClassifierCollator(rows, np.array([2, 0, 1]), np.array([1.0, 5.0, 7.0]), EOS, CPU)
    batch = collate(np.array([2, 0]))
    assert_array_equal(batch.inputs, [rows[2], [*rows[0], EOS, EOS]])
    assert batch.words.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.targets.tolist() == [1, 2]
    assert batch.weights.tolist() == [5, 7]
    assert batch.mask is None
    assert batch.starts


def test_classifier_log_probs_keep_the_order_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    net, rows = network(), texts(4, 9, 2, 3, 9, 6)
    monkeypatch.setattr(classifier, "BATCH_SIZE", 2)
    log_probs = classifier.log_probs(net, rows)
    z = np.concatenate([logits(net, [row]) for row in rows])
    assert_allclose(log_probs, z - np.log(np.exp(z).sum(axis=1, keepdims=True)), rtol=1e-6)
    assert classifier.log_probs(net, []).shape == (0, 3)


def test_error_rate_is_weighted_like_the_loss() -> None:
    log_p = np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    labels = np.array([0, 0, 1, 0])  # the second and third are wrong; ties go to the first label
    assert classifier.error_rate(log_p, labels, np.ones(2)) == 0.5
    assert classifier.error_rate(log_p, labels, np.array([1.0, 3.0])) == pytest.approx((1 + 3) / (3 + 3))


def test_words_are_randomly_read_as_unknown_in_training() -> None:
    net = network(unknown=0.25)
    ids = torch.tensor([[BOS, 3, 4, 5, EOS]]).repeat(5000, 1)
    torch.manual_seed(0)
    assert net._with_unknown(ids) is ids  # in eval mode
    read = net.train()._with_unknown(ids)
    assert (read[:, 0] == BOS).all()
    assert (read[:, 4] == EOS).all()
    assert ((read == ids) | (read == UNK)).all()
    assert float((read[:, 1:4] == UNK).float().mean()) == pytest.approx(0.25, abs=0.02)  # 5 deviations are 0.018
    net.vocabulary = Vocabulary(9, BOS, EOS, None)
    assert net._with_unknown(ids) is ids


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing is 1; choose a value"),
        ({"unknown": -0.1}, "unknown is -0.1; choose a value"),
        ({"output": "adaptive"}, "full softmax"),
        ({"longest": 2}, "model.longest is 2; choose 3 or more"),
        ({"family": "transformer", "directions": "apart"}, "directions is not a setting of family 'transformer'"),
    ],
)
def test_invalid_classifier_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassifyConfig(**settings)
