"""What the output layer reads at each token of a text: the hidden vectors, in pieces.

Lives here: a text read as the model's own context rule says, or with its window slid on by less than its length.
Not here: the scores of the contract (adapter.py).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import Encoded
from chainrule.lm import Ids
from chainrule.neural.adapter import LARGEST_PIECE, NeuralModel
from chainrule.neural.device import exact

TOKENS_AT_ONCE = 1 << 13


def hidden_pieces(model: NeuralModel, text: Encoded, stride: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions in the text (n,) and their hidden vectors (n, D), each once; so few that (n, V) fits in memory."""
    rows = max(1, LARGEST_PIECE // model.vocabulary.size)
    spans = model.context == "line" or model.network.window is not None
    for positions, hidden in _of_spans(model, text, stride) if spans else _of_stream(model, text):
        yield from zip(positions.split(rows), hidden.split(rows), strict=True)


def all_hidden(model: NeuralModel, text: Encoded) -> Tensor:
    """The hidden vectors of a whole text, (N, D)."""
    found: Tensor | None = None
    for positions, hidden in hidden_pieces(model, text):
        found = hidden.new_empty(text.tokens, hidden.shape[1]) if found is None else found
        found[positions] = hidden
    assert found is not None  # a text without tokens is refused before it comes here
    return found


def cut_spans(text: Encoded, is_line: bool, window: int | None, stride: int | None) -> Ids:
    """(S, 3) what is read from an empty state: its first token, the first that counts, the one after the last.

    Beyond a window's length the next one starts `stride` tokens later and what it shares with the one before is
    read but not counted; the stride is the window itself where none is given.
    """
    ends = np.union1d(np.flatnonzero(text.ids == text.eos) + 1 if is_line else [], text.tokens).astype(np.int64)
    found: list[tuple[int, int, int]] = []
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        W = window or end - begin
        first, counted = begin, begin
        while counted < end:
            found.append((first, counted, min(first + W, end)))
            counted = first + W
            first += stride or W
    return np.array(found, dtype=np.int64)


def _of_spans(model: NeuralModel, text: Encoded, stride: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Spans of like length side by side; what is padded behind them cannot be seen from before it."""
    spans = cut_spans(text, model.context == "line", model.network.window, stride)
    spans = spans[np.argsort(spans[:, 2] - spans[:, 0], kind="stable")]
    read = _inputs(model, text)
    done = 0
    while done < len(spans):
        last = done + 1
        while last < len(spans) and (last - done + 1) * (spans[last, 2] - spans[last, 0]) <= TOKENS_AT_ONCE:
            last += 1
        first, counted, end = (spans[done:last, i, None] for i in range(3))  # (B, 1) each
        place = first + np.arange((end - first).max())  # (B, T)
        is_counted = torch.from_numpy((place >= counted) & (place < end)).to(model.device)
        place = torch.from_numpy(np.minimum(place, text.tokens - 1)).to(model.device)
        with exact():
            hidden, _, _ = model.network(read[place], model.network.start(len(place)))
        yield place[is_counted], hidden[is_counted]
        done = last


def _of_stream(model: NeuralModel, text: Encoded) -> Iterator[tuple[Tensor, Tensor]]:
    """The one stream, its state carried on."""
    read, state = _inputs(model, text), model.network.start(1)
    for first in range(0, text.tokens, TOKENS_AT_ONCE):
        place = torch.arange(first, min(first + TOKENS_AT_ONCE, text.tokens), device=model.device)
        with exact():
            hidden, state, _ = model.network(read[None, place], state)
        yield place, hidden[0]


def _inputs(model: NeuralModel, text: Encoded) -> Tensor:
    """(N,) what is read before each token."""
    return torch.from_numpy(model.read_before(text.ids)).to(model.device)
