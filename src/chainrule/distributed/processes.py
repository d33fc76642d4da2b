"""Engines of this machine: the tasks of a stage run in worker processes, or one by one in this process."""

import multiprocessing
import os
import signal
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Function, Record, Records, StageRecords, task_file, write_records
from chainrule.distributed.work_folder import WorkFolder
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.progress import Progress, silent
from chainrule.system import thread_count

ATTEMPTS: Final = 3
"""Number of times a task is started before the stage fails because its worker process dies."""


class SerialEngine(Engine):
    """Engine that runs the tasks one after another in this process."""

    @property
    def parallelism(self) -> int:
        """One task at a time."""
        return 1

    def close(self) -> None:
        """Do nothing: there are no workers."""

    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        total = len(source)
        for task in range(total):
            self.progress(name, task, total)
            largest_key = None if partitions is None else partitions - 1
            write_records(folder / task_file(task), function(task, iter(source[task])), largest_key)
        return StageRecords(folder, total, partitions)


class ProcessEngine(Engine):
    """Engine of `workers` processes; each runs one task at a time, on one thread."""

    def __init__(self, options: EngineOptions, work: WorkFolder, progress: Progress = silent) -> None:
        super().__init__(options, work, progress)
        self._pool: ProcessPoolExecutor | None = None

    @property
    def parallelism(self) -> int:
        """Number of worker processes."""
        return worker_count(self.options)

    def close(self) -> None:
        """Stop the worker processes; running tasks are killed."""
        if self._pool is None:
            return
        workers = list(self._pool._processes.values()) if self._pool._processes else []
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
        self._pool = None

    def _run_tasks(
        self, name: str, source: Records, function: Function, partitions: int | None, folder: Path
    ) -> StageRecords:
        total = len(source)
        largest_key = None if partitions is None else partitions - 1
        queue = deque(range(total))
        running: dict[Future[list[str]], int] = {}
        deaths: Counter[int] = Counter()
        messages: set[str] = set()
        self.progress(name, 0, total)
        try:
            while queue or running:
                try:
                    while queue and len(running) < self._slots(queue[0], running.values(), deaths):
                        arguments = function, source[queue[0]], queue[0], folder / task_file(queue[0]), largest_key
                        running[self._start().submit(_run_task, *arguments)] = queue[0]
                        queue.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        _warn_once(future.result(), messages)
                        del running[future]
                    self.progress(name, total - len(queue) - len(running), total)
                except BrokenProcessPool:
                    self.close()
                    deaths.update(running.values() or [queue[0]])  # without running tasks, an idle worker died
                    queue.extendleft(sorted(running.values(), reverse=True))
                    running.clear()
                    _check_deaths(name, deaths)
        except BaseException:
            self.close()
            raise
        return StageRecords(folder, total, partitions)

    def _slots(self, task: int, running: Iterable[int], deaths: Counter[int]) -> int:
        """Return the number of tasks that may run with `task`: one alone if its worker or a running one's died."""
        return 1 if any(deaths[other] for other in (task, *running)) else self.parallelism

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.parallelism, mp_context=multiprocessing.get_context("spawn"), initializer=_initialize_worker
            )
        return self._pool

    def start_workers(self, load: Callable[[], None]) -> None:
        """Start the worker processes and call `load` in them while the driver prepares the job."""
        for _ in range(self.parallelism):
            self._start().submit(load)


def worker_count(options: EngineOptions) -> int:
    """Return the number of worker processes: one for each CPU by default."""
    return options.workers or thread_count()


def _warn_once(new: list[str], messages: set[str]) -> None:
    """Issue the warnings of a task that no earlier task issued."""
    for message in new:
        if message not in messages:
            messages.add(message)
            warnings.warn(message, ChainruleWarning, stacklevel=3)


def _check_deaths(name: str, deaths: Counter[int]) -> None:
    task, count = deaths.most_common(1)[0]
    if count >= ATTEMPTS:
        raise ChainruleError(
            f"stage {name}: the worker process of task {task} died {count} times, perhaps for lack of memory; "
            "use fewer --workers or a smaller --partition"
        )


def _initialize_worker() -> None:
    """Prepare a worker process: one thread, signals left to the parent, end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = "1"
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_task(
    function: Function, inputs: Iterable[Record], task: int, target: Path, largest_key: int | None
) -> list[str]:
    """Run one task in a worker process; return the messages of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChainruleWarning)
        write_records(target, function(task, iter(inputs)), largest_key)
    return [str(warning.message) for warning in caught if issubclass(warning.category, ChainruleWarning)]
