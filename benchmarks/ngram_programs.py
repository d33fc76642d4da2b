"""Run the programs of benchmarks/ngram.py and measure their time and peak memory; KenLM command lines."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LAUNCH: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Usage:
    """Time and memory of a program."""

    seconds: float  # wall-clock, or as measured by the program itself
    peak: float  # peak resident MiB

    def then(self, other: "Usage") -> "Usage":
        """Combine with a program that runs afterwards."""
        return Usage(self.seconds + other.seconds, max(self.peak, other.peak))

    def best(self, other: "Usage | None") -> "Usage":
        """Return the minimum of both."""
        if other is None:
            return self
        return Usage(min(self.seconds, other.seconds), min(self.peak, other.peak))


@dataclass(frozen=True, slots=True)
class KenLM:
    """Location of the KenLM programs and of an interpreter with its module."""

    programs: Path
    python: Path | None = None

    def estimate(self, order: int, text: Path, arpa: Path | str, memory: str = "1G") -> Usage:
        """Run lmplz: text to an ARPA file or `/dev/null`."""
        with tempfile.TemporaryDirectory() as scratch:
            command = [self.programs / "lmplz", "-o", order, "-S", memory, "-T", f"{scratch}/", "--text", text]
            return run([*command, "--arpa", arpa])

    def binary(self, kind: str, arpa: Path, out: Path, bits: int = 0) -> Usage:
        """Run build_binary: ARPA to `probing` or `trie`, quantized to `bits` bits if not 0."""
        quantised = ["-q", bits, "-b", bits] if bits else []
        return run([self.programs / "build_binary", *quantised, kind, arpa, out])

    def perplexity(self, model: Path, text: Path) -> float:
        """Return the perplexity of a text, including unknown words."""
        with open(text, "rb") as source:
            command = [str(self.programs / "query"), "-v", "summary", str(model)]
            done = subprocess.run(command, stdin=source, capture_output=True, text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("Perplexity including OOVs")]
        return float(lines[0].split()[-1])


def run(command: Sequence[object]) -> Usage:
    """Run a program and discard its output."""
    done = subprocess.run(
        [*LAUNCH, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed with status {done.returncode}")
    used = json.loads(done.stdout)
    return Usage(used["wall"], used["peak"])


def ask(script: str, *arguments: object, python: Path | None = None) -> tuple[dict[str, Any], Usage]:
    """Run a script of this folder; return the JSON it writes to the file named last, and its resources."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        os.environ["PYTHONPATH"] = str(ROOT)
        file = Path(__file__).with_name(script)
        used = run([python or sys.executable, "-W", "ignore", file, *arguments, answer])
        return json.loads(answer.read_text()), used


def compiled(folder: Path) -> Path:
    """Build ngram_estimate.cpp against this checkout and return the program."""
    build, program = folder / "core", folder / "ngram_estimate"
    source = Path(__file__).with_name("ngram_estimate.cpp")
    core = [f"-I{ROOT / 'cpp'}", source, build / "libchainrule_core.a", "-pthread"]
    steps: list[list[object]] = [
        ["cmake", "-S", ROOT, "-B", build, "-DCHAINRULE_MODULE=OFF"],
        ["cmake", "--build", build, "--parallel", 2, "--target", "chainrule_core"],
        ["c++", "-std=c++20", "-O3", *core, "-o", program],
    ]
    for step in steps:
        subprocess.run([str(part) for part in step], stdout=subprocess.DEVNULL, check=True)
    return program
