"""The recurrent encoder–decoder, without attention (Cho et al. 2014) and with it (Bahdanau et al. 2015).

Without: c is the encoder's last state, given to the decoder as its first state and at every step.
With: c_i = Σ_j α_ij h_j, α_i = softmax_j score(s_{i−1}, h_j).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, pad

from chainrule.lm import Vocabulary
from chainrule.neural import dropout
from chainrule.neural.attention import Score, additive
from chainrule.neural.block import chosen, drop
from chainrule.neural.encoder import Reader, make_layer
from chainrule.neural.network import Features, Tensors
from chainrule.neural.output import make_output
from chainrule.neural.pairs import PairConfig, PairNetwork
from chainrule.neural.precision import cast

FROM_SOURCE = 4  # tensors of a state that only the source decides: memory, keys, mask, last


class Seq2Seq(PairNetwork):
    """Its state: memory (B, S, D), keys (B, S, D), mask (B, S), last (B, D), then each decoder layer's (B, D)."""

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, D, E = config, config.hidden, config.embedding_width
        self.reader = Reader(config, source_size)
        if config.joint:
            self.embedding = self.reader.embedding
        else:
            self.embedding = nn.Parameter(torch.empty(vocabulary.size, E).normal_(0.0, E**-0.5))
        self.layers = nn.ModuleList(make_layer(D if k else E + D, D, config) for k in range(config.layers))
        self.bridges = nn.ModuleList(
            nn.Linear(D, D) for layer in self.layers for _ in range(layer.memories)
        )  # s_0 = tanh(W last)
        if config.attention != "none":
            self.score = Score(config.attention, D)
        self.readout = nn.Linear(2 * D + E, E)  # t_i = tanh(W [s_i; c_i; y_{i−1}])
        self.output = make_output(config, E, vocabulary, self.embedding, None)

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """Read the source; the decoder's first states come from the encoder's last."""
        memory, last = self.reader(source, mask)
        if self.config.attention == "none":
            memory, mask = memory[:, :0], mask[:, :0]
            keys = memory
        else:
            keys = self.score.keys(memory)
        return (memory, keys, mask, last, *self._first(last))

    def _first(self, last: Tensor) -> list[Tensor]:
        return [bridge(last).tanh() for bridge in self.bridges]

    def fresh(self, state: Tensors, rows: Tensor) -> Tensors:
        """The same sources, nothing of a target read."""
        kept = [tensor.index_select(0, rows) for tensor in state[:FROM_SOURCE]]
        return (*kept, *self._first(kept[-1]))

    def work(self, rows: int, T: int) -> float:
        """Of one time step: each waits for the one before."""
        return float(max(layer.R.numel() for layer in self.layers) * rows)

    def join(self, states: "list[Tensors]") -> Tensors:  # type: ignore[override]
        """Shorter sources are padded with what nobody looks at."""
        S = max(state[0].shape[1] for state in states)
        wide = []
        for memory, keys, mask, *rest in states:
            more = S - memory.shape[1]
            sides = (0, 0, 0, more)
            wide.append((pad(memory, sides), pad(keys, sides), pad(mask, (0, more)), *rest))
        return super().join(wide)

    def forward(self, ids: Tensor, state: Tensors) -> Features:
        """(B, T) of the target -> (B, T, E)."""
        c = self.config
        y = drop(embedding(ids, self.embedding) * self.reader.scale, chosen(c.input_dropout, c), c, self.training)
        s, context, cells = self._at_once(y, state) if c.attention == "none" else self._attentive(y, state)[:3]
        t = self.readout(torch.cat([s, context, y.to(s.dtype)], dim=-1)).tanh()
        hidden = drop(t, chosen(c.output_dropout, c), c, self.training)
        kept = tuple(cell.to(self.embedding.dtype) for cell in cells)
        return Features(hidden, (*state[:FROM_SOURCE], *kept))

    def _at_once(self, y: Tensor, state: Tensors) -> tuple[Tensor, Tensor, list[Tensor]]:
        """No attention: all steps of a layer in one call; (B, T, D), (B, T, D), the states after."""
        last, cells, after = state[FROM_SOURCE - 1], list(state[FROM_SOURCE:]), list[Tensor]()
        context = last[:, None].expand(-1, y.shape[1], -1)
        x = torch.cat([y, context.to(y.dtype)], dim=-1)
        for k, layer in enumerate(self.layers):
            x = drop(x, self.config.dropout, self.config, self.training) if k else x
            mine, cells = cells[: layer.memories], cells[layer.memories :]
            outputs, new = layer(x.transpose(0, 1), tuple(mine))
            x = outputs.transpose(0, 1)
            after += new
        return x, context, after

    def _attentive(self, y: Tensor, state: Tensors) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """Step by step, as c_i needs s_{i−1}: s (B, T, D), c (B, T, D), the states after, α (B, T, S)."""
        memory, keys, mask, _, *cells = state
        y, memory, keys, *cells = cast(y, memory, keys, *cells)
        weights = [layer.weights() for layer in self.layers]
        look, masks = self._look(), self._masks(cells)
        E, hidden = y.shape[-1], ~mask[:, None]
        W, _, b_W, _ = weights[0]
        read = linear(y, W[:, :E], b_W)  # (B, T, gates · D): what the words say to the first layer
        outputs, contexts, alphas = list[Tensor](), list[Tensor](), list[Tensor]()
        for i in range(y.shape[1]):
            top = cells[-self.layers[-1].memories]  # s_{i−1}
            e = look(top[:, None], keys).masked_fill(hidden, -torch.inf)  # (B, 1, S)
            alpha = torch.softmax(e, dim=-1).to(memory.dtype)
            context = (alpha @ memory)[:, 0]  # (B, D)
            cells = self._step(read[:, i] + linear(context, W[:, E:]), cells, weights, masks)
            outputs.append(cells[-self.layers[-1].memories])
            contexts.append(context)
            alphas.append(alpha[:, 0])
        return torch.stack(outputs, 1), torch.stack(contexts, 1), cells, torch.stack(alphas, 1)

    def _look(self) -> Callable[[Tensor, Tensor], Tensor]:
        """`score.look` for all steps of a pass, its weights cast to the arithmetic of the pass once."""
        if self.score.kind != "additive":
            return self.score.look
        W_1, v = cast(self.score.W_1, self.score.v)
        return lambda q, keys: additive(q, keys, W_1, v)

    def _masks(self, cells: list[Tensor]) -> list[Tensor] | None:
        """Locked dropout between layers, (B, D) before each but the first, one for all steps; else None."""
        c = self.config
        if not (self.training and c.locked and c.dropout):
            return None
        return [dropout.keep_mask(cells[0], tuple(cells[0].shape), c.dropout) for _ in self.layers[1:]]

    def _step(
        self, u: Tensor, cells: list[Tensor], weights: list[list[Tensor]], masks: list[Tensor] | None
    ) -> list[Tensor]:
        """One step of all layers from u = W x + b_W of the first."""
        after = list[Tensor]()
        for k, (layer, (W, R, b_W, b_R)) in enumerate(zip(self.layers, weights, strict=True)):
            if k:
                below = after[-self.layers[k - 1].memories]
                if masks is None:
                    below = dropout.units(below, self.config.dropout, self.training)
                else:
                    below = below * masks[k - 1]
                u = linear(below, W, b_W)
            mine, cells = cells[: layer.memories], cells[layer.memories :]
            after += layer.cell(u, tuple(mine), R, b_R)
        return after

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) -> (B, 1, 1, T, S); without attention S is 0."""
        y = embedding(ids, self.embedding) * self.reader.scale
        if self.config.attention == "none":
            return y.new_zeros(len(ids), 1, 1, ids.shape[1], 0)
        return self._attentive(y, state)[3][:, None, None]
