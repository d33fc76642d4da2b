"""The work folder: intermediate results of a job, kept for `--resume`.

`job.json` identifies the text and the settings; each stage is a folder of record files, complete when it contains
`_SUCCESS`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import StageRecords
from chainrule.errors import ChainruleError, InputError, UsageError
from chainrule.storage import strict_json
from chainrule.storage.temp_dir import scratch_folder
from chainrule.text.corpus import Corpus

SUCCESS: Final = "_SUCCESS"
JOB: Final = "job.json"
_LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Folder of the intermediate results of one job."""

    path: Path
    partition_bytes: int  # size of the text partitions of this job


def write_stage(folder: Path, result: StageRecords) -> None:
    """Mark a stage as complete and store its description."""
    temporary = folder / f"{SUCCESS}.{os.getpid()}.partial"
    temporary.write_bytes(strict_json.dump({"tasks": result.tasks, "partitions": result.partitions}))
    os.replace(temporary, folder / SUCCESS)


def read_stage(folder: Path) -> StageRecords | None:
    """Return the output of a complete stage, or None."""
    match _read_json(folder / SUCCESS):
        case None:
            return None
        case {"tasks": int(tasks), "partitions": int() | None as partitions}:
            return StageRecords(folder, tasks, partitions)
    raise ChainruleError(f"{folder / SUCCESS} does not describe a stage; run again with another --work folder")


@contextmanager
def open_work_folder(
    options: EngineOptions, corpus: Corpus, settings: dict[str, Any], parallelism: int
) -> Iterator[WorkFolder]:
    """Open and lock the folder of the intermediate results; a temporary one is removed afterwards.

    `settings` are those that the result depends on. With `resume`, the text and the settings must be those with
    which the folder was created.
    """
    partition_bytes = options.partition_bytes(corpus.size_hint() or sum(map(len, corpus.texts)), parallelism)
    with ExitStack() as stack:
        if options.work is None:
            yield WorkFolder(stack.enter_context(scratch_folder()), partition_bytes)
            return
        folder = options.work
        job = {"text": _identify_text(corpus), "settings": settings, "partition_bytes": partition_bytes}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_lock(folder))
            partition_bytes = _check_job(folder, job, options)
        except OSError as error:
            raise ChainruleError(
                f"--work {folder} cannot be used: {error.strerror}; check its permissions, or choose another folder"
            ) from error
        yield WorkFolder(folder, partition_bytes)


def _check_job(folder: Path, job: dict[str, Any], options: EngineOptions) -> int:
    """Record the job in a new work folder, or compare it with the recorded one; return its partition size."""
    path = folder / JOB
    recorded = _read_json(path)
    if recorded is None:
        if any(entry.name != _LOCK for entry in folder.iterdir()):
            raise UsageError(f"--work {folder} contains other files; choose a new or empty folder")
        temporary = folder / f"{JOB}.partial"
        temporary.write_bytes(strict_json.dump(job))
        os.replace(temporary, path)
        return int(job["partition_bytes"])
    if not options.resume:
        raise UsageError(
            f"--work {folder} contains the results of an earlier run; continue it with --resume, "
            "or choose another folder"
        )
    if options.partition is None:
        job["partition_bytes"] = recorded.get("partition_bytes")
    for key, what in (
        ("text", "another text"),
        ("settings", "other settings"),
        ("partition_bytes", "another --partition"),
    ):
        if recorded.get(key) != strict_json.parse(strict_json.dump(job))[key]:
            raise UsageError(
                f"--work {folder} was created with {what}; choose another folder, or leave out --resume"
            )
    return int(job["partition_bytes"])


def _identify_text(corpus: Corpus) -> dict[str, Any]:
    """Identify a text without reading it: names, sizes and modification times of the files."""
    if corpus.texts:
        raise UsageError("--work needs a text in files; write the lines to a file")
    files = []
    for file in corpus.files:
        if file.stream is not None or file.name == "standard input":
            raise UsageError("--work needs a text that can be read again; write standard input to a file")
        try:
            files.append([os.path.abspath(file.path), file.size, file.path.stat().st_mtime_ns])
        except OSError as error:
            raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error
    return {
        "files": files,
        "column": corpus.column,
        "errors": corpus.errors,
        "drop_blank_lines": corpus.drop_blank_lines,
    }


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock a work folder; the operating system releases the lock when the process ends."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"--work {folder} is in use by another process; wait for it or choose another"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _read_json(path: Path) -> Any:
    """Read a JSON file of the work folder; None if there is none."""
    try:
        return strict_json.parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ChainruleError(f"{path} is damaged ({error}); run again with another --work folder") from error
