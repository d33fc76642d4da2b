"""Fingerprint of a training text: its SHA-256 and a bottom-k sketch of its lines (Broder 1997).

The sketch contains the smallest hashes of the longer lines. The share of another text's hashes below the same bound
that are in the sketch estimates the share of its lines that occur in this text.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.text.corpus import Corpus, find_plain_files
from chainrule.text.readers import TextFile

SKETCH_SIZE: Final = 1 << 16
SHORTEST_LINE: Final = 20
"""Lines with fewer characters recur in any text and are ignored."""
BLOCK: Final = 1 << 20
FEWEST_LINES: Final = 20
"""Smallest number of hashed lines for an estimate of the overlap."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digest and sketch (at most SKETCH_SIZE hashes) of one text."""

    sha256: str
    sketch: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # ascending
    lines: int = 0

    def overlap(self, other: "Fingerprint") -> float:
        """Estimate the share of the other text's lines that occur in this text; 0 if there are too few lines."""
        if self.sha256 == other.sha256:
            return 1.0
        if not len(self.sketch):
            return 0.0
        bound = self.sketch[-1] if len(self.sketch) == SKETCH_SIZE else np.iinfo(np.uint64).max
        judged = other.sketch[: np.searchsorted(other.sketch, bound, side="right")]
        if len(judged) < FEWEST_LINES:
            return 0.0
        positions = np.searchsorted(self.sketch, judged)
        return float((self.sketch.take(positions, mode="clip") == judged).mean())

    def to_bytes(self) -> bytes:
        """Serialize the sketch as little-endian uint64."""
        return self.sketch.astype("<u8").tobytes()


def fingerprint(corpus: Corpus) -> Fingerprint:
    """Compute the fingerprint of a corpus; each fragment of a very long line counts as a line."""
    return _of_plain(corpus) or _of_fragments(corpus)


def _of_plain(corpus: Corpus) -> Fingerprint | None:
    """Fingerprint plain files: SHA-256 of their bytes in a thread while the extension hashes their lines."""
    files = find_plain_files(corpus)
    if files is None:
        return None
    with ThreadPoolExecutor(max_workers=1) as executor:
        digest = executor.submit(_digest, corpus.files)
        result = system.load_extension().sketch_plain_lines(files.names, SHORTEST_LINE, SKETCH_SIZE, files.threads)
    if result is None or isinstance(digest.exception(), OSError):  # _of_fragments reports the error
        return None
    sketch, lines = result
    return Fingerprint(digest.result(), sketch, lines)


def _digest(files: Iterable[TextFile]) -> str:
    """Return the SHA-256 of plain files, with LF added after an unterminated last line."""
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
        if len(text) < SHORTEST_LINE:
            continue
        value = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
        if value < bound:
            hashes.add(value)
            if len(hashes) >= 2 * SKETCH_SIZE:
                hashes = set(sorted(hashes)[:SKETCH_SIZE])
                bound = max(hashes)
    return Fingerprint(sha256.hexdigest(), np.array(sorted(hashes)[:SKETCH_SIZE], dtype=np.uint64), lines)
