"""What models are for beyond text itself: labels, tags, translations; encoders and word vectors of plain text.

Each module named here offers `Config`, `train`, `load` and a model with `save`, and is imported when asked for.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from chainrule.errors import ConfigError, MissingExtra

TASKS: Final[Mapping[str, str]] = {
    "translate": "chainrule.tasks.translate",
    "tag": "chainrule.tasks.tag",
    "classify": "chainrule.tasks.classify",
    "pretrain": "chainrule.tasks.pretrain",
    "vectors": "chainrule.tasks.vectors",
}


def get(name: str) -> Any:
    """A task's module by name."""
    if name not in TASKS:
        raise ConfigError(f"there is no task '{name}'; choose one of {', '.join(TASKS)}")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's threads else spin, and slow a shared machine
    try:
        return import_module(TASKS[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"'{name}' needs torch: pip install 'chainrule[neural]'") from error
