"""The only door to `chainrule._core`, the compiled twin of the Python kernels.

N-gram models need it, and say so where it is not built (ngram/engine.py). Whatever else it speeds up asks `load()`
and takes the Python way where that gives None.
"""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

from chainrule.errors import ChainruleWarning, MissingExtra

NAME: Final = "chainrule._core"
HOW_TO_BUILD = "pip install . (needs a C++20 compiler)"


@cache
def load() -> ModuleType | None:
    """The compiled module, or None where chainrule runs from a bare checkout; one that is broken is warned of."""
    try:
        return import_module(NAME)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == NAME):
            text = f"the compiled part of chainrule is there and cannot be used ({error}); {HOW_TO_BUILD} again"
            warnings.warn(text, ChainruleWarning, stacklevel=2)
        return None


def require(purpose: str) -> ModuleType:
    """Return the compiled module; raise MissingExtra, which begins with `purpose`, where it is not built."""
    core = load()
    if core is None:
        raise MissingExtra(f"{purpose} the compiled part of chainrule, which is not built: {HOW_TO_BUILD}")
    return core
