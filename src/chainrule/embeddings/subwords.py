"""Character n-grams of words (Bojanowski et al. 2017), by which a word never seen has a vector, too.

An n-gram has no vector of its own: its hash names one of `buckets` vectors, which n-grams share.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ConfigError

OFFSET, PRIME = 2166136261, 16777619  # of FNV-1a with 32 bits


def fnv1a(text: bytes, start: int = OFFSET) -> int:
    """The 32-bit FNV-1a hash; `start` is the hash of what stands before.

    >>> hex(fnv1a(b"a"))
    '0xe40c292c'
    """
    h = start
    for byte in text:
        h = ((h ^ byte) * PRIME) & 0xFFFFFFFF
    return h


@dataclass(frozen=True, slots=True)
class Subwords:
    """Which n-grams a word has, and which vector each of them uses."""

    shortest: int = 3
    longest: int = 6
    buckets: int = 200_000

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ConfigError(
                f"character n-grams of {self.shortest} to {self.longest} letters cannot be; "
                "choose 1 ≤ shortest ≤ longest"
            )
        if not 1 <= self.buckets < 1 << 31:
            raise ConfigError(f"buckets is {self.buckets}; choose a number from 1 to {(1 << 31) - 1}")

    def grams(self, word: str) -> list[str]:
        """The n-grams of `<word>`, by where they begin, then by length; never a border alone.

        >>> Subwords(3, 4, 10).grams("cat")
        ['<ca', '<cat', 'cat', 'cat>', 'at>']
        """
        text = f"<{word}>"
        return [
            text[i : i + n]
            for i in range(len(text))
            for n in range(self.shortest, min(self.longest, len(text) - i) + 1)
            if text[i : i + n] not in ("<", ">")
        ]

    def rows(self, word: str) -> list[int]:
        """The bucket of each n-gram."""
        return [fnv1a(gram.encode("utf-8", "surrogatepass")) % self.buckets for gram in self.grams(word)]

    def table(self, words: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """The rows of all words, one behind the other, counted from behind the words' own rows.

        Word w has rows[begins[w] : begins[w + 1]].
        """
        begins, rows = array("Q", [0]), array("I")
        for word in words:
            rows.extend(len(words) + row for row in self.rows(word))
            begins.append(len(rows))
        return np.frombuffer(begins, np.uint64), np.frombuffer(rows, np.uint32) if rows else np.zeros(0, np.uint32)
