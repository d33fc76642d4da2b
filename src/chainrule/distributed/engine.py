"""The engine interface: map a function over partitions, shuffle its output by key, collect small results.

A job is a sequence of named stages. The output of each stage is stored in the work folder, with `_SUCCESS` when it
is complete: a job whose driver was killed continues after its last complete stage.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import (
    Function,
    Record,
    Records,
    StageRecords,
    TextRecords,
    join_records,
)
from chainrule.distributed.work_folder import WorkFolder, read_stage, write_stage
from chainrule.errors import ChainruleError
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.partitions import partition_corpus

SHARED: Final = "shared"


class Engine(ABC):
    """Runs the stages of a job; subclasses run the tasks of one stage."""

    def __init__(self, options: EngineOptions, work: WorkFolder, progress: Progress = silent) -> None:
        self.options, self.work, self.progress = options, work, progress

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """Number of tasks that run at the same time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release the workers."""

    def start_workers(self, load: Callable[[], None]) -> None:  # noqa: B027 - not every engine can
        """Start the workers before the first stage, if the engine can; `load` imports what the tasks need."""

    def read_text(self, corpus: Corpus) -> Records:
        """Return the lines of a corpus in partitions; a record is a block of lines (see `TextRecords`)."""
        return TextRecords(tuple(partition_corpus(corpus, self.work.partition_bytes)))

    def run(
        self, name: str, inputs: Records | Sequence[Records], function: Function, *, partitions: int | None = None
    ) -> Records:
        """Map `function` over the partitions of the inputs and store its output as the stage `name`.

        Several inputs must have the same number of partitions and are joined partition by partition. With
        `partitions`, the output is shuffled: a record with key k belongs to partition k. Otherwise output partition
        p holds what the function returned for input partition p, in that order.
        """
        source = join_records(inputs) if isinstance(inputs, Sequence) else inputs
        folder = self.work.path / name
        if (stored := read_stage(folder)) is not None:
            self.progress(name, 1, 1)
            return stored
        if folder.exists():
            shutil.rmtree(folder)
        try:
            folder.mkdir(parents=True)
            result = self._run_tasks(name, source, function, partitions, folder)
            write_stage(folder, result)
        except OSError as error:
            raise ChainruleError(
                f"stage {name} cannot write to {folder}: {error.strerror or error}; "
                "make room, or choose another disk with --work"
            ) from error
        return result

    def collect(self, records: Records) -> list[Record]:
        """Return all records, partition by partition; for results that fit into memory."""
        return list(self.iterate(records))

    def iterate(self, records: Records) -> Iterator[Record]:
        """Yield all records, partition by partition."""
        for partition in range(len(records)):
            yield from records[partition]

    def share_file(self, name: str, content: bytes) -> Path:
        """Store a file that every task can read, such as a vocabulary, and return its path in the tasks."""
        folder = self.work.path / SHARED
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f"{name}.{os.getpid()}.partial"
            temporary.write_bytes(content)
            os.replace(temporary, folder / name)
        except OSError as error:
            raise ChainruleError(
                f"{folder / name} cannot be written: {error.strerror}; "
                "make room, or choose another disk with --work"
            ) from error
        return folder / name

    def read_shared(self, name: str) -> bytes | None:
        """Return the content of a shared file of an earlier run, or None."""
        path = self.work.path / SHARED / name
        return path.read_bytes() if path.exists() else None

    @abstractmethod
    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        """Run one task for each input partition and write their record files to `folder`."""
