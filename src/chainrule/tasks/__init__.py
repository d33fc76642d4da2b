"""Task models: text classification, sequence tagging, translation, pretrained encoders and word vectors.

Each module listed in `TASKS` provides `Config`, `train`, `load` and a model class with `save`. It is imported on
first use.
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
    """Import and return the module of a task."""
    if name not in TASKS:
        raise ConfigError(f"there is no task '{name}'; choose one of {', '.join(TASKS)}")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle OpenMP threads must not spin
    try:
        return import_module(TASKS[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"'{name}' needs torch: pip install 'chainrule[neural]'") from error
