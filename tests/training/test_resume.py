"""A stopped and resumed run equals an uninterrupted one bit for bit."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chainrule import families
from chainrule.errors import ChainruleError
from chainrule.neural import family as neural_family
from chainrule.neural.model import NeuralModel
from chainrule.training import checkpoint
from chainrule.training.step import TrainingStep
from training.small_networks import entries, learn

RUNS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "lstm-line-sgd": ("lstm", "line", {"optimizer": "sgd", "learning_rate": 0.5, "dropout": 0.3}),
    "lstm-stream-adamw": ("lstm", "stream", {"optimizer": "adamw", "dropout": 0.3, "weight_dropout": 0.2}),
    "lstm-line-ema-plateau": (
        "lstm",
        "line",
        {"averaging": "ema", "average_from": 0.2, "schedule": "plateau", "learning_rate": 1.0, "epochs": 4},
    ),
    "lstm-stream-sampled": ("lstm", "stream", {"output": "sampled", "samples": 4, "embedding_dropout": 0.2}),
    "lstm-stream-attention": ("lstm", "stream", {"attention": "additive", "attention_use": "state", "memory": 3}),
    "gru-line-attention": ("gru", "line", {"attention": "general", "layers": 2, "learned_start": True}),
    "gru-stream-momentum": ("gru", "stream", {"optimizer": "momentum", "averaging": "mean", "keep": "last"}),
    "rnn-line-rmsprop": ("rnn", "line", {"optimizer": "rmsprop", "locked": False, "activation_penalty": 1.0}),
    "rnn-line-nce": ("rnn", "line", {"output": "nce", "samples": 4, "optimizer": "adam", "bptt": 0}),
    "transformer-line": ("transformer", "line", {"window": 4, "heads": 2, "layers": 2, "schedule": "cosine"}),
    "transformer-stream": ("transformer", "stream", {"window": 8, "heads": 2, "layers": 1, "positions": "learned"}),
    "gru-line-validations": (  # worse after the second validation: it stops early
        "gru",
        "line",
        {"validations": 12, "stop_after": 2, "validation_tokens": 9, "learning_rate": 3.0, "epochs": 8},
    ),
    "lstm-stream-validations": ("lstm", "stream", {"validations": 7, "stop_after": 6, "dropout": 0.3}),
    "feedforward-stream": ("feedforward", "stream", {"output": "adaptive", "tie": False}),
}


@contextmanager
def signalled(number: int, step: int) -> Iterator[None]:
    """This signal comes while this step of the run, counted from where it is taken up, is being made."""
    real, made = TrainingStep.__call__, [0]

    def counted(self: TrainingStep, *given: Any) -> Any:
        made[0] += 1
        if made[0] == step:
            signal.raise_signal(number)
        return real(self, *given)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrainingStep, "__call__", counted)
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(place: Path, run: str, step: int, *, resume: bool = False, number: int = signal.SIGTERM) -> None:
    family, context, settings = RUNS[run]
    leaving = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with signalled(number, step), pytest.raises(leaving):
        learn(family, context, place, resume=resume, **settings)


def finished(run: str, place: Path | None = None, *, resume: bool = False) -> NeuralModel:
    family, context, settings = RUNS[run]
    return learn(family, context, place, resume=resume, **settings)


def weights(run: str, model: NeuralModel) -> bytes:
    """The file that would be saved."""
    content = families.get(RUNS[run][0]).files(model)["model.safetensors"]
    assert isinstance(content, bytes)
    return content


def steps_of(model: NeuralModel) -> tuple[int, int]:
    """Steps of the run, and of its first epoch."""
    log = entries(model.log)
    return log[-1]["step"], next(e["step"] for e in log if e.get("event") == "validation")


@pytest.mark.parametrize("run", RUNS)
def test_a_resumed_run_is_the_run_itself(tmp_path: Path, run: str) -> None:
    whole = finished(run)
    total, an_epoch = steps_of(whole)
    assert total > an_epoch + 2 > 4
    # the first step, in the middle of an epoch, at its end, one into the next, the last of all
    for n, step in enumerate((1, an_epoch // 2, an_epoch, an_epoch + 1, total - 1, total)):
        place = tmp_path / str(n)
        interrupted(place, run, step)
        found = checkpoint.load(place)
        assert found is not None
        assert found.position["step"] == step
        again = finished(run, place, resume=True)
        assert weights(run, again) == weights(run, whole), f"stopped at step {step} of {total}"
        assert entries(again.log) == entries(whole.log), f"stopped at step {step} of {total}"


@pytest.mark.parametrize("run", ["lstm-line-ema-plateau", "lstm-stream-sampled", "transformer-line"])
def test_stopped_over_and_over(tmp_path: Path, run: str) -> None:
    whole = finished(run)
    total, _ = steps_of(whole)
    made = 0
    while made + 4 <= total:
        interrupted(tmp_path, run, 4, resume=made > 0, number=signal.SIGINT)
        made += 4
    again = finished(run, tmp_path, resume=True)
    assert weights(run, again) == weights(run, whole)
    assert entries(again.log) == entries(whole.log)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_stopped_while_it_validates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The third is the last: all has been learnt, and nothing is validated or logged twice."""
    run = "lstm-line-sgd"
    whole = finished(run)
    real, calls = neural_family.mean_nats, [0]

    def signalling(*given: Any) -> float:
        calls[0] += 1
        if calls[0] == which:
            signal.raise_signal(signal.SIGTERM)
        return real(*given)

    monkeypatch.setattr(neural_family, "mean_nats", signalling)
    with pytest.raises(SystemExit):
        finished(run, tmp_path)
    again = finished(run, tmp_path, resume=True)
    assert weights(run, again) == weights(run, whole)
    assert entries(again.log) == entries(whole.log)
    assert sum(e.get("event") == "validation" for e in entries(again.log)) == 3


def test_killed_after_a_checkpoint_it_takes_up_the_log_there(tmp_path: Path) -> None:
    """What was written after the checkpoint is written again, and a line cut off in its middle is gone."""
    run = "lstm-stream-adamw"
    whole = finished(run)
    interrupted(tmp_path, run, 7)
    log = tmp_path / "train_log.part.jsonl"
    log.write_bytes(log.read_bytes() + b'{"step": 9, "loss": 1.0}\n{"step": 12, "lo')
    again = finished(run, tmp_path, resume=True)
    assert entries(again.log) == entries(whole.log)


def test_checkpoints_on_the_way_change_nothing(tmp_path: Path) -> None:
    run = "gru-line-attention"
    family, context, settings = RUNS[run]
    often = learn(family, context, tmp_path, checkpoint_seconds=0.0, **settings)
    whole = finished(run)
    assert weights(run, often) == weights(run, whole)
    assert entries(often.log) == entries(whole.log)


@pytest.mark.parametrize("tokens", [{}, {"tokens": None}], ids=["missing", "null"])
def test_an_unknown_number_of_tokens_stays_unknown(tmp_path: Path, tokens: dict[str, None]) -> None:
    """Older checkpoints lack the number of tokens, and runs resumed from them once wrote null."""
    run = "lstm-line-sgd"
    whole = finished(run)
    interrupted(tmp_path, run, 4)
    written = checkpoint.load(tmp_path)
    assert written is not None
    position = {name: value for name, value in written.position.items() if name != "tokens"} | tokens
    checkpoint.save(tmp_path, replace(written, position=position))
    interrupted(tmp_path, run, 4, resume=True)
    rewritten = checkpoint.load(tmp_path)
    assert rewritten is not None
    assert rewritten.position["step"] == 8
    assert "tokens" not in rewritten.position
    again = finished(run, tmp_path, resume=True)
    assert weights(run, again) == weights(run, whole)
    assert entries(again.log) == entries(whole.log)


def test_without_resume_it_starts_anew(tmp_path: Path) -> None:
    run = "lstm-stream-adamw"
    whole = finished(run)
    interrupted(tmp_path, run, 5)
    again = finished(run, tmp_path)
    assert weights(run, again) == weights(run, whole)
    assert entries(again.log) == entries(whole.log)
    interrupted(tmp_path / "none", run, 2, resume=True)  # there is nothing to go on from: it begins


def test_another_run_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path, "lstm-line-sgd", 5)
    with pytest.raises(ChainruleError, match="family is rnn now and was lstm then"):
        finished("rnn-line-rmsprop", tmp_path, resume=True)
    assert checkpoint.load(tmp_path) is not None


def test_another_seed_or_step_gives_another_model() -> None:
    """Or the comparisons above could not fail."""
    run = "lstm-line-sgd"
    family, context, settings = RUNS[run]
    assert weights(run, finished(run)) != weights(run, learn(family, context, **settings | {"epochs": 2}))
    assert weights(run, finished(run)) != weights(run, learn(family, context, **settings | {"dropout": 0.31}))


def test_one_of_the_runs_stops_early() -> None:
    log = entries(finished("gru-line-validations").log)
    losses = [entry["nats"] for entry in log if entry.get("event") == "validation"]
    assert len(losses) < 12
    assert min(losses[-2:]) >= min(losses)
