"""Start the engine that the options name."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.processes import ProcessEngine, SerialEngine, worker_count
from chainrule.distributed.work_folder import open_work_folder
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def start_engine(
    options: EngineOptions,
    corpus: Corpus,
    settings: dict[str, Any],
    progress: Progress | bool = silent,
    *,
    session: "SparkSession | None" = None,
) -> Iterator[Engine]:
    """Yield an engine for one job and stop it afterwards.

    Args:
        options: Options of the engine; those that name none run the job in this process.
        corpus: The text that the job reads.
        settings: JSON values that the result depends on besides the text; `--resume` compares them.
        progress: Receives the name of the stage, the tasks that are done, and the tasks in all.
        session: A running Spark session; without it, `on="spark"` uses the active session or starts one.

    """
    report = as_progress(progress)
    with ExitStack() as stack:
        if not options.uses_engine:
            work = stack.enter_context(open_work_folder(options, corpus, settings, 1))
            yield stack.enter_context(SerialEngine(options, work, report))
            return
        if options.on != "spark":
            work = stack.enter_context(open_work_folder(options, corpus, settings, worker_count(options)))
            yield stack.enter_context(ProcessEngine(options, work, report))
            return
        from chainrule.distributed.spark import SparkEngine, spark_session

        spark = session or stack.enter_context(spark_session(options.master))
        parallelism = int(spark.sparkContext.defaultParallelism)
        work = stack.enter_context(open_work_folder(options, corpus, settings, parallelism))
        yield stack.enter_context(SparkEngine(spark, options, work, report))
