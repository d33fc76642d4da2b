"""A training run that an earlier version was stopped in, and the model that its continuation must reach."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from golden.recorded import CHECKPOINT
from golden.session import run, working_folder

COMMAND: Final = (
    "train lstm train.txt --valid valid.txt --out run --hidden 4 --embedding 4 --dropout 0.2 --epochs {epochs} "
    "--batch-size 8 --bptt 3 --learning-rate 0.01 --optimizer adamw --seed 5 --threads 1 --device cpu "
    "--set checkpoint_seconds=0 --set log_every=10"
)
EPOCHS: Final = 4
WEIGHTS: Final = CHECKPOINT / "continued.safetensors"
FIGURES: Final = CHECKPOINT / "continued.json"
RUN: Final = CHECKPOINT / "run"
_LONGEST_WAIT: Final = 120.0


def continued_run(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Resume the stored run in a working folder; return the weights and figures of the finished model."""
    shutil.copytree(RUN, folder / "run")
    outcome = run(COMMAND.format(epochs=EPOCHS) + " --resume --json")
    assert outcome.status == 0, outcome.err
    metrics = json.loads((folder / "run" / "metrics.json").read_bytes())
    names = ("train_steps", "train_epochs", "best_epoch", "valid_perplexity", "valid_bits_per_byte")
    return load_file(folder / "run" / "model.safetensors"), {name: metrics[name] for name in names}


def write_checkpoint() -> None:
    """Stop a run by SIGINT once it has checkpoints, store it, resume it and store what it reaches."""
    with tempfile.TemporaryDirectory() as name, working_folder(Path(name)) as folder:
        _stop_after_a_checkpoint(folder)
        CHECKPOINT.mkdir()
        shutil.copytree(folder / "run", RUN)
        shutil.rmtree(folder / "run")
        _, figures = continued_run(folder)
        shutil.copyfile(folder / "run" / "model.safetensors", WEIGHTS)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _stop_after_a_checkpoint(folder: Path) -> None:
    entry = Path(sys.executable).with_name("chainrule")
    words = [str(entry), *shlex.split(COMMAND.format(epochs=EPOCHS))]
    with subprocess.Popen(words, cwd=folder, preexec_fn=_hear_interrupts) as process:
        end = time.monotonic() + _LONGEST_WAIT
        while not _has_validated(folder / "run") and time.monotonic() < end:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 128 + signal.SIGINT, process.returncode


def _has_validated(run_folder: Path) -> bool:
    """Whether the first epoch is over, so that the checkpoint holds a best model and half-read text."""
    log = run_folder / "train_log.part.jsonl"
    return log.exists() and '"event": "validation"' in log.read_text(encoding="utf-8")


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
