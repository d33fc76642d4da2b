"""The three texts of benchmarks/ngram.py as files that every program can read.

KenLM refuses a literal `<unk>`, so both sides read a copy that spells it `<oov>`, blank lines left out; the novels
are runs of a to z in lower case, their last lines held out.
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
    """One text in two parts."""

    name: str
    title: str
    train: Path
    test: Path


NAMES: Final = (*BENCHMARKS, "novels")


def made(name: str, folder: Path) -> Text:
    """Write the text's copies into the folder, where they are not there already."""
    text = Text(name, titles()[name], folder / f"{name}.train.txt", folder / f"{name}.test.txt")
    if not text.test.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = novels() if name == "novels" else (spelled(BENCHMARKS[name], part) for part in ("train", "test"))
        for path, lines in zip((text.train, text.test), parts, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return text


def titles() -> dict[str, str]:
    """What a table calls each text."""
    return {name: benchmark.title for name, benchmark in BENCHMARKS.items()} | {"novels": "novels_en"}


def spelled(benchmark: Benchmark, split: str) -> Iterable[str]:
    """The words of each line that has any, `<unk>` as `<oov>`."""
    for line in benchmark.corpus(split):
        words = ["<oov>" if word == "<unk>" else word for word in line.split()]
        if words:
            yield " ".join(words)


def novels() -> tuple[list[str], list[str]]:
    """What is learned from, and what is not."""
    with lzma.open(DATA / "novels_en" / "novels89.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line for line in (" ".join(re.findall("[a-z]+", raw.lower())) for raw in file) if line]
    return lines[:-HELD_OUT], lines[-HELD_OUT:]
