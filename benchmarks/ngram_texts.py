"""Prepare the three texts of benchmarks/ngram.py as files that all programs can read.

KenLM rejects a literal `<unk>`, so both toolkits read a copy with `<oov>` instead, without blank lines. The
novels are reduced to runs of a to z in lower case; their last lines are held out.
"""

import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.corpora import BENCHMARKS, DATA, Benchmark

HELD_OUT: Final = 10_000  # lines at the end of the novels


@dataclass(frozen=True, slots=True)
class Text:
    """A text with training and test files."""

    name: str
    title: str
    train: Path
    test: Path


NAMES: Final = (*BENCHMARKS, "novels")


def prepare_text(name: str, folder: Path) -> Text:
    """Write the files of a text into the folder unless they exist."""
    text = Text(name, titles()[name], folder / f"{name}.train.txt", folder / f"{name}.test.txt")
    if not text.test.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = (
            novels() if name == "novels" else (without_unk(BENCHMARKS[name], part) for part in ("train", "test"))
        )
        for path, lines in zip((text.train, text.test), parts, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return text


def titles() -> dict[str, str]:
    """Return the title of each text."""
    return {name: benchmark.title for name, benchmark in BENCHMARKS.items()} | {"novels": "novels_en"}


def without_unk(benchmark: Benchmark, split: str) -> Iterable[str]:
    """Yield the non-empty lines of a split, with `<unk>` replaced by `<oov>`."""
    for line in benchmark.corpus(split):
        words = ["<oov>" if word == "<unk>" else word for word in line.split()]
        if words:
            yield " ".join(words)


def novels() -> tuple[list[str], list[str]]:
    """Return the training and the held-out lines of the novels."""
    with lzma.open(DATA / "novels_en" / "novels89.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line for line in (" ".join(re.findall("[a-z]+", raw.lower())) for raw in file) if line]
    return lines[:-HELD_OUT], lines[-HELD_OUT:]
