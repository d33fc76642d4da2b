"""Transformer encoder–decoder (Vaswani et al. 2017) with a key/value cache in the decoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.encoders.encoder import TextEncoder
from chainrule.neural.encoders.seq2seq import PairConfig, PairNetwork
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.layers.output import make_output
from chainrule.neural.layers.positions import LearnedPositions, Rotation, sinusoidal
from chainrule.neural.layers.transformer_block import CrossBlock, apply_dropout, dropout_rate
from chainrule.neural.network import NetworkOutput, Tensors


class EncoderDecoder(PairNetwork):
    """Transformer translation model.

    State: source mask (B, S); keys and values of the source per layer (B, S, H, d); length (B,), the number of
    target tokens read; keys and values of the target per layer (B, P, H, d), right-aligned.
    """

    window: int

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.window, D = config, config.longest, config.hidden
        self.reader = TextEncoder(config, source_size)
        if config.joint:
            self.embedding = self.reader.embedding
        else:
            self.embedding = nn.Parameter(torch.empty(vocabulary.size, D).normal_(0.0, D**-0.5))
        self.learned = LearnedPositions(config.longest, D) if config.positions == "learned" else None
        if self.learned is not None:
            initialize(self.learned.table, "normal", config.init_range)
        self.blocks = nn.ModuleList(CrossBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(D, bias=config.bias) if config.norm == "pre" else None
        self.output = make_output(config, D, vocabulary, self.embedding, None)

    @property
    def _from_source(self) -> int:
        """Number of state tensors that depend only on the source."""
        return 1 + 2 * len(self.blocks)

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """Encode the source and project its keys and values for every decoder layer."""
        memory = self.reader(source, mask).hidden
        keys_values = [part for block in self.blocks for part in block.source(memory)]
        return (mask, *keys_values, *self._empty_cache(len(source), keys_values[0]))

    def _empty_cache(self, rows: int, like: Tensor) -> Tensors:
        """Decoder part of the initial state."""
        empty = like.new_empty(rows, 0, *like.shape[2:])
        return (torch.zeros(rows, dtype=torch.int64, device=like.device), *[empty] * (2 * len(self.blocks)))

    def initial_state(self, state: Tensors, rows: Tensor) -> Tensors:
        """Initial decoder state for the sources of these rows."""
        source = tuple(tensor.index_select(0, rows) for tensor in state[: self._from_source])
        return (*source, *self._empty_cache(len(rows), source[1]))

    def reset_rows(self, state: Tensors, rows: Tensor) -> Tensors:
        """Reset rows: with length 0 none of their cache entries is visible."""
        n = self._from_source
        return (*state[:n], state[n].masked_fill(rows, 0), *state[n + 1 :])

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of the position-wise network."""
        return float(self.config.hidden * (self.config.feedforward or 4 * self.config.hidden) * rows * T)

    def position(self, state: Tensors) -> Tensor:
        """(B,) number of target tokens read."""
        return state[self._from_source]

    def join(self, states: Sequence[Tensors]) -> Tensors:
        """Concatenate states, padding sources on the right and caches on the left with masked entries."""
        n = self._from_source
        S = max(state[0].shape[1] for state in states)
        P = max(state[n + 1].shape[1] for state in states)
        padded_states = []
        for state in states:
            source_mask = functional.pad(state[0], (0, S - state[0].shape[1]))
            source = [functional.pad(t, (0, 0, 0, 0, 0, S - t.shape[1])) for t in state[1:n]]
            cache = [functional.pad(t, (0, 0, 0, 0, P - t.shape[1], 0)) for t in state[n + 1 :]]
            padded_states.append((source_mask, *source, state[n], *cache))
        return super().join(padded_states)

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """(B, T) target ids -> (B, T, D); in training from an empty state, no cache is kept."""
        x, after, _ = self._decode(ids, state)
        x = apply_dropout(x, dropout_rate(self.config.output_dropout, self.config), self.config, self.training)
        has_past = state[self._from_source + 1].shape[1] > 0
        return NetworkOutput(x, state if self.training and not has_past else after)

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) ids -> (B, L, H, T, S) cross-attention weights."""
        return self._decode(ids, state)[2]

    def _decode(self, ids: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        n, c = self._from_source, self.config
        source_mask, source, length, caches = state[0], state[1:n], state[n], state[n + 1 :]
        P, T = caches[0].shape[1], ids.shape[1]
        positions = torch.arange(T, device=ids.device)
        positions = positions + length[:, None] if P else positions
        mask = _causal_mask(length, P, T) if P else None
        rotation = Rotation.at(positions, c.hidden // c.heads) if c.positions == "rotary" else None
        x, after, alphas = self._embed(ids, positions), list[Tensor](), list[Tensor]()
        for k, block in enumerate(self.blocks):
            layer_slice = slice(2 * k, 2 * k + 2)
            x, keys, values, alpha = block(x, caches[layer_slice], rotation, mask, source[layer_slice], source_mask)
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
        return apply_dropout(x, dropout_rate(c.input_dropout, c), c, self.training)


def _causal_mask(length: Tensor, P: int, T: int) -> Tensor:
    """(B, 1, T, P + T) causal mask over the valid cache entries and the new tokens."""
    entry = torch.arange(P + T, device=length.device)
    is_past = entry <= entry[P:, None]  # (T, P + T)
    is_valid = entry >= P - length[:, None]  # (B, P + T)
    return is_past & is_valid[:, None, None, :]
