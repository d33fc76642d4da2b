"""Train and evaluate every model family on Penn Treebank by its recipe, from n-grams to a large LSTM.

    python -m benchmarks.ladder --out runs/ladder [--recipes ptb-rnn,ptb-lstm] [--set key=value]…

Each model is trained with its recipe and evaluated on the test set; the LSTM is also interpolated with the
5-gram, with weights estimated by EM on the validation set. Existing models are evaluated without training again.
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
    """Run a chainrule command; raise if it fails."""
    command = [sys.executable, "-m", "chainrule", *map(str, words)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def train(out: Path, name: str, settings: list[str]) -> float:
    """Train a recipe unless the model exists; return the seconds of training."""
    clock = out / f"{name}.seconds"
    if not clock.exists():
        start = time.perf_counter()
        overrides = [word for setting in settings for word in ("--set", setting)]
        family = "ngram" if name == NGRAM else recipes.read(name).family
        options = [] if name == NGRAM else ["--recipe", name, *overrides]
        files = (PTB.path("train"), "--valid", PTB.path("valid"))
        run("train", family, *files, "--out", out / name, *options)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def measure(model: Path) -> dict[str, Any]:
    """Return the test metrics and the number of parameters."""

    def query(*words: object) -> Any:
        command = [sys.executable, "-m", "chainrule", *map(str, words), "--json"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    return {**query("evaluate", model, PTB.path("test")), "parameters": query("info", model)["parameters"]}


def row(name: str, metrics: dict[str, Any], seconds: float) -> list[str]:
    return [
        name,
        f"{metrics['parameters'] / 1e6:.1f} M",
        f"{seconds / 60:.1f}",
        f"{metrics['perplexity']:.2f}",
        f"{metrics['bits_per_byte']:.4f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--set", action="append", default=[], help="setting of all neural models")
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
