"""GloVe beside the original C program (Pennington et al. 2014), both from one file of text to vectors on disk.

    python -m benchmarks.glove --glove FOLDER [--text FILE] [--threads 2] [--rounds 3]

FOLDER is a built checkout of stanfordnlp/GloVe, outside this repository: FOLDER/build has vocab_count, cooccur,
shuffle and glove. The same settings for both: window 5 to either side, 1/distance, 100 dimensions, x_max 10,
alpha 0.75, rate 0.05, 15 epochs, words seen 5 times or more. Programs run as a person runs them, the interpreter's
start and the writing of the vectors included, in turns; the best round of each counts. The cost is that of the last
epoch as each prints it: the mean of f(X) (w · w̃ + b + b̃ − log X)² / 2 over the same pairs. The original refuses a
literal `<unk>`, so that both read a copy of the text that spells it `<raw_unk>`.
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
class Took:
    """What a run took, and where it came to."""

    wall: float  # s
    cpu: float  # s, all cores together
    memory: float  # MiB resident at the most
    cost: float  # of the last epoch
    pairs: int  # learnt in each epoch

    def best(self, other: "Took") -> "Took":
        """The smaller of each time and memory; the cost of the first."""
        wall, cpu, memory = min(self.wall, other.wall), min(self.cpu, other.cpu), min(self.memory, other.memory)
        return Took(wall, cpu, memory, self.cost, self.pairs)


@dataclass(frozen=True, slots=True)
class Spent:
    """What one program took, and what it said."""

    wall: float
    cpu: float
    memory: float
    said: str  # on standard error


def run(command: list[str], given: Path | None = None, out: Path | None = None) -> Spent:
    """One program to its end, `given` as its input, its output to `out`."""
    with (
        open(given or os.devnull, "rb") as source,
        open(out or os.devnull, "wb") as target,
        tempfile.TemporaryFile("w+", errors="replace") as said,
    ):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=target, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}:\n{text[-2000:]}")
    return Spent(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, text)


def ours(text: Path, threads: int, memory: int, folder: Path) -> Took:
    """`chainrule vectors train`, as a person types it."""
    out, printed = folder / "own", folder / "own.json"
    command = [sys.executable, "-m", "chainrule", "vectors", "train", str(text), "--out", str(out)]
    command += ["--method", "glove", "--dimensions", str(DIMENSIONS), "--window", str(WINDOW)]
    command += ["--epochs", str(EPOCHS), "--min-count", str(MIN_COUNT), "--threads", str(threads)]
    command += ["--memory", f"{memory}G", "--set", f"x_max={X_MAX}", "--json"]
    spent = run(command, out=printed)
    metrics = json.loads((out / "metrics.json").read_text())
    return Took(spent.wall, spent.cpu, spent.memory, metrics["cost"], metrics["records"])


def original(build: Path, text: Path, threads: int, memory: int, folder: Path) -> Took:
    """The four programs one after the other, as the demo that comes with them runs them."""
    vocabulary, counts, shuffled = (folder / name for name in ("vocab.txt", "counts.bin", "shuffled.bin"))
    count, cooccur, shuffle, glove = ([str(build / name), "-verbose", "1"] for name in PROGRAMS)
    bound = ["-memory", f"{memory}.0"]
    learn = ["-input-file", str(shuffled), "-vocab-file", str(vocabulary), "-save-file", str(folder / "vectors")]
    learn += ["-threads", str(threads), "-x-max", str(X_MAX), "-iter", str(EPOCHS), "-vector-size", str(DIMENSIONS)]
    near = ["-vocab-file", str(vocabulary), "-window-size", str(WINDOW), "-symmetric", "1"]
    overflow = ["-overflow-file", str(folder / "overflow")]
    parts = [
        run([*count, "-min-count", str(MIN_COUNT)], text, vocabulary),
        run([*cooccur, *near, *bound, *overflow], text, counts),
        run([*shuffle, *bound, "-temp-file", str(folder / "shuffle")], counts, shuffled),
        run([*glove, *learn, "-eta", "0.05", "-alpha", "0.75", "-binary", "0"]),
    ]
    costs = re.findall(r"cost:?\s+([\d.]+(?:e[-+]?\d+)?|nan)", parts[-1].said)
    if len(costs) != EPOCHS:
        raise SystemExit(f"{build / 'glove'} printed {len(costs)} costs, not {EPOCHS}:\n{parts[-1].said[-2000:]}")
    pairs = shuffled.stat().st_size // 16  # two 32-bit numbers and a double
    memory_used = max(part.memory for part in parts)
    return Took(sum(p.wall for p in parts), sum(p.cpu for p in parts), memory_used, float(costs[-1]), pairs)


def plain_copy(text: Path, folder: Path) -> Path:
    """The text as both programs read it."""
    made = folder / "text"
    with (
        open(text, encoding="utf-8", newline="\n") as lines,
        open(made, "w", encoding="utf-8", newline="\n") as out,
    ):
        for line in lines:
            words = ("<raw_unk>" if word == "<unk>" else word for word in line.split())
            out.write(" ".join(words) + "\n")
    return made


def measure(arguments: argparse.Namespace) -> dict[str, Took]:
    """The best of the rounds."""
    found: dict[str, Took] = {}
    for number in range(1, arguments.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="glove-") as made:
            folder = Path(made)
            text = plain_copy(arguments.text, folder)
            for name in ("GloVe in C", "chainrule"):
                if name == "chainrule":
                    took = ours(text, arguments.threads, arguments.memory, folder)
                else:
                    took = original(arguments.glove / "build", text, arguments.threads, arguments.memory, folder)
                print(f"round {number}, {name}: {took}", file=sys.stderr, flush=True)
                found[name] = found[name].best(took) if name in found else took
    return found


def report(found: dict[str, Took]) -> str:
    """The table, and how many times as fast."""
    head = ["program", "seconds", "CPU seconds", "MiB", "pairs", "cost of the last epoch"]
    rows = [
        [name, f"{t.wall:.2f}", f"{t.cpu:.2f}", f"{t.memory:,.0f}", f"{t.pairs:,}", f"{t.cost:.6f}"]
        for name, t in found.items()
    ]
    theirs, own = found["GloVe in C"], found["chainrule"]
    ratios = ["ratio", f"{theirs.wall / own.wall:.2f}", f"{theirs.cpu / own.cpu:.2f}"]
    ratios += [
        f"{theirs.memory / own.memory:.2f}",
        f"{theirs.pairs / own.pairs:.4f}",
        f"{theirs.cost / own.cost:.4f}",
    ]
    return table(head, [*rows, ratios])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glove", type=Path, required=True, help="a built checkout of stanfordnlp/GloVe")
    parser.add_argument(
        "--text", type=Path, default=BENCHMARKS["wikitext2"].path("train"), help="a line a sentence"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=1, help="GiB for counting, for both")
    arguments = parser.parse_args()
    for name in PROGRAMS:
        if not (arguments.glove / "build" / name).exists():
            raise SystemExit(f"{arguments.glove / 'build' / name} is not there; build GloVe with `make` first")
    print(machine())
    print(f"{arguments.text.name}, {arguments.threads} threads, best of {arguments.rounds}\n")
    print(report(measure(arguments)))


if __name__ == "__main__":
    main()
