"""The only door to `chainrule._core`, the compiled twin of the Python kernels.

Everything works without it; what it speeds up asks `load()` and takes the Python way where that gives None.
"""

from functools import cache
from importlib import import_module
from types import ModuleType

HOW_TO_BUILD = "pip install . (needs a C++20 compiler)"


@cache
def load() -> ModuleType | None:
    """The compiled module, or None where chainrule runs from a bare checkout."""
    try:
        return import_module("chainrule._core")
    except ImportError:
        return None
