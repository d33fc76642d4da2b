"""Texts and comparisons for the tests of n-gram training on engines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Function, Records, StageRecords, task_file, write_records
from chainrule.distributed.work_folder import open_work_folder
from chainrule.text.corpus import Corpus

FILES = ("model.ngram", "tokenizer.json", "speller.safetensors", "training_lines.sketch")


class SerialEngine(Engine):
    """Engine that runs its tasks one after another in this process, the last task first."""

    parallelism = 1

    def close(self) -> None:
        """Do nothing."""

    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        largest_key = None if partitions is None else partitions - 1
        for task in reversed(range(len(source))):
            write_records(folder / task_file(task), function(task, iter(source[task])), largest_key)
        return StageRecords(folder, len(source), partitions)


@contextmanager
def start_serial_engine(
    options: EngineOptions, corpus: Corpus, settings: dict[str, Any], progress: Any, *, session: Any
) -> Iterator[Engine]:
    """Take the place of `start_engine`."""
    with open_work_folder(options, corpus, settings, 1) as work:
        yield SerialEngine(options, work)


def write_zipf_text(path: Path, lines: int, seed: int = 1) -> Path:
    """Write lines of words with Zipf's distribution and some punctuation."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 12, lines)
    words = np.minimum(rng.zipf(1.3, lengths.sum()), 3000)
    ends = np.split(words, np.cumsum(lengths)[:-1])
    path.write_text("".join(" ".join(f"w{word}" for word in line.tolist()) + ".\n" for line in ends))
    return path


def describe_model(folder: Path) -> dict[str, Any]:
    """Return what two trainings of the same model must agree on: the files, the figures, and the text."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    metrics = json.loads((folder / "metrics.json").read_bytes())
    files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}
    shards = {path.name: path.read_bytes() for path in sorted(folder.glob("shards/*"))}
    return {
        **files,
        **shards,
        "config": json.loads((folder / "config.json").read_bytes()),
        "metrics": {name: value for name, value in metrics.items() if "seconds" not in name},
        "text": manifest["training_text"],
        "files": sorted(manifest["files"]),
    }
