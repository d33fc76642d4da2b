"""A network as a `LanguageModel`: its one `forward` becomes the parallel and the sequential view.

Lives here: rows that end, lines that start anew, windows that are full, ids and numbers to and from numpy.
Not here: any architecture.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.neural import segments
from chainrule.neural.device import exact
from chainrule.neural.network import Network, Tensors
from chainrule.neural.segments import Segments
from chainrule.neural.weights import check_outputs
from chainrule.training.threads import suited

LARGEST_PIECE = 1 << 25  # numbers: of the (n, V) log-probabilities that stand in memory at once
TOKENS_AT_ONCE = 1 << 15

Note = Callable[[Ids, Ids, Tensor], None]
"""Told of rows (S, 1), columns (S, T) and what the network made of the tokens there, (S, T, D)."""


@dataclass(frozen=True, slots=True)
class NeuralState:
    """What a network remembers; axis 0 of each tensor is the hypothesis."""

    tensors: Tensors

    def select(self, rows: Ids) -> Self:
        """The states of these rows."""
        device = self.tensors[0].device
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(device)
        return type(self)(tuple(tensor.index_select(0, index) for tensor in self.tensors))


class NeuralModel:
    """Any network behind the contract."""

    is_normalized = True

    def __init__(self, network: Network, vocabulary: Vocabulary, context: Context, log: bytes = b"") -> None:
        self.network = network.eval()
        self.vocabulary, self.context = vocabulary, context
        self.log = log  # of the training that made it, as JSON Lines

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.network.parameters()).device

    def as_read(self, ids: Ids) -> Ids:
        """What the network sees: one sign where a line begins, `<s>` in lines and in a stream `</s>`.

        In a stream `<s>` stands before the first line alone, too seldom to be learnt.
        """
        v = self.vocabulary
        sign = v.bos if self.context == "line" else v.eos
        seen: Ids = np.where((ids == v.bos) | (ids == v.eos), sign, ids).astype(np.int64)
        return seen

    def read_before(self, ids: Ids) -> Ids:
        """(N,) what the network reads before each token of a text: the one before it, `<s>` before the first."""
        return self.as_read(np.concatenate([[self.vocabulary.bos], ids[:-1]]))

    def start(self, rows: int) -> NeuralState:
        """Nothing read yet."""
        with exact():
            return NeuralState(self.network.start(rows))

    def join(self, states: Sequence[NeuralState]) -> NeuralState:
        """The rows of several states in one, in their order, to be stepped together."""
        return NeuralState(self.network.join([state.tensors for state in states]))

    def step(self, state: NeuralState, ids: Ids) -> tuple[Floats, NeuralState]:
        """(K,) -> (K, V)."""
        with exact():
            read, tensors = self._anew(np.asarray(ids, dtype=np.int64), state.tensors)
            hidden, after = self._run(read[:, None], tensors)
            return self._all_log_probs(hidden[:, 0]), NeuralState(after)

    def _anew(self, ids: Ids, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """Rows that read `</s>` in a `line` model read `<s>` anew; rows whose window is full start anew."""
        is_over = ids == self.vocabulary.eos if self.context == "line" else np.zeros(len(ids), dtype=bool)
        read = self._tensor(self.as_read(ids))
        restarts = self._tensor(is_over)
        position = self.network.position(tensors)
        if position is not None and self.network.window is not None:
            restarts = restarts | (position >= self.network.window)
        elif not is_over.any():
            return read, tensors
        return read, self.network.restart(tensors, restarts)

    def score(self, batch: Batch, state: NeuralState) -> tuple[Floats, NeuralState]:
        """(B, T) log p of the targets."""
        scores = np.zeros(batch.inputs.shape)

        def note(row: Ids, columns: Ids, hidden: Tensor) -> None:
            scores[row, columns] = self._log_probs(hidden, batch.targets[row, columns].astype(np.int64))

        return scores, self._read_all(batch, state, note)

    def distributions(self, batch: Batch, state: NeuralState) -> tuple[Floats, NeuralState]:
        """(B, T, V) log p of every word, as `step` gives it."""
        log_p = np.zeros((*batch.inputs.shape, self.vocabulary.size))

        def note(row: Ids, columns: Ids, hidden: Tensor) -> None:
            log_p[row, columns] = self._all_log_probs(hidden.flatten(0, 1)).reshape(*columns.shape, -1)

        return log_p, self._read_all(batch, state, note)

    def advance(self, batch: Batch, state: NeuralState) -> NeuralState:
        """The state after the last token: what the output layer would say is not worked out."""
        return self._read_all(batch, state, lambda row, columns, hidden: None)

    def _read_all(self, batch: Batch, state: NeuralState, note: Note) -> NeuralState:
        """Read T tokens a row; the state after the last."""
        if not batch.mask.any():
            return state
        with exact():
            position = self.network.position(state.tensors)
            pieces = segments.cut(
                batch,
                self.vocabulary.eos if self.context == "line" else None,
                self.network.window,
                np.zeros(len(batch.inputs), np.int64) if position is None else position.cpu().numpy(),
            )
            ends: list[tuple[Ids, Tensors]] = []
            for chunk in _chunks(pieces):
                ends += self._read(batch, state, pieces, chunk, note)
            return self._after(state, ends)

    def _read(
        self, batch: Batch, state: NeuralState, pieces: Segments, chunk: Ids, note: Note
    ) -> Iterator[tuple[Ids, Tensors]]:
        """Read these pieces side by side, note what was read, and give each row's last state."""
        row, first, length = pieces.row[chunk], pieces.first[chunk], pieces.length[chunk]
        is_fresh = bool(pieces.is_fresh[chunk[0]])  # and all of the chunk with it
        old = state.tensors
        tensors = self.network.fresh(old, self._tensor(row)) if is_fresh else _rows(old, row)
        is_last = pieces.is_last[chunk]
        begin, done = 0, 0  # columns read, pieces that have ended: lengths ascend
        while done < len(chunk):
            end = int(length[done])
            columns = first[done:, None] + np.arange(begin, end)  # (S, T)
            inputs = self._tensor(self.as_read(batch.inputs[row[done:, None], columns]))
            hidden, tensors = self._run(inputs, tensors)
            note(row[done:, None], columns, hidden)
            begin = end
            now = int(np.searchsorted(length, end, side="right"))
            over = np.arange(done, now)[is_last[done:now]] - done
            if len(over):
                yield row[done:now][is_last[done:now]], _rows(tensors, over)
            if now < len(chunk):
                tensors = _rows(tensors, np.arange(now - done, len(chunk) - done))
            done = now

    def _run(self, ids: Tensor, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """(S, T) -> (S, T, D)."""
        with suited(self.network.work(*ids.shape)):
            hidden, after, _ = self.network(ids, tensors)
        return hidden, after

    def _log_probs(self, hidden: Tensor, targets: Ids) -> Floats:
        """(S, T, D), (S, T) -> (S, T), so many rows of V numbers at a time as memory is given to."""
        flat, wanted = hidden.flatten(0, 1), self._tensor(targets.reshape(-1, 1))
        rows = max(1, LARGEST_PIECE // self.vocabulary.size)
        found = [
            self.network.output.log_probs(flat[i : i + rows]).gather(1, wanted[i : i + rows])
            for i in range(0, len(flat), rows)
        ]
        return check_outputs(torch.cat(found).view(targets.shape).double().cpu().numpy(), self.network)

    def _all_log_probs(self, hidden: Tensor) -> Floats:
        """(n, D) -> (n, V), normalised in double precision."""
        log_p = self.network.output.log_probs(hidden).double()
        log_p = log_p - torch.logsumexp(log_p, dim=-1, keepdim=True)
        return check_outputs(log_p.cpu().numpy(), self.network)

    def _after(self, state: NeuralState, ends: list[tuple[Ids, Tensors]]) -> NeuralState:
        """The rows' states in their order; of rows that read nothing, the one they had."""
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


def _chunks(pieces: Segments) -> Iterator[Ids]:
    """Pieces by ascending length, so many that what is read at once is bounded; those that start anew apart."""
    for kind in (~pieces.is_fresh, pieces.is_fresh):
        order = np.flatnonzero(kind)
        order = order[np.argsort(pieces.length[order], kind="stable")]
        first = 0
        while first < len(order):
            last = first + 1
            while last < len(order) and (last - first + 1) * pieces.length[order[last]] <= TOKENS_AT_ONCE:
                last += 1
            yield order[first:last]
            first = last
