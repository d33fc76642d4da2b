"""One update equals a plain torch training loop; the state is carried and detached."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chainrule.neural import lstm
from chainrule.training.batches import LineBatches, StreamBatches, Window
from chainrule.training.config import TrainingConfig
from chainrule.training.device import exact_inference
from chainrule.training.step import (
    CLIPPED,
    LARGEST_NORM,
    NATS,
    NORM,
    STEPS,
    TOKENS,
    EagerStepper,
    TrainingStep,
    allow_tf32,
    next_token,
)
from training.small_networks import BOS, CPU, EOS, VOCABULARY, Weights, lines, slope

PLAIN = TrainingConfig(optimizer="sgd", learning_rate=0.5, clip=0.0)


def net(**settings: Any) -> Any:
    """An LSTM in float64 without dropout, its embedding apart from its output."""
    torch.manual_seed(3)
    chosen = {"hidden": 5, "dropout": 0.0, "tie": False, "init_range": 0.5} | settings
    return lstm.build(lstm.Config(**chosen), VOCABULARY, None).double().train()


def update(config: TrainingConfig, *slopes: tuple[float, ...]) -> tuple[Weights, TrainingStep]:
    """Weights that were zero, after one step down each slope."""
    network = Weights(*[0.0] * len(slopes[0]))
    step = TrainingStep(network, slope, config, CPU)
    for each in slopes:
        step(Window(torch.tensor([each]), torch.zeros(1, 1)), ())
    return network, step


@pytest.mark.parametrize(
    ("clip", "clip_value", "expected"),
    [
        (0.0, 0.0, [-1.5, -2.0]),  # θ − 0.5 · (3, 4)
        (1.0, 0.0, [-0.3, -0.4]),  # (3, 4) / 5
        (9.0, 0.0, [-1.5, -2.0]),  # clipping only caps what is large
        (0.0, 3.5, [-1.5, -1.75]),
        (0.0, 1.0, [-0.5, -0.5]),
        (1.0, 1.0, [-0.5 / math.sqrt(2), -0.5 / math.sqrt(2)]),  # values first, then the norm of (1, 1)
    ],
)
def test_clipping_by_hand(clip: float, clip_value: float, expected: list[float]) -> None:
    network, _ = update(replace(PLAIN, clip=clip, clip_value=clip_value), (3.0, 4.0))
    torch.testing.assert_close(network.w.data, torch.tensor(expected), rtol=1e-5, atol=0)


def test_what_the_steps_saw_is_added_up() -> None:
    _, step = update(replace(PLAIN, clip=2.0), (0.6, 0.8), (3.0, 4.0), (0.0, 3.0))
    seen = step.statistics.tolist()
    # norms 1, 5, 3 against a clip of 2; w is 0, then −(.3, .4), then less 0.5 · 2 · (.6, .8) = −(.9, 1.2)
    assert [seen[i] for i in (STEPS, TOKENS, CLIPPED)] == [3, 3, 2]
    assert seen[NORM] == pytest.approx(9)
    assert seen[LARGEST_NORM] == pytest.approx(5)
    assert seen[NATS] == pytest.approx(0 + (-0.9 - 1.6) + 3 * -1.2, rel=1e-5)


def test_tokens_are_those_of_the_mask() -> None:
    network = Weights(1.0)
    step = TrainingStep(network, slope, PLAIN, CPU)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    step(Window(torch.tensor([[2.0]]), torch.zeros(2, 3), mask), ())
    assert step.statistics[TOKENS] == 3
    assert step.statistics[NATS] == 6


def plain_optimizer(config: TrainingConfig, network: nn.Module) -> torch.optim.Optimizer:
    rate, decay, betas = config.learning_rate, config.weight_decay, (config.beta1, config.beta2)
    parameters = list(network.parameters())
    match config.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, weight_decay=decay)
        case "momentum":
            return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=config.momentum)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, lr=rate, alpha=config.beta2, weight_decay=decay)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, betas=betas, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, betas=betas, weight_decay=decay)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "rmsprop", "adam", "adamw"])
@pytest.mark.parametrize("tie", [True, False])
def test_a_step_is_the_plain_loop(optimizer: Any, tie: bool) -> None:
    rate = 0.5 if optimizer in ("sgd", "momentum") else 0.01
    config = TrainingConfig(
        optimizer=optimizer, learning_rate=rate, clip=0.2, weight_decay=0.01, batch_size=3, bptt=4
    )
    ours = net(tie=tie)
    theirs = copy.deepcopy(ours)
    source = StreamBatches(lines().ids, config, 0, CPU)
    reader, plain = (
        EagerStepper(TrainingStep(ours, next_token, config, CPU), source),
        plain_optimizer(config, theirs),
    )
    state: Any = None
    clipped = 0
    for window, _ in zip(source.windows(0), reader.epoch(0, 0), strict=False):
        plain.zero_grad()
        state = theirs.start(3) if window.starts else tuple(s.detach() for s in state)
        hidden, state, _ = theirs(window.inputs, state)
        loss = nn.functional.nll_loss(
            theirs.output.log_probs(hidden.flatten(0, 1)), window.targets.flatten()
        )  # all of log p at once: a second derivation of the loss
        loss.backward()
        clipped += int(nn.utils.clip_grad_norm_(theirs.parameters(), config.clip) > config.clip)
        plain.step()
    assert reader.step.statistics[STEPS] > 3
    assert clipped == reader.step.statistics[CLIPPED] > 0
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.data, b.data, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def gradients(network: Any, source: Any) -> list[dict[str, Tensor]]:
    """The gradient of every step of an epoch, at weights that stay where they are."""
    step = TrainingStep(network, next_token, replace(PLAIN, learning_rate=1e-300), CPU)
    return [
        {name: piece.clone() for name, piece in step.flat.named_slices(step.flat.gradient)}
        for _ in EagerStepper(step, source).epoch(0, 0)
    ]


def by_hand(network: Any, rows: list[tuple[list[int], list[int]]], state: Any = None) -> dict[str, Tensor]:
    """Autograd's gradient of the mean of −log p, token by token."""
    network.zero_grad()
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for r, (inputs, targets) in enumerate(rows):
        now = network.start(1) if state is None else tuple(s[r : r + 1] for s in state)
        for token, target in zip(inputs, targets, strict=True):
            hidden, now, _ = network(torch.tensor([[token]]), now)
            total = total - network.output.log_probs(hidden[:, 0])[0, target]
            tokens += 1
    found = torch.autograd.grad(total / tokens, list(network.parameters()))
    return {name: g.flatten() for (name, _), g in zip(network.named_parameters(), found, strict=True)}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_a_whole_line_is_one_gradient() -> None:
    network = net()
    ids = np.array([2, 3, 4, EOS, 5, EOS, 6, 7, EOS, EOS])
    (found,) = gradients(network, LineBatches(ids, BOS, EOS, TrainingConfig(batch_size=4, bptt=0), 0, CPU))
    rows = [[2, 3, 4, EOS], [5, EOS], [6, 7, EOS], [EOS]]
    assert_same(found, by_hand(network, [([BOS, *row[:-1]], row) for row in rows]))


def test_a_stream_without_truncation_is_one_gradient() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, 6, 7, 8, EOS])
    (found,) = gradients(network, StreamBatches(ids, TrainingConfig(batch_size=2, bptt=0, shuffle=False), 0, CPU))
    assert_same(found, by_hand(network, [([2, 3, 4, 5], [3, 4, 5, 6]), ([6, 7, 8, EOS], [7, 8, EOS, 2])]))


def test_a_state_is_carried_on_and_cut_off() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, 6, 7, 8, EOS])
    first, second = gradients(
        network, StreamBatches(ids, TrainingConfig(batch_size=1, bptt=4, shuffle=False), 0, CPU)
    )
    assert_same(first, by_hand(network, [([2, 3, 4, 5], [3, 4, 5, 6])]))
    with torch.no_grad():
        _, carried, _ = network(torch.tensor([[2, 3, 4, 5]]), network.start(1))
    rows = [([6, 7, 8, EOS], [7, 8, EOS, 2])]
    assert_same(second, by_hand(network, rows, carried))
    assert not torch.allclose(second["layers.0.R"], by_hand(network, rows)["layers.0.R"])  # it was carried
    moved = second["embedding"].view(9, 5).any(dim=1).nonzero().flatten().tolist()
    assert moved == [EOS, 6, 7, 8]  # not one of the words of the first window
    (whole,) = gradients(network, StreamBatches(ids, TrainingConfig(batch_size=1, bptt=0, shuffle=False), 0, CPU))
    untruncated = (whole["embedding"] * 2 - first["embedding"]).view(9, 5)  # what the second half gives the words
    assert untruncated[2].abs().max() > 1e-6


def test_a_long_line_goes_on_from_its_first_window() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, EOS])
    _, second = gradients(network, LineBatches(ids, BOS, EOS, TrainingConfig(batch_size=1, bptt=3), 0, CPU))
    with torch.no_grad():
        _, carried, _ = network(torch.tensor([[BOS, 2, 3]]), network.start(1))
    assert_same(second, by_hand(network, [([4, 5], [5, EOS])], carried))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_half_precision_is_for_the_forward_pass_alone(precision: Any) -> None:
    seen: list[Any] = []

    def spy(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
        seen.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return slope(network, window, state)

    network = Weights(0.0)
    step = TrainingStep(network, spy, replace(PLAIN, precision=precision), CPU)
    step(Window(torch.tensor([[2.0]]), torch.zeros(1, 1)), ())
    assert seen == [{"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    assert not torch.is_autocast_enabled("cpu")
    assert step.flat.weights.dtype == step.flat.gradient.dtype == torch.float32
    assert network.w.tolist() == [-1.0]  # 0.5 · 2, whatever the loss was multiplied by


def test_rounded_products_are_for_learning_on_the_gpu_alone() -> None:
    before = torch.get_float32_matmul_precision()
    with allow_tf32(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(KeyboardInterrupt), allow_tf32(torch.device("cuda")):
        raise KeyboardInterrupt  # even then it is put back
    assert torch.get_float32_matmul_precision() == before
    with allow_tf32(CPU):
        assert torch.get_float32_matmul_precision() == before


def test_evaluation_is_exact_whatever_was_set() -> None:
    with allow_tf32(torch.device("cuda")), exact_inference():
        assert torch.get_float32_matmul_precision() == "highest"


def test_clipping_leaves_a_nan_where_it_is() -> None:
    network = Weights(0.0, 0.0, 0.0)
    step = TrainingStep(network, slope, replace(PLAIN, clip=1.0), CPU)
    step(Window(torch.tensor([[3.0, math.nan, 4.0]]), torch.zeros(1, 1)), ())
    assert step.flat.gradient[:3].isnan().tolist() == [False, True, False]


def test_what_is_frozen_does_not_learn() -> None:
    made = net()
    made.embedding.requires_grad_(False)
    before = made.embedding.clone()
    step = TrainingStep(made, next_token, replace(PLAIN, optimizer="adamw", weight_decay=0.5), CPU)
    ids = torch.tensor([[3, 4, 5]])
    step(Window(ids, ids), made.start(1))
    assert torch.equal(made.embedding, before)
    assert "embedding" not in {name for name, _ in step.flat.named_slices(step.flat.weights)}


def test_a_scaled_loss_moves_the_weights_as_far() -> None:
    """What fp16 needs on the GPU: the gradient is multiplied, then divided; here without fp16 itself."""
    network = Weights(0.0, 0.0)
    step = TrainingStep(network, slope, replace(PLAIN, clip=1.0), CPU)
    step.scale = 4096.0
    step(Window(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)), ())
    torch.testing.assert_close(network.w.data, torch.tensor([-0.3, -0.4]), rtol=1e-5, atol=0)
    assert step.statistics[NORM] == 5
