"""`chainrule.load`: load a language model or a task model from a model folder."""

from pathlib import Path
from typing import Any

from chainrule import model_folder, tasks
from chainrule.storage import verified_dir


def load(path: str | Path, *, device: str = "auto", verify: bool = False) -> Any:
    """Load a model from a folder after verifying its files; `auto` uses a GPU for neural models if available.

    The tables of an n-gram model are verified block by block on first use, or completely with `verify`.
    """
    config = verified_dir.read_json(verified_dir.read(Path(path), verify=verify), model_folder.CONFIG)
    task = config.get("task")
    if isinstance(task, str) and task in tasks.TASKS:
        return tasks.get(task).load(path, device)
    return model_folder.load(path, device)
