"""The progress bar at 80 columns."""

import io

import pytest

from chainrule.cli import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_has_room_beside_a_long_description(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with console.progress() as bar:
        bar("comparing: ngram-5-modified-kneser-ney: " + "a very long description " * 5, 1, 2)
    drawn = [line for line in terminal.getvalue().replace("\r", "\n").splitlines() if "comparing" in line]
    assert drawn
    assert "━" * 10 in drawn[-1]
    assert "50%" in drawn[-1]
    assert "…" in drawn[-1]


def test_progress_without_a_terminal_prints_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    monkeypatch.setattr("chainrule.progress.LINE_SECONDS", 0.0)
    with console.progress() as bar:
        bar("scoring", 1, 2)
    assert file.getvalue() == "scoring: 50 %, 0:00 elapsed\n"
