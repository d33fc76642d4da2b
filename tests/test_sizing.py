"""Sizing of neural models to text and budget, with a given throughput."""

import dataclasses
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule import api, sizing
from chainrule.config import with_settings
from chainrule.data.training_data import RunOptions
from chainrule.errors import ConfigError
from chainrule.neural.throughput import Throughput
from chainrule.prepared_corpus import PreparedCorpus, prepare_corpus
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.training.step import TrainingStep

NETWORKS = ["feedforward", "rnn", "lstm", "gru", "transformer"]
BUDGETS = [1, 5, 10, 30, 60, 120, 240, 480, 600, 1200, 3600, 10_000]


@pytest.fixture(scope="module")
def prepared() -> PreparedCorpus:
    lines = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 40
    return prepare_corpus(Corpus.from_lines(lines), TokenizerConfig(kind="char"), Corpus.from_lines(lines[:30]))


def longer(prepared: PreparedCorpus, tokens: int, valid: int = 20_000) -> PreparedCorpus:
    """The same text, repeated."""
    train, held_out = (np.resize(prepared.train.ids, number) for number in (tokens, valid))
    assert prepared.valid is not None
    return dataclasses.replace(
        prepared,
        train=dataclasses.replace(prepared.train, ids=train),
        valid=dataclasses.replace(prepared.valid, ids=held_out),
    )


def machine(flops: float, slow: float = 1.0) -> Callable[[Any], Throughput]:
    """A machine of this many operations per second, for recurrent networks of one layer."""

    def measure(config: Any) -> Throughput:
        speed = flops / compute(config)
        return Throughput(speed, 3 * speed * slow, speed * slow)

    return measure


def compute(config: Any) -> float:
    return float(6 * (9 * config.layers * config.hidden**2 + 1000 * config.hidden))


def chosen(
    prepared: PreparedCorpus, family: str = "lstm", seconds: float | None = 600, **options_: Any
) -> sizing.SizedConfig:
    options = RunOptions(device="cpu", context=options_.pop("context", "stream"), seed=options_.pop("seed", 0))
    options_ = {"measure": machine(7e10)} | options_
    return sizing.choose_size(family, prepared, seconds=seconds, options=options, **options_)


@pytest.mark.parametrize("family", NETWORKS)
@pytest.mark.parametrize("tokens", [2_000, 70_000, 1_000_000, 30_000_000])
def test_more_time_gives_more_compute(prepared: PreparedCorpus, family: str, tokens: int) -> None:
    text = longer(prepared, tokens)
    plans = [chosen(text, family, seconds) for seconds in BUDGETS]
    widths = [plan.config.hidden * plan.config.layers for plan in plans]
    assert widths == sorted(widths)
    done = [compute(plan.config) * plan.expected_epochs for plan in plans]
    assert all(after >= 0.95 * before for before, after in pairwise(done))
    assert done[-1] > done[0]


@pytest.mark.parametrize("family", NETWORKS)
@pytest.mark.parametrize("seconds", [*BUDGETS, None])
def test_sizes_stay_within_bounds(prepared: PreparedCorpus, family: str, seconds: float | None) -> None:
    for tokens in (100, 70_000, 1_000_000):
        plan = chosen(longer(prepared, tokens), family, seconds)
        config = plan.config
        assert (config.hidden, config.layers) in sizing.LADDERS[family]
        assert 0 <= config.dropout <= 0.65
        assert 8 <= config.training.batch_size <= 64
        assert 1e-4 <= config.training.learning_rate <= 1e-2
        assert (config.training.validations, config.training.stop_after) == (sizing.VALIDATIONS, sizing.PATIENCE)
        assert plan.expected_epochs <= config.training.epochs
        if seconds is None:
            assert config.training.max_seconds is None
        else:
            assert config.training.max_seconds is not None
            assert 0 < config.training.max_seconds < seconds
            assert plan.expected_seconds <= seconds


def test_same_throughput_gives_the_same_size(prepared: PreparedCorpus) -> None:
    text = longer(prepared, 500_000)
    plans = [chosen(text, seed=seed) for seed in (0, 1)]
    assert with_settings(plans[0].config, max_seconds=1) == with_settings(plans[1].config, max_seconds=1)
    assert plans[0].config.training.max_seconds == pytest.approx(plans[1].config.training.max_seconds, rel=1e-2)


def test_validation_time_is_reserved(prepared: PreparedCorpus) -> None:
    # 20,000 tokens at 100 per second: 200 s after the run. Of the other 400 s a twentieth is for ten validations
    # of 2 s, at 3,000 tokens per second 6,000 tokens each; the last one follows the run.
    text = longer(prepared, 1_000_000)
    measured = Throughput(10_000.0, 3_000.0, 100.0)
    plan = chosen(text, settings={"hidden": 128}, measure=lambda config: measured)
    assert plan.config.validation_tokens == pytest.approx(6_000, rel=1e-2)
    assert plan.config.training.max_seconds == pytest.approx(400 - 2, rel=1e-2)
    assert plan.expected_epochs == pytest.approx((398 - 9 * 2) * 10_000 / 1e6, rel=1e-2)


def test_sizing_without_validation_text(prepared: PreparedCorpus) -> None:
    text = dataclasses.replace(longer(prepared, 100_000), valid=None)
    config = chosen(text).config
    assert (config.training.validations, config.training.stop_after, config.validation_tokens) == (0, 0, 0)


def test_explicit_settings_are_kept_in_sizing(prepared: PreparedCorpus) -> None:
    text = longer(prepared, 1_000_000)
    explicit = {"hidden": "100", "dropout": 0.45, "epochs": 3, "output": "adaptive"}
    config = chosen(text, settings=explicit).config
    assert (config.hidden, config.dropout, config.training.epochs, config.output) == (100, 0.45, 3, "adaptive")
    assert not config.tie
    with pytest.raises(ConfigError, match="has no setting 'hiden'"):
        chosen(text, settings={"hiden": 3})


def test_large_vocabulary_uses_sampled_softmax(prepared: PreparedCorpus) -> None:
    words = [" ".join(f"w{i}" for i in range(first, first + 20)) for first in range(0, 6000, 20)]
    text = prepare_corpus(Corpus.from_lines(words), TokenizerConfig(kind="word"))
    assert chosen(text, context="line").config.output == "sampled"
    assert chosen(prepared).config.output == "softmax"


def test_sizing_note_explains_the_budget(prepared: PreparedCorpus) -> None:
    text = longer(prepared, 3_000_000)
    slow = machine(1e8)
    assert "cannot learn anything useful in 1 s" in chosen(text, seconds=1, measure=slow).note
    assert chosen(text, seconds=600).note.startswith("scaled down from 1024 to ")
    assert chosen(text, seconds=1e6).note == ""
    heavy = chosen(longer(prepared, 100_000, valid=10**6), measure=machine(7e10, slow=1e-3))
    assert "evaluating the validation text takes half of the time" in heavy.note


def test_sizing_plan_is_one_line(prepared: PreparedCorpus) -> None:
    plan = sizing.SizedConfig(
        chosen(prepared, settings={"hidden": 256, "dropout": 0}).config, 600, 4.12, "", "lstm", 9800
    )
    words = "lstm: 256 units, full softmax, dropout 0, about 4.1 epochs in 600 s at 9,800 tokens/s"
    assert plan.plan == words
    assert dataclasses.replace(plan, note="scaled down").plan == f"{words} (scaled down)"


def test_sizing_rejects_ngram_models(prepared: PreparedCorpus) -> None:
    with pytest.raises(ConfigError, match="chooses the size of a network, but 'ngram' is not one"):
        chosen(prepared, "ngram")


@pytest.mark.parametrize("context", ["line", "stream"])
def test_throughput_is_measured(prepared: PreparedCorpus, context: Any) -> None:
    config = chosen(prepared, "gru", settings={"hidden": 8}).config
    speed = sizing.throughput("gru", config, prepared, RunOptions(device="cpu", context=context), 0.05)
    assert min(speed.training, speed.validation, speed.evaluation) > 0


@pytest.mark.filterwarnings("ignore:the loss:chainrule.errors.ChainruleWarning")
def test_resumed_run_keeps_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is far slower at the resumption; the settings stay those of the checkpoint."""
    lines = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 20
    text, valid = (Corpus.from_lines(part) for part in (lines, lines[:9]))
    arguments: dict[str, Any] = {"tokenizer": "char", "device": "cpu", "size": "auto", "hidden": 6, "epochs": 4}
    speeds = [Throughput(1e5, 1e5, 1e5)]
    monkeypatch.setattr(sizing, "throughput", lambda *args, **settings: speeds[-1])
    plans: list[str] = []
    whole = api.train("gru", text, valid=valid, announce=plans.append, **arguments)
    assert plans == [whole.metrics["plan"]]
    with monkeypatch.context() as patch:
        patch.setattr(TrainingStep, "__call__", interrupting_at(5))
        with pytest.raises(SystemExit):
            api.train("gru", text, valid=valid, out=tmp_path, **arguments)
    speeds.append(Throughput(10.0, 10.0, 10.0))
    again = api.train("gru", text, valid=valid, out=tmp_path, resume=True, **arguments)
    assert again.config == whole.config
    assert again.metrics["status"] == whole.metrics["status"]
    assert again.metrics["train_steps"] == whole.metrics["train_steps"]
    assert again.score("the cat").log_prob == whole.score("the cat").log_prob


def interrupting_at(step: int) -> Any:
    """A training step that is interrupted at this step number."""
    real, step_count = TrainingStep.__call__, [0]

    def counted(self: TrainingStep, *args: Any) -> Any:
        step_count[0] += 1
        if step_count[0] == step:
            signal.raise_signal(signal.SIGTERM)
        return real(self, *args)

    return counted
