"""A text as ids, with what the one scale needs to know about the text behind them."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.lm import Ids

_PIECE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Encoded:
    """Every line's ids with `</s>` after each, end to end; `<s>` is not stored, it is never predicted."""

    ids: Ids  # (N,)  int32; `</s>` ends each line and stands nowhere else
    eos: int
    unk: int | None
    words: int  # runs of non-blanks
    characters: int  # of the text as the tokenizer sees it, one for each line break
    bytes: int  # likewise, in UTF-8
    spellings: list[str] = field(default_factory=list)  # of the ids that are `unk`, in their order
    replaced: int = 0  # sequences that were not UTF-8 and were read as U+FFFD (`--errors replace`)

    @property
    def tokens(self) -> int:
        """Predicted tokens: `</s>` counted, `<s>` not."""
        return len(self.ids)

    @property
    def lines(self) -> int:
        """Lines, each ended by one `</s>`."""
        return self._times(self.eos)

    @property
    def oov(self) -> int:
        """Tokens the vocabulary does not hold."""
        return 0 if self.unk is None else self._times(self.unk)

    def _times(self, id_: int) -> int:
        """How often an id comes, counted piece by piece: the ids may be a file larger than memory."""
        pieces = (self.ids[first : first + _PIECE] for first in range(0, len(self.ids), _PIECE))
        return sum(int(np.count_nonzero(piece == id_)) for piece in pieces)
