"""Ids -> Batch, in the two ways a text can be read: line by line, or as one stream.

Both yield where each row's targets stand in the text, so that what is computed can be put back in order.
"""

from collections.abc import Iterator

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.lm import Batch, Ids

TOKENS_PER_BATCH = 1 << 15


def line_batches(
    text: Encoded, bos: int, tokens: int = TOKENS_PER_BATCH, longest: int | None = None
) -> Iterator[tuple[Batch, Ids]]:
    """Lines of like length together, one a row, and the (B, T) positions of their targets in `text.ids`.

    Lines of more than `longest` tokens are left out: `long_lines` has them.
    """
    starts, lengths = _lines(text)
    order = np.argsort(lengths, kind="stable")
    if longest is not None:
        order = order[: int(np.count_nonzero(lengths <= longest))]
    first = 0
    while first < len(order):
        # Lengths ascend, so the last row of the batch is its widest: grow until rows x widest is enough.
        last = first + 1
        while last < len(order) and (last - first + 1) * lengths[order[last]] <= tokens:
            last += 1
        rows = order[first:last]
        yield _padded(text, bos, starts[rows], lengths[rows])
        first = last


def long_lines(text: Encoded, longest: int) -> Iterator[slice]:
    """Where in `text.ids` the lines of more than `longest` tokens stand, in the order of the text."""
    starts, lengths = _lines(text)
    for line in np.flatnonzero(lengths > longest).tolist():
        yield slice(int(starts[line]), int(starts[line] + lengths[line]))


def _lines(text: Encoded) -> tuple[Ids, Ids]:
    """(L,) where each line begins in `text.ids`, and (L,) its tokens, `</s>` counted."""
    ends = np.flatnonzero(text.ids == text.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return starts, ends - starts + 1


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
