"""Batches of an encoded text, line by line or as one stream.

Each batch comes with the positions of its targets in the text, to put the results back in text order.
"""

from collections.abc import Iterator

import numpy as np

from chainrule.data.encoded import EncodedText
from chainrule.lm import Batch, Ids

TOKENS_PER_BATCH = 1 << 15


def line_batches(
    text: EncodedText, bos: int, tokens: int = TOKENS_PER_BATCH, longest: int | None = None
) -> Iterator[tuple[Batch, Ids]]:
    """Yield batches of lines of similar length, one per row, and the (B, T) positions of the targets in `text.ids`.

    Lines of more than `longest` tokens are skipped (see `long_lines`).
    """
    starts, lengths = _lines(text)
    order = np.argsort(lengths, kind="stable")
    if longest is not None:
        order = order[: int(np.count_nonzero(lengths <= longest))]
    first = 0
    while first < len(order):
        # Lengths ascend, so the last row of the batch is the longest: grow until rows x length is enough.
        last = first + 1
        while last < len(order) and (last - first + 1) * lengths[order[last]] <= tokens:
            last += 1
        rows = order[first:last]
        yield _padded(text, bos, starts[rows], lengths[rows])
        first = last


def long_lines(text: EncodedText, longest: int) -> Iterator[slice]:
    """Yield the slices of `text.ids` with the lines of more than `longest` tokens, in text order."""
    starts, lengths = _lines(text)
    for line in np.flatnonzero(lengths > longest).tolist():
        yield slice(int(starts[line]), int(starts[line] + lengths[line]))


def _lines(text: EncodedText) -> tuple[Ids, Ids]:
    """Return the (L,) start offsets of the lines in `text.ids` and their (L,) lengths, including `</s>`."""
    ends = np.flatnonzero(text.ids == text.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return starts, ends - starts + 1


def _padded(text: EncodedText, bos: int, starts: Ids, lengths: Ids) -> tuple[Batch, Ids]:
    columns = np.arange(lengths.max())
    mask = columns[None, :] < lengths[:, None]  # (B, T)
    positions = np.where(mask, starts[:, None] + columns[None, :], starts[:, None])
    targets = text.ids[positions]
    inputs = np.concatenate([np.full((len(starts), 1), bos, targets.dtype), targets[:, :-1]], axis=1)
    return Batch(inputs, targets, mask), positions


def stream_batches(text: EncodedText, bos: int, tokens: int = TOKENS_PER_BATCH) -> Iterator[tuple[Batch, Ids]]:
    """Yield the text as one row in consecutive segments, to be read with the state carried over."""
    inputs = np.concatenate([np.array([bos], text.ids.dtype), text.ids[:-1]])
    for first in range(0, len(text.ids), tokens):
        positions = np.arange(first, min(first + tokens, len(text.ids)))[None, :]
        mask = np.ones(positions.shape, dtype=bool)
        yield Batch(inputs[positions], text.ids[positions], mask), positions
