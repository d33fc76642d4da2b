"""One step of benchmarks/ngram.py in a process of its own: its seconds, imports left out, into a JSON file.

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
from chainrule import exchange, native
from chainrule.model import Model

SENTENCE: Final = "the price of the company"


def trained(text: Path, order: int, **chosen: Any) -> Model:
    """By the public door."""
    return chainrule.train("ngram", text, tokenizer="whitespace", order=order, **chosen)


def ready(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Text to a model in memory that has answered."""
    return {"log_prob": trained(text, order).score(SENTENCE).log_prob}


def saved(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Text to a model folder, opened again, that has answered."""
    trained(text, order).save(folder / "own")
    return {"log_prob": cast(float, chainrule.load(folder / "own").score(SENTENCE).log_prob)}


def arpa(text: Path, order: int, folder: Path) -> dict[str, float]:
    """Text to an ARPA file."""
    exchange.export_arpa(trained(text, order), folder / "own.arpa")
    return {}


STEPS: Final[dict[str, Callable[[Path, int, Path], dict[str, float]]]] = {
    "ready": ready,
    "saved": saved,
    "arpa": arpa,
}


def main(step: str, text: str, order: str, folder: str, answer: str) -> None:
    native.load()
    shutil.rmtree(Path(folder) / "own", ignore_errors=True)
    start = time.perf_counter()
    found = STEPS[step](Path(text), int(order), Path(folder))
    found["seconds"] = time.perf_counter() - start
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
