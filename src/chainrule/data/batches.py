"""Ids -> Batch, in the two ways a text can be read: line by line, or as one stream.

Both yield where each row's targets stand in the text, so that what is computed can be put back in order.
"""

from collections.abc import Iterator

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.lm import Batch, Ids

TOKENS_PER_BATCH = 1 << 15


def line_batches(text: Encoded, bos: int, tokens: int = TOKENS_PER_BATCH) -> Iterator[tuple[Batch, Ids]]:
    """Lines of like length together, one a row, and the (B, T) positions of their targets in `text.ids`."""
    ends = np.flatnonzero(text.ids == text.eos)  # (L,) where each line's </s> stands
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        # Lengths ascend, so the last row of the batch is its widest: grow until rows x widest is enough.
        last = first + 1
        while last < len(order) and (last - first + 1) * lengths[order[last]] <= tokens:
            last += 1
        rows = order[first:last]
        yield _padded(text, bos, starts[rows], lengths[rows])
        first = last


def _padded(text: Encoded, bos: int, starts: Ids, lengths: Ids) -> tuple[Batch, Ids]:
    columns = np.arange(lengths.max())
    mask = columns[None, :] < lengths[:, None]  # (B, T)
    positions = np.where(mask, starts[:, None] + columns[None, :], starts[:, None])
    targets = text.ids[positions]
    inputs = np.concatenate([np.full((len(starts), 1), bos, targets.dtype), targets[:, :-1]], axis=1)
    return Batch(inputs, targets, mask), positions


def stream_batches(text: Encoded, bos: int, tokens: int = TOKENS_PER_BATCH) -> Iterator[tuple[Batch, Ids]]:
    """The whole text as one row, cut into pieces that are read one after another with the state carried on."""
    inputs = np.concatenate([np.array([bos], text.ids.dtype), text.ids[:-1]])
    for first in range(0, len(text.ids), tokens):
        positions = np.arange(first, min(first + tokens, len(text.ids)))[None, :]
        mask = np.ones(positions.shape, dtype=bool)
        yield Batch(inputs[positions], text.ids[positions], mask), positions
