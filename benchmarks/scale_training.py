"""Benchmark n-gram training on engines: CPU, wall time, memory, shuffled bytes and the balance of the tasks.

    python -m benchmarks.scale_training TEXT... [--workers 1,2] [--spark 'local[2]'] [--order 5] [--partition 64M] \
        [--json FILE]

Trains the same model in one process, with `--workers N` for each N, and, with `--spark MASTER`, on Spark; prints
CPU seconds of all processes (the JVM and its Python workers included), wall time, peak memory of the largest
process and the SHA-256 of `model.ngram`, which must be the same. Then runs the stages in this process, one task
after another, and prints the CPU seconds, the bytes and the balance of the tasks of each stage, and the CPU
seconds of the driver between the stages. With --spark, the bytes that Spark shuffled and the durations of its
tasks are those of its event log.

It needs chainrule and a text; with --spark, also pyspark and Java 17.
"""

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from chainrule import api, system
from chainrule.distributed import ngram_training
from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Function, Records, StageRecords, task_file, write_records
from chainrule.distributed.work_folder import open_work_folder
from chainrule.ngram.config import Config
from chainrule.text.corpus import Corpus

POLL_SECONDS: Final = 0.1


class ProcessTree:
    """CPU seconds and peak memory of a process and all its descendants, read from /proc."""

    def __init__(self, root: int) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._members = {root}
        self._seconds: dict[int, float] = {}
        self.peak_mib = 0

    def sample(self) -> None:
        """Read the processes that are alive; those that ended keep their last values."""
        status: dict[int, tuple[int, float, int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / self._ticks
                status[int(path.parent.name)] = int(fields[1]), seconds, int(fields[21])
        while new := {p for p, (parent, *_) in status.items() if parent in self._members} - self._members:
            self._members |= new
        for process in self._members & status.keys():
            _, seconds, pages = status[process]
            self._seconds[process] = seconds
            self.peak_mib = max(self.peak_mib, pages * resource.getpagesize() >> 20)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes."""
        return sum(self._seconds.values())


def run(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a command; return CPU seconds of it and all its descendants, wall time and peak memory."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(command, env=environment, stderr=messages)
        tree = ProcessTree(process.pid)
        while process.poll() is None:
            tree.sample()
            time.sleep(POLL_SECONDS)
        wall = time.perf_counter() - start
        if process.returncode:
            messages.seek(0)
            sys.exit(messages.read())
    return {"cpu_s": round(tree.cpu_seconds(), 2), "wall_s": round(wall, 2), "peak_mib": tree.peak_mib}


def train(
    options: argparse.Namespace, engine: list[str], environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Train with the command line; return the measurements and the digest of the model."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "model")
        settings = ["--order", str(options.order), "--out", str(out)]
        if engine and options.partition:
            settings += ["--partition", options.partition]
        command = [sys.executable, "-m", "chainrule", "train", "ngram", *options.text, *settings, *engine]
        result = run(command, {**os.environ, **(environment or {})})
        with (out / "model.ngram").open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        metrics = json.loads((out / "metrics.json").read_bytes())
    return {**result, "tokens": metrics["train_tokens"], "sha256": digest[:12]}


def train_on_spark(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train on Spark; return the measurements, and shuffled bytes and task seconds by stage from the event log."""
    with tempfile.TemporaryDirectory() as folder:
        log = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.dir=file:{folder}"
        log += " --conf spark.eventLog.compress=false --conf spark.eventLog.rolling.enabled=false"
        environment = {"PYSPARK_SUBMIT_ARGS": f"{log} pyspark-shell"}
        result = train(options, ["--on", "spark", "--master", options.spark], environment)
        events = (json.loads(line) for path in Path(folder).iterdir() for line in path.open())
        return result, read_events(events)


def read_events(events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Return bytes written to the shuffle and seconds of the tasks by stage of the training."""
    names: dict[int, str] = {}
    shuffled: dict[str, int] = defaultdict(int)
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for event in events:
        if event["Event"] == "SparkListenerJobStart":
            name = str(event["Properties"].get("spark.job.description", "")).removeprefix("chainrule: ")
            names.update(dict.fromkeys(event["Stage IDs"], name))
        if event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
            name, metrics = names.get(event["Stage ID"], ""), event["Task Metrics"]
            shuffled[name] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            seconds[name, event["Stage ID"]].append(metrics["Executor Run Time"] / 1000)
    longest = {name: max((tasks for (n, _), tasks in seconds.items() if n == name), key=sum) for name, _ in seconds}
    return {name: {"shuffled_bytes": shuffled[name], "task_s": longest[name]} for name in longest if name}


class MeasuringEngine(Engine):
    """Engine that runs its tasks one after another in this process and measures them."""

    parallelism = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stages: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        """Do nothing."""

    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        seconds: list[float] = []
        largest_key = None if partitions is None else partitions - 1
        for task in range(len(source)):
            start = time.process_time()
            write_records(folder / task_file(task), function(task, iter(source[task])), largest_key)
            seconds.append(time.process_time() - start)
        size = sum(path.stat().st_size for path in folder.iterdir())
        self.stages[name] = {"task_s": seconds, "bytes": size}
        return StageRecords(folder, len(source), partitions)


def measure_stages(options: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], float, int, int]:
    """Return the stages, the CPU seconds of the driver, the tokens, and the n-grams of order 2 and higher."""
    corpus = Corpus.of(options.text)
    config = Config(order=options.order)
    tokenizer = api.resolve_tokenizer("word", {})
    job = ngram_training.NgramJob(corpus=corpus, tokenizer=tokenizer, config=config, context="line")
    engine_options = EngineOptions(workers=max(options.workers), partition=options.partition)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_work_folder(engine_options, corpus, {}, max(options.workers)) as work,
    ):
        engine = MeasuringEngine(engine_options, work)
        start = time.process_time()
        trained = ngram_training.train_ngram(engine, job, Path(folder, "model.ngram"))
        total = time.process_time() - start
        sizes = system.load_extension().NgramModel.open(str(trained.path)).sizes
    tasks = sum(sum(stage["task_s"]) for stage in engine.stages.values())
    return engine.stages, total - tasks, trained.tokens, sum(sizes[1:])


def describe_tasks(seconds: list[float]) -> str:
    """Return the largest task as a multiple of the median; the task of the figures is not counted."""
    tasks = sorted(seconds)[1:] if len(seconds) > 2 else seconds
    return f"{max(tasks):.2f} s, {max(tasks) / max(median(tasks), 1e-9):.2f} x median" if tasks else "-"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("text", nargs="+")
    parser.add_argument("--workers", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--spark", metavar="MASTER")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--partition")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {system.thread_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    runs = {"one process": train(options, [])}
    for workers in options.workers:
        runs[f"--workers {workers}"] = train(options, ["--workers", str(workers)])
    events: dict[str, Any] = {}
    if options.spark:
        runs[f"--on spark {options.spark}"], events = train_on_spark(options)
    first = next(iter(runs.values()))
    print(f"{first['tokens']:,} tokens, order {options.order}\n")
    print(f"{'run':24} {'CPU s':>8} {'x':>5} {'wall s':>8} {'peak MiB':>9}  SHA-256")
    for name, row in runs.items():
        ratio = row["cpu_s"] / first["cpu_s"]
        print(
            f"{name:24} {row['cpu_s']:8.1f} {ratio:5.2f} {row['wall_s']:8.1f} {row['peak_mib']:9}  {row['sha256']}"
        )
    stages, driver, tokens, rows = measure_stages(options)
    print(f"\n{'stage':14} {'CPU s':>8} {'tasks':>6} {'bytes':>14}  largest task")
    for name, stage in stages.items():
        figures = f"{sum(stage['task_s']):8.2f} {len(stage['task_s']):6} {stage['bytes']:14,}"
        print(f"{name:14} {figures}  {describe_tasks(stage['task_s'])}")
    print(f"{'driver':14} {driver:8.2f}")
    per_token, per_row = stages["windows"]["bytes"] / tokens, stages["estimates"]["bytes"] / rows
    print(f"\nwindows {per_token:.2f} B/token, estimates {per_row:.2f} B/row, not compressed")
    for name, event in events.items():
        print(f"Spark {name:12} shuffled {event['shuffled_bytes']:14,} bytes; {describe_tasks(event['task_s'])}")
    if events:
        windows, estimates = (events[name]["shuffled_bytes"] for name in ("windows", "estimates"))
        print(f"Spark shuffled: windows {windows / tokens:.2f} B/token, estimates {estimates / rows:.2f} B/row")
    if options.json:
        options.json.write_text(
            json.dumps({"runs": runs, "stages": stages, "driver_s": driver, "spark": events}, indent=1)
        )


if __name__ == "__main__":
    main()
