"""Benchmark word vectors against gensim, the word2vec C program and fastText: speed, memory and quality.

    python -m benchmarks.vectors --gensim PYTHON [--word2vec PROGRAM] [--fasttext PROGRAM] [--rounds 3]
    python -m benchmarks.vectors --gensim PYTHON --quality [--seeds 3]
    python -m benchmarks.vectors --scaling [--rounds 5]

PYTHON is an interpreter with gensim (measured with 4.4); the programs are built from their public sources outside
this repository. All train on the same text file (WikiText-2 unchanged; the novels as runs of a to z in lower
case) with 100 dimensions, window 5, 5 negative samples, minimum count 5 and the same epochs. Times are from
opening the file to the finished vectors, without interpreter start-up; systems run alternately and the best round
counts; the C programs run once. gensim reads with `corpus_file`, its fastest input.
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

from chainrule.embeddings import storage, train
from chainrule.embeddings.vectors import WordVectors
from chainrule.evaluation import word_vectors

MIN_COUNT = 5
MEASURED = ("chainrule", "gensim")
EVALUATION_DATA = DATA / "embeddings_eval"
SIMILARITY_LISTS = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}

OURS = """
import json, resource, sys, time
from chainrule.embeddings.train import train
def used():
    return time.perf_counter(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import chainrule.system; chainrule.system.load_extension()
file, out, method, epochs, threads, seed = sys.argv[1:]
before = used()
vectors = train(file, method=method, epochs=int(epochs), threads=int(threads), seed=int(seed), min_count=5)
after = used()
if out != "-":
    vectors.export(out, "word2vec-binary")
print(json.dumps([after[0] - before[0], after[1] - before[1], (after[2] - before[2]) / 1024]))
"""

SPEED = """
import sys
from chainrule.embeddings.train import train
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
vectors = Word2Vec(corpus_file=file, sg=method == "skipgram", workers=int(threads), seed=int(seed) + 1, **same)
after = used()
if out != "-":
    vectors.wv.save_word2vec_format(out, binary=True)
print(json.dumps([after[0] - before[0], after[1] - before[1], (after[2] - before[2]) / 1024]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Resources of one run."""

    wall: float  # s
    cpu: float  # s, summed over cores
    memory: float  # MiB in addition to the program before training


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of one run."""

    file: Path
    method: str  # skipgram or cbow
    epochs: int
    threads: int
    seed: int = 0
    out: str = "-"

    @property
    def words(self) -> list[str]:
        """Command-line arguments of the scripts above."""
        return [str(self.file), self.out, self.method, *map(str, (self.epochs, self.threads, self.seed))]


def scripted(python: str, script: str) -> Callable[[Job], Cost]:
    """Return a system run by a script that measures itself."""

    def run(job: Job) -> Cost:
        output = subprocess.run([python, "-c", script, *job.words], stdout=subprocess.PIPE, check=True).stdout
        return Cost(*json.loads(output.splitlines()[-1]))

    return run


def program(command: Callable[[Job, str], list[str]]) -> Callable[[Job], Cost]:
    """Return a system run by a program that is measured from outside."""

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
    runners = {
        "chainrule": scripted(sys.executable, OURS),
        "gensim": scripted(arguments.gensim, GENSIM),
    }
    if arguments.word2vec:
        runners["word2vec (C)"] = program(
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
        runners["fastText"] = program(
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
    return runners


def texts(folder: Path) -> dict[str, Path]:
    """Return the two texts as plain files."""
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
                for number in range(arguments.rounds):
                    for system, run in systems(arguments).items():
                        if system not in MEASURED and (threads == 1 or number):
                            continue  # other programs run once, on two threads
                        cost = run(Job(file, method, epochs[name], threads))
                        known = best.get(system)
                        best[system] = cost if known is None else Cost(*map(min, _pairs(known, cost)))
                        print(name, method, threads, system, cost, file=sys.stderr, flush=True)
                rows += [_row(name, method, threads, system, words * epochs[name], best) for system in best]
    head = ["text", "method", "threads", "system", "wall s", "CPU s", "thousand words/s", "… per core-second"]
    epoch_text = ", ".join(f"{n} {name}" for name, n in epochs.items())
    print(f"{machine()}; epochs: {epoch_text}; best of {arguments.rounds} rounds\n")
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
    """Measure the training speed of one thread, two threads, and two independent processes, alternately.

    Two processes give the upper limit of two cores on this machine; counting the words is not timed.
    """
    rows = []
    for name, file in texts(folder).items():
        for method in ("skipgram", "cbow"):
            speeds: list[list[float]] = []
            for _ in range(arguments.rounds):
                job = [str(file), method]
                one, two, separate = ([*job, "1"], 1), ([*job, "2"], 1), ([*job, "1"], 2)
                speeds.append([_words_per_second(*setup) / 1e3 for setup in (one, two, separate)])
                print(name, method, speeds[-1], file=sys.stderr, flush=True)
            best = [max(column) for column in zip(*speeds, strict=True)]
            rows.append([name, method, *(f"{value:,.0f}" for value in best), f"{best[1] / best[0]:.2f}"])
            rows[-1] += [_spread([speed[i] / speed[0] for speed in speeds]) for i in (1, 2)]
    print(f"{machine()}; 1 epoch, {arguments.rounds} rounds; best of each, and ratios per round\n")
    head = ["text", "method", "thousand words/s, 1 thread", "2 threads", "2 processes", "thread speed-up (best)"]
    print(table([*head, "threads, median (min to max)", "processes, median (min to max)"], rows))


def _words_per_second(job: list[str], processes: int) -> float:
    """Return the total speed of concurrent processes."""
    command = [sys.executable, "-c", SPEED, *job]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(process.communicate()[0]) for process in started)


def _spread(ratios: list[float]) -> str:
    return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def quality(arguments: argparse.Namespace, folder: Path) -> None:
    """Evaluate vectors of the novels: rank correlations (all and rare words) and analogies, mean over seeds."""
    file = texts(folder)["novels_en"]
    counted = train.train(file, method="one-hot", min_count=MIN_COUNT)
    rows, differences = [], []
    for method in ("skipgram", "cbow"):
        trained: dict[str, list[WordVectors]] = {system: [] for system in MEASURED}
        for system in MEASURED:
            figures = []
            for seed in range(arguments.seeds):
                out = folder / f"{system}-{method}-{seed}.bin"
                if not out.exists():
                    systems(arguments)[system](Job(file, method, arguments.epochs, 2, seed, str(out)))
                trained[system].append(storage.read(out))
                figures.append(evaluate(trained[system][-1], counted))
                print(system, method, seed, figures[-1], file=sys.stderr, flush=True)
            rows.append([method, system, *_summary(figures)])
        pairs_of = [
            of_pairs(trained["chainrule"], trained["gensim"], str(EVALUATION_DATA / name))
            for name in SIMILARITY_LISTS.values()
        ]
        points = of_analogies(trained["chainrule"], trained["gensim"], str(EVALUATION_DATA / "questions-words.txt"))
        shown = [f"{rho:+.3f} ({low:+.3f} to {high:+.3f})" for rho, low, high in pairs_of]
        differences.append([method, *shown, f"{points[0]:+.1f} ({points[1]:+.1f} to {points[2]:+.1f})"])
    print(f"{machine()}; novels_en, {arguments.epochs} epochs, {arguments.seeds} seeds: mean (min to max)")
    pairs = [word_vectors.read_pairs(EVALUATION_DATA / name) for name in SIMILARITY_LISTS.values()]
    sizes = [word_vectors.evaluate_similarity(counted.find, word_pairs) for word_pairs in pairs]
    widths = [
        f"{name} {result.covered} pairs (95 % of ρ = 0.5: ±{_half(result):.2f})"
        for name, result in zip(SIMILARITY_LISTS, sizes, strict=True)
    ]
    print(f"pairs in vocabulary: {', '.join(widths)}\n")
    heads = [f"{name}{part}" for name in SIMILARITY_LISTS for part in (", ρ", ", rarest third, ρ")]
    print(table(["method", "system", *heads, "semantic, %", "syntactic, %"], rows))
    print("\nchainrule minus gensim, with 95 % intervals (bootstrap over word pairs)\n")
    print(table(["method", *(f"{name}, ρ" for name in SIMILARITY_LISTS), "syntactic, points"], differences))


def _half(result: word_vectors.SimilarityResult) -> float:
    """Return half the width of the 95 % interval of ρ = 0.5 for this number of pairs."""
    low, high = word_vectors.confidence_interval(0.5, result.covered)
    return (high - low) / 2


def evaluate(vectors: WordVectors, counted: WordVectors) -> list[float]:
    """Return Spearman's ρ on each list and on its rarest third, and the accuracy on analogies in %."""
    assert counted.counts is not None
    counts = dict(zip(counted.words, counted.counts.tolist(), strict=True))
    figures = []
    for name in SIMILARITY_LISTS.values():
        pairs = word_vectors.read_pairs(EVALUATION_DATA / name)
        rare = word_vectors.rarest_third(pairs, lambda word: counts.get(word.lower()))
        figures += [word_vectors.evaluate_similarity(vectors.find, subset).rho for subset in (pairs, rare)]
    sections = word_vectors.read_questions(EVALUATION_DATA / "questions-words.txt")
    solved = word_vectors.solve(vectors.row, vectors.unit, sections, "add")
    for is_syntactic in (False, True):
        part = [s for s in solved if s.section.startswith("gram") == is_syntactic]
        figures.append(100 * sum(s.correct for s in part) / sum(s.attempted for s in part))
    return figures


def _summary(figures: list[list[float]]) -> list[str]:
    columns = np.array(figures).T
    digits = [3] * (len(columns) - 2) + [1, 1]
    return [f"{c.mean():.{n}f} ({c.min():.{n}f} to {c.max():.{n}f})" for c, n in zip(columns, digits, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gensim", help="Python interpreter with gensim")
    parser.add_argument("--word2vec", help="word2vec program")
    parser.add_argument("--fasttext", help="fastText program")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--novels-epochs", type=int, default=1, help="epochs of the speed benchmark on the novels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--scaling", action="store_true", help="compare two threads with one; gensim is not used")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/vectors"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not (arguments.gensim or arguments.scaling):
        parser.error("--gensim is required, except with --scaling")
    (scaling if arguments.scaling else quality if arguments.quality else speed)(arguments, arguments.folder)


if __name__ == "__main__":
    main()
