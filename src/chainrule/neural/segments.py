"""Split batch rows where the state is reset into segments that can be run in parallel.

A `line` model is reset at each `</s>`, a network with a window when it is full. Padding is removed.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chainrule.lm import Batch, Ids, Mask


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments in order of row and time; each array is (S,)."""

    row: Ids
    first: Ids  # column of the first token
    length: Ids
    is_fresh: Mask  # starts from the initial state instead of the row's state
    is_last: Mask  # last segment of its row


def split_segments(batch: Batch, eos: int | None, window: int | None, position: Ids) -> Segments:
    """Split rows at `eos` (None: never) and at full windows; `position` (B,) tokens were read before the batch."""
    segments: list[tuple[int, int, int, bool]] = []
    lengths = batch.mask.sum(axis=1)
    lasts = []
    for r, length in enumerate(lengths.tolist()):
        cuts = np.flatnonzero(batch.inputs[r, :length] == eos).tolist() if eos is not None else []
        edges = sorted({0, *cuts, length}) if length else []
        resets = set(cuts)
        for begin, end in pairwise(edges):
            is_fresh = begin in resets
            room = None if window is None else window - (0 if is_fresh else int(position[r]))
            while window is not None and room is not None and end - begin > room:
                if room > 0:
                    segments.append((r, begin, room, is_fresh))
                begin, room, is_fresh = begin + room, window, True
            segments.append((r, begin, end - begin, is_fresh))
        if length:
            lasts.append(len(segments) - 1)
    row, first, size, fresh = (np.array(column, dtype=np.int64) for column in zip(*segments, strict=True))
    is_last = np.zeros(len(row), dtype=bool)
    is_last[lasts] = True
    return Segments(row, first, size, fresh.astype(bool), is_last)
