"""n-gram models beside KenLM: time, memory, size, perplexity, one after the other in every round.

    python -m benchmarks.ngram --kenlm FOLDER [--python PYTHON] [--texts ptb,wikitext2,novels] [--only estimate,…]

FOLDER holds `lmplz`, `build_binary` and `query`, PYTHON is an interpreter with the module `kenlm`; docs/kenlm.md
says how to build both outside this repository. Of each figure the best of three rounds is printed. What is
ours in Python is measured inside a fresh process, its start and imports left out; programs from start to end.
Progress goes to standard error.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.corpora import machine, table
from benchmarks.ngram_agreement import compare
from benchmarks.ngram_programs import KenLM, Usage, ask, compiled, run
from benchmarks.ngram_texts import NAMES, Text, made

import chainrule

ORDER: Final = 5
THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Run:
    """What is measured against what, and where it may write."""

    kenlm: KenLM
    text: Text
    folder: Path
    rounds: int

    def step(self, name: str, order: int = ORDER) -> Usage:
        """One of benchmarks/ngram_steps.py."""
        found, used = ask("ngram_steps.py", name, self.text.train, order, self.folder)
        return Usage(found["seconds"], used.peak)

    def best(self, name: str, other_name: str, ours: Callable[[], Usage], theirs: Callable[[], Usage]) -> list[str]:
        """A row: both in turns, the best of each, and how many times as fast ours is."""
        own, other = ours(), theirs()
        for _ in range(1, self.rounds):
            own, other = ours().best(own), theirs().best(other)
            say(f"{self.text.title}, {name}: {own.seconds:.2f} s, {other.seconds:.2f} s so far")
        seconds = [f"{own.seconds:.2f}", f"{other.seconds:.2f}", f"{other.seconds / own.seconds:.1f}"]
        return [self.text.title, name, other_name, *seconds, f"{own.peak:.0f}", f"{other.peak:.0f}"]


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def estimate(on: Run) -> list[str]:
    """Text to all probabilities and weights in memory, by the engine alone and its whole program."""
    program = compiled(on.folder)
    return on.best(
        "text → all probabilities in memory (the engine alone)",
        "lmplz to /dev/null",
        lambda: run([program, on.text.train, ORDER, THREADS]),
        lambda: on.kenlm.estimate(ORDER, on.text.train, "/dev/null"),
    )


def ready(on: Run) -> list[str]:
    """Text to a model that answers."""
    return on.best(
        "`chainrule.train`: text → ready to query",
        "lmplz to /dev/null",
        lambda: on.step("ready"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, "/dev/null"),
    )


def saved(on: Run) -> list[str]:
    """Text to a model file, opened again."""
    arpa, binary = on.folder / "kenlm.arpa", on.folder / "kenlm.probing"
    return on.best(
        "`chainrule.train`, `save`, `load`: text → file, opened, answering",
        "lmplz, build_binary probing",
        lambda: on.step("saved"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, arpa).then(on.kenlm.binary("probing", arpa, binary)),
    )


def arpa(on: Run) -> list[str]:
    """Text to ARPA."""
    return on.best(
        "`chainrule.train`, `export_arpa`: text → ARPA file",
        "lmplz",
        lambda: on.step("arpa"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, on.folder / "kenlm.arpa"),
    )


def memory(on: Run) -> list[str]:
    """The command with a limit of memory, from start to end, its folder written."""
    command = [sys.executable, "-m", "chainrule", "train", "ngram", on.text.train, "--order", ORDER]
    command += ["--tokenizer", "whitespace"]  # KenLM cuts at blanks, too

    def ours() -> Usage:
        shutil.rmtree(on.folder / "limited", ignore_errors=True)
        return run([*command, "--memory", "512M", "--out", on.folder / "limited"])

    return on.best(
        "`chainrule train ngram --memory 512M`",
        "lmplz -S 512M to /dev/null",
        ours,
        lambda: on.kenlm.estimate(ORDER, on.text.train, "/dev/null", memory="512M"),
    )


TRAINING: Final[dict[str, Callable[[Run], list[str]]]] = {
    "estimate": estimate,
    "ready": ready,
    "file": saved,
    "arpa": arpa,
    "memory": memory,
}


@dataclass(frozen=True, slots=True)
class Models:
    """Files of one text's order-5 model, ours by layout and KenLM's by kind."""

    ours: dict[str, Path]
    theirs: dict[str, Path]


def models(on: Run) -> Models:
    """Both sides' files of every kind."""
    ours = {}
    trained = chainrule.train("ngram", on.text.train, tokenizer="whitespace", order=ORDER)
    arpa_file = on.folder / "kenlm.arpa"
    for name, layout, bits in (("fast", "fast", 0), ("small", "small", 0), ("small, 8 bits", "small", 8)):
        ours[name] = on.folder / f"{on.text.name}.{layout}{bits}.ngram"
        trained.lm.engine.convert(layout, bits, threads=2).save(str(ours[name]))  # type: ignore[attr-defined]
    on.kenlm.estimate(ORDER, on.text.train, arpa_file)
    theirs = {}
    for name, kind, bits in (("probing", "probing", 0), ("trie", "trie", 0), ("trie, 8 bits", "trie", 8)):
        theirs[name] = on.folder / f"{on.text.name}.{kind}{bits}"
        on.kenlm.binary(kind, arpa_file, theirs[name], bits)
    return Models(ours, theirs)


def query(on: Run) -> Iterator[list[str]]:
    """Million words a CPU second of every way to ask, one thread, and the peak memory of asking."""
    found = models(on)
    asked: dict[str, tuple[str, Path, Path | None]] = {
        **{f"chainrule {name}": ("chainrule.kenlm", path, None) for name, path in found.ours.items()},
        **{f"KenLM {name}": ("kenlm", path, on.kenlm.python) for name, path in found.theirs.items()},
    }
    best: dict[str, dict[str, float]] = {name: {} for name in asked}
    for number in range(1, on.rounds + 1):
        for name, (module, path, python) in asked.items():
            answer, used = ask("ngram_queries.py", module, path, on.text.test, python=python)
            say(f"{on.text.title}, {name}, round {number}")
            for question, seconds in answer.items():
                best[name][question] = min(seconds, best[name].get(question, seconds))
            best[name]["peak"] = min(used.peak, best[name].get("peak", used.peak))
    for name, taken in best.items():
        ways = ("score_sentences", "full_score_sentences", "score", "full_scores", "BaseScore")
        speeds = [f"{taken['words'] / taken[way] / 1e6:.2f}" if way in taken else "" for way in ways]
        size = asked[name][1].stat().st_size / 2**20
        opened = f"{taken['open'] * 1000:.1f}"
        perplexity = f"{10 ** (-taken['log10'] / taken['words']):.3f}"
        yield [on.text.title, name, *speeds, opened, f"{taken['peak']:.0f}", f"{size:.1f}", perplexity]


def perplexities(on: Run) -> Iterator[list[str]]:
    """Of the test text, orders 3 and 5, and how far the two ARPA files differ."""
    for order in (3, ORDER):
        on.step("arpa", order)
        on.step("saved", order)
        own = chainrule.load(on.folder / "own").evaluate(on.text.test).perplexity
        on.kenlm.estimate(order, on.text.train, on.folder / "kenlm.arpa")
        on.kenlm.binary("probing", on.folder / "kenlm.arpa", on.folder / "kenlm.probing")
        other = on.kenlm.perplexity(on.folder / "kenlm.probing", on.text.test)
        orders = list(compare(on.folder / "own.arpa", on.folder / "kenlm.arpa"))
        missing = sum(found.ours + found.theirs - 2 * found.shared for found in orders)
        prob, backoff = max(found.prob for found in orders), max(found.backoff for found in orders)
        count = f"{sum(found.shared for found in orders):,}"
        yield [
            on.text.title,
            f"{order}",
            f"{own:.4f}",
            f"{other:.4f}",
            count,
            f"{missing}",
            f"{prob:.1e}",
            f"{backoff:.1e}",
        ]


TRAINING_HEAD: Final = ["text", "ours", "KenLM's", "s", "its s", "times as fast", "peak MiB", "its MiB"]
QUERY_HEAD: Final = [
    *("text", "model", "a list", "a list, per word", "score", "full_scores", "BaseScore"),
    *("opened, ms", "peak MiB", "file, MiB", "perplexity"),
]
PERPLEXITY_HEAD: Final = [
    *("text", "order", "ours", "KenLM's", "n-grams in both", "in one alone"),
    *("largest difference of log10 p", "of weights"),
]
PARTS: Final = (*TRAINING, "query", "perplexity")


def report(only: list[str], runs: list[Run]) -> None:
    asked = [(part, on) for on in runs for part in only if part in TRAINING]
    rows = [TRAINING[part](on) for part, on in asked if part != "memory" or on.text.name == "novels"]
    if rows:
        print(f"### Training, order {ORDER}\n\n{table(TRAINING_HEAD, rows)}")
    if "query" in only:
        rows = [row for on in runs for row in query(on)]
        print(f"### Asking on one thread, order {ORDER}: million words a CPU second\n\n{table(QUERY_HEAD, rows)}")
    if "perplexity" in only:
        rows = [row for on in runs if on.text.name != "novels" for row in perplexities(on)]
        print(f"### Perplexity of the test text, and the two ARPA files\n\n{table(PERPLEXITY_HEAD, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="n-gram models beside KenLM, as Markdown tables.")
    parser.add_argument("--kenlm", type=Path, required=True, help="folder of lmplz, build_binary, query")
    parser.add_argument("--python", type=Path, help="an interpreter that has the module kenlm")
    parser.add_argument("--texts", default=",".join(NAMES))
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is printed")
    parser.add_argument("--folder", type=Path, help="where texts and models go; by default somewhere temporary")
    given = parser.parse_args()
    names, only = given.texts.split(","), given.only.split(",")
    for name in [*names, *only]:
        if name not in (*NAMES, *PARTS):
            parser.error(f"there is no {name}; texts are {', '.join(NAMES)}, parts {', '.join(PARTS)}")
    print(f"`python -m benchmarks.ngram {' '.join(sys.argv[1:])}`: {machine()}\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        runs = [
            Run(KenLM(given.kenlm, given.python), made(name, folder / "texts"), folder, given.rounds)
            for name in names
        ]
        report(only, runs)


if __name__ == "__main__":
    main()
