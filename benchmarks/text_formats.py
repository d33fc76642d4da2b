"""Words per second of counting and encoding a text stored in each file format, with the fingerprint.

    python benchmarks/text_formats.py TEXT [--copies N] [--formats NAME …] [--lowercase] [--memory] [--runs N]

The text, a file of UTF-8, is stored N times in every format in a temporary folder (`TMPDIR`). A document of JSON
Lines and Parquet has about 4,000 characters. Every format is read in a process of its own: the words are counted, a
vocabulary is chosen and the text is encoded, in memory (one reading) or with `--memory` into a file of ids (two
readings). The table shows the median of the runs.
"""

import argparse
import bz2
import gzip
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FORMATS = (
    "txt",
    "txt.gz",
    "txt.zst",
    "txt.xz",
    "txt.bz2",
    "jsonl",
    "jsonl.gz",
    "jsonl.zst",
    "parquet",
    "csv",
)
DOCUMENT = 4000


def documents(text: str) -> Iterator[str]:
    """Divide a text into documents of whole lines."""
    lines: list[str] = []
    size = 0
    for line in text.splitlines():
        lines.append(line)
        size += len(line) + 1
        if size >= DOCUMENT:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


def store(text: str, copies: int, folder: Path, name: str) -> Path:
    """Store the text in the format of the suffix."""
    path = folder / f"text.{name}"
    kind, _, packing = name.partition(".")
    if kind == "parquet":
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"text": list(documents(text)) * copies})
        parquet.write_table(table, path, compression="zstd", row_group_size=16384)
        return path
    if kind == "txt":
        data = text.encode() if text.endswith("\n") else f"{text}\n".encode()
    elif kind == "jsonl":
        records = (json.dumps({"id": i, "text": part}) for i, part in enumerate(documents(text)))
        data = "".join(f"{record}\n" for record in records).encode()
    else:
        rows = ('{},"{}"\n'.format(i, part.replace('"', '""')) for i, part in enumerate(documents(text)))
        data = "".join(rows).encode()
    header = b"id,text\n" if kind == "csv" else b""
    with path.open("wb") as file:
        file.write(pack(header, packing) if header else b"")
        packed = pack(data, packing)
        for _ in range(copies):
            file.write(packed)
    return path


def pack(data: bytes, packing: str) -> bytes:
    """Compress with the usual settings of the format."""
    if packing == "zst":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(data)
    packers: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        "gz": lambda data: gzip.compress(data, 6),
        "bz2": bz2.compress,
        "xz": lambda data: lzma.compress(data, preset=3),
    }
    return packers[packing](data)


def measure(path: Path, is_lowercase: bool, has_memory_limit: bool) -> dict[str, float]:
    """Count and encode one file in this process."""
    from chainrule.text.corpus import Corpus
    from chainrule.tokenizers.config import TokenizerConfig
    from chainrule.tokenizers.encode import encode_with_fingerprint
    from chainrule.tokenizers.train import train, train_and_scan

    corpus = Corpus.of(path, column="text" if path.suffix == ".csv" else None)
    config = TokenizerConfig(kind="word", lowercase=is_lowercase)
    begin, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        if has_memory_limit:
            tokenizer = train(corpus, config)
            text, mark = encode_with_fingerprint(corpus, tokenizer, ids_file=Path(folder) / "ids")
        else:
            tokenizer, scan = train_and_scan(corpus, config)
            text, mark = encode_with_fingerprint(corpus, tokenizer, scan=scan)
        wall = time.perf_counter() - begin
        result = {
            "wall": wall,
            "cpu": time.process_time() - cpu,
            "words": text.words,
            "memory": peak_memory(),
            "sha256": int(mark.sha256[:12], 16),
        }
    return result


def peak_memory() -> float:
    """Return the peak resident memory of this process in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    """Print a table of all formats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), metavar="NAME")
    parser.add_argument("--lowercase", action="store_true", help="lower-case the text")
    parser.add_argument("--memory", action="store_true", help="write the ids to a file, as train --memory does")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.text, arguments.lowercase, arguments.memory)))
        return
    text = arguments.text.read_text(encoding="utf-8")
    print(f"{'format':10} {'MB':>7} {'M words/s':>10} {'wall s':>7} {'CPU s':>7} {'peak MiB':>9} {'to txt':>7}")
    plain = None
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.formats:
            path = store(text, arguments.copies, Path(folder), name)
            options = ["--lowercase"] * arguments.lowercase + ["--memory"] * arguments.memory
            command = [sys.executable, __file__, str(path), "--measure", *options]
            runs = [
                json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ).stdout)
                for _ in range(arguments.runs)
            ]
            run = sorted(runs, key=lambda run: run["wall"])[len(runs) // 2]
            speed = run["words"] / run["wall"] / 1e6
            plain = speed if plain is None else plain
            megabytes = path.stat().st_size / 1e6
            memory = statistics.median(run["memory"] for run in runs)
            print(
                f"{name:10} {megabytes:7.1f} {speed:10.2f} {run['wall']:7.2f} {run['cpu']:7.2f} {memory:9.0f} "
                f"{speed / plain:7.2f}",
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()
