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
from training.small_networks import entries, train_briefly

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
def send_signal_during_step(number: int, step: int) -> Iterator[None]:
    """Send this signal while this step, counted from the resumption, is running."""
    real, step_count = TrainingStep.__call__, [0]

    def counted(self: TrainingStep, *arguments: Any) -> Any:
        step_count[0] += 1
        if step_count[0] == step:
            signal.raise_signal(number)
        return real(self, *arguments)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrainingStep, "__call__", counted)
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_interrupted(
    place: Path, run: str, step: int, *, resume: bool = False, number: int = signal.SIGTERM
) -> None:
    family, context, settings = RUNS[run]
    leaving = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with send_signal_during_step(number, step), pytest.raises(leaving):
        train_briefly(family, context, place, resume=resume, **settings)


def run_to_the_end(run: str, place: Path | None = None, *, resume: bool = False) -> NeuralModel:
    family, context, settings = RUNS[run]
    return train_briefly(family, context, place, resume=resume, **settings)


def weights_file(run: str, model: NeuralModel) -> bytes:
    """The weights file that would be saved."""
    content = families.get(RUNS[run][0]).files(model)["model.safetensors"]
    assert isinstance(content, bytes)
    return content


def steps_of(model: NeuralModel) -> tuple[int, int]:
    """Steps of the run and of its first epoch."""
    log = entries(model.log)
    return log[-1]["step"], next(e["step"] for e in log if e.get("event") == "validation")


@pytest.mark.parametrize("run", RUNS)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, run: str) -> None:
    uninterrupted = run_to_the_end(run)
    total, an_epoch = steps_of(uninterrupted)
    assert total > an_epoch + 2 > 4
    # the first step, mid-epoch, the end of an epoch, one step into the next, the last steps
    for n, step in enumerate((1, an_epoch // 2, an_epoch, an_epoch + 1, total - 1, total)):
        place = tmp_path / str(n)
        run_interrupted(place, run, step)
        loaded = checkpoint.load(place)
        assert loaded is not None
        assert loaded.position["step"] == step
        again = run_to_the_end(run, place, resume=True)
        assert weights_file(run, again) == weights_file(run, uninterrupted), f"stopped at step {step} of {total}"
        assert entries(again.log) == entries(uninterrupted.log), f"stopped at step {step} of {total}"


@pytest.mark.parametrize("run", ["lstm-line-ema-plateau", "lstm-stream-sampled", "transformer-line"])
def test_run_interrupted_repeatedly_equals_an_uninterrupted_one(tmp_path: Path, run: str) -> None:
    uninterrupted = run_to_the_end(run)
    total, _ = steps_of(uninterrupted)
    steps_done = 0
    while steps_done + 4 <= total:
        run_interrupted(tmp_path, run, 4, resume=steps_done > 0, number=signal.SIGINT)
        steps_done += 4
    again = run_to_the_end(run, tmp_path, resume=True)
    assert weights_file(run, again) == weights_file(run, uninterrupted)
    assert entries(again.log) == entries(uninterrupted.log)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_run_interrupted_during_validation_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """The third is the last: training is complete, and nothing is validated or logged twice."""
    run = "lstm-line-sgd"
    uninterrupted = run_to_the_end(run)
    real, calls = neural_family.mean_nats, [0]

    def signalling(*arguments: Any) -> float:
        calls[0] += 1
        if calls[0] == which:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments)

    monkeypatch.setattr(neural_family, "mean_nats", signalling)
    with pytest.raises(SystemExit):
        run_to_the_end(run, tmp_path)
    again = run_to_the_end(run, tmp_path, resume=True)
    assert weights_file(run, again) == weights_file(run, uninterrupted)
    assert entries(again.log) == entries(uninterrupted.log)
    assert sum(e.get("event") == "validation" for e in entries(again.log)) == 3


def test_resumed_log_continues_from_the_checkpoint(tmp_path: Path) -> None:
    """Lines written after the checkpoint are written again, and a partial line is removed."""
    run = "lstm-stream-adamw"
    uninterrupted = run_to_the_end(run)
    run_interrupted(tmp_path, run, 7)
    log = tmp_path / "train_log.part.jsonl"
    log.write_bytes(log.read_bytes() + b'{"step": 9, "loss": 1.0}\n{"step": 12, "lo')
    again = run_to_the_end(run, tmp_path, resume=True)
    assert entries(again.log) == entries(uninterrupted.log)


def test_frequent_checkpoints_do_not_affect_training(tmp_path: Path) -> None:
    run = "gru-line-attention"
    family, context, settings = RUNS[run]
    often = train_briefly(family, context, tmp_path, checkpoint_seconds=0.0, **settings)
    without_checkpoints = run_to_the_end(run)
    assert weights_file(run, often) == weights_file(run, without_checkpoints)
    assert entries(often.log) == entries(without_checkpoints.log)


@pytest.mark.parametrize("tokens", [{}, {"tokens": None}], ids=["missing", "null"])
def test_unknown_token_count_stays_unknown_on_resume(tmp_path: Path, tokens: dict[str, None]) -> None:
    """Older checkpoints lack the number of tokens, and runs resumed from them once wrote null."""
    run = "lstm-line-sgd"
    uninterrupted = run_to_the_end(run)
    run_interrupted(tmp_path, run, 4)
    written = checkpoint.load(tmp_path)
    assert written is not None
    position = {name: value for name, value in written.position.items() if name != "tokens"} | tokens
    checkpoint.save(tmp_path, replace(written, position=position))
    run_interrupted(tmp_path, run, 4, resume=True)
    rewritten = checkpoint.load(tmp_path)
    assert rewritten is not None
    assert rewritten.position["step"] == 8
    assert "tokens" not in rewritten.position
    again = run_to_the_end(run, tmp_path, resume=True)
    assert weights_file(run, again) == weights_file(run, uninterrupted)
    assert entries(again.log) == entries(uninterrupted.log)


def test_run_without_resume_starts_anew(tmp_path: Path) -> None:
    run = "lstm-stream-adamw"
    uninterrupted = run_to_the_end(run)
    run_interrupted(tmp_path, run, 5)
    again = run_to_the_end(run, tmp_path)
    assert weights_file(run, again) == weights_file(run, uninterrupted)
    assert entries(again.log) == entries(uninterrupted.log)
    run_interrupted(tmp_path / "none", run, 2, resume=True)  # nothing to resume: it starts


def test_resuming_another_run_is_rejected(tmp_path: Path) -> None:
    run_interrupted(tmp_path, "lstm-line-sgd", 5)
    with pytest.raises(ChainruleError, match="family is rnn now and was lstm then"):
        run_to_the_end("rnn-line-rmsprop", tmp_path, resume=True)
    assert checkpoint.load(tmp_path) is not None


def test_other_settings_give_another_model() -> None:
    """Otherwise the comparisons above could not fail."""
    run = "lstm-line-sgd"
    family, context, settings = RUNS[run]
    assert weights_file(run, run_to_the_end(run)) != weights_file(
        run, train_briefly(family, context, **settings | {"epochs": 2})
    )
    assert weights_file(run, run_to_the_end(run)) != weights_file(
        run, train_briefly(family, context, **settings | {"dropout": 0.31})
    )


def test_one_of_the_resumed_runs_stops_early() -> None:
    log = entries(run_to_the_end("gru-line-validations").log)
    losses = [entry["nats"] for entry in log if entry.get("event") == "validation"]
    assert len(losses) < 12
    assert min(losses[-2:]) >= min(losses)
