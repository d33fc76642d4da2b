"""Lines of progress with a clock set by hand."""

import io

import pytest

import chainrule
from chainrule.progress import ProgressLines, as_progress, silent
from chainrule.text.corpus import Corpus


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_thirty_seconds() -> None:
    clock, file = Clock(), io.StringIO()
    show = ProgressLines(file, clock)
    for second in range(0, 100, 10):
        clock.now = 100.0 + second
        show("training", second, 200)
    assert file.getvalue() == (
        "training: 15 %, 0:30 elapsed\ntraining: 30 %, 1:00 elapsed\ntraining: 45 %, 1:30 elapsed\n"
    )


def test_work_of_unknown_length() -> None:
    clock, file = Clock(), io.StringIO()
    show = ProgressLines(file, clock)
    clock.now += 3605
    show("counting", 7, None)
    assert file.getvalue() == "counting: 60:05 elapsed\n"


def test_true_is_lines_and_false_is_silence() -> None:
    assert isinstance(as_progress(True), ProgressLines)
    assert as_progress(False) is silent
    assert as_progress(silent) is silent


def test_python_accepts_true(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("chainrule.progress.LINE_SECONDS", 0.0)
    text = Corpus.from_lines(["a b", "b a"])
    model = chainrule.train("ngram", text, order=1, smoothing="laplace", progress=True)
    model.evaluate(Corpus.from_lines(["a a"]), progress=True)
    chainrule.mix([model, model], held_out=text, progress=True)
    assert "scoring: 100 %" in capsys.readouterr().err
