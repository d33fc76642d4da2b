"""Translation models obey the laws of language models; batched sources are independent."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.decoding import beam
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleError, ConfigError
from chainrule.lm import Batch, Ids, Vocabulary
from chainrule.neural.encoders import seq2seq
from chainrule.neural.encoders.seq2seq import (
    ConditionalLM,
    PairCollator,
    PairConfig,
    PairNetwork,
    attention_alignment,
    condition_on,
    pair_loss,
)
from chainrule.training.device import limit_threads

BOS, EOS = 0, 1
VOCABULARY = Vocabulary(11, BOS, EOS, 2)
SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "dropout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    **{f"gru-{kind}": {"attention": kind} for kind in ("none", "dot", "scaled-dot", "general", "additive")},
    "lstm-none": {"family": "lstm", "attention": "none"},
    "lstm-additive": {"family": "lstm", "embedding": 6, "tie": True},
    "rnn-general": {"family": "rnn", "attention": "general", "directions": "forward"},
    "gru-separate": {"joint": False, "tie": False, "embedding": 6},
    "transformer": {"family": "transformer", "heads": 2},
    "transformer-post": {"family": "transformer", "heads": 2, "norm": "post", "joint": False},
    "transformer-rotary": {"family": "transformer", "heads": 2, "positions": "rotary", "bias": True},
    "transformer-learned": {"family": "transformer", "heads": 2, "positions": "learned", "tie": False},
}
SOURCES: list[Ids] = [np.array(row) for row in ([5, 6, 7, EOS], [8, EOS], [4, 4, 9, 3, 5, EOS])]
TARGETS: list[Ids] = [np.array(row) for row in ([3, 4, EOS], [9, 8, 7, 6, 5, EOS], [EOS])]


def network(kind: str) -> PairNetwork:
    torch.manual_seed(1)
    config = PairConfig(**SMALL | KINDS[kind])
    net: PairNetwork = seq2seq.build(config, 11 if config.joint else 13, VOCABULARY).eval()
    return net


def batch_of(target: Ids) -> Batch:
    inputs = np.array([[BOS, *target[:-1]]])
    return Batch(inputs, target[None], np.ones((1, len(target)), dtype=bool))


@pytest.mark.parametrize("kind", KINDS)
def test_conditional_lm_score_equals_steps(kind: str) -> None:
    for lm, target in zip(condition_on(network(kind), VOCABULARY, SOURCES), TARGETS, strict=True):
        scores, after = lm.score(batch_of(target), lm.start(1))
        state = lm.start(1)
        for t, read_id in enumerate([BOS, *target[:-1]]):
            log_p, state = lm.step(state, np.array([read_id]))
            assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-6)
            assert log_p[0, BOS] == -np.inf
            assert log_p[0, target[t]] == pytest.approx(scores[0, t], rel=1e-5)
        again, _ = lm.step(after, target[-1:])
        assert_allclose(again, lm.step(state, target[-1:])[0], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_conditional_lm_restarts_after_eos(kind: str) -> None:
    lm = condition_on(network(kind), VOCABULARY, SOURCES)[0]
    first, state = lm.step(lm.start(1), np.array([BOS]))
    _, state = lm.step(state, np.array([7]))
    again, _ = lm.step(state, np.array([EOS]))
    assert_allclose(again, first, rtol=1e-6)
    two = np.array([[BOS, 7, EOS, 7]]), np.array([[7, EOS, 7, EOS]])
    scores, _ = lm.score(Batch(*two, np.ones((1, 4), dtype=bool)), lm.start(1))
    assert_allclose(scores[0, 2:], scores[0, :2], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_conditional_lm_depends_on_its_source_only(kind: str) -> None:
    net = network(kind)
    alone = [condition_on(net, VOCABULARY, [source])[0] for source in SOURCES]
    beside = condition_on(net, VOCABULARY, SOURCES)
    first = [lm.step(lm.start(1), np.array([BOS]))[0] for lm in beside]
    for lm, log_p in zip(alone, first, strict=True):
        assert_allclose(lm.step(lm.start(1), np.array([BOS]))[0], log_p, rtol=1e-5)
    assert np.abs(np.exp(first[0]) - np.exp(first[1])).max() > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_batched_pair_nats_equal_single_pairs(kind: str) -> None:
    net = network(kind)
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, torch.device("cpu"))(np.arange(3))
    batch_nats = seq2seq.pair_nats(net, batch)
    for lm, target, nats in zip(condition_on(net, VOCABULARY, SOURCES), TARGETS, batch_nats, strict=True):
        scores, _ = lm.score(batch_of(target), lm.start(1))
        assert -scores.sum() == pytest.approx(nats, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_beam_searches_equal_separate_ones(kind: str) -> None:
    models = condition_on(network(kind), VOCABULARY, SOURCES)
    prompt = Prompt((), VOCABULARY)
    settings = Decoding(strategy="beam", beam_size=3, max_tokens=8)
    alone = [beam.search(lm, prompt, settings, num=2) for lm in models]
    searches = [beam.search_steps(*read_prompt(lm, prompt), prompt, settings, num=2) for lm in models]
    together = beam.search_batch(models[0], searches)
    assert [[h.ids for h in actual] for actual in together] == [[h.ids for h in actual] for actual in alone]
    for alone_hypothesis, joint_hypothesis in zip(alone, together, strict=True):
        assert [h.score for h in joint_hypothesis] == pytest.approx([h.score for h in alone_hypothesis], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_alignments_are_distributions_over_the_source(kind: str) -> None:
    net = network(kind)
    alignment = attention_alignment(net, SOURCES[2], TARGETS[1], VOCABULARY)
    if kind.endswith("none"):
        assert alignment.shape == (1, 1, 6, 0)
        return
    layers, heads = (2, 2) if kind.startswith("transformer") else (1, 1)
    assert alignment.shape == (layers, heads, 6, 6)  # (L, H, T, S)
    assert_allclose(alignment.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_seq2seq_parameter_gets_a_gradient(kind: str) -> None:
    """Padding does not affect the loss: its gradient equals that of the separate pairs."""
    net = network(kind)
    collate = PairCollator(SOURCES, TARGETS, VOCABULARY, torch.device("cpu"))
    with limit_threads(0.0):
        loss, *_ = pair_loss(net, collate(np.arange(3)), ())
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in net.named_parameters()}
        assert all(bool(g.abs().sum() > 0) for g in gradients.values()), [
            n for n, g in gradients.items() if not g.any()
        ]
        net.zero_grad()
        tokens = sum(map(len, TARGETS))
        parts = [pair_loss(net, collate(np.array([i])), ()) for i in range(3)]
        sum(part[0] * len(t) / tokens for part, t in zip(parts, TARGETS, strict=True)).backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name], rtol=1e-4, atol=1e-6)


def test_label_smoothing_worked_by_hand() -> None:
    """ε = 0.1 over the 10 possible words: 0.9 · nats + 0.1 · their mean −log p."""
    net = network("gru-additive")
    lm: ConditionalLM = condition_on(net, VOCABULARY, SOURCES[1:2])[0]
    log_p, _ = lm.step(lm.start(1), np.array([BOS]))
    batch = PairCollator(SOURCES[1:2], [np.array([EOS])], VOCABULARY, torch.device("cpu"))(np.array([0]))
    loss, nats = (value.detach() for value in pair_loss(net, batch, ())[:2])
    assert float(nats) == pytest.approx(-log_p[0, EOS], rel=1e-5)
    assert float(loss) == pytest.approx(-0.9 * log_p[0, EOS] - 0.1 * log_p[0, 1:].mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"family": "transformer", "attention": "dot"}, "always attends"),
        ({"family": "transformer", "embedding": 4}, "one width"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1"),
        ({"output": "adaptive"}, "full softmax"),
    ],
)
def test_conflicting_seq2seq_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PairConfig(**settings)


def test_pair_nats_are_computed_in_chunks_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("gru-additive")
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, torch.device("cpu"))(np.arange(3))
    expected, sizes, real = seq2seq.pair_nats(net, batch), list[int](), net.output.log_probs

    def recorded_log_probs(hidden: torch.Tensor) -> Any:
        sizes.append(len(hidden))
        return real(hidden)

    monkeypatch.setattr(seq2seq, "LARGEST_PIECE", 4 * 11 + 10)  # four rows of V = 11 numbers, not five
    monkeypatch.setattr(net.output, "log_probs", recorded_log_probs)
    assert_allclose(seq2seq.pair_nats(net, batch), expected, rtol=1e-6)
    assert sizes == [4, 4, 2]  # 3 + 6 + 1 targets


def test_overflowing_pair_nats_are_rejected() -> None:
    net = network("gru-additive")
    torch.nn.init.constant_(net.output.bias, float("nan"))
    batch = PairCollator(SOURCES, TARGETS, VOCABULARY, torch.device("cpu"))(np.arange(3))
    with pytest.raises(ChainruleError, match="overflowed to infinity"):
        seq2seq.pair_nats(net, batch)
