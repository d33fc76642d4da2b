"""Import of the compiled extension `chainrule._core`; no other module imports it."""

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
    """Return the compiled extension, or None if it is not built; warn if it is built but cannot be imported."""
    try:
        return import_module(NAME)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == NAME):
            text = f"the compiled part of chainrule is there and cannot be used ({error}); {HOW_TO_BUILD} again"
            warnings.warn(text, ChainruleWarning, stacklevel=2)
        return None


def require(purpose: str) -> ModuleType:
    """Return the compiled extension; raise MissingExtra, with a message starting with `purpose`, if not built."""
    core = load()
    if core is None:
        raise MissingExtra(f"{purpose} the compiled part of chainrule, which is not built: {HOW_TO_BUILD}")
    return core
