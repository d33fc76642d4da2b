"""Run one step of benchmarks/ngram.py in its own process and write its seconds, without imports, as JSON.

python benchmarks/ngram_steps.py STEP TEXT ORDER FOLDER ANSWER
"""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import chainrule
import chainrule.cli.main
import chainrule.ngram.family
from chainrule import system
from chainrule.applications import convert
from chainrule.model import Model

SENTENCE: Final = "the price of the company"


def train(text: Path, order: int, **settings: Any) -> Model:
    """Train with the public function."""
    return chainrule.train("ngram", text, tokenizer="whitespace", order=order, **settings)


def ready(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Train a model and query it."""
    return {"log_prob": train(text, order).score(SENTENCE).log_prob}


def saved(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Train, save, load and query a model."""
    train(text, order).save(folder / "own")
    return {"log_prob": cast(float, chainrule.load(folder / "own").score(SENTENCE).log_prob)}


def arpa(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Train a model and export it as ARPA."""
    convert.export_arpa(train(text, order), folder / "own.arpa")
    return {}


STEPS: Final[dict[str, Callable[[Path, int, Path], dict[str, float]]]] = {
    "ready": ready,
    "saved": saved,
    "arpa": arpa,
}


def main(step: str, text: str, order: str, folder: str, answer: str) -> None:
    system.load_extension()
    shutil.rmtree(Path(folder) / "own", ignore_errors=True)
    start = time.perf_counter()
    result = STEPS[step](Path(text), int(order), Path(folder))
    result["seconds"] = time.perf_counter() - start
    Path(answer).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
