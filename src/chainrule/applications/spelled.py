"""Words as rows of code points, so that many can be compared at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Ids


@dataclass(frozen=True, slots=True)
class Spelled:
    """Words from the left, 0 where one has ended."""

    codes: Ids  # (N, L) code points
    sizes: Ids  # (N,) characters of each

    def padded(self, width: int) -> Ids:
        """The same, (N, width), for a width that is no smaller."""
        return np.pad(self.codes, ((0, 0), (0, width - self.codes.shape[1])))

    def reversed(self, width: int) -> Ids:
        """The words from their ends: (N, width)."""
        at = self.sizes[:, None] - 1 - np.arange(width)
        return np.where(at >= 0, np.take_along_axis(self.padded(width), np.maximum(at, 0), axis=1), 0)


def spell(words: Sequence[str]) -> Spelled:
    """The code points of words; none may hold U+0000."""
    sizes = np.array([len(word) for word in words], dtype=np.int64)
    width = int(sizes.max(initial=1))
    letters = np.frombuffer("".join(words).encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    codes = np.zeros((len(words), width), dtype=np.int32)
    codes[np.arange(width) < sizes[:, None]] = letters
    return Spelled(codes, sizes)
