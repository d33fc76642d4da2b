"""`chainrule train` on several processes of this machine: started by --processes or torchrun, stopped, killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from chainrule.cli.train import _without_option
from chainrule.training import checkpoint
from cli.command import ENTRY, TOY, english, run_error, run_ok, write

SETTINGS = (
    "--hidden",
    8,
    "--batch-size",
    4,
    "--bptt",
    5,
    "--context",
    "stream",
    "--device",
    "cpu",
    "--min-count",
    2,
)
HOOK = """
import os, signal
if os.environ.get("RANK") == "1":
    from chainrule.training.step import TrainingStep
    call, steps = TrainingStep.__call__, iter(range(1, 1000))
    def signalled(self, *arguments):
        if next(steps) == 5:
            to_parent, number = os.environ["TO_PARENT"] == "1", int(os.environ["NUMBER"])
            os.kill(os.getppid() if to_parent else os.getpid(), number)
        return call(self, *arguments)
    TrainingStep.__call__ = signalled
"""
"""Rank 1 sends the signal NUMBER to its parent or itself before its fifth step."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("processes") / "text.txt", english(60))


def arguments(out: Path, text: Path, epochs: int, *more: object) -> list[str]:
    return [str(word) for word in ("train", "lstm", text, "--out", out, "--epochs", epochs, *SETTINGS, *more)]


def run(program: list[str], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new session and wait for it."""
    settings = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        [*program, *words],
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )


@pytest.mark.filterwarnings("ignore:the loss")
def test_torchrun_trains_the_network_of_one_process(tmp_path: Path, text: Path) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "chainrule",
    ]
    done = run(torchrun, *arguments(tmp_path / "two", text, 2, "--valid", text))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("saved ") == 1
    assert "Traceback" not in done.stderr
    run_ok(*arguments(tmp_path / "one", text, 2, "--valid", text))
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert max(float(abs(one[name] - two[name]).max()) for name in one) < 1e-4


def test_stopped_and_killed_processes(tmp_path: Path, text: Path) -> None:
    """SIGTERM saves one checkpoint; resumed, one process is killed, which ends the other with one message."""
    write(tmp_path / "sitecustomize.py", HOOK)
    out = tmp_path / "m"
    words = arguments(out, text, 1000, "--processes", 2)
    hook = {"PYTHONPATH": str(tmp_path)}
    stopped = run([ENTRY], *words, NUMBER=str(int(signal.SIGTERM)), TO_PARENT="1", **hook)
    assert stopped.returncode == 143, stopped.stderr
    assert stopped.stderr.count("the run is saved in ") == 1
    assert "Traceback" not in stopped.stderr
    written = checkpoint.load(out)
    assert written is not None
    assert written.position["step"] >= 5
    killed = run([ENTRY], *words, "--resume", NUMBER=str(int(signal.SIGKILL)), TO_PARENT="0", **hook)
    assert killed.returncode == 1
    lines = [line for line in killed.stderr.splitlines() if not line.startswith("warning: ")]
    assert lines == ["error: process 1 of this run was ended by SIGKILL; continue with --resume"]
    kept = checkpoint.load(out)
    assert kept is not None
    assert kept.position["step"] == written.position["step"]


def test_usage_errors_are_reported_before_a_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write(tmp_path / "text.txt", TOY)
    assert "give --workers" in run_error(2, "train", "ngram", text, "--processes", 2, "--out", tmp_path / "m")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = run_error(2, "train", "lstm", text, "--processes", 2, "--out", tmp_path / "m")
    assert "torchrun has started the processes already" in error
    assert "give --workers" in run_error(2, "train", "ngram", text, "--out", tmp_path / "m")
    error = run_error(2, "train", "lstm", text, "--size", "auto", "--max-seconds", 5, "--out", tmp_path / "m")
    assert "--size auto measures a single process" in error


def test_the_processes_get_the_command_without_the_option() -> None:
    given = ["train", "--processes", "2", "lstm", "a", "--processes=4", "--", "--processes"]
    assert _without_option(given, "--processes") == ["train", "lstm", "a", "--", "--processes"]
