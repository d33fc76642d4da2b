"""The Spark engine: the tasks of a stage run as tasks of a Spark job (pyspark 4.1 or later).

Spark schedules and retries the tasks and moves the shuffled records, as few large rows (key, payload). Tasks read
their input from the work folder and write their output to it themselves, so that a stage is stored once and in the
same files as by processes. A record file is moved into place when it is complete: failed, repeated and speculative
tasks write the same records.
"""

import json
import os
import pickle
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainrule import __version__
from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import (
    LARGEST_PAYLOAD,
    Function,
    Record,
    Records,
    StageRecords,
    task_file,
    write_records,
)
from chainrule.distributed.work_folder import WorkFolder
from chainrule.errors import ChainruleError, ChainruleWarning, MissingExtra
from chainrule.progress import Progress, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_VERSION: Final = 17
"""Oldest version of Java that Spark 4 runs on."""
INSTALL_JAVA: Final = "install it, e.g. apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the JVM of a local session: it moves few large records; optimizing its code costs more than it saves."""
CONNECT_SECONDS: Final = 5.0
BATCH_BYTES: Final = 16 << 20
"""Bytes of payloads in a batch between Spark and its Python workers; a larger payload is a batch of its own."""
ROWS_PER_BATCH: Final = 64
POLL_SECONDS: Final = 0.2
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",  # keeps the number of tasks
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}
"""Settings of the session while a stage runs."""


class SparkEngine(Engine):
    """Engine on a Spark session."""

    def __init__(
        self, session: "SparkSession", options: EngineOptions, work: WorkFolder, progress: Progress = silent
    ) -> None:
        super().__init__(options, work, progress)
        self._session = session
        self._is_checked = False

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at the same time."""
        return int(self._session.sparkContext.defaultParallelism)

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""

    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        if not self._is_checked:
            _check_workers(self._session, self.parallelism, self.work.path)
            self._is_checked = True
        total = len(source)
        if not total:
            return StageRecords(folder, 0, partitions)
        reports = folder / "reports"
        reports.mkdir()
        with _session_settings(self._session, _SETTINGS):
            tasks = self._describe_tasks(source)
            if partitions is None:
                written = tasks.mapInArrow(_StoreTask(function, folder, reports), "task int")
            else:
                records = tasks.mapInArrow(_EmitTask(function, reports, partitions), "key int, payload binary")
                shuffled = records.repartitionById(partitions, "key")
                written = shuffled.mapInArrow(_StorePartition(folder), "task int")
            expected = total if partitions is None else partitions
            numbers = self._run_job(name, written, reports)
        _raise_reported(reports)
        _warn(reports)
        missing = sorted(set(range(expected)) - numbers)
        if missing or not all((folder / task_file(task)).exists() for task in range(expected)):
            raise ChainruleError(
                f"stage {name}: the workers wrote no files to {folder} that this machine can read; choose a folder "
                "that all machines share with --work"
            )
        shutil.rmtree(reports)
        for partial in folder.glob("*.partial"):  # of failed attempts
            with suppress(OSError):
                partial.unlink()
        return StageRecords(folder, expected)

    def _describe_tasks(self, source: Records) -> "DataFrame":
        """Return a DataFrame with one row and one partition for each task: its number and its pickled input."""
        rows = [(task, bytearray(pickle.dumps(source[task]))) for task in range(len(source))]
        return self._session.createDataFrame(rows, "task int, input binary").repartitionById(len(rows), "task")

    def _run_job(self, name: str, frame: "DataFrame", reports: Path) -> set[int]:
        """Run a job in a thread, report its progress, and return the numbers of the tasks that were stored."""
        context = self._session.sparkContext
        group = f"chainrule-{secrets.token_hex(4)}"
        job = _Job(frame, group, f"chainrule: {name}")
        job.start()
        try:
            while job.is_alive():
                job.join(POLL_SECONDS)
                self._show_progress(name, group)
        except BaseException:
            context.cancelJobGroup(group)
            raise
        if job.error is not None:
            _raise_error(name, job.error, reports)
        return job.numbers

    def _show_progress(self, name: str, group: str) -> None:
        tracker = self._session.sparkContext.statusTracker()
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                if (status := tracker.getStageInfo(stage)) is not None:
                    done, total = done + status.numCompletedTasks, total + status.numTasks
        if total:
            self.progress(name, done, total)


class _Job(threading.Thread):
    """Runs a Spark job in a thread, so that the main thread reports progress and receives signals."""

    def __init__(self, frame: "DataFrame", group: str, description: str) -> None:
        super().__init__(daemon=True)
        self._frame, self._group, self._description = frame, group, description
        self.numbers: set[int] = set()
        self.error: Exception | None = None

    def run(self) -> None:
        """Run the job."""
        try:
            self._frame.sparkSession.sparkContext.setJobGroup(self._group, self._description)
            self.numbers = {row[0] for row in self._frame.collect()}
        except Exception as error:
            self.error = error


@dataclass(frozen=True)
class _StoreTask:
    """Run tasks and store the records of each in a file."""

    function: Function
    folder: Path
    reports: Path

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for task, inputs in _read_tasks(batches, self.reports):
            with _report(self.reports, task):
                write_records(self.folder / task_file(task), self.function(task, iter(inputs)))
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array([task], pyarrow.int32())], ["task"])


@dataclass(frozen=True)
class _EmitTask:
    """Run tasks and emit their records for the shuffle."""

    function: Function
    reports: Path
    partitions: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for task, inputs in _read_tasks(batches, self.reports):
            with _report(self.reports, task):
                yield from _to_batches(self.function(task, iter(inputs)), self.partitions)


@dataclass(frozen=True)
class _StorePartition:
    """Store the records of one partition of a shuffle in a file."""

    folder: Path

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "not in a Spark task"
        partition = context.partitionId()
        write_records(self.folder / task_file(partition), _from_batches(batches, partition))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([partition], pyarrow.int32())], ["task"])


def _read_tasks(batches: Iterable[Any], reports: Path) -> Iterator[tuple[int, Iterable[Record]]]:
    """Yield the number and the input of each task; none after a task reported an error."""
    for batch in batches:
        if any(reports.glob("*.error")):
            return
        for task, inputs in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            yield task, pickle.loads(inputs)


def _to_batches(records: Iterable[Record], partitions: int) -> Iterator[Any]:
    """Convert records to Arrow batches of bounded size."""
    keys: list[int] = []
    payloads: list[bytes] = []
    size = 0
    for key, payload in records:
        if not 0 <= key < partitions:
            raise ValueError(f"a record has the key {key}; this shuffle has keys from 0 to {partitions - 1}")
        if len(payload) > LARGEST_PAYLOAD:
            raise ValueError(f"a record has {len(payload)} bytes; the limit is {LARGEST_PAYLOAD}")
        if keys and (size + len(payload) > BATCH_BYTES or len(keys) == ROWS_PER_BATCH):
            yield _batch(keys, payloads)
            keys, payloads, size = [], [], 0
        keys.append(key)
        payloads.append(payload)
        size += len(payload)
    if keys:
        yield _batch(keys, payloads)


def _batch(keys: list[int], payloads: list[bytes]) -> Any:
    import pyarrow

    arrays = [pyarrow.array(keys, pyarrow.int32()), pyarrow.array(payloads, pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(arrays, ["key", "payload"])


def _from_batches(batches: Iterable[Any], partition: int) -> Iterator[Record]:
    for batch in batches:
        for key, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            if key != partition:
                raise ValueError(f"partition {partition} received a record with the key {key}")
            yield key, payload.as_buffer()


@contextmanager
def _report(reports: Path, task: int) -> Iterator[None]:
    """Store the warnings of a task for the driver, and its ChainruleError, which another attempt would repeat."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChainruleWarning)
        try:
            yield
        except ChainruleError as error:
            _write_report(reports / f"{task}.error", pickle.dumps(error))
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, ChainruleWarning)]
    if messages:
        _write_report(reports / f"{task}.warnings", json.dumps(messages).encode())


def _write_report(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(f".{secrets.token_hex(4)}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _warn(reports: Path) -> None:
    """Issue each warning of the tasks once."""
    messages = (message for path in sorted(reports.glob("*.warnings")) for message in json.loads(path.read_bytes()))
    for message in dict.fromkeys(messages):
        warnings.warn(message, ChainruleWarning, stacklevel=3)


def _raise_error(name: str, error: Exception, reports: Path) -> None:
    """Raise the error that a task reported, or one for the failed job."""
    _raise_reported(reports)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    reason = (causes[-1] if causes else lines[0] if lines else type(error).__name__)[:300]
    advice = "see the log of the task in Spark's web page"
    if "No space left on device" in str(error):
        advice = "make room in spark.local.dir and --work, or choose other disks"
    raise ChainruleError(f"stage {name} failed on Spark: {reason}; {advice}") from error


def _raise_reported(reports: Path) -> None:
    """Raise the error of the first task that reported one."""
    for path in sorted(reports.glob("*.error"), key=lambda path: int(path.stem)):
        raise pickle.loads(path.read_bytes())


@contextmanager
def _session_settings(session: "SparkSession", settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session for a block."""
    previous = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in previous.items():
            with suppress(Exception):  # the session may have been stopped
                session.conf.unset(name) if old is None else session.conf.set(name, old)


def _check_workers(session: "SparkSession", tasks: int, work: Path) -> None:
    """Raise unless the workers can import this version of chainrule and read the work folder."""
    token = work / f"driver-{secrets.token_hex(4)}"
    token.touch()
    try:
        frame = session.range(0, tasks, 1, numPartitions=tasks)
        rows = frame.mapInArrow(
            _worker_probe(str(token)), "host string, version string, reads_work boolean"
        ).collect()
    except Exception as error:
        _raise_error("check of the workers", error, work)
    finally:
        token.unlink(missing_ok=True)
    for host, version, reads_work in rows:
        if version != __version__:
            problem = f"chainrule {version} is" if version else "chainrule is not"
            raise ChainruleError(
                f"{problem} installed for the Python of the Spark worker on {host}; install chainrule "
                f"{__version__} there, or send an environment with --archives (docs/spark.md)"
            )
        if not reads_work:
            raise ChainruleError(
                f"the Spark worker on {host} does not see {work}; "
                "choose a folder that all machines share with --work"
            )


def _worker_probe(token: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function that runs on workers without chainrule: a nested function is pickled by value."""

    def probe(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import socket

        import pyarrow

        for _ in batches:
            pass
        try:
            import chainrule

            version = chainrule.__version__
        except ImportError:
            version = ""
        columns = [[socket.gethostname()], [version], [os.path.exists(token)]]
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(c) for c in columns], ["host", "version", "reads_work"]
        )

    return probe


@contextmanager
def spark_session(master: str | None) -> Iterator["SparkSession"]:
    """Yield the active Spark session, or start one and stop it afterwards."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("Spark needs pyspark: pip install 'chainrule[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    check_java()
    if master is not None:
        _check_master(master)
    is_local = master is None or master.startswith("local")
    if is_local:  # otherwise Spark starts the first python3 on the PATH
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("chainrule").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.io.compression.codec", "zstd")
    if master is not None:
        builder = builder.master(master)
    if is_local:
        builder = builder.config("spark.ui.enabled", "false").config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ChainruleError(
            f"Spark cannot be started with the master {master or 'of its configuration'}: {reason}; "
            "check --master and the messages of Spark above"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def check_java() -> str:
    """Return the version of Java; raise if there is none or if it is too old for Spark."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f" in JAVA_HOME ({home})" if home else ""
        raise ChainruleError(f"Spark needs Java {JAVA_VERSION} and there is none{where}; {INSTALL_JAVA}")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "((\d+)[^"]*)"', output)
    if match is None or int(match[2]) < JAVA_VERSION:
        version = match[1] if match else "of an unknown version"
        raise ChainruleError(f"Spark needs Java {JAVA_VERSION} or later, and {java} is {version}; {INSTALL_JAVA}")
    return match[1]


def _check_master(master: str) -> None:
    """Raise if no stand-alone master answers at spark://HOST:PORT,…; Spark would wait for a minute."""
    if not master.startswith("spark://"):
        return
    reason = "no address is given"
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            return
        except ValueError:
            reason = f"{address} is not HOST:PORT"
        except OSError as error:
            reason = error.strerror or str(error)
    raise ChainruleError(f"no Spark master answers at {master}: {reason}; start it, or check --master")
