"""Adapter from a PyTorch network to the `LanguageModel` protocol.

Handles padding, sentence boundaries, full context windows, and conversion between NumPy and torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import group_by_length
from chainrule.lm import Batch, Context, Floats, Ids, Mask, Vocabulary
from chainrule.neural.network import Network, Tensors
from chainrule.neural.weights import check_outputs
from chainrule.training.device import exact_inference, limit_threads


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


LARGEST_PIECE = 1 << 25  # largest number of (n, V) log-probabilities in memory at once
TOKENS_AT_ONCE = 1 << 15

HiddenCallback = Callable[[Ids, Ids, Tensor], None]
"""Callback on rows (S, 1), columns (S, T) and their hidden states (S, T, D)."""


@dataclass(frozen=True, slots=True)
class NeuralState:
    """State of a network; axis 0 of each tensor is the hypothesis."""

    tensors: Tensors

    def select(self, rows: Ids) -> Self:
        """Select the states of the given rows."""
        device = self.tensors[0].device
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(device)
        return type(self)(tuple(tensor.index_select(0, index) for tensor in self.tensors))


class NeuralModel:
    """A neural `LanguageModel`."""

    is_normalized = True
    engine = None

    def __init__(self, network: Network, vocabulary: Vocabulary, context: Context, log: bytes = b"") -> None:
        self.network = network.eval()
        self.vocabulary, self.context = vocabulary, context
        self.log = log  # training log, JSON Lines

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.network.parameters()).device

    def map_boundaries(self, ids: Ids) -> Ids:
        """Map `<s>` and `</s>` to the one boundary symbol the network reads: `<s>` for lines, `</s>` for a stream.

        A stream contains `<s>` only once, before the first line, which is too rare to be learned.
        """
        v = self.vocabulary
        boundary = v.bos if self.context == "line" else v.eos
        inputs: Ids = np.where((ids == v.bos) | (ids == v.eos), boundary, ids).astype(np.int64)
        return inputs

    def shift_inputs(self, ids: Ids) -> Ids:
        """(N,) Network inputs of a text: the tokens shifted right by one, starting with `<s>`."""
        return self.map_boundaries(np.concatenate([[self.vocabulary.bos], ids[:-1]]))

    def start(self, rows: int) -> NeuralState:
        """Initial state for this many rows."""
        with exact_inference():
            return NeuralState(self.network.start(rows))

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """Concatenate the rows of several states into one batch."""
        return NeuralState(self.network.join([state.tensors for state in states]))

    def step(self, state: NeuralState, ids: Ids) -> tuple[Floats, NeuralState]:
        """Read one token per row: (K,) ids -> (K, V) log-probabilities and the new state."""
        with exact_inference():
            read, tensors = self._restart_rows(np.asarray(ids, dtype=np.int64), state.tensors)
            hidden, after = self._forward(read[:, None], tensors)
            return self._all_log_probs(hidden[:, 0]), NeuralState(after)

    def _restart_rows(self, ids: Ids, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """Map `</s>` to `<s>` in a `line` model; reset rows at a line end or a full window."""
        is_line_end = ids == self.vocabulary.eos if self.context == "line" else np.zeros(len(ids), dtype=bool)
        inputs = self._tensor(self.map_boundaries(ids))
        restarts = self._tensor(is_line_end)
        position = self.network.position(tensors)
        if position is not None and self.network.window is not None:
            restarts = restarts | (position >= self.network.window)
        elif not is_line_end.any():
            return inputs, tensors
        return inputs, self.network.reset_rows(tensors, restarts)

    def score(self, batch: Batch, state: NeuralState) -> tuple[Floats, NeuralState]:
        """(B, T) log-probabilities of the targets, and the final state."""
        scores = np.zeros(batch.inputs.shape)

        def note(row: Ids, columns: Ids, hidden: Tensor) -> None:
            scores[row, columns] = self._log_probs(hidden, batch.targets[row, columns].astype(np.int64))

        return scores, self._forward_batch(batch, state, note)

    def score_lines(self, ids: Ids) -> None:
        """Return None: networks score batches only."""

    def distributions(self, batch: Batch, state: NeuralState) -> tuple[Floats, NeuralState]:
        """(B, T, V) log-probabilities of the whole vocabulary at each position, as returned by `step`."""
        log_p = np.zeros((*batch.inputs.shape, self.vocabulary.size))

        def note(row: Ids, columns: Ids, hidden: Tensor) -> None:
            log_p[row, columns] = self._all_log_probs(hidden.flatten(0, 1)).reshape(*columns.shape, -1)

        return log_p, self._forward_batch(batch, state, note)

    def advance(self, batch: Batch, state: NeuralState) -> NeuralState:
        """Return the state after the last token without computing the output layer."""
        return self._forward_batch(batch, state, lambda row, columns, hidden: None)

    def _forward_batch(self, batch: Batch, state: NeuralState, note: HiddenCallback) -> NeuralState:
        """Run the network over a batch, calling `note` on the hidden states; return the final state."""
        if not batch.mask.any():
            return state
        with exact_inference():
            position = self.network.position(state.tensors)
            spans = split_segments(
                batch,
                self.vocabulary.eos if self.context == "line" else None,
                self.network.window,
                np.zeros(len(batch.inputs), np.int64) if position is None else position.cpu().numpy(),
            )
            ends: list[tuple[Ids, Tensors]] = []
            for chunk in _chunks(spans):
                ends += self._forward_chunk(batch, state, spans, chunk, note)
            return self._final_state(state, ends)

    def _forward_chunk(
        self, batch: Batch, state: NeuralState, spans: Segments, chunk: Ids, note: HiddenCallback
    ) -> Iterator[tuple[Ids, Tensors]]:
        """Run one chunk of segments as a batch; yield the final states of rows that end in it."""
        row, first, length = spans.row[chunk], spans.first[chunk], spans.length[chunk]
        is_fresh = bool(spans.is_fresh[chunk[0]])  # the same for the whole chunk
        initial = state.tensors
        tensors = self.network.initial_state(initial, self._tensor(row)) if is_fresh else _rows(initial, row)
        is_last = spans.is_last[chunk]
        begin, done = 0, 0  # columns read, segments finished; lengths are ascending
        while done < len(chunk):
            end = int(length[done])
            columns = first[done:, None] + np.arange(begin, end)  # (S, T)
            inputs = self._tensor(self.map_boundaries(batch.inputs[row[done:, None], columns]))
            hidden, tensors = self._forward(inputs, tensors)
            note(row[done:, None], columns, hidden)
            begin = end
            finished = int(np.searchsorted(length, end, side="right"))
            ended = np.arange(done, finished)[is_last[done:finished]] - done
            if len(ended):
                yield row[done:finished][is_last[done:finished]], _rows(tensors, ended)
            if finished < len(chunk):
                tensors = _rows(tensors, np.arange(finished - done, len(chunk) - done))
            done = finished

    def _forward(self, ids: Tensor, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """Forward pass: (S, T) -> (S, T, D)."""
        with limit_threads(self.network.largest_matmul(*ids.shape)):
            hidden, after, _ = self.network(ids, tensors)
        return hidden, after

    def _log_probs(self, hidden: Tensor, targets: Ids) -> Floats:
        """(S, T, D), (S, T) -> (S, T) target log-probabilities, with at most `LARGEST_PIECE` logits in memory."""
        flat, target_ids = hidden.flatten(0, 1), self._tensor(targets.reshape(-1, 1))
        rows = max(1, LARGEST_PIECE // self.vocabulary.size)
        log_probs = [
            self.network.output.log_probs(flat[i : i + rows]).gather(1, target_ids[i : i + rows])
            for i in range(0, len(flat), rows)
        ]
        return check_outputs(torch.cat(log_probs).view(targets.shape).double().cpu().numpy(), self.network)

    def _all_log_probs(self, hidden: Tensor) -> Floats:
        """(n, D) -> (n, V), normalized in double precision."""
        log_p = self.network.output.log_probs(hidden).double()
        log_p = log_p - torch.logsumexp(log_p, dim=-1, keepdim=True)
        return check_outputs(log_p.cpu().numpy(), self.network)

    def _final_state(self, state: NeuralState, ends: list[tuple[Ids, Tensors]]) -> NeuralState:
        """Collect the final states in row order; rows without tokens keep their old state."""
        read = np.concatenate([rows for rows, _ in ends])
        idle = np.setdiff1d(np.arange(len(state.tensors[0])), read)
        parts = [tensors for _, tensors in ends] + ([state.select(idle).tensors] if len(idle) else [])
        if len(parts) == 1 and (np.diff(read) == 1).all():
            return NeuralState(parts[0])
        order = np.argsort(np.concatenate([read, idle]), kind="stable")
        return NeuralState(self.network.join(parts)).select(order)

    def _tensor(self, array: Ids) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _rows(tensors: Tensors, rows: Ids) -> Tensors:
    return NeuralState(tensors).select(rows).tensors


def _chunks(spans: Segments) -> Iterator[Ids]:
    """Group segments by ascending length into chunks of bounded size; segments with a fresh state separately."""
    for is_selected in (~spans.is_fresh, spans.is_fresh):
        selected = np.flatnonzero(is_selected)
        yield from (selected[rows] for rows in group_by_length(spans.length[selected], TOKENS_AT_ONCE))
