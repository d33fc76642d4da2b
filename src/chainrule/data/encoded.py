"""A text as token ids, with the counts needed for per-word and per-byte metrics."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.lm import Ids

_PIECE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Concatenated ids of all lines with `</s>` after each; `<s>` is never predicted and not stored."""

    ids: Ids  # (N,)  int32; `</s>` occurs only at the end of a line
    eos: int
    unk: int | None
    words: int  # runs of non-blanks
    characters: int  # of the normalized text, one for each line break
    bytes: int  # UTF-8 bytes of the normalized text, one for each line break
    spellings: list[str] = field(default_factory=list)  # of the `unk` ids, in order
    replaced: int = 0  # invalid UTF-8 sequences read as U+FFFD (`--errors replace`)

    @property
    def tokens(self) -> int:
        """Number of predicted tokens, including `</s>` but not `<s>`."""
        return len(self.ids)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self._count(self.eos)

    @property
    def oov(self) -> int:
        """Number of out-of-vocabulary tokens."""
        return 0 if self.unk is None else self._count(self.unk)

    def _count(self, id_: int) -> int:
        """Count an id in chunks: the ids may be a file larger than memory."""
        pieces = (self.ids[first : first + _PIECE] for first in range(0, len(self.ids), _PIECE))
        return sum(int(np.count_nonzero(piece == id_)) for piece in pieces)
