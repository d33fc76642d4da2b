"""Words as padded matrices of code points, for vectorised comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Ids


@dataclass(frozen=True, slots=True)
class CodePoints:
    """Words as rows of code points, padded with 0 on the right."""

    codes: Ids  # (N, L) code points
    sizes: Ids  # (N,) word lengths

    def padded(self, width: int) -> Ids:
        """(N, width) code points; `width` must not be smaller than L."""
        return np.pad(self.codes, ((0, 0), (0, width - self.codes.shape[1])))

    def reversed(self, width: int) -> Ids:
        """(N, width) code points of the reversed words."""
        columns = self.sizes[:, None] - 1 - np.arange(width)
        return np.where(columns >= 0, np.take_along_axis(self.padded(width), np.maximum(columns, 0), axis=1), 0)


def to_code_points(words: Sequence[str]) -> CodePoints:
    """Convert words to code points; no word may contain U+0000."""
    sizes = np.array([len(word) for word in words], dtype=np.int64)
    width = int(sizes.max(initial=1))
    letters = np.frombuffer("".join(words).encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    codes = np.zeros((len(words), width), dtype=np.int32)
    codes[np.arange(width) < sizes[:, None]] = letters
    return CodePoints(codes, sizes)
