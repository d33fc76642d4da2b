"""SHA-256 digests of the inputs of a command, to detect whether a re-run has the same inputs."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from chainrule import folder, manifest
from chainrule.errors import ChainruleError
from chainrule.text.files import expand


def input_digests(sources: Iterable[str | Path | None]) -> dict[str, str | None]:
    """Return the SHA-256 of every source that exists, by its path.

    The digest of a source that can be read only once is None. Strings that do not name a file (a tokenizer kind)
    and unreadable files are omitted: the code that reads them raises the error.
    """
    by_name: dict[str, str | None] = {}
    for name in sorted({str(source) for source in sources if source is not None}):
        key = name.encode(errors="backslashreplace").decode()
        if name == "-":
            by_name[key] = None
            continue
        try:
            if os.path.exists(os.path.join(name, manifest.NAME)):
                by_name[key] = folder.content_sha256(Path(name))
            elif paths := [path for path in expand(name) if os.path.exists(path)]:
                by_name[key] = _digest(paths)
        except (OSError, ValueError, ChainruleError):
            continue
    return by_name


def _digest(paths: list[str]) -> str | None:
    """Return the digest of one file, or of the digests of several; None for pipes and devices."""
    if not all(map(os.path.isfile, paths)):
        return None
    file_digests = [manifest.sha256(Path(path)) for path in paths]
    return file_digests[0] if len(paths) == 1 else hashlib.sha256("\n".join(file_digests).encode()).hexdigest()
