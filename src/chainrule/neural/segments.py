"""Where a row of a batch starts anew: the pieces of it that stand alone and can be read side by side.

A `line` model starts anew at each `</s>` it reads, a network with a window after so many tokens. Padding is cut
off.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chainrule.lm import Batch, Ids, Mask


@dataclass(frozen=True, slots=True)
class Segments:
    """Pieces of rows, in the order of rows and then of time; each array is (S,)."""

    row: Ids
    first: Ids  # column of its first token
    length: Ids
    is_fresh: Mask  # starts anew, and does not go on from the row's state
    is_last: Mask  # the state after it is the row's


def cut(batch: Batch, eos: int | None, window: int | None, position: Ids) -> Segments:
    """Cut rows at `eos` (None: nowhere) and where `window` tokens were read, `position` (B,) of them before."""
    found: list[tuple[int, int, int, bool]] = []
    lengths = batch.mask.sum(axis=1)
    lasts = []
    for r, length in enumerate(lengths.tolist()):
        cuts = np.flatnonzero(batch.inputs[r, :length] == eos).tolist() if eos is not None else []
        edges = sorted({0, *cuts, length}) if length else []
        anew = set(cuts)
        for begin, end in pairwise(edges):
            is_fresh = begin in anew
            room = None if window is None else window - (0 if is_fresh else int(position[r]))
            while window is not None and room is not None and end - begin > room:
                if room > 0:
                    found.append((r, begin, room, is_fresh))
                begin, room, is_fresh = begin + room, window, True
            found.append((r, begin, end - begin, is_fresh))
        if length:
            lasts.append(len(found) - 1)
    row, first, size, fresh = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
    is_last = np.zeros(len(row), dtype=bool)
    is_last[lasts] = True
    return Segments(row, first, size, fresh.astype(bool), is_last)
