"""The Transformer as Vaswani et al. (2017) made it: an encoder, and a decoder that attends to it.

Lives here: the decoder's stack and its cache. Not here: the blocks (block.py, cross.py), the encoder (encoder.py).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.block import chosen, drop
from chainrule.neural.cross import CrossBlock
from chainrule.neural.encoder import Reader
from chainrule.neural.initialization import fill
from chainrule.neural.network import Features, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.pairs import PairConfig, PairNetwork
from chainrule.neural.positions import Learned, Rotation, sinusoidal


class EncoderDecoder(PairNetwork):
    """Its state: there (B, S), the source's keys and values by layer (B, S, H, d), length (B,), its own.

    Row b has read length[b] tokens, and the last of its P own entries (B, P, H, d) are theirs.
    """

    window: int

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.window, D = config, config.longest, config.hidden
        self.reader = Reader(config, source_size)
        if config.joint:
            self.embedding = self.reader.embedding
        else:
            self.embedding = nn.Parameter(torch.empty(vocabulary.size, D).normal_(0.0, D**-0.5))
        self.learned = Learned(config.longest, D) if config.positions == "learned" else None
        if self.learned is not None:
            fill(self.learned.table, "normal", config.init_range)
        self.blocks = nn.ModuleList(CrossBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(D, bias=config.bias) if config.norm == "pre" else None
        self.output = make_output(config, D, vocabulary, self.embedding, None)

    @property
    def _from_source(self) -> int:
        """Tensors of a state that only the source decides."""
        return 1 + 2 * len(self.blocks)

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """Read the source and make its keys and values for every layer of the decoder."""
        memory = self.reader(source, mask).hidden
        made = [part for block in self.blocks for part in block.source(memory)]
        return (mask, *made, *self._nothing(len(source), made[0]))

    def _nothing(self, rows: int, like: Tensor) -> Tensors:
        """The decoder's own part before anything was read."""
        empty = like.new_empty(rows, 0, *like.shape[2:])
        return (torch.zeros(rows, dtype=torch.int64, device=like.device), *[empty] * (2 * len(self.blocks)))

    def fresh(self, state: Tensors, rows: Tensor) -> Tensors:
        """The same sources, nothing of a target read."""
        kept = tuple(tensor.index_select(0, rows) for tensor in state[: self._from_source])
        return (*kept, *self._nothing(len(rows), kept[1]))

    def restart(self, state: Tensors, rows: Tensor) -> Tensors:
        """Rows of length 0 see none of their entries."""
        n = self._from_source
        return (*state[:n], state[n].masked_fill(rows, 0), *state[n + 1 :])

    def work(self, rows: int, T: int) -> float:
        """Of the position-wise net."""
        return float(self.config.hidden * (self.config.feedforward or 4 * self.config.hidden) * rows * T)

    def position(self, state: Tensors) -> Tensor:
        """(B,) tokens of the target read."""
        return state[self._from_source]

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """Sources are padded behind, own entries in front, with what nobody looks at."""
        n = self._from_source
        S = max(state[0].shape[1] for state in states)
        P = max(state[n + 1].shape[1] for state in states)
        wide = []
        for state in states:
            there = functional.pad(state[0], (0, S - state[0].shape[1]))
            source = [functional.pad(t, (0, 0, 0, 0, 0, S - t.shape[1])) for t in state[1:n]]
            own = [functional.pad(t, (0, 0, 0, 0, P - t.shape[1], 0)) for t in state[n + 1 :]]
            wide.append((there, *source, state[n], *own))
        return super().join(wide)

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """(B, T) of the target -> (B, T, D); while learning, what starts from nothing leaves no cache."""
        x, after, _ = self._decode(ids, state)
        x = drop(x, chosen(self.config.output_dropout, self.config), self.config, self.training)
        has_past = state[self._from_source + 1].shape[1] > 0
        return Features(x, state if self.training and not has_past else after)

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) -> (B, L, H, T, S)."""
        return self._decode(ids, state)[2]

    def _decode(self, ids: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        n, c = self._from_source, self.config
        there, source, length, caches = state[0], state[1:n], state[n], state[n + 1 :]
        P, T = caches[0].shape[1], ids.shape[1]
        positions = torch.arange(T, device=ids.device)
        positions = positions + length[:, None] if P else positions
        mask = _seen(length, P, T) if P else None
        rotation = Rotation.at(positions, c.hidden // c.heads) if c.positions == "rotary" else None
        x, after, alphas = self._embed(ids, positions), list[Tensor](), list[Tensor]()
        for k, block in enumerate(self.blocks):
            mine = slice(2 * k, 2 * k + 2)
            x, keys, values, alpha = block(x, caches[mine], rotation, mask, source[mine], there)
            after += [keys, values]
            alphas.append(alpha)
        x = x if self.norm is None else self.norm(x)
        return x, (*state[:n], length + T, *after), torch.stack(alphas, dim=1)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        c = self.config
        x = functional.embedding(ids, self.embedding) * self.reader.scale
        if c.positions == "sinusoidal":
            x = x + sinusoidal(positions, c.hidden, x.dtype)
        elif self.learned is not None:
            x = x + self.learned(positions)
        return drop(x, chosen(c.input_dropout, c), c, self.training)


def _seen(length: Tensor, P: int, T: int) -> Tensor:
    """(B, 1, T, P + T) what each token may look at: nothing unread, nothing ahead."""
    entry = torch.arange(P + T, device=length.device)
    near = entry <= entry[P:, None]  # (T, P + T)
    read = entry >= P - length[:, None]  # (B, P + T)
    return near & read[:, None, None, :]
