"""SIGINT and SIGTERM at any moment of a command, including start and exit: exit status, and no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import ENTRY, TOY, write

HOOK = """
import atexit, os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
number, moment = int(os.environ["NUMBER"]), os.environ["MOMENT"]

class Lost:
    def __del__(self):
        os.kill(os.getpid(), number)

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), number)
        elif f"lost in {name}" == moment:
            Lost()

sys.meta_path.insert(0, Hook())
if moment == "exit":
    atexit.register(os.kill, os.getpid(), number)
"""
SCRIPT, MODULE = [ENTRY], [sys.executable, "-m", "chainrule"]


def run_with_signal(
    tmp_path: Path, number: int, moment: str, program: list[str], *arguments: str
) -> tuple[int, str]:
    """Exit status and stderr of a program that gets the signal as it imports a module, or at exit."""
    write(tmp_path / "sitecustomize.py", HOOK)
    environment = {"PYTHONPATH": str(tmp_path), "NUMBER": str(int(number)), "MOMENT": moment}
    process = subprocess.run(
        [*program, *arguments],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return process.returncode, process.stderr


@pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_at_the_first_import(tmp_path: Path, number: int, status: int, program: list[str]) -> None:
    assert run_with_signal(tmp_path, number, "chainrule.cli.main", program, "--version") == (status, "stopped\n")


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "typer"),
        (signal.SIGINT, "numpy"),
        (signal.SIGTERM, "chainrule._core"),
        (signal.SIGINT, "lost in numpy"),  # in a finalizer, where Python cannot raise
    ],
)
def test_signal_while_a_command_is_loading(tmp_path: Path, number: int, moment: str) -> None:
    text = write(tmp_path / "text.txt", TOY)
    command = ("train", "ngram", str(text), "--smoothing", "witten-bell", "--out", "model")
    status, err = run_with_signal(tmp_path, number, moment, SCRIPT, *command)
    assert status == 128 + number, err
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_at_exit(tmp_path: Path, number: int, status: int) -> None:
    assert run_with_signal(tmp_path, number, "exit", SCRIPT, "--version") == (status, "stopped\n")


def test_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """As `nohup` and shells request for background jobs."""
    hook = HOOK.replace("signal.default_int_handler", "signal.SIG_IGN")
    write(tmp_path / "sitecustomize.py", hook)
    environment = {"PYTHONPATH": str(tmp_path), "NUMBER": str(int(signal.SIGINT)), "MOMENT": "typer"}
    process = subprocess.run([*SCRIPT, "--version"], env=os.environ | environment, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
