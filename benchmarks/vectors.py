"""Word vectors beside gensim, word2vec's C program and fastText: speed, memory, and what the vectors are worth.

    python -m benchmarks.vectors --gensim PYTHON [--word2vec PROGRAM] [--fasttext PROGRAM] [--rounds 3]
    python -m benchmarks.vectors --gensim PYTHON --quality [--seeds 3]
    python -m benchmarks.vectors --scaling [--rounds 5]

PYTHON is an interpreter that has gensim (4.4 was measured); the programs are built from their public sources,
outside this repository. All learn from the same file of plain words (WikiText-2 as it stands; the novels as runs of
a to z in lower case): 100 dimensions, window 5, 5 noise words, words seen 5 times or more, the same epochs. Times
are from opening the file to having the vectors, the start of the interpreter left out; systems run in
turns, and the best round of each counts; the C programs run once. gensim reads by `corpus_file`, its fastest way.
"""

import argparse
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.corpora import DATA, machine, table
from benchmarks.vectors_difference import of_analogies, of_pairs

from chainrule.embeddings import formats, learning
from chainrule.embeddings.vectors import WordVectors
from chainrule.evaluation import analogies, similarity

MIN_COUNT = 5
MEASURED = ("chainrule", "gensim")
JUDGED = DATA / "embeddings_eval"
JUDGES = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}

OURS = """
import json, resource, sys, time
from chainrule.embeddings.learning import train
def used():
    return time.perf_counter(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import chainrule.native; chainrule.native.load()
file, out, method, epochs, threads, seed = sys.argv[1:]
before = used()
made = train(file, method=method, epochs=int(epochs), threads=int(threads), seed=int(seed), min_count=5)
after = used()
if out != "-":
    made.export(out, "word2vec-binary")
print(json.dumps([after[0] - before[0], after[1] - before[1], (after[2] - before[2]) / 1024]))
"""

LEARNT = """
import sys
from chainrule.embeddings.learning import train
file, method, threads = sys.argv[1:]
print(train(file, method=method, epochs=1, threads=int(threads), min_count=5).metrics["words_per_second"])
"""

GENSIM = """
import json, resource, sys, time
from gensim.models import Word2Vec
def used():
    return time.perf_counter(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
file, out, method, epochs, threads, seed = sys.argv[1:]
before = used()
rate = 0.025 if method == "skipgram" else 0.05
same = {"vector_size": 100, "window": 5, "negative": 5, "min_count": 5, "epochs": int(epochs), "alpha": rate}
made = Word2Vec(corpus_file=file, sg=method == "skipgram", workers=int(threads), seed=int(seed) + 1, **same)
after = used()
if out != "-":
    made.wv.save_word2vec_format(out, binary=True)
print(json.dumps([after[0] - before[0], after[1] - before[1], (after[2] - before[2]) / 1024]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took."""

    wall: float  # s
    cpu: float  # s, all cores together
    memory: float  # MiB above what the program had before


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a text, a method, how long, where to."""

    file: Path
    method: str  # skipgram or cbow
    epochs: int
    threads: int
    seed: int = 0
    out: str = "-"

    @property
    def words(self) -> list[str]:
        """As the scripts above take it."""
        return [str(self.file), self.out, self.method, *map(str, (self.epochs, self.threads, self.seed))]


def scripted(python: str, script: str) -> Callable[[Job], Cost]:
    """A system that measures itself."""

    def run(job: Job) -> Cost:
        found = subprocess.run([python, "-c", script, *job.words], stdout=subprocess.PIPE, check=True).stdout
        return Cost(*json.loads(found.splitlines()[-1]))

    return run


def program(command: Callable[[Job, str], list[str]]) -> Callable[[Job], Cost]:
    """A program that is measured from outside."""

    def run(job: Job) -> Cost:
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "vectors")
            start = time.perf_counter()
            process = subprocess.Popen(command(job, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{command(job, out)[0]} failed with {status}")
            return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)

    return run


def systems(arguments: argparse.Namespace) -> dict[str, Callable[[Job], Cost]]:
    found = {
        "chainrule": scripted(sys.executable, OURS),
        "gensim": scripted(arguments.gensim, GENSIM),
    }
    if arguments.word2vec:
        found["word2vec (C)"] = program(
            lambda job, out: [
                *(arguments.word2vec, "-train", str(job.file), "-output", out, "-binary", "1"),
                *(
                    "-size",
                    "100",
                    "-window",
                    "5",
                    "-negative",
                    "5",
                    "-hs",
                    "0",
                    "-sample",
                    "1e-3",
                    "-min-count",
                    "5",
                ),
                *("-iter", str(job.epochs), "-threads", str(job.threads), "-cbow", str(int(job.method == "cbow"))),
            ]
        )
    if arguments.fasttext:
        found["fastText"] = program(
            lambda job, out: [
                *(
                    arguments.fasttext,
                    job.method,
                    "-input",
                    str(job.file),
                    "-output",
                    out,
                    "-dim",
                    "100",
                    "-ws",
                    "5",
                ),
                *(
                    "-neg",
                    "5",
                    "-loss",
                    "ns",
                    "-minCount",
                    "5",
                    "-t",
                    "1e-3",
                    "-maxn",
                    "0",
                    "-epoch",
                    str(job.epochs),
                ),
                *("-thread", str(job.threads), "-lr", "0.025" if job.method == "skipgram" else "0.05"),
            ]
        )
    return found


def texts(folder: Path) -> dict[str, Path]:
    """The two texts as plain files."""
    novels = folder / "novels.txt"
    if not novels.exists():
        with lzma.open(DATA / "novels_en" / "novels89.txt.xz", "rt", encoding="utf-8") as lines:
            plain = (" ".join(re.findall("[a-z]+", line.lower())) for line in lines)
            novels.write_text("".join(f"{line}\n" for line in plain if line), encoding="ascii")
    return {"WikiText-2": DATA / "wikitext2" / "wiki.train.tokens", "novels_en": novels}


def count_words(file: Path) -> int:
    with file.open(encoding="utf-8") as lines:
        return sum(len(line.split()) for line in lines)


def speed(arguments: argparse.Namespace, folder: Path) -> None:
    rows = []
    epochs = {"WikiText-2": arguments.epochs, "novels_en": arguments.novels_epochs}
    for name, file in texts(folder).items():
        words = count_words(file)
        for method in ("skipgram", "cbow"):
            for threads in (1, 2):
                best: dict[str, Cost] = {}
                for turn in range(arguments.rounds):
                    for system, run in systems(arguments).items():
                        if system not in MEASURED and (threads == 1 or turn):
                            continue  # the others once, on both cores
                        cost = run(Job(file, method, epochs[name], threads))
                        known = best.get(system)
                        best[system] = cost if known is None else Cost(*map(min, _pairs(known, cost)))
                        print(name, method, threads, system, cost, file=sys.stderr, flush=True)
                rows += [_row(name, method, threads, system, words * epochs[name], best) for system in best]
    head = ["text", "method", "threads", "system", "wall s", "CPU s", "thousand words/s", "… per core-second"]
    said = ", ".join(f"{n} {name}" for name, n in epochs.items())
    print(f"{machine()}; epochs: {said}; best of {arguments.rounds} rounds\n")
    print(table([*head, "× gensim, CPU", "× gensim, wall", "MiB"], rows))


def _pairs(a: Cost, b: Cost) -> list[tuple[float, float]]:
    return [(a.wall, b.wall), (a.cpu, b.cpu), (a.memory, b.memory)]


def _row(name: str, method: str, threads: int, system: str, words: int, best: dict[str, Cost]) -> list[str]:
    cost, other = best[system], best["gensim"]
    figures = [
        f"{cost.wall:.2f}",
        f"{cost.cpu:.2f}",
        f"{words / cost.wall / 1e3:,.0f}",
        f"{words / cost.cpu / 1e3:,.0f}",
    ]
    ratios = [f"{other.cpu / cost.cpu:.2f}", f"{other.wall / cost.wall:.2f}"]
    return [name, method, str(threads), system, *figures, *ratios, f"{cost.memory:.0f}"]


def scaling(arguments: argparse.Namespace, folder: Path) -> None:
    """Words learnt a second by one thread, by two, and by two processes that share nothing, in turns.

    The last is what the machine gives two cores at all; counting the words is left out of every time.
    """
    rows = []
    for name, file in texts(folder).items():
        for method in ("skipgram", "cbow"):
            speeds: list[list[float]] = []
            for _ in range(arguments.rounds):
                job = [str(file), method]
                one, two, apart = ([*job, "1"], 1), ([*job, "2"], 1), ([*job, "1"], 2)
                speeds.append([_words_per_second(*each) / 1e3 for each in (one, two, apart)])
                print(name, method, speeds[-1], file=sys.stderr, flush=True)
            best = [max(each) for each in zip(*speeds, strict=True)]
            rows.append([name, method, *(f"{each:,.0f}" for each in best), f"{best[1] / best[0]:.2f}"])
            rows[-1] += [_spread([turn[i] / turn[0] for turn in speeds]) for i in (1, 2)]
    print(f"{machine()}; 1 epoch, {arguments.rounds} turns; the best of each, and the ratios turn by turn\n")
    head = ["text", "method", "thousand words/s, 1 thread", "2 threads", "2 processes", "threads, of the best"]
    print(table([*head, "threads, median (least to most)", "processes, median (least to most)"], rows))


def _words_per_second(job: list[str], processes: int) -> float:
    """Of so many processes side by side, together."""
    command = [sys.executable, "-c", LEARNT, *job]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(each.communicate()[0]) for each in started)


def _spread(ratios: list[float]) -> str:
    return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def quality(arguments: argparse.Namespace, folder: Path) -> None:
    """Vectors of the novels judged: rank correlations, those of rare words, analogies; the mean over seeds."""
    file = texts(folder)["novels_en"]
    counted = learning.train(file, method="one-hot", min_count=MIN_COUNT)
    rows, differences = [], []
    for method in ("skipgram", "cbow"):
        made: dict[str, list[WordVectors]] = {system: [] for system in MEASURED}
        for system in MEASURED:
            found = []
            for seed in range(arguments.seeds):
                out = folder / f"{system}-{method}-{seed}.bin"
                if not out.exists():
                    systems(arguments)[system](Job(file, method, arguments.epochs, 2, seed, str(out)))
                made[system].append(formats.read(out))
                found.append(judged(made[system][-1], counted))
                print(system, method, seed, found[-1], file=sys.stderr, flush=True)
            rows.append([method, system, *_summary(found)])
        pairs_of = [of_pairs(made["chainrule"], made["gensim"], str(JUDGED / name)) for name in JUDGES.values()]
        points = of_analogies(made["chainrule"], made["gensim"], str(JUDGED / "questions-words.txt"))
        shown = [f"{each[0]:+.3f} ({each[1]:+.3f} to {each[2]:+.3f})" for each in pairs_of]
        differences.append([method, *shown, f"{points[0]:+.1f} ({points[1]:+.1f} to {points[2]:+.1f})"])
    print(f"{machine()}; novels_en, {arguments.epochs} epochs, {arguments.seeds} seeds: mean (least to most)")
    pairs = [similarity.read_pairs(JUDGED / name) for name in JUDGES.values()]
    sizes = [similarity.judge(counted.find, each) for each in pairs]
    widths = [
        f"{name} {each.found} pairs (95 % of ρ = 0.5: ±{_half(each):.2f})"
        for name, each in zip(JUDGES, sizes, strict=True)
    ]
    print(f"found: {', '.join(widths)}\n")
    heads = [f"{name}{part}" for name in JUDGES for part in (", ρ", ", rare third, ρ")]
    print(table(["method", "system", *heads, "semantic, %", "syntactic, %"], rows))
    print("\nours less gensim's, with 95 % intervals (bootstrap over pairs of words)\n")
    print(table(["method", *(f"{name}, ρ" for name in JUDGES), "syntactic, points"], differences))


def _half(judged: similarity.Judged) -> float:
    """Half the width of the interval of ρ = 0.5 over as many pairs."""
    low, high = similarity.interval(0.5, judged.found)
    return (high - low) / 2


def judged(vectors: WordVectors, counted: WordVectors) -> list[float]:
    """Spearman with each list of pairs and with its rare third, per cent of the analogies."""
    assert counted.counts is not None
    counts = dict(zip(counted.words, counted.counts.tolist(), strict=True))
    figures = []
    for name in JUDGES.values():
        pairs = similarity.read_pairs(JUDGED / name)
        rare = similarity.rarest(pairs, lambda word: counts.get(word.lower()))
        figures += [similarity.judge(vectors.find, each).rho for each in (pairs, rare)]
    sections = analogies.read_questions(JUDGED / "questions-words.txt")
    solved = analogies.solve(vectors.row, vectors.unit, sections, "add")
    for is_syntactic in (False, True):
        part = [s for s in solved if s.section.startswith("gram") == is_syntactic]
        figures.append(100 * sum(s.right for s in part) / sum(s.asked for s in part))
    return figures


def _summary(found: list[list[float]]) -> list[str]:
    columns = np.array(found).T
    digits = [3] * (len(columns) - 2) + [1, 1]
    return [f"{c.mean():.{n}f} ({c.min():.{n}f} to {c.max():.{n}f})" for c, n in zip(columns, digits, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gensim", help="a Python that has gensim")
    parser.add_argument("--word2vec", help="the original program")
    parser.add_argument("--fasttext", help="fastText's program")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--novels-epochs", type=int, default=1, help="for the speed on the novels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--scaling", action="store_true", help="two threads against one, gensim left out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/vectors"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not (arguments.gensim or arguments.scaling):
        parser.error("--gensim is needed, but for --scaling")
    (scaling if arguments.scaling else quality if arguments.quality else speed)(arguments, arguments.folder)


if __name__ == "__main__":
    main()
