"""Time and memory of n-gram training and scoring, beside KenLM and SRILM where they are on the PATH.

    python -m benchmarks.ngram --corpus all

Programs run as a person runs them, one after another in each round; the best of the rounds is printed. The peers
get the same words: KenLM refuses a literal `<unk>`, so all programs read a copy that spells it `<oov>`, with
blank lines left out. Progress goes to standard error.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpora import BENCHMARKS, Benchmark, chosen, machine, table
from chainrule import artifact
from chainrule.model import Model
from chainrule.ngram.config import Config
from chainrule.ngram.counts import count
from chainrule.ngram.estimate import estimate
from chainrule.ngram.model import NgramModel
from chainrule.preparation import prepare
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode

CHAINRULE = (sys.executable, "-m", "chainrule")
LINES_ONE_BY_ONE = 500


@dataclass(frozen=True, slots=True)
class Usage:
    """What a program took."""

    wall: float  # seconds
    cpu: float  # seconds, over all threads
    peak: float  # MiB resident

    def best(self, other: "Usage") -> "Usage":
        """The smaller of each."""
        return Usage(min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.peak, other.peak))


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and the file it reads as standard input."""

    command: Sequence[str | Path]
    reads: Path | None = None

    def run(self) -> Usage:
        """Run it to its end, its output thrown away."""
        start = time.perf_counter()
        with open(self.reads or os.devnull, "rb") as given:
            process = subprocess.Popen(
                [str(part) for part in self.command],
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, self.command))} failed with status {process.returncode}")
        return Usage(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def plain_copy(benchmark: Benchmark, split: str, folder: Path) -> Path:
    """The text as every program can read it."""
    path = folder / f"{split}.txt"
    lines = (" ".join("<oov>" if w == "<unk>" else w for w in line.split()) for line in benchmark.corpus(split))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def training(order: int, text: Path, folder: Path) -> dict[str, Program]:
    """Every program that is here, the first one ours."""
    own = (*CHAINRULE, "train", "ngram", text, "--order", str(order), "--out", folder / "own")
    programs = {"chainrule train ngram": Program(own)}
    arpa = folder / "kenlm.arpa"
    if shutil.which("lmplz"):
        estimate = ("lmplz", "-o", str(order), "-S", "1G", "-T", folder, "--text", text, "--arpa", arpa)
        programs["KenLM lmplz"] = Program(estimate)
    if shutil.which("lmplz") and shutil.which("build_binary"):
        programs["KenLM build_binary"] = Program(("build_binary", arpa, folder / "kenlm.binary"))
    if shutil.which("ngram-count"):
        keep = [part for n in range(3, order + 1) for part in (f"-gt{n}min", "1")]
        counting = ("ngram-count", "-order", str(order), "-kndiscount", "-interpolate", "-unk", *keep)
        programs["SRILM ngram-count"] = Program((*counting, "-text", text, "-lm", folder / "srilm.arpa"))
    return programs


def scoring(order: int, text: Path, folder: Path) -> dict[str, Program]:
    """Perplexity of a text by the models that `training` leaves in the folder."""
    programs = {"chainrule evaluate": Program((*CHAINRULE, "evaluate", folder / "own", text))}
    if (folder / "kenlm.binary").exists() and shutil.which("query"):
        programs["KenLM query"] = Program(("query", "-v", "summary", folder / "kenlm.binary"), reads=text)
    if (folder / "srilm.arpa").exists() and shutil.which("ngram"):
        asked = ("-unk", "-order", str(order), "-lm", folder / "srilm.arpa", "-ppl", text)
        programs["SRILM ngram"] = Program(("ngram", *asked))
    return programs


def measure(programs: Mapping[str, Program], rounds: int, folder: Path) -> dict[str, Usage]:
    best: dict[str, Usage] = {}
    for number in range(1, rounds + 1):
        for name, program in programs.items():
            if "train" in program.command:
                shutil.rmtree(folder / "own", ignore_errors=True)
            used = program.run()
            say(f"round {number}: {name}: {used.wall:.2f} s")
            best[name] = used.best(best.get(name, used))
    return best


def usage_rows(measured: Mapping[str, Usage]) -> Iterator[list[str]]:
    ours = next(iter(measured.values()))
    for name, used in measured.items():
        ratio = f"{ours.wall / used.wall:.1f}" if used is not ours else ""
        yield [name, f"{used.wall:.2f}", f"{used.cpu:.2f}", f"{used.peak:.0f}", ratio]


def stages(order: int, text: Path, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds of each step of `chainrule train ngram`, in process, the best of the rounds."""
    best: dict[str, float] = {}

    def timed[T](name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        best[name] = min(seconds, best.get(name, seconds))
        return result

    corpus = Corpus.of(str(text))
    imports = Program((sys.executable, "-c", "import chainrule.cli.main, chainrule.api, chainrule.ngram.family"))
    for _ in range(rounds):
        timed("start and imports", imports.run)
        tokenizer = timed("tokenizer", lambda: tokenizer_training.train(corpus, TokenizerConfig()))
        train = timed("encode", lambda: encode(corpus, tokenizer))
        timed("fingerprint", lambda: fingerprint(corpus))
        counts = timed("count", lambda: count(train.ids, order, tokenizer.vocabulary))
        tables = timed("smooth", lambda: estimate(counts, Config(order=order)))
        lm = NgramModel(tables, tokenizer.vocabulary)
        model = Model(lm=lm, tokenizer=tokenizer, family="ngram", config=Config(order=order))
        timed("save", lambda: model.save(folder / "stages"))
        shutil.rmtree(folder / "stages")
        timed("all of preparation, speller included", lambda: prepare(corpus, TokenizerConfig()))
    return best
