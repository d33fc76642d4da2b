"""Encoder pre-training: independent directions, masked words, transfer of weights."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.lm import Ids, Mask, Vocabulary
from chainrule.neural.encoders.encoder import EncoderConfig, TextEncoder, architecture
from chainrule.neural.encoders.pretraining import (
    BidirectionalLM,
    PretrainConfig,
    build,
    copy_encoder_weights,
    evaluate,
    mean_nats,
    pretraining_loss,
)

BOS, EOS, UNK = 0, 1, 2
VOCABULARY = Vocabulary(9, BOS, EOS, UNK)
RECURRENT = PretrainConfig(hidden=8, embedding=6, layers=2, dropout=0.0)
TRANSFORMER = PretrainConfig(family="transformer", hidden=8, heads=2, dropout=0.0)
LINES = [[BOS, 3, 4, 5, 6, EOS], [BOS, 7, EOS], [BOS, 8, 2, 3, EOS]]
KINDS: dict[str, PretrainConfig] = {
    "rnn": replace(RECURRENT, family="rnn"),
    "lstm": RECURRENT,
    "lstm-own-output": replace(RECURRENT, tie=False),
    "gru": replace(RECURRENT, family="gru", layers=1, hidden=12),  # half as wide as the embedding: no projection
    "transformer": TRANSFORMER,
    "transformer-wider": replace(TRANSFORMER, embedding=6),
    "transformer-own-output": replace(TRANSFORMER, tie=False),
}


def padded(rows: list[list[int]]) -> tuple[Ids, Mask]:
    ids = np.full((len(rows), max(map(len, rows))), EOS)
    mask = np.zeros(ids.shape, dtype=bool)
    for b, row in enumerate(rows):
        ids[b, : len(row)], mask[b, : len(row)] = row, True
    return ids, mask


def network(kind: str | PretrainConfig, vocabulary: Vocabulary = VOCABULARY) -> Any:
    torch.manual_seed(1)
    return build(KINDS[kind] if isinstance(kind, str) else kind, vocabulary).eval()


def reader(config: EncoderConfig, size: int = 9, features: int = 0, seed: int = 2) -> TextEncoder:
    torch.manual_seed(seed)
    encoder: TextEncoder = TextEncoder(config, size, features).eval()
    return encoder


def stepwise_nats(net: BidirectionalLM, line: list[int], way: Literal["forwards", "backwards"]) -> list[float]:
    """−log p of each word of a line and, forwards, of `</s>`, one step at a time."""
    layers: Any = getattr(net.reader.encoder, way)
    read = line if way == "forwards" else line[::-1]
    states = [(torch.zeros(1, layer.width),) * layer.n_states for layer in layers]
    nats = []
    for token, target in pairwise(read):
        x = net.reader.embedding[[token]] * net.reader.scale
        for k, layer in enumerate(layers):
            W, R, b_W, b_R = layer.weights()
            states[k] = layer.step(x @ W.t() + b_W, states[k], R, b_R)
            x = states[k][0]
        top = x if net.map is None else net.map(x)
        logits = (top @ net.output.weight.t() + net.output.bias)[0]
        logits[BOS] = -torch.inf
        if target != BOS:
            nats.append(-float(logits.log_softmax(dim=0)[target]))
    return nats


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "transformer" not in kind])
@torch.no_grad()
def test_bidirectional_lm_equals_stepwise_scores(kind: str) -> None:
    net = network(kind)
    evaluation = evaluate(net, [padded(LINES)])
    for name, way in (("forward", "forwards"), ("backward", "backwards")):
        expected = [nats for line in LINES for nats in stepwise_nats(net, line, way)]  # type: ignore[arg-type]
        assert (
            evaluation[name].tokens == len(expected) == (8 + 3 if name == "forward" else 8)
        )  # `</s>` of three lines
        assert evaluation[name].nats == pytest.approx(np.mean(expected), rel=1e-5)
    batch = net.collate(*padded(LINES))
    assert float(pretraining_loss(net, batch, ())[0]) == pytest.approx(mean_nats(evaluation), rel=1e-5)


def test_bidirectional_lm_targets_worked_by_hand() -> None:
    """Two rows of T = 4, B·T = 8: forward positions 0 1 2 | 4 5, backward ones 8 more."""
    batch = network("lstm").collate(*padded([[BOS, 5, 6, EOS], [BOS, 7, EOS]]))
    assert batch.target_positions.tolist() == [0, 1, 2, 4, 5, 8 + 2, 8 + 3, 8 + 6]
    assert batch.targets.tolist() == [5, 6, EOS, 7, EOS, 5, 6, 7]
    assert batch.words.tolist() == [[True] * 4, [True, True, True, False]]


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@torch.no_grad()
def test_no_direction_sees_its_target(kind: str) -> None:
    net = network(kind)

    def halves(rows: list[list[int]]) -> Tensor:
        batch = net.collate(*padded(rows))
        views: Tensor = net.prediction_vectors(net.reader(batch.inputs, batch.words).hidden)
        return views.view(2, len(rows), -1, KINDS[kind].hidden // 2)[:, 0]  # (2, T, D/2)

    changed = (halves([[BOS, 3, 4, 5, 6, EOS]]) - halves([[BOS, 3, 4, 7, 6, EOS]])).abs().amax(dim=-1) > 1e-7
    assert changed[0].tolist() == [False] * 3 + [True] * 3  # unchanged before the fourth token
    assert changed[1].tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_pretraining_parameter_gets_a_gradient(kind: str) -> None:
    net = network(kind).train()
    pretraining_loss(net, net.collate(*padded(LINES * 8)), ())[0].backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_unknown_word_of_a_closed_vocabulary_is_never_a_target() -> None:
    closed = replace(VOCABULARY, closed=True)
    ids, mask = padded([[BOS, 8, UNK, 3, EOS]])
    assert network("lstm", closed).collate(ids, mask).targets.tolist() == [8, 3, EOS, 8, 3]
    chosen = [network("transformer", closed).collate(ids, mask).targets.tolist() for _ in range(20)]
    assert UNK not in np.concatenate(chosen)
    assert np.isfinite([f.nats for f in evaluate(network("lstm", closed), [(ids, mask)]).values()]).all()


def masked_batch(seed: int, rows: int = 200, n: int = 13) -> tuple[Ids, Any]:
    """A batch of lines of n words each; 0.15 · 13 = 1.95, so two of each are selected."""
    rng = np.random.default_rng(seed)
    ids, mask = padded([[BOS, *rng.integers(2, 9, n).tolist(), EOS] for _ in range(rows)])
    return ids, network("transformer").collate(ids, mask, torch.Generator().manual_seed(seed))


def test_masked_words_are_selected_per_line() -> None:
    ids, batch = masked_batch(1)
    positions, inputs, mask_features = (
        t.numpy() for t in (batch.target_positions, batch.inputs, batch.mask_features[..., 0])
    )
    assert_allclose(np.bincount(positions // ids.shape[1]), 2)
    assert_allclose(batch.targets, ids.flatten()[positions])
    assert not set(positions % ids.shape[1]) & {0, ids.shape[1] - 1}  # neither `<s>` nor `</s>`
    is_chosen = np.zeros(ids.size, dtype=bool)
    is_chosen[positions] = True
    assert_allclose(inputs.flatten()[~is_chosen], ids.flatten()[~is_chosen])
    read, is_hidden = inputs.flatten()[positions], mask_features.flatten()[positions] == 1
    assert mask_features.sum() == is_hidden.sum()
    assert (read[is_hidden] == BOS).all()
    assert read[~is_hidden].min() >= 2


def test_masking_hides_replaces_and_keeps_words() -> None:
    """Of 800: 640 hidden; 80 replaced by one of 7 words, of which 80/7 draw the word itself; 80 kept (± 4
    deviations).
    """
    batches = [masked_batch(seed) for seed in (1, 2)]
    hidden = sum(int(batch.mask_features.sum()) for _, batch in batches)
    assert hidden == pytest.approx(640, abs=4 * np.sqrt(800 * 0.8 * 0.2))
    changed = sum(
        int(((batch.inputs.numpy() != ids) & (batch.mask_features[..., 0].numpy() == 0)).sum())
        for ids, batch in batches
    )
    assert changed == pytest.approx(80 * 6 / 7, abs=4 * np.sqrt(800 * 0.1 * 0.9))


def test_masking_follows_the_torch_generator() -> None:
    net, rows = network("transformer"), padded(LINES)
    torch.manual_seed(5)
    first, second = (net.collate(*rows) for _ in range(2))
    torch.manual_seed(5)
    again = net.collate(*rows)
    assert torch.equal(first.target_positions, again.target_positions)
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.target_positions, second.target_positions)
    assert len(net.collate(*padded([[BOS, 4, EOS]])).targets) == 1  # at least one word per line


@torch.no_grad()
def test_hidden_word_does_not_affect_the_encoder() -> None:
    net = network("transformer")
    ids, batch = masked_batch(3, rows=1)
    place = int(batch.mask_features.flatten().argmax())
    changed_ids = ids.copy()
    changed_ids.flat[place] = 3 + (ids.flat[place] == 3)
    again = net.collate(changed_ids, batch.words.numpy(), torch.Generator().manual_seed(3))
    assert torch.equal(again.target_positions, batch.target_positions)
    assert not torch.equal(again.targets, batch.targets)
    torch.testing.assert_close(net(again), net(batch), rtol=0, atol=0)


@torch.no_grad()
def test_masked_lm_figures_equal_an_explicit_softmax() -> None:
    """The hidden words are the same at every call."""
    net, rows = network("transformer-wider"), padded(LINES)
    batch = net.collate(*rows, torch.Generator().manual_seed(0))
    hidden = net.reader(batch.inputs, batch.words, batch.mask_features).hidden.flatten(0, 1)[batch.target_positions]
    logits = net.map(hidden) @ net.reader.embedding.t() + net.output.bias
    logits[:, BOS] = -torch.inf
    p = (logits.exp() / logits.exp().sum(dim=1, keepdim=True)).numpy()
    targets = batch.targets.numpy()
    nats, accuracy = -np.log(p[np.arange(3), targets]).mean(), (p.argmax(axis=1) == targets).mean()
    for _ in range(2):
        evaluation = evaluate(net, [rows])["masked"]
        assert evaluation.tokens == 3
        assert evaluation.accuracy == pytest.approx(accuracy)
        assert evaluation.nats == pytest.approx(nats, rel=1e-5)
        assert evaluation.perplexity == pytest.approx(np.exp(nats), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", [0, 3])
@torch.no_grad()
def test_copied_encoder_gives_the_same_output(kind: str, features: int) -> None:
    """With zero features; their weights are unchanged."""
    source = network(kind).reader
    target = reader(EncoderConfig(**architecture(KINDS[kind]), dropout=0.0), features=features)  # type: ignore[arg-type]
    before = {name: p.clone() for name, p in target.named_parameters()}
    copy_encoder_weights(target, source)
    ids, mask = (torch.from_numpy(array) for array in padded(LINES))
    nothing = torch.zeros(*ids.shape, features) if features else None
    for mine, theirs in zip(target(ids, mask, nothing), source(ids, mask), strict=True):
        torch.testing.assert_close(mine, theirs)
    if features and "transformer" in kind:
        assert torch.equal(before["features.weight"], target.state_dict()["features.weight"])
    elif features:
        name = "encoder.backwards.0.W"
        assert torch.equal(before[name][:, 6:], target.state_dict()[name][:, 6:])
    target.embedding.zero_()
    assert source.embedding.abs().sum() > 0  # a copy, not shared memory


def test_joint_encoder_of_one_layer_accepts_separate_directions() -> None:
    config = EncoderConfig(hidden=8, embedding=6, layers=1)
    source = network(replace(RECURRENT, layers=1)).reader
    target = reader(config)
    copy_encoder_weights(target, source)
    assert torch.equal(target.encoder.backwards[0].R, source.encoder.backwards[0].R)


@pytest.mark.parametrize(
    ("config", "size", "message"),
    [
        (replace(RECURRENT, family="gru"), 9, "it has family lstm, but the encoder here family gru"),
        (replace(RECURRENT, hidden=12), 9, "it has hidden 8, but the encoder here hidden 12"),
        (replace(RECURRENT, layers=3), 9, "it has layers 2, but the encoder here layers 3"),
        (replace(RECURRENT, embedding=5), 9, "it has embedding 6, but the encoder here embedding 5"),
        (RECURRENT, 10, "it has vocabulary 9, but the encoder here vocabulary 10"),
        (
            EncoderConfig(hidden=8, embedding=6, layers=2),
            9,
            "directions apart, but the encoder here directions joined",
        ),
        (EncoderConfig(family="transformer", hidden=8, embedding=6, layers=2), 9, "heads none.* heads 4"),
    ],
)
def test_incompatible_encoder_weights_are_rejected(config: EncoderConfig, size: int, message: str) -> None:
    target = reader(config, size)
    before = target.embedding.clone()
    with pytest.raises(ConfigError, match=message):
        copy_encoder_weights(target, network("lstm").reader)
    assert torch.equal(target.embedding, before)


def test_equal_shapes_of_different_architectures_are_rejected() -> None:
    """One head or two, rotary or not: the tensors have equal shapes but a different meaning."""
    config = EncoderConfig(**architecture(TRANSFORMER))  # type: ignore[arg-type]
    source = network("transformer").reader
    copy_encoder_weights(
        reader(replace(config, longest=17)), source
    )  # positions that are not learned have no limit
    for other_config, message in (
        (replace(config, heads=1), "heads 2.*heads 1"),
        (replace(config, positions="rotary"), "rotary"),
    ):
        with pytest.raises(ConfigError, match=message):
            copy_encoder_weights(reader(other_config), source)
    learned = replace(TRANSFORMER, positions="learned", longest=9)
    with pytest.raises(ConfigError, match=r"longest 9.*longest 12"):
        copy_encoder_weights(reader(replace(learned, longest=12)), network(learned).reader)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_pretraining_largest_matmul_is_the_encoder_s(kind: str) -> None:
    net = network(kind)
    assert net.largest_matmul(5, 3) == net.reader.largest_matmul(5, 3) > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"directions": "joined"},
            "directions is 'joined'; pre-training needs independent forward and backward networks",
        ),
        ({"directions": "forward"}, "directions is 'forward'"),
        ({"family": "gru", "mask": 0.2}, "mask is not a setting of family 'gru'"),
        ({"family": "transformer", "mask": 1.0}, "mask is 1; choose a value in"),
        ({"longest": 1}, "longest is 1; choose 2 or more"),
        ({"output": "adaptive"}, "output is 'adaptive'"),
        ({"hidden": 7}, "choose an even number"),
    ],
)
def test_conflicting_pretraining_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainConfig(**settings)
