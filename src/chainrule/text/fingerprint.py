"""Fingerprint of a training text: its SHA-256 and a bottom-k sketch of its lines (Broder 1997).

The sketch contains the smallest hashes of the longer lines. The share of another text's hashes below the same bound
that are in the sketch estimates the share of its lines that occur in this text.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Final

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus

SKETCH_SIZE: Final = 1 << 16
SHORTEST_LINE: Final = 20
"""Lines with fewer characters recur in any text and are ignored."""
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
    return _compute(corpus, Event(), system.thread_count())


@contextmanager
def fingerprint_in_background(corpus: Corpus) -> Iterator["Future[Fingerprint]"]:
    """Compute the fingerprint of a corpus in a thread while the body of the `with` statement runs.

    The future that is returned has the fingerprint, or the error. If the body raises, the computation is stopped.

    >>> with fingerprint_in_background(Corpus.from_lines(["one", "two"])) as future:
    ...     lines = len(["one", "two"])  # other work
    >>> future.result().lines, lines
    (2, 2)
    """
    stop = Event()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fingerprint") as executor:
        future = executor.submit(_compute, corpus, stop, 1)
        try:
            yield future
        except BaseException:
            stop.set()
            raise


def text_sha256(corpus: Corpus) -> str:
    """Return the SHA-256 of a text as in its fingerprint, computed on one thread."""
    return _compute(corpus, Event(), 1).sha256


class _Stopped(Exception):
    """The fingerprint is no longer needed."""


def _compute(corpus: Corpus, stop: Event, threads: int) -> Fingerprint:
    """Hash the lines in threads of the extension, and one block after the other by SHA-256 at the same time."""
    reader = open_reader(corpus)
    if reader is None:
        return _of_fragments(corpus, stop)
    sha256 = hashlib.sha256()

    def update(block: memoryview) -> None:
        if stop.is_set():
            raise _Stopped
        sha256.update(block)

    result = system.load_extension().sketch_plain_lines(reader.text, SHORTEST_LINE, SKETCH_SIZE, threads, update)
    if result is None:
        return _of_fragments(corpus, stop)
    sketch, lines = result
    return Fingerprint(sha256.hexdigest(), sketch, lines)


def _of_fragments(corpus: Corpus, stop: Event) -> Fingerprint:
    sha256 = hashlib.sha256()
    hashes: set[int] = set()
    bound = 1 << 64
    lines = 0
    for text, ends_line in corpus.fragments():
        if stop.is_set():
            raise _Stopped
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
