"""Benchmark corpus jobs: filter, dedup and encode in this process, with worker processes, and on Spark.

    python -m benchmarks.corpus_jobs [--workers 1,2] [--spark MASTER] [--rounds 3] [--json FILE]

The text is the 89 novels of novels_en (12.9 M words). Every command runs in a new process; wall-clock and CPU
seconds are those of the command and all of its children, the best of the rounds; the CPU seconds of Spark are not
known. The outputs of all ways are compared.
"""

import argparse
import hashlib
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.corpora import DATA, machine, table

NOVELS: Final = DATA / "novels_en" / "novels89.txt.xz"


def commands(folder: Path) -> dict[str, tuple[list[str], str]]:
    """Return the arguments of each job, without engine, and its output in `folder`."""
    text = str(folder / "novels.txt")
    encode = ["encode", text, "--force", "--out", str(folder / "shards"), "--tokenizer"]
    dedup = ["dedup", text, "--out", str(folder / "unique.txt")]
    return {
        "filter --keep 20%": (
            ["filter", str(folder / "model"), text, "--keep", "20%", "--out", str(folder / "kept.txt")],
            "kept.txt",
        ),
        "dedup": (dedup, "unique.txt"),
        "dedup --by document": ([*dedup, "--by", "document"], "unique.txt"),
        "dedup --by document --near 0.8": ([*dedup, "--by", "document", "--near", "0.8"], "unique.txt"),
        "encode --tokenizer word": ([*encode, "word"], "shards/ids-00000.bin"),
        "encode --tokenizer MODEL": ([*encode, str(folder / "model")], "shards/ids-00000.bin"),
    }


def measure(arguments: list[str], rounds: int) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a command, the best of several rounds."""
    best = (float("inf"), float("inf"))
    for _ in range(rounds):
        used, start = _cpu_of_children(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "chainrule", *arguments],
            check=True,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        )
        best = min(best, (time.perf_counter() - start, _cpu_of_children() - used))
    return best


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--spark", metavar="MASTER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    ways: dict[str, list[str]] = {"one process": []}
    ways |= {f"{n} workers": ["--workers", n] for n in filter(None, chosen.workers.split(","))}
    if chosen.spark:
        ways["Spark"] = ["--on", "spark", "--master", chosen.spark]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = lzma.decompress(NOVELS.read_bytes())
        (folder / "novels.txt").write_bytes(text)
        words = len(text.split())
        train = ["train", "ngram", str(folder / "novels.txt"), "--order", "3", "--min-count", "2"]
        measure([*train, "--out", str(folder / "model")], 1)
        for job, (arguments, output) in commands(folder).items():
            digests = set()
            for way, options in ways.items():
                seconds, cpu = measure([*arguments, *options], chosen.rounds)
                digests.add(hashlib.sha256((folder / output).read_bytes()).hexdigest())
                speed = words / seconds / 1e6
                rows.append({"job": job, "way": way, "seconds": seconds, "cpu": cpu, "million words/s": speed})
                print(rows[-1], file=sys.stderr)
            assert len(digests) == 1, f"{job}: the outputs differ"
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    cells = [
        [
            row["job"],
            row["way"],
            f"{row['seconds']:.2f}",
            "" if row["way"] == "Spark" else f"{row['cpu']:.2f}",
            f"{row['million words/s']:.2f}",
        ]
        for row in rows
    ]
    print(machine())
    print(table(["job", "engine", "wall s", "CPU s", "million words/s"], cells))


if __name__ == "__main__":
    main()
