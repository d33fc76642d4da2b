"""Character n-grams of words (Bojanowski et al. 2017), which give vectors to unknown words.

N-grams are hashed into `buckets` shared vectors.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ConfigError

OFFSET, PRIME = 2166136261, 16777619  # 32-bit FNV-1a


def fnv1a(text: bytes, start: int = OFFSET) -> int:
    """Return the 32-bit FNV-1a hash; `start` is the hash of a preceding prefix.

    >>> hex(fnv1a(b"a"))
    '0xe40c292c'
    """
    h = start
    for byte in text:
        h = ((h ^ byte) * PRIME) & 0xFFFFFFFF
    return h


@dataclass(frozen=True, slots=True)
class Subwords:
    """Character n-grams of `shortest` to `longest` characters, hashed into `buckets`."""

    shortest: int = 3
    longest: int = 6
    buckets: int = 200_000

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ConfigError(
                f"character n-grams of {self.shortest} to {self.longest} letters are not possible; "
                "choose 1 ≤ shortest ≤ longest"
            )
        if not 1 <= self.buckets < 1 << 31:
            raise ConfigError(f"buckets is {self.buckets}; choose a number from 1 to {(1 << 31) - 1}")

    def grams(self, word: str) -> list[str]:
        """Return the n-grams of `<word>` by start, then by length, excluding a lone `<` or `>`.

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
        """Return the bucket of each n-gram."""
        return [fnv1a(gram.encode("utf-8", "surrogatepass")) % self.buckets for gram in self.grams(word)]

    def table(self, words: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return CSR arrays `begins` and `rows` of the n-gram rows of all words.

        Word w has the rows rows[begins[w] : begins[w + 1]]; bucket b is row len(words) + b.
        """
        begins, rows = array("Q", [0]), array("I")
        for word in words:
            rows.extend(len(words) + row for row in self.rows(word))
            begins.append(len(rows))
        return np.frombuffer(begins, np.uint64), np.frombuffer(rows, np.uint32) if rows else np.zeros(0, np.uint32)
