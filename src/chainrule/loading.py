"""`chainrule.load`: whatever a model folder holds, a language model or a model of a task."""

from pathlib import Path
from typing import Any

from chainrule import artifact, folder, tasks


def load(path: str | Path, *, device: str = "auto") -> Any:
    """The model of a folder, every file of it verified; `auto` is the GPU for networks where there is one."""
    config = folder.read_json(folder.read(Path(path)), artifact.CONFIG)
    if config.get("task") in tasks.TASKS:
        return tasks.get(config["task"]).load(path, device)
    return artifact.load(path, device)
