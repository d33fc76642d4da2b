"""Start the engine that the options name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.processes import ProcessEngine
from chainrule.distributed.work_folder import open_work_folder
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus


@contextmanager
def start_engine(
    options: EngineOptions, corpus: Corpus, settings: dict[str, Any], progress: Progress | bool = silent
) -> Iterator[Engine]:
    """Yield an engine for one job and stop it afterwards.

    Args:
        options: Options of the engine.
        corpus: The text that the job reads.
        settings: JSON values that the result depends on besides the text; `--resume` compares them.
        progress: Receives the name of the stage, the tasks that are done, and the tasks in all.

    """
    with (
        open_work_folder(options, corpus, settings) as work,
        ProcessEngine(options, work, as_progress(progress)) as engine,
    ):
        yield engine
