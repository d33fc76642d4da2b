"""Which software a result was made with."""

import platform
import sys


def versions() -> dict[str, str]:
    """chainrule, Python, NumPy and tokenizers; what is loaded already, nothing more."""
    import chainrule

    found = {"chainrule": chainrule.__version__, "python": platform.python_version()}
    for name in ("numpy", "tokenizers", "torch"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found
