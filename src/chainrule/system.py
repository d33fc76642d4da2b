"""The compiled extension, the processors and memory available, and the versions of the software."""

import os
import platform
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from chainrule.errors import ConfigError, MissingExtra

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


LAUNCHER: Final = "CHAINRULE_LAUNCHER"
"""Environment variable with the id of the process that started the processes of a training run."""
LOST: Final = 76
"""Exit status of a process of a training run that lost the others, of which one has reported the error."""


def rank_and_size() -> tuple[int, int]:
    """Return the number of this process among those that torchrun started, and how many they are; else 0 and 0."""
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 0


EXTENSION: Final = "chainrule._core"
HOW_TO_BUILD: Final = "pip install . (needs a C++20 compiler)"


@cache
def load_extension() -> Any:
    """Return the compiled extension; raise MissingExtra, with the build command, if it cannot be imported."""
    try:
        return import_module(EXTENSION)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == EXTENSION
        reason = "is not built" if is_absent else f"cannot be imported ({error})"
        raise MissingExtra(f"the compiled extension {EXTENSION} {reason}; build it: {HOW_TO_BUILD}") from error


def thread_count() -> int:
    """Return the number of usable processors, at most `--threads` (OMP_NUM_THREADS)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(limit)) if limit.isdecimal() and int(limit) else available


DEFAULT: Final = "80%"
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]?)(?:i?b)?|(%))", re.IGNORECASE)
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def parse_size(size_text: str | int, option: str = "memory") -> int:
    """Parse `512M`, `2G`, `80%` (of the available memory) or a number of bytes; errors name the `option`.

    >>> parse_size("512M"), parse_size("1.5k"), parse_size(1000)
    (536870912, 1536, 1000)
    """
    match = _SIZE.fullmatch(str(size_text).strip())
    if match is None:
        raise ConfigError(f"{option} is '{size_text}'; write it as 512M, 2G or 80%")
    number, unit, percent = float(match[1]), (match[2] or "").lower(), match[3]
    if percent and not 0 < number <= 100:
        raise ConfigError(f"{option} is '{size_text}'; choose a part above 0% and up to 100%")
    size = int(available() * number / 100) if percent else int(number * _UNITS[unit])
    if size < 1:
        raise ConfigError(f"{option} is '{size_text}'; choose at least one byte")
    return size


def available() -> int:
    """Return the bytes available to this process: physical memory, or the limit of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP_LIMITS:
        try:
            limit = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if limit.isdecimal():
            total = min(total, int(limit))
    return total
