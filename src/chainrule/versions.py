"""Versions of the software that produced a result, and of the JSON schema."""

import platform
import sys
from typing import Final

SCHEMA_VERSION: Final = 1
"""Schema version of every JSON document."""


def versions() -> dict[str, str]:
    """Return the versions of chainrule, Python and the imported dependencies; import nothing."""
    import chainrule

    result = {"chainrule": chainrule.__version__, "python": platform.python_version()}
    for name in ("numpy", "tokenizers", "torch"):
        if name in sys.modules:
            result[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return result
