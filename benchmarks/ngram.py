"""Time and memory of n-gram training and scoring, beside KenLM and SRILM where they are on the PATH.

    python -m benchmarks.ngram --corpus all

Programs run as a person runs them, one after another in each round; the best of the rounds is printed. KenLM
refuses a literal `<unk>`, so the peers read a copy of the text that spells it `<oov>`, with blank lines left out.
Progress goes to standard error.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.corpora import BENCHMARKS, Benchmark, chosen, machine, table

from chainrule import artifact
from chainrule.model import Model
from chainrule.ngram.config import Config
from chainrule.ngram.counts import count
from chainrule.ngram.estimate import estimate
from chainrule.ngram.model import NgramModel
from chainrule.ngram.spelling import train_speller
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode

Command = Sequence[str | Path]

CHAINRULE: Final = (sys.executable, "-m", "chainrule")
LAUNCH: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
LINES_ONE_BY_ONE: Final = 500


@dataclass(frozen=True, slots=True)
class Usage:
    """What a program took."""

    wall: float  # seconds
    cpu: float  # seconds, over all threads
    peak: float  # MiB resident

    def then(self, other: "Usage") -> "Usage":
        """Both, one after the other."""
        return Usage(self.wall + other.wall, self.cpu + other.cpu, max(self.peak, other.peak))

    def best(self, other: "Usage") -> "Usage":
        """The smaller of each."""
        return Usage(min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.peak, other.peak))


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and the file it reads as standard input."""

    command: Command
    reads: Path | None = None

    def run(self) -> Usage:
        """Run it to its end, its output thrown away."""
        command = [str(part) for part in self.command]
        with open(self.reads or os.devnull, "rb") as given:
            done = subprocess.run([*LAUNCH, *command], stdin=given, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed with status {done.returncode}")
        return Usage(**json.loads(done.stdout))


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def plain_copy(benchmark: Benchmark, split: str, folder: Path) -> Path:
    """The text as every program can read it."""
    path = folder / f"{split}.txt"
    lines = (" ".join("<oov>" if w == "<unk>" else w for w in line.split()) for line in benchmark.corpus(split))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def training(benchmark: Benchmark, order: int, text: Path, folder: Path) -> dict[str, Program]:
    """Every program that is here, the first one ours; the others read `text`."""
    own: Command = ("train", "ngram", benchmark.path("train"), "--order", str(order), "--out", folder / "own")
    programs = {"chainrule train ngram": Program((*CHAINRULE, *own, *line_rule(benchmark)))}
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


def line_rule(benchmark: Benchmark) -> tuple[str, ...]:
    return ("--drop-blank-lines",) if benchmark.drop_blank_lines else ()


def scoring(benchmark: Benchmark, order: int, text: Path, folder: Path) -> dict[str, Program]:
    """Perplexity of the test text by the models that `training` leaves in the folder."""
    own: Command = ("evaluate", folder / "own", benchmark.path("test"), *line_rule(benchmark))
    programs = {"chainrule evaluate": Program((*CHAINRULE, *own))}
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


class Stopwatch:
    """The best time of each step."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Time what is inside the block."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.best[step] = min(seconds, self.best.get(step, seconds))


def stages(order: int, corpus: Corpus, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds of each step of `chainrule train ngram`, in process, the best of the rounds."""
    watch = Stopwatch()
    for _ in range(rounds):
        with watch("start of Python, imports"):
            Program(
                (sys.executable, "-c", "import chainrule.cli.main, chainrule.api, chainrule.ngram.family")
            ).run()
        with watch("tokenizer"):
            tokenizer = tokenizer_training.train(corpus, TokenizerConfig())
        with watch("encode"):
            train = encode(corpus, tokenizer)
        with watch("speller"):
            control = (tokenizer.bos, tokenizer.eos, tokenizer.unk)
            words = tokenizer.tokens([i for i in range(tokenizer.vocab_size) if i not in control])
            speller = train_speller(train.spellings, list(words))
        with watch("fingerprint"):
            fingerprint(corpus)
        with watch("count"):
            counts = count(train.ids, order, tokenizer.vocabulary)
        with watch("smooth"):
            config = Config(order=order)
            lm = NgramModel(estimate(counts, config), tokenizer.vocabulary)
        with watch("save"):
            Model(lm=lm, tokenizer=tokenizer, family="ngram", config=config, speller=speller).save(
                folder / "stages"
            )
        shutil.rmtree(folder / "stages")
    return watch.best


def speeds(model: Model, test: Corpus, rounds: int) -> dict[str, tuple[int, float]]:
    """Tokens and seconds of each way to ask the model for probabilities, in process, the best of the rounds."""
    watch = Stopwatch()
    encoded = encode(test, model.tokenizer)
    lines = list(test)
    few = lines[:LINES_ONE_BY_ONE]
    for _ in range(rounds):
        with watch("evaluate, text encoded before"):
            model.evaluate_encoded(encoded)
        with watch("evaluate"):
            model.evaluate(test)
        with watch("score, all lines at once"):
            for _score in model.scores(lines):
                pass
        with watch("score, line by line"):
            tokens_of_few = sum(len(model.score(line).tokens) for line in few)
    return {
        step: (tokens_of_few if step == "score, line by line" else encoded.tokens, seconds)
        for step, seconds in watch.best.items()
    }


def report(benchmark: Benchmark, order: int, rounds: int, folder: Path) -> None:
    say(benchmark.title)
    copies = {split: plain_copy(benchmark, split, folder) for split in ("train", "test")}
    head = ["program", "seconds", "CPU seconds", "peak MiB", "chainrule's time / its"]
    trained = measure(training(benchmark, order, copies["train"], folder), rounds, folder)
    if "KenLM build_binary" in trained:
        trained["KenLM, both"] = trained["KenLM lmplz"].then(trained["KenLM build_binary"])
    print(f"### {benchmark.title}: training, order {order}\n\n{table(head, list(usage_rows(trained)))}")
    asked = measure(scoring(benchmark, order, copies["test"], folder), rounds, folder)
    print(f"### {benchmark.title}: perplexity of the test text\n\n{table(head, list(usage_rows(asked)))}")
    steps = stages(order, benchmark.corpus("train"), folder, rounds)
    rows = [[step, f"{seconds:.2f}", f"{seconds / sum(steps.values()):.0%}"] for step, seconds in steps.items()]
    rows.append(["all", f"{sum(steps.values()):.2f}", ""])
    print(f"### {benchmark.title}: where training spends its time\n\n{table(['step', 'seconds', 'share'], rows)}")
    found = speeds(artifact.load(folder / "own"), benchmark.corpus("test"), rounds)
    rows = [[step, f"{tokens:,}", f"{s:.3f}", f"{tokens / s:,.0f}"] for step, (tokens, s) in found.items()]
    head = ["question", "tokens", "seconds", "tokens per second"]
    print(f"### {benchmark.title}: query speed\n\n{table(head, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of n-gram models, as Markdown tables.")
    parser.add_argument("--corpus", choices=[*BENCHMARKS, "all"], default="all")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is printed")
    chosen_ = parser.parse_args()
    print(
        f"`python -m benchmarks.ngram --corpus {chosen_.corpus} --order {chosen_.order} "
        f"--rounds {chosen_.rounds}`: {machine()}\n"
    )
    for benchmark in chosen(chosen_.corpus).values():
        with tempfile.TemporaryDirectory() as folder:
            report(benchmark, chosen_.order, chosen_.rounds, Path(folder))


if __name__ == "__main__":
    main()
