"""Recurrent networks: carried states, placement of dropout, penalties."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.layers import dropout
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import RecurrentConfig, RecurrentLayer, RecurrentNetwork

VOCABULARY = Vocabulary(11, 0, 1, 2)
FAMILIES: dict[str, Any] = {"rnn": rnn, "lstm": lstm, "gru": gru}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    *((family, {"learned_start": True, "layer_norm": True, "embedding": 4}) for family in FAMILIES),
    *((family, {"attention": "dot", "attention_use": "state"}) for family in ("rnn", "lstm")),
    *(
        ("lstm", {"attention": kind, "attention_use": use})
        for kind in ("dot", "scaled-dot", "general", "additive")
        for use in ("sum", "concat", "state")
    ),
    ("rnn", {"nonlinearity": "leaky"}),
    ("rnn", {"nonlinearity": "sigmoid", "tie": False}),
    ("gru", {"reset": "before", "learned_start": True, "attention": "additive"}),
]


def network(family: str = "lstm", **settings: Any) -> RecurrentNetwork:
    """Two layers, 6 wide, in float64, without dropout unless requested and with no weight at zero."""
    torch.manual_seed(5)
    chosen = {"hidden": 6, "layers": 2, "memory": 3, "dropout": 0.0, "init": "normal", "init_range": 0.7} | settings
    net: RecurrentNetwork = FAMILIES[family].build(FAMILIES[family].Config(**chosen), VOCABULARY, None)
    for name, p in net.double().named_parameters():
        if name.startswith("starts") or name.endswith(("b_W", "b_R")):
            nn.init.normal_(p)
    return net


def some_ids(B: int = 3, T: int = 9) -> Tensor:
    return torch.randint(2, 11, (B, T), generator=torch.Generator().manual_seed(2))


def record_masks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The dropout masks, in the order drawn."""
    masks: list[Tensor] = []
    real = dropout.keep_mask

    def recorded_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
        masks.append(real(like, shape, p))
        return masks[-1]

    monkeypatch.setattr(dropout, "keep_mask", recorded_mask)
    return masks


@pytest.mark.parametrize(("family", "settings"), VARIANTS)
def test_recurrent_network_at_once_equals_stepwise(family: str, settings: dict[str, Any]) -> None:
    net, ids = network(family, **settings).eval(), some_ids()
    full = net(ids, net.start(3))
    state, steps = net.start(3), []
    for t in range(9):
        hidden, state, _ = net(ids[:, t : t + 1], state)
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, dim=1), full.hidden)
    torch.testing.assert_close(state, full.state)


@pytest.mark.parametrize(("family", "settings"), VARIANTS)
def test_recurrent_state_carries_over_windows(family: str, settings: dict[str, Any]) -> None:
    net, ids = network(family, **settings).eval(), some_ids()
    full = net(ids, net.start(3))
    second = net(ids[:, 5:], (first := net(ids[:, :5], net.start(3))).state)
    torch.testing.assert_close(torch.cat([first.hidden, second.hidden], dim=1), full.hidden)
    torch.testing.assert_close(second.state, full.state)
    assert [(s.dtype, s.shape) for s in full.state] == [(s.dtype, s.shape) for s in net.start(3)]


@pytest.mark.parametrize(("family", "settings"), VARIANTS)
def test_every_recurrent_parameter_gets_a_gradient(family: str, settings: dict[str, Any]) -> None:
    net, ids = network(family, dropout=0.2, weight_dropout=0.2, **settings), some_ids()
    features = net(ids[:, :-1], net.start(3))
    net.output.loss(features.hidden.flatten(0, 1), ids[:, 1:].flatten()).backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        assert 0 < p.grad.abs().sum() < float("inf"), name


def test_state_rows_are_independent() -> None:
    net = network(attention="dot", learned_start=True).eval()
    ids = some_ids()
    read = net(ids, net.start(3)).state
    mixed = tuple(torch.cat([s[:1], f[:1]]) for s, f in zip(read, net.start(3), strict=True))  # one old, one new
    both = net(ids[1:], mixed).hidden
    torch.testing.assert_close(both[:1], net(ids[1:2], tuple(s[:1] for s in read)).hidden)
    torch.testing.assert_close(both[1:], net(ids[2:], net.start(1)).hidden)


def test_learned_start_is_used_and_trained() -> None:
    net = network("rnn", layers=1, learned_start=True)
    hidden, state, _ = net(some_ids(T=1), tuple(s.detach() for s in net.start(3)))
    (layer,) = net.layers
    x = net.embedding[some_ids(T=1)[:, 0]]
    by_hand = torch.tanh(x @ layer.W.t() + layer.b_W + net.starts[0] @ layer.R.t() + layer.b_R)
    torch.testing.assert_close(hidden[:, 0], by_hand)
    hidden.sum().backward()
    assert net.starts[0].grad.any()
    assert not state[-1].any()  # no row is new any more


@pytest.mark.parametrize("family", FAMILIES)
def test_weight_dropout_masks_recurrent_weights_in_training(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = record_masks(monkeypatch)
    net, ids = network(family, layers=1, weight_dropout=0.5), some_ids()
    hidden = net(ids, net.start(3)).hidden
    (layer,), (mask,) = net.layers, masks
    assert mask.shape == layer.R.shape
    assert set(mask.unique().tolist()) == {0.0, 2.0}

    state = net.start(3)  # the equations with the same weights masked at every step
    for t, x in enumerate(net.embedding[ids].unbind(1)):
        state = layer.step(x @ layer.W.t() + layer.b_W, state, layer.R * mask, layer.b_R)
        torch.testing.assert_close(hidden[:, t], state[0])

    hidden.square().sum().backward()
    assert torch.equal(layer.R.grad != 0, mask != 0)


def test_weight_dropout_differs_between_passes_in_training_only() -> None:
    net, ids = network(weight_dropout=0.5), some_ids()
    state = net(ids, net.start(3)).state
    for is_learning in (True, False):
        net.train(is_learning)
        assert torch.equal(net(ids, state).hidden, net(ids, state).hidden) is not is_learning


@pytest.mark.parametrize("family", FAMILIES)
def test_recurrent_dropout_is_off_in_evaluation(family: str) -> None:
    all_kinds = {"weight_dropout": 0.5, "embedding_dropout": 0.5, "hidden_dropout": 0.5, "dropout": 0.5}
    dropped, plain, ids = network(family, **all_kinds).eval(), network(family).eval(), some_ids()
    assert torch.equal(dropped(ids, dropped.start(3)).hidden, plain(ids, plain.start(3)).hidden)


def test_fully_dropped_recurrent_weights_remove_the_past() -> None:
    """Of 2 x 2 weights all four are dropped with probability 0.9⁴ = 0.656: then h_{t−1} has no effect."""
    net = network("rnn", layers=1, hidden=2, weight_dropout=0.9)
    ids, state = torch.full((2, 1), 4), (torch.tensor([[0.9, -0.4], [-0.7, 0.2]], dtype=torch.float64),)
    hidden = [net(ids, state).hidden for _ in range(400)]
    share = sum(bool(torch.equal(h[0], h[1])) for h in hidden) / 400
    assert abs(share - 0.656) < 0.1  # four standard errors


def is_locked(hidden: Tensor) -> bool:
    """Whether the same units are dropped at every step."""
    return bool(((hidden == 0) == (hidden[:, :1] == 0)).all())


def test_locked_dropout_uses_one_mask_per_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = record_masks(monkeypatch)
    net, ids = network(embedding=4, input_dropout=0.1, hidden_dropout=0.2, output_dropout=0.5), some_ids()
    hidden = net(ids, net.start(3)).hidden
    assert [tuple(mask.shape) for mask in masks] == [(1, 3, 4), (1, 3, 6), (3, 1, 4)]  # E, D, E wide
    assert [float(mask.max()) for mask in masks] == pytest.approx([1 / 0.9, 1 / 0.8, 1 / 0.5])
    assert 0 < (hidden == 0).sum() < hidden.numel()
    assert is_locked(hidden)
    net = network(locked=False, output_dropout=0.5)
    assert not is_locked(net(ids, net.start(3)).hidden)


def test_specific_dropouts_default_to_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = record_masks(monkeypatch)
    net = network(dropout=0.3, hidden_dropout=0.1)
    net(some_ids(), net.start(3))
    assert [float(mask.max()) for mask in masks] == pytest.approx([1 / 0.7, 1 / 0.9, 1 / 0.7])


def test_embedding_dropout_drops_whole_words() -> None:
    net, ids = network(embedding_dropout=0.5), some_ids(4, 30)
    read: list[Tensor] = []
    net.layers[0].register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    net(ids, net.start(4))
    x = read[0].transpose(0, 1)  # (B, T, E)
    fates = set()
    for word in range(2, 11):
        word_vectors = x[ids == word]
        assert len(word_vectors) > 1
        fates.add(is_kept := bool(word_vectors.any()))
        torch.testing.assert_close(word_vectors, (2 * net.embedding[word] * is_kept).expand_as(word_vectors))
    assert fates == {True, False}


H = torch.tensor([[[1.0, 2.0]], [[3.0, 2.0]], [[3.0, -1.0]]])  # (T, B, D)


class Fixed(RecurrentLayer):
    """A layer with known outputs."""

    gates = 1

    def forward_with(self, x: Tensor, state: Tensors, weights: list[Tensor]) -> tuple[Tensor, Tensors]:
        return H[: len(x)], state


def fixed(**settings: float) -> RecurrentNetwork:
    config = RecurrentConfig(hidden=2, dropout=0.0, **settings)  # type: ignore[arg-type]
    return RecurrentNetwork(config, VOCABULARY, None, Fixed)


def test_recurrent_penalties_worked_by_hand() -> None:
    ids, activation = torch.zeros(1, 3, dtype=torch.long), (1 + 4 + 9 + 4 + 9 + 1) / 6
    temporal = (2**2 + 0 + 0 + 3**2) / 4
    for alpha, beta in ((2.0, 0.0), (0.0, 3.0), (2.0, 3.0)):
        net = fixed(activation_penalty=alpha, temporal_penalty=beta)
        penalty = net(ids, net.start(1)).penalty
        assert float(penalty) == pytest.approx(alpha * activation + beta * temporal)


def test_only_the_activation_penalty_includes_dropout() -> None:
    ids = torch.zeros(1, 3, dtype=torch.long)
    net = fixed(activation_penalty=1.0, output_dropout=0.5)
    hidden, _, penalty = net(ids, net.start(1))
    assert float(penalty) == pytest.approx(float(hidden.square().mean()))
    net = fixed(temporal_penalty=1.0, output_dropout=0.5)
    assert float(net(ids, net.start(1)).penalty) == pytest.approx(13 / 4)


def test_no_penalty_without_activations_or_in_evaluation() -> None:
    net, ids = fixed(activation_penalty=1.0, temporal_penalty=1.0), torch.zeros(1, 3, dtype=torch.long)
    assert float(net(ids[:, :1], net.start(1)).penalty) == pytest.approx(5 / 2)  # one step: no change of state
    assert net.eval()(ids, net.start(1)).penalty is None
    assert fixed()(ids, net.start(1)).penalty is None


@pytest.mark.parametrize(
    "settings",
    [{"weight_dropout": 1.0}, {"hidden_dropout": -0.1}, {"activation_penalty": -1.0}, {"memory": 0}, {"hidden": 0}],
)
def test_recurrent_setting_out_of_range_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"model.{next(iter(settings))} is"):
        lstm.Config(**settings)


def test_layer_widths_of_tied_and_untied_stacks() -> None:
    tied = RecurrentConfig(hidden=1024, embedding=512, layers=3)
    assert tied.widths == [512, 1024, 1024, 512]
    assert RecurrentConfig(hidden=1024, embedding=512, layers=3, tie=False).widths == [512, 1024, 1024, 1024]
    assert RecurrentConfig(hidden=64).widths == [64, 64]


@pytest.mark.parametrize("kind", [lstm, gru, rnn])
def test_fused_layers_equal_separate_layers(kind: Any) -> None:
    network = kind.build(kind.Config(hidden=6, layers=3), VOCABULARY, None).eval()
    assert network.is_fusible
    x = torch.randn(5, 2, 6)
    cells = [torch.randn(2, 6) for _ in range(3 * network.layers[0].n_states)]
    one_by_one, after, _ = network._run_separately(x, cells, [])
    at_once, too = network._run_fused(x, cells)
    torch.testing.assert_close(at_once, one_by_one)
    torch.testing.assert_close(too, after)


def test_stacks_that_cannot_be_fused() -> None:
    def is_fusible(kind: Any = lstm, **settings: Any) -> bool:
        network = kind.build(kind.Config(**{"hidden": 6, "layers": 2, **settings}), VOCABULARY, None)
        return bool(network.is_fusible)

    assert not is_fusible(layers=1)
    assert not is_fusible(embedding=4)  # tied: the last layer is narrower
    assert not is_fusible(dropout=0.5)  # one mask for all steps
    assert is_fusible(dropout=0.5, locked=False)
    assert not is_fusible(dropout=0.0, layer_norm=True)
    assert not is_fusible(dropout=0.0, attention="dot", attention_use="state")
    assert not is_fusible(gru, dropout=0.0, reset="before")
    assert not is_fusible(rnn, dropout=0.0, nonlinearity="sigmoid")


def test_single_tied_layer_requires_equal_widths() -> None:
    with pytest.raises(ConfigError, match=r"embedding is 4 and model\.hidden 6, but tied weights"):
        lstm.Config(hidden=6, embedding=4)
    assert lstm.Config(hidden=6, embedding=4, tie=False).widths == [4, 6]
    assert lstm.Config(hidden=6, embedding=4, layers=2).widths == [4, 6, 4]
