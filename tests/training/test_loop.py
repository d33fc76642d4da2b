"""The order of things in a run: rates, validations, what is kept, when it ends, and how it goes wrong."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.errors import ChainruleWarning
from chainrule.training import checkpoint, schedules
from chainrule.training.advice import Diverged
from chainrule.training.batches import Window
from chainrule.training.config import Training
from training.small import Slopes, Weights, entries, learn, lines, slope, trainer

UP = Slopes((-1.0,), (-1.0,), (-1.0,), (-1.0,))  # w grows by the rate at each step


def sgd(**settings: Any) -> Training:
    chosen = {"optimizer": "sgd", "learning_rate": 1.0, "clip": 0.0, "schedule": "constant", "warmup": 0}
    return Training(**{"epochs": 2, "log_every": 1} | chosen | settings)


def events(log: bytes, name: str) -> list[dict[str, Any]]:
    return [entry for entry in entries(log) if entry.get("event") == name]


def test_epochs_are_read_to_their_end() -> None:
    network = Weights(0.0)
    log = entries(trainer(network, UP, sgd(epochs=3)).fit())
    assert network.w.tolist() == [12]
    steps = [entry for entry in log if "event" not in entry]
    assert [entry["step"] for entry in steps] == list(range(1, 13))
    assert [entry["epoch"] for entry in steps] == [0] * 4 + [1] * 4 + [2] * 4
    assert [entry["loss"] for entry in steps] == [-w for w in range(12)]  # g · w before each step
    assert log[-1] == {"event": "end", "step": 12, "epoch": 3, "best": None}


def test_a_network_is_left_to_itself() -> None:
    network = Weights(0.0)
    run = trainer(network, UP, sgd())
    run.fit()
    assert not network.training
    assert network.w.grad is None
    before = network.w.tolist()
    run.step.flat.weights.fill_(77)
    assert network.w.tolist() == before


@pytest.mark.parametrize("schedule", ["linear", "cosine", "exponential"])
def test_every_step_has_the_rate_of_its_schedule(schedule: Any) -> None:
    config = sgd(schedule=schedule, warmup=2, flat=0.25)
    network = Weights(0.0)
    log = [entry for entry in entries(trainer(network, UP, config).fit()) if "event" not in entry]
    expected = [schedules.rate(config, done, done / 8) for done in range(8)]
    assert [entry["learning_rate"] for entry in log] == pytest.approx(expected)
    assert network.w.item() == pytest.approx(sum(expected), rel=1e-6)
    assert len(set(expected)) > 4


def test_the_log_takes_every_nth_step_and_the_end_of_an_epoch() -> None:
    log = entries(trainer(Weights(0.0), UP, sgd(log_every=3)).fit())
    steps = [(entry["step"], entry["loss"]) for entry in log if "event" not in entry]
    # losses 0, −1, −2 | −3 | −4, −5 | −6, −7: means of the steps since the last line
    assert steps == [(3, -1.0), (4, -3.0), (6, -4.5), (8, -6.5)]


def validating(*nats: float) -> Any:
    """A validation that gives these losses one after another."""
    given = iter(nats)
    return lambda: next(given)


@pytest.mark.parametrize(("keep", "kept"), [("best", 4), ("last", 12)])
def test_the_best_or_the_last_is_kept(keep: Any, kept: int) -> None:
    network = Weights(0.0)
    config = sgd(epochs=3, keep=keep)
    log = trainer(network, UP, config, validate=validating(1.0, 3.0, 2.0)).fit()
    assert network.w.tolist() == [kept]
    found = events(log, "validation")
    assert [(v["epoch"], v["nats"], v["best"]) for v in found] == [(1, 1, 1), (2, 3, 1), (3, 2, 1)]
    assert found[1]["perplexity"] == pytest.approx(math.exp(3))
    assert events(log, "end")[0]["best"] == 1


def test_validation_every_so_many_epochs_and_at_the_end() -> None:
    config = sgd(epochs=5, validate_every=2)
    log = trainer(Weights(0.0), UP, config, validate=validating(3.0, 2.0, 1.0)).fit()
    assert [v["epoch"] for v in events(log, "validation")] == [2, 4, 5]


def test_validation_is_by_a_network_that_does_not_learn() -> None:
    network = Weights(0.0)
    modes: list[bool] = []

    def validate() -> float:
        modes.append(network.training)
        return 1.0

    trainer(network, UP, sgd(), validate=validate).fit()
    assert modes == [False, False]


@pytest.mark.parametrize("averaging", ["mean", "ema"])
def test_averages_of_the_last_part(averaging: Any) -> None:
    network = Weights(0.0)
    seen: list[float] = []

    def validate() -> float:
        seen.append(network.w.item())
        return 1.0

    config = sgd(averaging=averaging, average_from=0.6, average_decay=0.75)
    trainer(network, UP, config, validate=validate).fit()
    joined = [5.0, 6.0, 7.0, 8.0]  # after step 5 of 8, 0.625 of the run, and on
    ema = joined[0]
    for w in joined[1:]:
        ema = 0.75 * ema + 0.25 * w
    expected = 6.5 if averaging == "mean" else ema
    assert seen[0] == 4  # no average yet
    assert seen[1] == pytest.approx(expected)
    # both validations are 1: the first was the best, and its weights are kept
    assert network.w.item() == 4
    last = Weights(0.0)
    trainer(last, UP, sgd(averaging=averaging, average_from=0.6, average_decay=0.75, keep="last")).fit()
    assert last.w.item() == pytest.approx(expected)


def test_learning_goes_on_from_its_own_weights_and_not_from_their_average() -> None:
    network = Weights(0.0)
    seen: list[float] = []

    def validate() -> float:
        seen.append(network.w.item())
        return 1.0

    config = sgd(epochs=3, averaging="mean", average_from=0.5, keep="last")
    trainer(network, UP, config, validate=validate).fit()
    assert seen == pytest.approx([4, (6 + 7 + 8) / 3, (6 + 7 + 8 + 9 + 10 + 11 + 12) / 7])
    assert network.w.item() == pytest.approx(9)


def test_only_the_plateau_schedule_minds_plateaus() -> None:
    log = trainer(Weights(0.0), UP, sgd(epochs=3, decay=0.5), validate=validating(1.0, 2.0, 3.0)).fit()
    assert {entry["learning_rate"] for entry in entries(log) if "event" not in entry} == {1.0}


def test_a_plateau_lowers_the_rate_from_the_next_step_on() -> None:
    config = sgd(epochs=4, schedule="plateau", decay=0.5)
    log = trainer(Weights(0.0), UP, config, validate=validating(2.0, 2.5, 1.0, 1.0)).fit()
    rates = [entry["learning_rate"] for entry in entries(log) if "event" not in entry]
    assert rates == [1.0] * 8 + [0.5] * 8  # the second validation was no progress, the third was


def test_the_clock_ends_a_run_in_the_middle_of_an_epoch() -> None:
    network = Weights(0.0)
    endless = Slopes(*[(-1.0,)] * 1_000_000)
    run = trainer(network, endless, sgd(max_seconds=0.05, log_every=1000), validate=validating(1.0))
    log = run.fit()
    assert 0 < network.w.item() < 1_000_000
    (end,) = events(log, "end")
    assert (end["step"], end["epoch"], end["best"]) == (network.w.item(), 0, 1)


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int | None]] = []
    run = trainer(Weights(0.0), UP, sgd(), progress=lambda *said: told.append(said), validate=validating(1.0, 2.0))
    run.fit()
    assert [done for _, done, _ in told] == [1250 * step for step in range(1, 9)]
    assert {total for _, _, total in told} == {10_000}
    assert told[0][0].startswith("training: epoch 1 of 2, perplexity 1, ")
    assert ", validation 2.718, " in told[-1][0]


def breaking(at: int, value: float) -> Any:
    """An objective that gives this at one step."""
    steps = iter(range(1, 1000))

    def objective(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
        loss, nats, state = slope(network, window, state)
        factor = value if next(steps) == at else 1.0
        return loss * factor, nats * factor, state

    return objective


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path, value: float) -> None:
    config = sgd(checkpoint_seconds=0.0)
    run = trainer(Weights(1.0, 2.0), Slopes(*[(-1.0, -1.0)] * 4), config, objective=breaking(6, value), place=tmp_path)
    with pytest.raises(Diverged, match=r"diverged at step 6: w has 2 (NaN|infinite) of 2 values") as stopped:
        run.fit()
    assert f"kept at {tmp_path / 'checkpoint'}" in str(stopped.value)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found.position["step"] == 5
    assert found.weights["w"].tolist() == [6, 7]


def test_weights_that_overflow_are_never_the_last_good_checkpoint(tmp_path: Path) -> None:
    """The loss of the step was a number, and so was its gradient; what came of them is none."""
    config = sgd(learning_rate=3e38, checkpoint_seconds=0.0)
    run = trainer(Weights(0.0), Slopes((-0.5,), (-1.0,)), config, place=tmp_path)
    with pytest.raises(Diverged, match=r"step 2: w has 1 infinite of 1 values.*last good checkpoint"):
        run.fit()
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found.position["step"] == 1
    assert found.weights["w"].isfinite().all()


def test_without_a_checkpoint_none_is_promised() -> None:
    run = trainer(Weights(1.0), UP, sgd(), objective=breaking(1, math.nan))
    with pytest.raises(Diverged, match="step 1: ") as stopped:
        run.fit()
    assert "checkpoint" not in str(stopped.value)
    assert "lower learning_rate or clip" in str(stopped.value)


def test_a_validation_that_is_no_number_stops_the_run() -> None:
    run = trainer(Weights(1.0), UP, sgd(), validate=validating(math.nan))
    with pytest.raises(Diverged, match="step 4: the loss is not finite, and w has weights of up to 5;"):
        run.fit()


@pytest.mark.parametrize(
    ("family", "rate", "words"),
    [
        ("rnn", 1e30, r"\S+ has [\d,]+ (NaN|infinite) of [\d,]+ values"),
        ("lstm", 1e38, r"the loss is not finite, and \S+ has weights of up to \S+e\+3\d"),
    ],
)
def test_a_network_with_far_too_high_a_rate_diverges(tmp_path: Path, family: str, rate: float, words: str) -> None:
    huge = {"optimizer": "sgd", "learning_rate": rate, "clip": 0.0, "warmup": 0, "checkpoint_seconds": 0.0}
    with pytest.raises(Diverged, match=rf"diverged at step \d+: {words}; the last good checkpoint"):
        learn(family, place=tmp_path, **huge)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert all(tensor.isfinite().all() for tensor in found.weights.values() if tensor.is_floating_point())


def test_checkpoints_come_by_the_clock(tmp_path: Path) -> None:
    trainer(Weights(0.0), UP, sgd(checkpoint_seconds=1000.0), place=tmp_path).fit()
    assert checkpoint.load(tmp_path) is None
    trainer(Weights(0.0), UP, sgd(checkpoint_seconds=0.0), place=tmp_path).fit()
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert found.position["step"] == 8


def test_the_log_is_on_the_disk_while_it_learns(tmp_path: Path) -> None:
    path = tmp_path / "train_log.part.jsonl"
    path.write_text('{"of": "a run before"}\n')
    sizes: list[int] = []
    run = trainer(Weights(0.0), UP, sgd(), place=tmp_path, progress=lambda *_: sizes.append(path.stat().st_size))
    log = run.fit()
    assert sizes == sorted(set(sizes))
    assert path.read_bytes() == log
    assert json.loads(log.splitlines()[0])["step"] == 1


def test_advice_is_given_once() -> None:
    """Above what word frequencies give and clipped on every step, in both epochs; each is said once."""
    run = trainer(Weights(9.0), Slopes((1.0,), (1.0,)), sgd(clip=1e-3), unigram_nats=2.0)
    with pytest.warns(ChainruleWarning) as warned:
        log = run.fit()
    found = events(log, "advice")
    assert [entry["words"] for entry in found] == [str(w.message) for w in warned]
    # w falls by a thousandth a step; a high loss is nothing to speak of before the run is over
    assert [entry["step"] for entry in found] == [2, 4]
    assert "clipped on 100% of the steps" in found[0]["words"]
    assert found[1]["words"].startswith("the loss, 9.00 nats, is above that of word frequencies alone, 2.00")


def test_a_long_run_hears_early_of_a_high_loss() -> None:
    run = trainer(Weights(9.0), Slopes(*[(0.0,)] * 201), sgd(epochs=3), objective=always_three, unigram_nats=2.0)
    with pytest.warns(ChainruleWarning):
        log = run.fit()
    high, vanished, still = events(log, "advice")
    assert [entry["step"] for entry in (high, vanished, still)] == [201, 201, 603]
    assert "has not moved from 3.00 nats in 3 epochs" in still["words"]
    assert high["words"].startswith("the loss, 3.00 nats, is above")
    assert "gradient has all but vanished" in vanished["words"]


def always_three(network: Weights, window: Window, state: Any) -> tuple[Tensor, Tensor, Any]:
    loss, _, state = slope(network, window, state)
    return loss, torch.tensor(3.0), state


def test_nothing_is_advised_where_all_is_well() -> None:
    log = learn("lstm", clip=100.0, epochs=6, train=lines(40), valid=lines(40)).log
    assert events(log, "advice") == []
    first, *_, last = [entry["loss"] for entry in entries(log) if "loss" in entry]
    assert last < first


def test_a_carried_rng_is_not_disturbed() -> None:
    """Training has random numbers of its own: what the caller draws is the same with and without it."""
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    learn("lstm", epochs=1)
    assert torch.equal(torch.rand(3), expected)
