"""Which software a result was made with, and the version of what it is written in."""

import platform
import sys
from typing import Final

SCHEMA_VERSION: Final = 1
"""Of every JSON document that is printed or written."""


def versions() -> dict[str, str]:
    """chainrule, Python, NumPy and tokenizers; what is loaded already, nothing more."""
    import chainrule

    found = {"chainrule": chainrule.__version__, "python": platform.python_version()}
    for name in ("numpy", "tokenizers", "torch"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found
