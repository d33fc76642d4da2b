"""Benchmark GloVe against the original C program (Pennington et al. 2014), from a text file to vectors on disk.

    python -m benchmarks.glove --glove FOLDER [--text FILE] [--threads 2] [--rounds 3]

FOLDER is a built checkout of stanfordnlp/GloVe outside this repository: FOLDER/build has vocab_count, cooccur,
shuffle and glove. Both use the same settings: window 5 on both sides, weights 1/distance, 100 dimensions, x_max
10, alpha 0.75, learning rate 0.05, 15 epochs, minimum count 5. Times are of the whole commands, including
start-up and writing the vectors, measured alternately; the best round counts. The cost is that of the last epoch
as reported by each program: the mean of f(X) (w · w̃ + b + b̃ − log X)² / 2 over the same pairs. The original
program rejects a literal `<unk>`, so both read a copy of the text with `<raw_unk>` instead.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.corpora import BENCHMARKS, machine, table

DIMENSIONS, WINDOW, X_MAX, EPOCHS, MIN_COUNT = 100, 5, 10, 15, 5
PROGRAMS: Final = ("vocab_count", "cooccur", "shuffle", "glove")


@dataclass(frozen=True, slots=True)
class RunResult:
    """Resources and final cost of a training run."""

    wall: float  # s
    cpu: float  # s, summed over cores
    memory: float  # peak resident MiB
    cost: float  # of the last epoch
    pairs: int  # per epoch

    def best(self, other: "RunResult") -> "RunResult":
        """Return the minimum of each time and of memory; the cost is that of the first."""
        wall, cpu, memory = min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.memory, other.memory)
        return RunResult(wall, cpu, memory, self.cost, self.pairs)


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Resources and standard error of one program."""

    wall: float
    cpu: float
    memory: float
    stderr: str


def run(command: list[str], source: Path | None = None, out: Path | None = None) -> ProcessUsage:
    """Run a program with standard input from `source` and standard output to `out`."""
    with (
        open(source or os.devnull, "rb") as stdin,
        open(out or os.devnull, "wb") as stdout,
        tempfile.TemporaryFile("w+", errors="replace") as stderr,
    ):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        text = stderr.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}:\n{text[-2000:]}")
    return ProcessUsage(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, text)


def ours(text: Path, threads: int, memory: int, folder: Path) -> RunResult:
    """Run `chainrule vectors train`."""
    out, printed = folder / "chainrule", folder / "chainrule.json"
    command = [sys.executable, "-m", "chainrule", "vectors", "train", str(text), "--out", str(out)]
    command += ["--method", "glove", "--dimensions", str(DIMENSIONS), "--window", str(WINDOW)]
    command += ["--epochs", str(EPOCHS), "--min-count", str(MIN_COUNT), "--threads", str(threads)]
    command += ["--memory", f"{memory}G", "--set", f"x_max={X_MAX}", "--json"]
    usage = run(command, out=printed)
    metrics = json.loads((out / "metrics.json").read_text())
    return RunResult(usage.wall, usage.cpu, usage.memory, metrics["cost"], metrics["records"])


def original(build: Path, text: Path, threads: int, memory: int, folder: Path) -> RunResult:
    """Run the four programs in sequence, as in the demo script of the distribution."""
    vocabulary, counts, shuffled = (folder / name for name in ("vocab.txt", "counts.bin", "shuffled.bin"))
    count, cooccur, shuffle, glove = ([str(build / name), "-verbose", "1"] for name in PROGRAMS)
    bound = ["-memory", f"{memory}.0"]
    learn = ["-input-file", str(shuffled), "-vocab-file", str(vocabulary), "-save-file", str(folder / "vectors")]
    learn += ["-threads", str(threads), "-x-max", str(X_MAX), "-iter", str(EPOCHS), "-vector-size", str(DIMENSIONS)]
    window = ["-vocab-file", str(vocabulary), "-window-size", str(WINDOW), "-symmetric", "1"]
    overflow = ["-overflow-file", str(folder / "overflow")]
    parts = [
        run([*count, "-min-count", str(MIN_COUNT)], text, vocabulary),
        run([*cooccur, *window, *bound, *overflow], text, counts),
        run([*shuffle, *bound, "-temp-file", str(folder / "shuffle")], counts, shuffled),
        run([*glove, *learn, "-eta", "0.05", "-alpha", "0.75", "-binary", "0"]),
    ]
    costs = re.findall(r"cost:?\s+([\d.]+(?:e[-+]?\d+)?|nan)", parts[-1].stderr)
    if len(costs) != EPOCHS:
        raise SystemExit(f"{build / 'glove'} printed {len(costs)} costs, not {EPOCHS}:\n{parts[-1].stderr[-2000:]}")
    pairs = shuffled.stat().st_size // 16  # two 32-bit numbers and a double
    memory_used = max(part.memory for part in parts)
    return RunResult(sum(p.wall for p in parts), sum(p.cpu for p in parts), memory_used, float(costs[-1]), pairs)


def plain_copy(text: Path, folder: Path) -> Path:
    """Write a copy of the text without `<unk>`."""
    copy = folder / "text"
    with (
        open(text, encoding="utf-8", newline="\n") as lines,
        open(copy, "w", encoding="utf-8", newline="\n") as out,
    ):
        for line in lines:
            words = ("<raw_unk>" if word == "<unk>" else word for word in line.split())
            out.write(" ".join(words) + "\n")
    return copy


def measure(arguments: argparse.Namespace) -> dict[str, RunResult]:
    """Return the best round of each program."""
    results: dict[str, RunResult] = {}
    for number in range(1, arguments.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="glove-") as scratch:
            folder = Path(scratch)
            text = plain_copy(arguments.text, folder)
            for name in ("GloVe in C", "chainrule"):
                if name == "chainrule":
                    result = ours(text, arguments.threads, arguments.memory, folder)
                else:
                    result = original(arguments.glove / "build", text, arguments.threads, arguments.memory, folder)
                print(f"round {number}, {name}: {result}", file=sys.stderr, flush=True)
                results[name] = results[name].best(result) if name in results else result
    return results


def report(results: dict[str, RunResult]) -> str:
    """Format the results and their ratios as a table."""
    head = ["program", "seconds", "CPU seconds", "MiB", "pairs", "cost of the last epoch"]
    rows = [
        [name, f"{t.wall:.2f}", f"{t.cpu:.2f}", f"{t.memory:,.0f}", f"{t.pairs:,}", f"{t.cost:.6f}"]
        for name, t in results.items()
    ]
    theirs, ours = results["GloVe in C"], results["chainrule"]
    ratios = ["ratio", f"{theirs.wall / ours.wall:.2f}", f"{theirs.cpu / ours.cpu:.2f}"]
    ratios += [
        f"{theirs.memory / ours.memory:.2f}",
        f"{theirs.pairs / ours.pairs:.4f}",
        f"{theirs.cost / ours.cost:.4f}",
    ]
    return table(head, [*rows, ratios])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glove", type=Path, required=True, help="a built checkout of stanfordnlp/GloVe")
    parser.add_argument(
        "--text", type=Path, default=BENCHMARKS["wikitext2"].path("train"), help="one sentence per line"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=1, help="GiB for counting, for both programs")
    arguments = parser.parse_args()
    for name in PROGRAMS:
        if not (arguments.glove / "build" / name).exists():
            raise SystemExit(f"{arguments.glove / 'build' / name} does not exist; build GloVe with `make` first")
    print(machine())
    print(f"{arguments.text.name}, {arguments.threads} threads, best of {arguments.rounds}\n")
    print(report(measure(arguments)))


if __name__ == "__main__":
    main()
