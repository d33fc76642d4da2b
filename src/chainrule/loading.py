"""`chainrule.load`: load a language model or a task model from a model folder."""

from pathlib import Path
from typing import Any

from chainrule import artifact, folder, tasks


def load(path: str | Path, *, device: str = "auto", verify: bool = False) -> Any:
    """Load a model from a folder after verifying its files; `auto` uses a GPU for neural models if available.

    The tables of an n-gram model are verified block by block on first use, or completely with `verify`.
    """
    config = folder.read_json(folder.read(Path(path), verify=verify), artifact.CONFIG)
    task = config.get("task")
    if isinstance(task, str) and task in tasks.TASKS:
        return tasks.get(task).load(path, device)
    return artifact.load(path, device)
