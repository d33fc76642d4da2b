"""Benchmark n-gram models against KenLM: time, memory, file size, perplexity.

    python -m benchmarks.ngram --kenlm FOLDER [--python PYTHON] [--texts ptb,wikitext2,novels] [--only estimate,…]

FOLDER contains `lmplz`, `build_binary` and `query`; PYTHON is an interpreter with the `kenlm` module.
docs/kenlm.md explains how to build both outside this repository. Programs are run alternately and the best of
three rounds is reported. Python functions of chainrule are timed in a fresh process without start-up and imports,
programs from start to end. Progress goes to standard error.
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
from benchmarks.ngram_texts import NAMES, Text, prepare_text

import chainrule

ORDER: Final = 5
THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Run:
    """A text, the KenLM programs to compare with, and a working folder."""

    kenlm: KenLM
    text: Text
    folder: Path
    rounds: int

    def step(self, name: str, order: int = ORDER) -> Usage:
        """Run a step of benchmarks/ngram_steps.py."""
        result, used = ask("ngram_steps.py", name, self.text.train, order, self.folder)
        return Usage(result["seconds"], used.peak)

    def best(self, name: str, other_name: str, ours: Callable[[], Usage], theirs: Callable[[], Usage]) -> list[str]:
        """Run both alternately and return a table row with the best of each and the speed-up."""
        best_ours, best_theirs = ours(), theirs()
        for _ in range(1, self.rounds):
            best_ours, best_theirs = ours().best(best_ours), theirs().best(best_theirs)
            log(f"{self.text.title}, {name}: {best_ours.seconds:.2f} s, {best_theirs.seconds:.2f} s so far")
        seconds = [
            f"{best_ours.seconds:.2f}",
            f"{best_theirs.seconds:.2f}",
            f"{best_theirs.seconds / best_ours.seconds:.1f}",
        ]
        return [self.text.title, name, other_name, *seconds, f"{best_ours.peak:.0f}", f"{best_theirs.peak:.0f}"]


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def estimate(on: Run) -> list[str]:
    """Text to all probabilities and weights in memory, with the C++ engine only."""
    program = compiled(on.folder)
    return on.best(
        "text → all probabilities in memory (C++ engine only)",
        "lmplz to /dev/null",
        lambda: run([program, on.text.train, ORDER, THREADS]),
        lambda: on.kenlm.estimate(ORDER, on.text.train, "/dev/null"),
    )


def ready(on: Run) -> list[str]:
    """Text to a model ready for queries."""
    return on.best(
        "`chainrule.train`: text → ready to query",
        "lmplz to /dev/null",
        lambda: on.step("ready"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, "/dev/null"),
    )


def saved(on: Run) -> list[str]:
    """Text to a saved and reloaded model."""
    arpa, binary = on.folder / "kenlm.arpa", on.folder / "kenlm.probing"
    return on.best(
        "`chainrule.train`, `save`, `load`: text → file, loaded, queried",
        "lmplz, build_binary probing",
        lambda: on.step("saved"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, arpa).then(on.kenlm.binary("probing", arpa, binary)),
    )


def arpa(on: Run) -> list[str]:
    """Text to an ARPA file."""
    return on.best(
        "`chainrule.train`, `export_arpa`: text → ARPA file",
        "lmplz",
        lambda: on.step("arpa"),
        lambda: on.kenlm.estimate(ORDER, on.text.train, on.folder / "kenlm.arpa"),
    )


def memory(on: Run) -> list[str]:
    """The training command with a memory limit, including writing the model folder."""
    command = [sys.executable, "-m", "chainrule", "train", "ngram", on.text.train, "--order", ORDER]
    command += ["--tokenizer", "whitespace"]  # as KenLM

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
    """Model files of one text: chainrule's by layout, KenLM's by data structure."""

    ours: dict[str, Path]
    theirs: dict[str, Path]


def models(on: Run) -> Models:
    """Build the model files of both toolkits."""
    ours = {}
    model = chainrule.train("ngram", on.text.train, tokenizer="whitespace", order=ORDER)
    arpa_file = on.folder / "kenlm.arpa"
    for name, layout, bits in (("fast", "fast", 0), ("small", "small", 0), ("small, 8 bits", "small", 8)):
        ours[name] = on.folder / f"{on.text.name}.{layout}{bits}.ngram"
        model.lm.engine.convert(layout, bits, threads=2).save(str(ours[name]))
    on.kenlm.estimate(ORDER, on.text.train, arpa_file)
    theirs = {}
    for name, kind, bits in (("probing", "probing", 0), ("trie", "trie", 0), ("trie, 8 bits", "trie", 8)):
        theirs[name] = on.folder / f"{on.text.name}.{kind}{bits}"
        on.kenlm.binary(kind, arpa_file, theirs[name], bits)
    return Models(ours, theirs)


def query(on: Run) -> Iterator[list[str]]:
    """Yield the single-threaded query speed of every interface and the peak memory."""
    files = models(on)
    interfaces: dict[str, tuple[str, Path, Path | None]] = {
        **{f"chainrule {name}": ("chainrule.kenlm", path, None) for name, path in files.ours.items()},
        **{f"KenLM {name}": ("kenlm", path, on.kenlm.python) for name, path in files.theirs.items()},
    }
    best: dict[str, dict[str, float]] = {name: {} for name in interfaces}
    for number in range(1, on.rounds + 1):
        for name, (module, path, python) in interfaces.items():
            answer, used = ask("ngram_queries.py", module, path, on.text.test, python=python)
            log(f"{on.text.title}, {name}, round {number}")
            for question, seconds in answer.items():
                best[name][question] = min(seconds, best[name].get(question, seconds))
            best[name]["peak"] = min(used.peak, best[name].get("peak", used.peak))
    for name, times in best.items():
        ways = ("score_sentences", "full_score_sentences", "score", "full_scores", "BaseScore")
        speeds = [f"{times['words'] / times[way] / 1e6:.2f}" if way in times else "" for way in ways]
        size = interfaces[name][1].stat().st_size / 2**20
        opened = f"{times['open'] * 1000:.1f}"
        perplexity = f"{10 ** (-times['log10'] / times['words']):.3f}"
        yield [on.text.title, name, *speeds, opened, f"{times['peak']:.0f}", f"{size:.1f}", perplexity]


def perplexities(on: Run) -> Iterator[list[str]]:
    """Yield the test perplexities at orders 3 and 5, and the differences between the two ARPA files."""
    for order in (3, ORDER):
        on.step("arpa", order)
        on.step("saved", order)
        ours = chainrule.load(on.folder / "own").evaluate(on.text.test).perplexity
        on.kenlm.estimate(order, on.text.train, on.folder / "kenlm.arpa")
        on.kenlm.binary("probing", on.folder / "kenlm.arpa", on.folder / "kenlm.probing")
        theirs = on.kenlm.perplexity(on.folder / "kenlm.probing", on.text.test)
        orders = list(compare(on.folder / "own.arpa", on.folder / "kenlm.arpa"))
        missing = sum(level.ours + level.theirs - 2 * level.shared for level in orders)
        prob, backoff = max(level.prob for level in orders), max(level.backoff for level in orders)
        count = f"{sum(level.shared for level in orders):,}"
        yield [
            on.text.title,
            f"{order}",
            f"{ours:.4f}",
            f"{theirs:.4f}",
            count,
            f"{missing}",
            f"{prob:.1e}",
            f"{backoff:.1e}",
        ]


TRAINING_HEAD: Final = ["text", "chainrule", "KenLM", "s", "KenLM s", "speed-up", "peak MiB", "KenLM MiB"]
QUERY_HEAD: Final = [
    *("text", "model", "score_sentences", "full_score_sentences", "score", "full_scores", "BaseScore"),
    *("load, ms", "peak MiB", "file, MiB", "perplexity"),
]
PERPLEXITY_HEAD: Final = [
    *("text", "order", "chainrule", "KenLM", "n-grams in both", "in one only"),
    *("max difference of log10 p", "of log10 back-off"),
]
PARTS: Final = (*TRAINING, "query", "perplexity")


def report(only: list[str], runs: list[Run]) -> None:
    jobs = [(part, on) for on in runs for part in only if part in TRAINING]
    rows = [TRAINING[part](on) for part, on in jobs if part != "memory" or on.text.name == "novels"]
    if rows:
        print(f"### Training, order {ORDER}\n\n{table(TRAINING_HEAD, rows)}")
    if "query" in only:
        rows = [row for on in runs for row in query(on)]
        print(
            f"### Queries on one thread, order {ORDER}: million words per CPU second\n\n{table(QUERY_HEAD, rows)}"
        )
    if "perplexity" in only:
        rows = [row for on in runs if on.text.name != "novels" for row in perplexities(on)]
        print(f"### Perplexity of the test text, and the two ARPA files\n\n{table(PERPLEXITY_HEAD, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark n-gram models against KenLM; prints Markdown tables.")
    parser.add_argument("--kenlm", type=Path, required=True, help="folder with lmplz, build_binary and query")
    parser.add_argument("--python", type=Path, help="Python interpreter with the kenlm module")
    parser.add_argument("--texts", default=",".join(NAMES))
    parser.add_argument("--only", default=",".join(PARTS), help=f"comma-separated parts: {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the best is reported")
    parser.add_argument("--folder", type=Path, help="folder for texts and models (default: temporary)")
    arguments = parser.parse_args()
    names, only = arguments.texts.split(","), arguments.only.split(",")
    for name in [*names, *only]:
        if name not in (*NAMES, *PARTS):
            parser.error(f"unknown name {name}; texts are {', '.join(NAMES)}, parts {', '.join(PARTS)}")
    print(f"`python -m benchmarks.ngram {' '.join(sys.argv[1:])}`: {machine()}\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        runs = [
            Run(
                KenLM(arguments.kenlm, arguments.python),
                prepare_text(name, folder / "texts"),
                folder,
                arguments.rounds,
            )
            for name in names
        ]
        report(only, runs)


if __name__ == "__main__":
    main()
