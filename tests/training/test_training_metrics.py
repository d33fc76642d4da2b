"""Training metrics: accumulated step statistics, and the saturated share of the state."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.errors import ChainruleWarning
from chainrule.neural import gru, lstm, rnn, transformer
from chainrule.progress import silent
from chainrule.training.batches import Window
from chainrule.training.config import TrainingConfig
from chainrule.training.log import TrainLog
from chainrule.training.trainer import Position, Trainer, TrainingMetrics, TrainingPlan
from training.small_networks import VOCABULARY, Slopes, Weights, entries, linear_objective, train_briefly, trainer

PLAN = TrainingPlan(source=Slopes(), objective=linear_objective, validate=None)


def metrics_of(epochs: int = 5) -> TrainingMetrics:
    return TrainingMetrics(TrainingConfig(epochs=epochs), PLAN, silent)


def test_log_step_averages_the_statistics(tmp_path: Path) -> None:
    with TrainLog(tmp_path / "log.jsonl") as log:
        metrics_of().log_step([30.0, 12.0, 4.0, 1.0, 10.0, 6.0], Position(step=7, epoch=2), 0.25, 0.5, log, {})
        (line,) = log.content().splitlines()
    entry = json.loads(line)
    assert entry.pop("seconds") >= 0
    assert entry.pop("tokens_per_second") > 0
    assert entry == {
        "step": 7,
        "epoch": 2,
        "loss": 2.5,  # 30 nats over 12 tokens
        "learning_rate": 0.25,
        "gradient_norm": 2.5,  # 10 over 4 steps
        "largest_gradient_norm": 6,
        "clipped": 0.25,
    }


def trainer_after(*lines: list[float]) -> Trainer:
    """A trainer in its first epoch that has logged these step statistics."""
    run = trainer(Weights(1.0), Slopes((1.0,)), TrainingConfig(epochs=5), unigram_nats=2.0)
    run._resume()
    with TrainLog(None) as run.log:
        for line in lines:
            run.step.statistics.copy_(torch.tensor(line))
            run._check_finite_and_log(is_due=True)
            assert not run.step.statistics.any()
    run.position.epoch = 1
    return run


def test_epoch_sums_accumulate_and_reset() -> None:
    run = trainer_after([10.0, 10.0, 2.0, 0.0, 2.0, 1.0], [20.0, 10.0, 2.0, 1.0, 2.0, 1.0])
    position = run.position
    assert position.sums == [30, 20, 1, 4]  # nats, tokens, clipped, steps
    run._report_diagnostics()
    assert position.train_history == [1.5]  # 30 nats over 20 tokens
    assert (position.sums, position.norms, position.largest_norm, position.words) == ([0] * 4, [], 0, [])


def test_gradient_spike_is_reported() -> None:
    run = trainer_after(*([10.0, 10.0, 2.0, 0.0, 2.0, largest] for largest in (1.0, 1.0, 900.0, 1.0)))
    with TrainLog(None) as run.log, pytest.warns(ChainruleWarning, match="leaps from 1 to 9e"):
        run._report_diagnostics()
    assert len(run.position.words) == 1


def test_clock_continues_after_resumption() -> None:
    metrics = metrics_of()
    metrics.start_clock(1000.0)
    assert 1000 <= metrics.seconds() < 2000


def test_large_loss_is_shown_as_a_number() -> None:
    messages: list[str] = []
    metrics = TrainingMetrics(TrainingConfig(), PLAN, lambda what, *_: messages.append(what))
    metrics.loss = 1e30
    metrics.show_progress(Position(best=1e30), 0.5, 10.0)
    assert "perplexity 1.014e+304, validation 1.014e+304" in messages[0]  # e^700; e^1e30 would overflow


def states(network: Any, *values: float) -> tuple[Tensor, ...]:
    """A state of these values, one per tensor."""
    return tuple(torch.full_like(s, v) for s, v in zip(network.start(2), values, strict=True))


@pytest.mark.parametrize(
    ("module", "settings", "expected"),
    [
        (rnn, {"layers": 2}, [1, 2]),
        (rnn, {"nonlinearity": "sigmoid"}, [1]),
        (rnn, {"nonlinearity": "relu"}, []),
        (rnn, {"nonlinearity": "leaky"}, []),
        (lstm, {"layers": 2}, [1, 3]),  # h, not c
        (lstm, {"attention": "dot"}, [1]),  # not the attention memory
        (
            lstm,
            {"layers": 2, "attention": "dot", "attention_use": "state"},
            [1],
        ),  # the last h is a sum and unbounded
        (gru, {"learned_start": True}, [1]),
    ],
)
def test_saturating_states_of_each_network(module: Any, settings: dict[str, Any], expected: list[float]) -> None:
    network = module.build(module.Config(hidden=4, **settings), VOCABULARY, None)
    state = states(network, *range(1, 1 + len(network.start(1))))
    assert [float(tensor.flatten()[0]) for tensor in network.saturating_states(state)] == expected


def test_transformer_has_no_saturating_states() -> None:
    assert not hasattr(transformer.build(transformer.Config(hidden=8), VOCABULARY, None), "bounded")


class Bounded(Weights):
    """A network that carries three values of h and unbounded values."""

    def __init__(self, *h: float) -> None:
        super().__init__(1.0)
        self.h = torch.tensor([h])

    def start(self, rows: int) -> tuple[Tensor, ...]:
        return self.h, torch.full((1, 30), 0.5)

    def saturating_states(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return state[:1]


def objective_keeping_state(network: Any, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    loss, nats, _ = linear_objective(network, window, state)
    return loss, nats, state


@pytest.mark.parametrize(("h", "is_reported"), [((0.995, -0.995, 0.1), True), ((0.995, -0.98, 0.1), False)])
def test_saturated_state_is_reported_once(h: tuple[float, ...], is_reported: bool) -> None:
    config = TrainingConfig(optimizer="sgd", learning_rate=0.1, clip=0.0, epochs=2)
    run = trainer(Bounded(*h), Slopes((1.0,), (1.0,)), config, objective=objective_keeping_state)
    if not is_reported:
        assert all(entry.get("event") != "advice" for entry in entries(run.fit()))
        return
    with pytest.warns(ChainruleWarning, match=r"67% of the states' values are saturated") as warned:
        log = run.fit()
    assert len(warned) == 1
    assert [entry["event"] for entry in entries(log) if "words" in entry] == ["advice"]


@pytest.mark.parametrize("context", ["line", "stream"])
def test_saturation_by_huge_weights_is_reported(context: Any) -> None:
    """Weights of ±80 saturate every tanh; a tiny learning rate leaves them there."""
    huge: dict[str, Any] = {"init": "uniform", "init_range": 80.0, "learning_rate": 1e-9, "tie": False, "clip": 0.0}
    with pytest.warns(ChainruleWarning) as warned:
        log = train_briefly("rnn", context, hush=False, **huge).log
    words = [entry["words"] for entry in entries(log) if entry.get("event") == "advice"]
    assert sum("are saturated" in message for message in words) == 1
    assert words == [str(item.message) for item in warned]
