"""What can be kept of a training text without keeping the text: its digest, and a sketch of its lines.

The sketch holds the smallest hashes of the text's longer lines (bottom-k, Broder 1997); how many of another
text's hashes below the same bound are in it estimates how many of its lines were in this one.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule.text.corpus import Corpus
from chainrule.text.files import TextFile
from chainrule.text.plain import find_plain

SKETCH_SIZE: Final = 1 << 16
SHORT: Final = 20
"""Lines of fewer characters recur in any text and prove nothing."""
BLOCK: Final = 1 << 20
ENOUGH: Final = 20
"""Lines to judge by; fewer say nothing."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digest and sketch of one text."""

    sha256: str
    sketch: NDArray[np.uint64]  # ascending, at most SKETCH_SIZE
    lines: int = 0

    def overlap(self, other: "Fingerprint") -> float:
        """About which part of the other text's lines stand in this one; 0 where too few can be judged."""
        if self.sha256 == other.sha256:
            return 1.0
        if not len(self.sketch):
            return 0.0
        bound = self.sketch[-1] if len(self.sketch) == SKETCH_SIZE else np.iinfo(np.uint64).max
        judged = other.sketch[other.sketch <= bound]
        return float(np.isin(judged, self.sketch).mean()) if len(judged) >= ENOUGH else 0.0

    def to_bytes(self) -> bytes:
        """The sketch as a file's content, little-endian."""
        return self.sketch.astype("<u8").tobytes()


def fingerprint(corpus: Corpus) -> Fingerprint:
    """One pass over the text; of a line longer than a fragment each fragment counts as a line."""
    return _of_plain(corpus) or _of_fragments(corpus)


def _of_plain(corpus: Corpus) -> Fingerprint | None:
    """The same of plain files: the digest of their bytes while the core hashes their lines."""
    files = find_plain(corpus)
    if files is None:
        return None
    with ThreadPoolExecutor(max_workers=1) as beside:
        digest = beside.submit(_digest, corpus.files)
        found = files.core.sketch_plain_lines(files.names, SHORT, SKETCH_SIZE, files.threads)
    if found is None or isinstance(digest.exception(), OSError):  # which the other way tells the user
        return None
    sketch, lines = found
    return Fingerprint(digest.result(), sketch, lines)


def _digest(files: Iterable[TextFile]) -> str:
    """Of plain files with LF after each line, the last one too."""
    sha256 = hashlib.sha256()
    for file in files:
        last = b"\n"
        with file.path.open("rb") as raw:
            while block := raw.read(BLOCK):
                sha256.update(block)
                last = block[-1:]
        if last != b"\n":
            sha256.update(b"\n")
    return sha256.hexdigest()


def _of_fragments(corpus: Corpus) -> Fingerprint:
    sha256 = hashlib.sha256()
    hashes: set[int] = set()
    bound = 1 << 64
    lines = 0
    for text, ends_line in corpus.fragments():
        content = text.encode()
        sha256.update(content + b"\n" * ends_line)
        lines += ends_line
        if len(text) < SHORT:
            continue
        value = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
        if value < bound:
            hashes.add(value)
            if len(hashes) >= 2 * SKETCH_SIZE:
                hashes = set(sorted(hashes)[:SKETCH_SIZE])
                bound = max(hashes)
    return Fingerprint(sha256.hexdigest(), np.array(sorted(hashes)[:SKETCH_SIZE], dtype=np.uint64), lines)
