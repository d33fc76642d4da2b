"""Each optimiser against its formula in plain Python, and after a resumption."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

from chainrule.errors import ModelFileError
from chainrule.training.config import Optimizer, TrainingConfig
from chainrule.training.optimizers import make, restore, set_rate, state_tensors

OPTIMIZERS: list[Optimizer] = ["sgd", "momentum", "rmsprop", "adam", "adamw"]
EPS = 1e-8
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")],
    ),
]


def config(optimizer: Optimizer, weight_decay: float = 0.0) -> TrainingConfig:
    return TrainingConfig(
        optimizer=optimizer,
        learning_rate=0.1,
        momentum=0.5,
        beta1=0.8,
        beta2=0.6,
        weight_decay=weight_decay,
    )


def sgd(w: float, gradients: list[float], decay: float) -> float:
    for g in gradients:
        w -= 0.1 * (g + decay * w)
    return w


def momentum(w: float, gradients: list[float], decay: float) -> float:
    v = 0.0
    for g in gradients:
        v = 0.5 * v + g + decay * w
        w -= 0.1 * v
    return w


def rmsprop(w: float, gradients: list[float], decay: float) -> float:
    s = 0.0
    for g in gradients:
        g += decay * w
        s = 0.6 * s + 0.4 * g**2
        w -= 0.1 * g / (math.sqrt(s) + EPS)
    return w


def adam(w: float, gradients: list[float], decay: float) -> float:
    m = s = 0.0
    for t, g in enumerate(gradients, start=1):
        g += decay * w
        m, s = 0.8 * m + 0.2 * g, 0.6 * s + 0.4 * g**2
        w -= 0.1 * (m / (1 - 0.8**t)) / (math.sqrt(s / (1 - 0.6**t)) + EPS)
    return w


def adamw(w: float, gradients: list[float], decay: float) -> float:
    m = s = 0.0
    for t, g in enumerate(gradients, start=1):
        m, s = 0.8 * m + 0.2 * g, 0.6 * s + 0.4 * g**2
        w = w * (1 - 0.1 * decay) - 0.1 * (m / (1 - 0.8**t)) / (math.sqrt(s / (1 - 0.6**t)) + EPS)
    return w


FORMULAS: dict[Optimizer, Callable[[float, list[float], float], float]] = {
    "sgd": sgd,
    "momentum": momentum,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adamw,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_steps_equal_the_formulas(
    optimizer: Optimizer, steps: int, weight_decay: float, device: str
) -> None:
    start, gradients = [1.0, -2.0, 0.5], [[0.2, -0.1, 3.0], [-0.4, 0.7, 1.0]][:steps]
    flat = nn.Parameter(torch.tensor(start, device=device))
    torch_optimizer = make(config(optimizer, weight_decay), flat)
    for gradient in gradients:
        flat.grad = torch.tensor(gradient, device=device)
        torch_optimizer.step()
    formula = FORMULAS[optimizer]
    expected = [
        formula(w, list(gs), weight_decay) for w, gs in zip(start, zip(*gradients, strict=True), strict=True)
    ]
    assert flat.tolist() == pytest.approx(expected, rel=1e-5)


def test_adam_and_adamw_decay_differ() -> None:
    assert adam(1.0, [0.2], 0.3) != pytest.approx(adamw(1.0, [0.2], 0.3), rel=1e-3)


def take_steps(flat: nn.Parameter, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        flat.grad = torch.randn(flat.shape, generator=generator).to(flat.device)
        set_rate(optimizer, 0.1 / (1 + step))
        optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_restored_optimizer_continues_exactly(optimizer: Optimizer, device: str) -> None:
    settings = config(optimizer, 0.01)
    start = torch.randn(1000, generator=torch.Generator().manual_seed(99)).to(device)
    uninterrupted = nn.Parameter(start.clone())
    take_steps(uninterrupted, make(settings, uninterrupted), range(10))

    first = nn.Parameter(start.clone())
    before = make(settings, first)
    take_steps(first, before, range(5))
    saved = {name: tensor.cpu().clone() for name, tensor in state_tensors(before).items()}
    second = nn.Parameter(first.detach().clone())
    after = make(settings, second)
    restore(after, saved)
    take_steps(second, after, range(5, 10))
    assert torch.equal(second, uninterrupted)
    assert not torch.equal(first, uninterrupted)


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [
        ("sgd", set()),
        ("momentum", {"momentum_buffer"}),
        ("rmsprop", {"step", "square_avg"}),
        ("adam", {"step", "exp_avg", "exp_avg_sq"}),
        ("adamw", {"step", "exp_avg", "exp_avg_sq"}),
    ],
)
def test_optimizer_state_exists_before_the_first_step(optimizer: Optimizer, names: set[str]) -> None:
    flat = nn.Parameter(torch.ones(4))
    torch_optimizer = make(config(optimizer), flat)
    before = state_tensors(torch_optimizer)
    assert before.keys() == names
    take_steps(flat, torch_optimizer, range(3))
    after = state_tensors(torch_optimizer)
    assert all(after[name] is before[name] for name in names)
    assert all(after[name].any() for name in names)
    assert all(tensor.item() == 3 for name, tensor in after.items() if name == "step")


def test_set_rate_applies_to_the_next_step() -> None:
    flat = nn.Parameter(torch.zeros(1))
    optimizer = make(config("sgd"), flat)
    places = [0.0]
    for rate in (0.5, 0.25, 0.0):
        set_rate(optimizer, rate)
        flat.grad = torch.full((1,), -1.0)
        optimizer.step()
        places.append(flat.item())
    assert [after - before for before, after in pairwise(places)] == [0.5, 0.25, 0.0]


def test_state_of_another_optimizer_is_rejected() -> None:
    adam_state = state_tensors(make(config("adam"), nn.Parameter(torch.ones(4))))
    with pytest.raises(ModelFileError, match=r"exp_avg, exp_avg_sq but this one has momentum_buffer; .*start over"):
        restore(make(config("momentum"), nn.Parameter(torch.ones(4))), adam_state)


def test_optimizer_state_of_another_size_is_rejected() -> None:
    small = state_tensors(make(config("momentum"), nn.Parameter(torch.ones(4))))
    with pytest.raises(ModelFileError, match="momentum_buffer has 4 values, the model has 5"):
        restore(make(config("momentum"), nn.Parameter(torch.ones(5))), small)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_captured_optimizer_step_follows_rate_and_restored_state(optimizer: Optimizer) -> None:
    start = torch.randn(1000, generator=torch.Generator().manual_seed(99)).cuda()
    eager, captured = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    take_steps(eager, plain := make(config(optimizer), eager), range(10))

    optimizer_ = make(config(optimizer), captured)
    captured.grad = torch.zeros_like(captured)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer_.step()  # no step before the capture: the state already exists
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        captured.grad.copy_(torch.randn(1000, generator=generator))
        set_rate(optimizer_, 0.1 / (1 + step))
        graph.replay()
    assert torch.equal(captured, eager)

    restore(optimizer_, {name: torch.zeros_like(tensor) for name, tensor in state_tensors(optimizer_).items()})
    restore(plain, {name: torch.zeros_like(tensor) for name, tensor in state_tensors(plain).items()})
    graph.replay()
    take_steps(eager, plain, range(9, 10))
    assert torch.equal(captured, eager)
