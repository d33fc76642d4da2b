"""How much memory a training may take: what a person writes, and what this machine has."""

import os
import re
from pathlib import Path
from typing import Final

from chainrule.errors import ConfigError

DEFAULT: Final = "80%"
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]?)(?:i?b)?|(%))", re.IGNORECASE)
_GROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def bytes_of(said: str | int, option: str = "memory") -> int:
    """The bytes of `512M`, `2G`, `80%` (of what this machine has) or a number; messages name the `option`.

    >>> bytes_of("512M"), bytes_of("1.5k"), bytes_of(1000)
    (536870912, 1536, 1000)
    """
    found = _SIZE.fullmatch(str(said).strip())
    if found is None:
        raise ConfigError(f"{option} is '{said}'; write it as 512M, 2G or 80%")
    number, unit, percent = float(found[1]), (found[2] or "").lower(), found[3]
    if percent and not 0 < number <= 100:
        raise ConfigError(f"{option} is '{said}'; choose a part above 0% and up to 100%")
    size = int(available() * number / 100) if percent else int(number * _UNITS[unit])
    if size < 1:
        raise ConfigError(f"{option} is '{said}'; choose more than nothing")
    return size


def available() -> int:
    """Bytes this process may have: of the machine, or of the group of processes it is in."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _GROUPS:
        try:
            limit = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if limit.isdecimal():
            has = min(has, int(limit))
    return has
