"""The ladder: Penn Treebank by every family's recipe, from word counts to the large LSTM, in one table.

    python -m benchmarks.ladder --out runs/ladder [--recipes ptb-rnn,ptb-lstm] [--set key=value]…

Each model is trained by the command its recipe names, then measured on the test text; the LSTM is also mixed with
the 5-gram, weights by EM on the validation text. A model that is there already is measured, not trained again.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.corpora import BENCHMARKS, machine, table

from chainrule import recipes

NGRAM = "ngram-5"
MIXED = "ptb-lstm"
RECIPES = ("ptb-feedforward", "ptb-rnn", "ptb-gru", MIXED, "ptb-transformer")
PTB = BENCHMARKS["ptb"]


def run(*words: object) -> None:
    """One chainrule command; what it says goes to stderr, and its failure ends the run."""
    command = [sys.executable, "-m", "chainrule", *map(str, words)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def train(out: Path, name: str, settings: list[str]) -> float:
    """Train by recipe unless it is there; the seconds the command took."""
    clock = out / f"{name}.seconds"
    if not clock.exists():
        start = time.perf_counter()
        given = [word for setting in settings for word in ("--set", setting)]
        family = "ngram" if name == NGRAM else recipes.read(name).family
        own = [] if name == NGRAM else ["--recipe", name, *given]
        files = (PTB.path("train"), "--valid", PTB.path("valid"))
        run("train", family, *files, "--out", out / name, *own)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def measure(model: Path) -> dict[str, Any]:
    """Test figures and the number of parameters."""

    def asked(*words: object) -> Any:
        command = [sys.executable, "-m", "chainrule", *map(str, words), "--json"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    return {**asked("evaluate", model, PTB.path("test")), "parameters": asked("info", model)["parameters"]}


def row(name: str, found: dict[str, Any], seconds: float) -> list[str]:
    return [
        name,
        f"{found['parameters'] / 1e6:.1f} M",
        f"{seconds / 60:.1f}",
        f"{found['perplexity']:.2f}",
        f"{found['bits_per_byte']:.4f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--set", action="append", default=[], help="a setting for every network")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in (NGRAM, *arguments.recipes.split(",")):
        seconds = train(arguments.out, name, arguments.set)
        rows.append(row(name, measure(arguments.out / name), seconds))
    if MIXED in arguments.recipes.split(","):
        parts = [arguments.out / MIXED, arguments.out / NGRAM]
        start = time.perf_counter()
        run("mix", *parts, "--held-out", PTB.path("valid"), "--out", arguments.out / "mixed")
        rows.append(row(f"{MIXED} + {NGRAM}", measure(arguments.out / "mixed"), time.perf_counter() - start))
    print(f"{PTB.title}, test; {machine()}\n")
    print(table(["model", "parameters", "minutes", "perplexity", "bits per byte"], rows))


if __name__ == "__main__":
    main()
