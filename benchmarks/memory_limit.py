"""Train n-gram models within a memory limit and measure memory, time and temporary files.

    python -m benchmarks.memory_limit TEXT [--memory 512M] [--order 5] [--lmplz PATH]

Prints the peak of the resident memory (VmHWM), CPU and wall time, words per second, and the largest size of the
temporary files in bytes per token. With `--lmplz`, KenLM's program runs on the same text with the same limit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

POLL: Final = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """Time, memory and temporary files of a process."""

    wall: float
    cpu: float
    peak: int  # bytes
    temporary: int  # bytes


def run(command: Sequence[str], scratch: Path) -> Measured:
    """Run a program whose temporary files are in `scratch`; raise if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(scratch)}, stdout=subprocess.DEVNULL)
    temporary = peak = 0
    while True:
        temporary = max(temporary, _temporary_bytes(process.pid, scratch))
        peak = max(peak, _peak(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(POLL)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed with status {process.returncode}")
    peak = max(peak, usage.ru_maxrss << 10)
    return Measured(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak, temporary)


def _temporary_bytes(pid: int, scratch: Path) -> int:
    """Return the disk space of the files in a folder, and of those there that the process has open and unlinked."""
    files: dict[tuple[int, int], int] = {}
    for path in [*scratch.rglob("*"), *_open_files(pid, scratch)]:
        try:
            status = path.stat()
        except OSError:  # removed or closed meanwhile
            continue
        files[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return sum(files.values())


def _open_files(pid: int, scratch: Path) -> list[Path]:
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
        return [link for link in links if os.readlink(link).startswith(f"{scratch}/")]
    except OSError:
        return []


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def report(name: str, measured: Measured, words: int, tokens: int) -> None:
    """Print one line."""
    print(
        f"{name}: VmHWM {measured.peak / 2**20:.0f} MiB, {measured.wall:.1f} s wall, {measured.cpu:.1f} s CPU, "
        f"{words / measured.wall / 1e6:.2f} M words/s, {measured.temporary / tokens:.1f} bytes of temporary files "
        "per token",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--tokenizer", default="whitespace")
    parser.add_argument("--lmplz", type=Path, help="KenLM's program")
    arguments = parser.parse_args()
    with arguments.text.open("rb") as file:
        words, lines = 0, 0
        while block := file.read(1 << 24):
            words += len(block.split())  # words cut at the end of a block count twice
            lines += block.count(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        scratch, model = Path(folder) / "scratch", Path(folder) / "model"
        scratch.mkdir()
        options = [
            "--order",
            str(arguments.order),
            "--tokenizer",
            arguments.tokenizer,
            "--memory",
            arguments.memory,
        ]
        command = [sys.executable, "-m", "chainrule", "train", "ngram", str(arguments.text), *options]
        measured = run([*command, "--out", str(model)], scratch)
        report("chainrule", measured, words, words + lines)
        info = json.loads(
            subprocess.run(
                [sys.executable, "-m", "chainrule", "info", str(model), "--json"], capture_output=True, check=True
            ).stdout
        )
        print(f"vocabulary {info.get('vocab_size', info.get('vocabulary_size'))}, model {_size(model):,} bytes")
        if arguments.lmplz is not None:
            command = [
                str(arguments.lmplz),
                "-o",
                str(arguments.order),
                "-S",
                arguments.memory,
                "--discount_fallback",
                "-T",
                f"{scratch}/",
            ]
            measured = run([*command, "--text", str(arguments.text), "--arpa", "/dev/null"], scratch)
            report("lmplz", measured, words, words + lines)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
