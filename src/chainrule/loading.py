"""`chainrule.load`: whatever a model folder holds, a language model or a model of a task."""

from pathlib import Path
from typing import Any

from chainrule import artifact, folder, tasks


def load(path: str | Path, *, device: str = "auto", verify: bool = False) -> Any:
    """The model of a folder, verified before it is used; `auto` is the GPU for networks where there is one.

    An n-gram's tables are verified as they are read; with `verify`, all of them now.
    """
    config = folder.read_json(folder.read(Path(path), verify=verify), artifact.CONFIG)
    task = config.get("task")
    if isinstance(task, str) and task in tasks.TASKS:
        return tasks.get(task).load(path, device)
    return artifact.load(path, device)
