"""Hidden states of a text: the inputs of the output layer at each token.

The text is read by the model's context rule, or with overlapping windows (`stride`).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText, group_by_length
from chainrule.lm import Ids
from chainrule.neural.model import LARGEST_PIECE, NeuralModel
from chainrule.training.device import exact_inference

HIDDEN_CHUNK_TOKENS = 1 << 13


def iter_hidden_states(
    model: NeuralModel, text: EncodedText, stride: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield positions (n,) and hidden states (n, D), each position once, in chunks of bounded (n, V)."""
    rows = max(1, LARGEST_PIECE // model.vocabulary.size)
    spans = model.context == "line" or model.network.window is not None
    for positions, hidden in _of_spans(model, text, stride) if spans else _of_stream(model, text):
        yield from zip(positions.split(rows), hidden.split(rows), strict=True)


def hidden_states(model: NeuralModel, text: EncodedText) -> Tensor:
    """Return the hidden states (N, D) of a whole text."""
    vectors: Tensor | None = None
    for positions, hidden in iter_hidden_states(model, text):
        vectors = hidden.new_empty(text.tokens, hidden.shape[1]) if vectors is None else vectors
        vectors[positions] = hidden
    assert vectors is not None  # callers reject a text without tokens
    return vectors


def context_spans(text: EncodedText, is_line: bool, window: int | None, stride: int | None) -> Ids:
    """(S, 3) spans read from an empty state: first token, first token that counts, exclusive end.

    Texts longer than the window are cut into windows that start `stride` tokens apart (default: the window length);
    tokens shared with the previous window are read as context and not counted.
    """
    ends = np.union1d(np.flatnonzero(text.ids == text.eos) + 1 if is_line else [], text.tokens).astype(np.int64)
    spans: list[tuple[int, int, int]] = []
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        W = window or end - begin
        first, counted = begin, begin
        while counted < end:
            spans.append((first, counted, min(first + W, end)))
            counted = first + W
            first += stride or W
    return np.array(spans, dtype=np.int64)


def _of_spans(model: NeuralModel, text: EncodedText, stride: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Batch spans of similar length; attention is causal, so right padding has no effect."""
    spans = context_spans(text, model.context == "line", model.network.window, stride)
    inputs = _inputs(model, text)
    for rows in group_by_length(spans[:, 2] - spans[:, 0], HIDDEN_CHUNK_TOKENS):
        first, counted, end = (spans[rows, i, None] for i in range(3))  # (B, 1) each
        position = first + np.arange((end - first).max())  # (B, T)
        is_counted = torch.from_numpy((position >= counted) & (position < end)).to(model.device)
        position = torch.from_numpy(np.minimum(position, text.tokens - 1)).to(model.device)
        with exact_inference():
            hidden, _, _ = model.network(inputs[position], model.network.start(len(position)))
        yield position[is_counted], hidden[is_counted]


def _of_stream(model: NeuralModel, text: EncodedText) -> Iterator[tuple[Tensor, Tensor]]:
    """Read one stream, carrying the state."""
    inputs, state = _inputs(model, text), model.network.start(1)
    for first in range(0, text.tokens, HIDDEN_CHUNK_TOKENS):
        position = torch.arange(first, min(first + HIDDEN_CHUNK_TOKENS, text.tokens), device=model.device)
        with exact_inference():
            hidden, state, _ = model.network(inputs[None, position], state)
        yield position, hidden[0]


def _inputs(model: NeuralModel, text: EncodedText) -> Tensor:
    """(N,) network inputs."""
    return torch.from_numpy(model.shift_inputs(text.ids)).to(model.device)
