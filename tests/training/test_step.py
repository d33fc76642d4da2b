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
from training.small_networks import BOS, CPU, EOS, VOCABULARY, Weights, linear_objective, lines

PLAIN = TrainingConfig(optimizer="sgd", learning_rate=0.5, clip=0.0)


def net(**settings: Any) -> Any:
    """An LSTM in float64 without dropout and with untied embeddings."""
    torch.manual_seed(3)
    chosen = {"hidden": 5, "dropout": 0.0, "tie": False, "init_range": 0.5} | settings
    return lstm.build(lstm.Config(**chosen), VOCABULARY, None).double().train()


def update(config: TrainingConfig, *slopes: tuple[float, ...]) -> tuple[Weights, TrainingStep]:
    """Zero weights after one step along each linear_objective."""
    network = Weights(*[0.0] * len(slopes[0]))
    step = TrainingStep(network, linear_objective, config, CPU)
    for slope_ in slopes:
        step(Window(torch.tensor([slope_]), torch.zeros(1, 1)), ())
    return network, step


@pytest.mark.parametrize(
    ("clip", "clip_value", "expected"),
    [
        (0.0, 0.0, [-1.5, -2.0]),  # θ − 0.5 · (3, 4)
        (1.0, 0.0, [-0.3, -0.4]),  # (3, 4) / 5
        (9.0, 0.0, [-1.5, -2.0]),  # clipping only caps large gradients
        (0.0, 3.5, [-1.5, -1.75]),
        (0.0, 1.0, [-0.5, -0.5]),
        (1.0, 1.0, [-0.5 / math.sqrt(2), -0.5 / math.sqrt(2)]),  # values first, then the norm of (1, 1)
    ],
)
def test_clipping_worked_by_hand(clip: float, clip_value: float, expected: list[float]) -> None:
    network, _ = update(replace(PLAIN, clip=clip, clip_value=clip_value), (3.0, 4.0))
    torch.testing.assert_close(network.w.data, torch.tensor(expected), rtol=1e-5, atol=0)


def test_step_statistics_are_summed() -> None:
    _, step = update(replace(PLAIN, clip=2.0), (0.6, 0.8), (3.0, 4.0), (0.0, 3.0))
    statistics = step.statistics.tolist()
    # norms 1, 5, 3 against a clip of 2; w is 0, then −(.3, .4), then less 0.5 · 2 · (.6, .8) = −(.9, 1.2)
    assert [statistics[i] for i in (STEPS, TOKENS, CLIPPED)] == [3, 3, 2]
    assert statistics[NORM] == pytest.approx(9)
    assert statistics[LARGEST_NORM] == pytest.approx(5)
    assert statistics[NATS] == pytest.approx(0 + (-0.9 - 1.6) + 3 * -1.2, rel=1e-5)


def test_token_count_follows_the_mask() -> None:
    network = Weights(1.0)
    step = TrainingStep(network, linear_objective, PLAIN, CPU)
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
def test_training_step_equals_a_plain_torch_loop(optimizer: Any, tie: bool) -> None:
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
        )  # full log-softmax: a second derivation of the loss
        loss.backward()
        clipped += int(nn.utils.clip_grad_norm_(theirs.parameters(), config.clip) > config.clip)
        plain.step()
    assert reader.step.statistics[STEPS] > 3
    assert clipped == reader.step.statistics[CLIPPED] > 0
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.data, b.data, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


def gradients(network: Any, source: Any) -> list[dict[str, Tensor]]:
    """The gradient of every step of an epoch at fixed weights."""
    step = TrainingStep(network, next_token, replace(PLAIN, learning_rate=1e-300), CPU)
    return [
        {name: piece.clone() for name, piece in step.flat.named_slices(step.flat.gradient)}
        for _ in EagerStepper(step, source).epoch(0, 0)
    ]


def autograd_gradients(
    network: Any, rows: list[tuple[list[int], list[int]]], state: Any = None
) -> dict[str, Tensor]:
    """Autograd's gradient of the mean of −log p, token by token."""
    network.zero_grad()
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for r, (inputs, targets) in enumerate(rows):
        now = network.start(1) if state is None else tuple(s[r : r + 1] for s in state)
        for token, target in zip(inputs, targets, strict=True):
            hidden, now, _ = network(torch.tensor([[token]]), now)
            total = total - network.output.log_probs(hidden[:, 0])[0, target]
            tokens += 1
    gradients_ = torch.autograd.grad(total / tokens, list(network.parameters()))
    return {name: g.flatten() for (name, _), g in zip(network.named_parameters(), gradients_, strict=True)}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_gradient_of_complete_lines_equals_autograd() -> None:
    network = net()
    ids = np.array([2, 3, 4, EOS, 5, EOS, 6, 7, EOS, EOS])
    (gradient,) = gradients(network, LineBatches(ids, BOS, EOS, TrainingConfig(batch_size=4, bptt=0), 0, CPU))
    rows = [[2, 3, 4, EOS], [5, EOS], [6, 7, EOS], [EOS]]
    assert_same(gradient, autograd_gradients(network, [([BOS, *row[:-1]], row) for row in rows]))


def test_gradient_of_an_untruncated_stream_equals_autograd() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, 6, 7, 8, EOS])
    (gradient,) = gradients(
        network, StreamBatches(ids, TrainingConfig(batch_size=2, bptt=0, shuffle=False), 0, CPU)
    )
    assert_same(
        gradient, autograd_gradients(network, [([2, 3, 4, 5], [3, 4, 5, 6]), ([6, 7, 8, EOS], [7, 8, EOS, 2])])
    )


def test_state_is_carried_but_detached_between_windows() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, 6, 7, 8, EOS])
    first, second = gradients(
        network, StreamBatches(ids, TrainingConfig(batch_size=1, bptt=4, shuffle=False), 0, CPU)
    )
    assert_same(first, autograd_gradients(network, [([2, 3, 4, 5], [3, 4, 5, 6])]))
    with torch.no_grad():
        _, carried, _ = network(torch.tensor([[2, 3, 4, 5]]), network.start(1))
    rows = [([6, 7, 8, EOS], [7, 8, EOS, 2])]
    assert_same(second, autograd_gradients(network, rows, carried))
    assert not torch.allclose(
        second["layers.0.R"], autograd_gradients(network, rows)["layers.0.R"]
    )  # the state was carried
    moved = second["embedding"].view(9, 5).any(dim=1).nonzero().flatten().tolist()
    assert moved == [EOS, 6, 7, 8]  # none of the words of the first window
    (full,) = gradients(network, StreamBatches(ids, TrainingConfig(batch_size=1, bptt=0, shuffle=False), 0, CPU))
    untruncated = (full["embedding"] * 2 - first["embedding"]).view(
        9, 5
    )  # gradient of the second half with respect to the words
    assert untruncated[2].abs().max() > 1e-6


def test_long_line_continues_from_its_previous_window() -> None:
    network = net()
    ids = np.array([2, 3, 4, 5, EOS])
    _, second = gradients(network, LineBatches(ids, BOS, EOS, TrainingConfig(batch_size=1, bptt=3), 0, CPU))
    with torch.no_grad():
        _, carried, _ = network(torch.tensor([[BOS, 2, 3]]), network.start(1))
    assert_same(second, autograd_gradients(network, [([4, 5], [5, EOS])], carried))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_autocast_is_used_for_the_forward_pass_only(precision: Any) -> None:
    dtypes: list[Any] = []

    def spy(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
        dtypes.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return linear_objective(network, window, state)

    network = Weights(0.0)
    step = TrainingStep(network, spy, replace(PLAIN, precision=precision), CPU)
    step(Window(torch.tensor([[2.0]]), torch.zeros(1, 1)), ())
    assert dtypes == [{"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    assert not torch.is_autocast_enabled("cpu")
    assert step.flat.weights.dtype == step.flat.gradient.dtype == torch.float32
    assert network.w.tolist() == [-1.0]  # 0.5 · 2, whatever the loss scale


def test_tf32_is_allowed_only_during_gpu_training() -> None:
    before = torch.get_float32_matmul_precision()
    with allow_tf32(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(KeyboardInterrupt), allow_tf32(torch.device("cuda")):
        raise KeyboardInterrupt  # restored even then
    assert torch.get_float32_matmul_precision() == before
    with allow_tf32(CPU):
        assert torch.get_float32_matmul_precision() == before


def test_exact_inference_disables_tf32() -> None:
    with allow_tf32(torch.device("cuda")), exact_inference():
        assert torch.get_float32_matmul_precision() == "highest"


def test_clipping_keeps_nan_in_place() -> None:
    network = Weights(0.0, 0.0, 0.0)
    step = TrainingStep(network, linear_objective, replace(PLAIN, clip=1.0), CPU)
    step(Window(torch.tensor([[3.0, math.nan, 4.0]]), torch.zeros(1, 1)), ())
    assert step.flat.gradient[:3].isnan().tolist() == [False, True, False]


def test_frozen_parameters_are_not_updated() -> None:
    network = net()
    network.embedding.requires_grad_(False)
    before = network.embedding.clone()
    step = TrainingStep(network, next_token, replace(PLAIN, optimizer="adamw", weight_decay=0.5), CPU)
    ids = torch.tensor([[3, 4, 5]])
    step(Window(ids, ids), network.start(1))
    assert torch.equal(network.embedding, before)
    assert "embedding" not in {name for name, _ in step.flat.named_slices(step.flat.weights)}


def test_loss_scaling_does_not_change_the_update() -> None:
    """As fp16 needs on the GPU: the gradient is multiplied, then divided; here without fp16."""
    network = Weights(0.0, 0.0)
    step = TrainingStep(network, linear_objective, replace(PLAIN, clip=1.0), CPU)
    step.scale = 4096.0
    step(Window(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1)), ())
    torch.testing.assert_close(network.w.data, torch.tensor([-0.3, -0.4]), rtol=1e-5, atol=0)
    assert step.statistics[NORM] == 5
