"""Where a job runs: the options of the engines, shared by the command line and the Python functions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import UsageError
from chainrule.system import parse_size

EngineName = Literal["processes", "spark"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)
LARGEST_WORKERS: Final = 4096
DEFAULT_PARTITION: Final = 64 << 20
"""Bytes of text for each task, for a text that gives every worker several tasks."""
TASKS_PER_WORKER: Final = 4
SMALLEST_PARTITION: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of an engine; they determine where a job runs, never its result."""

    on: EngineName | None = setting(
        None, "Engine: processes (of this machine) or spark.  [default: processes if --workers is given]"
    )
    workers: int | None = setting(
        None,
        "Number of worker processes.  [default: number of CPUs]",
        min=1,
        max=LARGEST_WORKERS,
    )
    master: str | None = setting(
        None, "Master of Spark, e.g. local[4] or spark://HOST:7077.  [default: that of Spark's configuration]"
    )
    work: Path | None = setting(
        None, "Folder for intermediate results, which --resume continues from.  [default: a temporary folder]"
    )
    resume: bool = setting(False, "Continue after the last complete stage in --work.", option="--resume")
    partition: str | None = setting(
        None, "Amount of text that one task reads, e.g. 64M.  [default: 64M, less for a small text]"
    )

    def __post_init__(self) -> None:
        if self.on is not None and self.on not in ENGINES:
            raise UsageError(f"on is '{self.on}'; choose one of {', '.join(ENGINES)}")
        if self.workers is not None and not 1 <= self.workers <= LARGEST_WORKERS:
            raise UsageError(f"workers is {self.workers}; choose 1 to {LARGEST_WORKERS}")
        if self.partition is not None:
            parse_size(self.partition, "partition")
        if self.workers is not None and self.on == "spark":
            raise UsageError("--workers is the number of processes; Spark's is part of --master, e.g. local[4]")
        if self.master is not None and self.on != "spark":
            raise UsageError("--master is that of Spark; add --on spark")
        if self.on == "spark" and self.work is None and not self.is_local:
            raise UsageError("a cluster needs a folder that all of its machines share; add --work DIR")
        if self.resume and self.work is None:
            raise UsageError("--resume continues from the folder of the intermediate results; add --work DIR")
        for name in ("work", "partition"):
            if getattr(self, name) is not None and not self.uses_engine:
                raise UsageError(f"--{name} is for a job on an engine; add --workers N or --on spark")

    @property
    def uses_engine(self) -> bool:
        """Whether the job runs on an engine rather than in this process."""
        return self.on is not None or self.workers is not None

    @property
    def is_local(self) -> bool:
        """Whether all tasks run on this machine."""
        return self.on != "spark" or self.master is None or self.master.startswith("local")

    def partition_bytes(self, text_bytes: int, parallelism: int) -> int:
        """Bytes of text that one task reads if `parallelism` tasks run at the same time."""
        if self.partition is not None:
            return parse_size(self.partition, "partition")
        fair = -(-text_bytes // (TASKS_PER_WORKER * parallelism))
        return min(DEFAULT_PARTITION, max(SMALLEST_PARTITION, fair))


def take_engine_options(arguments: dict[str, Any]) -> tuple[EngineOptions | None, Any]:
    """Take the options of an engine out of keyword arguments; return them and the Spark session that `on` may be.

    The options are None if no engine is named.

    >>> take_engine_options({"workers": 2, "epochs": 5})[0].workers
    2
    """
    names = ("on", "workers", "master", "work", "partition")
    fields = {name: value for name in names if (value := arguments.pop(name, None)) is not None}
    if not fields:
        return None, None
    session = None
    if not isinstance(fields.get("on", ""), str):
        session, fields["on"] = fields["on"], "spark"
    if "work" in fields:
        fields["work"] = Path(fields["work"])
    return EngineOptions(**fields, resume=bool(arguments.pop("resume", False))), session
