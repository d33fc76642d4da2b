"""Translation models p(target | source): recurrent and Transformer encoder–decoders.

Recurrent: without attention (Cho et al. 2014), the context c is the encoder's last state, used as initial decoder
state and as input at each step; with attention (Bahdanau et al. 2015), c_i = Σ_j α_ij h_j,
α_i = softmax_j score(s_{i−1}, h_j).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, pad

from chainrule.config import check_fractions
from chainrule.data.encoded import batches_by_length
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.encoders.encoder import EncoderConfig, TextEncoder, make_layer
from chainrule.neural.layers import dropout
from chainrule.neural.layers.attention import AttentionScore, additive_score
from chainrule.neural.layers.output import make_output
from chainrule.neural.layers.positions import Rotation
from chainrule.neural.layers.transformer_block import CrossBlock, add_positions, causal_mask, make_positions
from chainrule.neural.model import LARGEST_PIECE, NeuralModel, NeuralState
from chainrule.neural.network import Network, NetworkOutput, Tensors
from chainrule.neural.weights import check_outputs
from chainrule.training.batches import pad_to_device, to_device
from chainrule.training.config import TrainingConfig
from chainrule.training.device import cast, device_of, exact_inference, limit_threads

BATCH_SIZE = 64  # pairs per batch


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig(EncoderConfig):
    """Settings of a translation model."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "frozen_vectors")
    attention: Literal["none", "dot", "scaled-dot", "general", "additive"] = "additive"  # recurrent families
    label_smoothing: float = 0.1  # ε: probability mass spread over all words
    joint: bool = True  # one vocabulary and one embedding for both texts
    family: str = "gru"
    longest: int = 128  # tokens of a source or target including `</s>`; longer pairs are skipped
    training: TrainingConfig = field(  # batch_size in pairs
        default_factory=lambda: TrainingConfig(epochs=30, batch_size=64, learning_rate=1e-3)
    )

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.family == "transformer" and self.attention != "additive":
            raise ConfigError("model.attention is not a setting of family 'transformer', which always attends")
        if self.family == "transformer" and self.embedding not in (0, self.hidden):
            raise ConfigError(f"model.embedding is {self.embedding}; a Transformer has one width: leave it at 0")
        check_fractions(self, "model", "label_smoothing")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a translation model has the full softmax")


class PairNetwork(Network):
    """Encoder of the source and decoder of the target; the state contains the encoded source."""

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, E = config, config.embedding_width
        self.reader = TextEncoder(config, source_size)
        if config.joint:
            self.embedding = self.reader.embedding
        else:
            self.embedding = nn.Parameter(torch.empty(vocabulary.size, E).normal_(0.0, E**-0.5))

    def _scaled(self, ids: Tensor) -> Tensor:
        """Target word vectors of about unit variance: (B, T) -> (B, T, E)."""
        return embedding(ids, self.embedding) * self.reader.scale

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """(B, S) ids, (B, S) mask -> initial decoder state."""
        raise NotImplementedError

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) ids -> (B, L, H, T, S) attention weights over the source, by layer and head."""
        raise NotImplementedError

    def start(self, rows: int) -> Tensors:
        """Return an empty state: training carries nothing across batches; decoding starts from `encode`."""
        return ()


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Padded pairs; `targets` is `inputs` shifted by one token."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S)
    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    target_positions: Tensor  # (N,) flat indices of the valid targets among B · T
    starts: bool = True


@dataclass(frozen=True, slots=True)
class PairCollator:
    """Collate encoded pairs into a batch on the device; every source ends in `</s>`."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]
    vocabulary: Vocabulary  # of the targets
    device: torch.device

    def __call__(self, rows: Ids) -> PairBatch:
        """Build the batch of these rows."""
        v = self.vocabulary
        target_rows = [self.targets[i] for i in rows.tolist()]
        source, source_mask = pad_to_device([self.sources[i] for i in rows.tolist()], v.eos, self.device)
        targets, mask = pad_to_device(target_rows, v.eos, self.device)
        inputs = torch.cat([torch.full_like(targets[:, :1], v.bos), targets[:, :-1]], dim=1)
        return PairBatch(
            source, source_mask, inputs, targets, mask, to_device(_valid_indices(target_rows), self.device)
        )


def _valid_indices(rows: Sequence[Ids]) -> Tensor:
    """(N,) flat indices of the valid ids of right-padded rows.

    Computed on the CPU: finding them from a mask on the GPU would synchronize.
    """
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.flatnonzero(np.arange(lengths.max()) < lengths[:, None]))


def pair_loss(network: PairNetwork, batch: PairBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """(1 − ε)(−log p(target)) + ε · mean_w(−log p(w)), and the mean nats (Szegedy et al. 2016)."""
    hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden
    flat, targets = (
        part.index_select(0, batch.target_positions) for part in (hidden.flatten(0, 1), batch.targets.flatten())
    )
    nats = network.output.loss(flat, targets)
    epsilon = network.config.label_smoothing
    return (nats + epsilon * _smoothing_term(network.output, flat, targets) if epsilon else nats), nats, ()


def _smoothing_term(output: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """mean_w(−log p(w)) − (−log p(target)) over possible words w, averaged over N targets.

    The normalizer cancels: z_t − mean_w z_w = h · (W_t − mean_w W_w) + b_t − mean_w b_w, without (N, V) logits.
    """
    share = ~output.impossible / (~output.impossible).sum()  # (V,)
    W, b, h = output.weight, output.bias, hidden.float()
    difference = W.index_select(0, targets) - (share[:, None] * W).sum(dim=0)  # (N, D)
    return ((h * difference).sum(dim=-1) + b.index_select(0, targets) - (share * b).sum()).mean()


FROM_SOURCE = 4  # state tensors that depend only on the source: memory, keys, mask, last


class Seq2Seq(PairNetwork):
    """Recurrent translation model.

    State: memory (B, S, D), keys (B, S, D), mask (B, S), last (B, D), then the (B, D) tensors of each decoder
    layer.
    """

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__(config, source_size, vocabulary)
        D, E = config.hidden, config.embedding_width
        self.layers = nn.ModuleList(make_layer(D if k else E + D, D, config) for k in range(config.layers))
        self.bridges = nn.ModuleList(
            nn.Linear(D, D) for layer in self.layers for _ in range(layer.n_states)
        )  # s_0 = tanh(W last)
        if config.attention != "none":
            self.score = AttentionScore(config.attention, D)
        self.readout = nn.Linear(2 * D + E, E)  # t_i = tanh(W [s_i; c_i; y_{i−1}])
        self.output = make_output(config, E, vocabulary, self.embedding, None)

    def encode(self, source: Tensor, mask: Tensor) -> Tensors:
        """Encode the source; initial decoder states are computed from the encoder's last state."""
        memory, last = self.reader(source, mask)
        if self.config.attention == "none":
            memory, mask = memory[:, :0], mask[:, :0]
            keys = memory
        else:
            keys = self.score.keys(memory)
        return (memory, keys, mask, last, *self._initial_cells(last))

    def _initial_cells(self, last: Tensor) -> list[Tensor]:
        return [bridge(last).tanh() for bridge in self.bridges]

    def initial_state(self, state: Tensors, rows: Tensor) -> Tensors:
        """Initial decoder state for the sources of these rows."""
        source = [tensor.index_select(0, rows) for tensor in state[:FROM_SOURCE]]
        return (*source, *self._initial_cells(source[-1]))

    def largest_matmul(self, rows: int, T: int) -> float:
        """Multiplications of one time step, since steps are sequential."""
        return float(max(layer.R.numel() for layer in self.layers) * rows)

    def join(self, states: "list[Tensors]") -> Tensors:  # type: ignore[override]
        """Concatenate states, padding shorter sources with masked positions."""
        S = max(state[0].shape[1] for state in states)
        padded_states = []
        for memory, keys, mask, *rest in states:
            extra = S - memory.shape[1]
            padding = (0, 0, 0, extra)
            padded_states.append((pad(memory, padding), pad(keys, padding), pad(mask, (0, extra)), *rest))
        return super().join(padded_states)

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """(B, T) target ids -> (B, T, E)."""
        c = self.config
        y = dropout.apply(self._scaled(ids), c, self.training, c.input_dropout)
        s, context, cells = (
            self._run_fused(y, state) if c.attention == "none" else self._run_with_attention(y, state)[:3]
        )
        t = self.readout(torch.cat([s, context, y.to(s.dtype)], dim=-1)).tanh()
        hidden = dropout.apply(t, c, self.training, c.output_dropout)
        new_cells = tuple(cell.to(self.embedding.dtype) for cell in cells)
        return NetworkOutput(hidden, (*state[:FROM_SOURCE], *new_cells))

    def _run_fused(self, y: Tensor, state: Tensors) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Without attention: all steps of a layer in one call; s (B, T, D), c (B, T, D), final states."""
        last, cells, after = state[FROM_SOURCE - 1], list(state[FROM_SOURCE:]), list[Tensor]()
        context = last[:, None].expand(-1, y.shape[1], -1)
        x = torch.cat([y, context.to(y.dtype)], dim=-1)
        for k, layer in enumerate(self.layers):
            x = dropout.apply(x, self.config, self.training) if k else x
            layer_cells, cells = cells[: layer.n_states], cells[layer.n_states :]
            outputs, new = layer(x.transpose(0, 1), tuple(layer_cells))
            x = outputs.transpose(0, 1)
            after += new
        return x, context, after

    def _run_with_attention(self, y: Tensor, state: Tensors) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """With attention, step by step: s (B, T, D), c (B, T, D), final states, α (B, T, S)."""
        memory, keys, mask, _, *cells = state
        y, memory, keys, *cells = cast(y, memory, keys, *cells)
        weights = [layer.weights() for layer in self.layers]
        score, masks = self._score_function(), self._masks(cells)
        E, is_padding = y.shape[-1], ~mask[:, None]
        W, _, b_W, _ = weights[0]
        word_inputs = linear(y, W[:, :E], b_W)  # (B, T, gates · D): word part of the first layer's input
        outputs, contexts, alphas = list[Tensor](), list[Tensor](), list[Tensor]()
        for i in range(y.shape[1]):
            top = cells[-self.layers[-1].n_states]  # s_{i−1}
            e = score(top[:, None], keys).masked_fill(is_padding, -torch.inf)  # (B, 1, S)
            alpha = torch.softmax(e, dim=-1).to(memory.dtype)
            context = (alpha @ memory)[:, 0]  # (B, D)
            cells = self._step(word_inputs[:, i] + linear(context, W[:, E:]), cells, weights, masks)
            outputs.append(cells[-self.layers[-1].n_states])
            contexts.append(context)
            alphas.append(alpha[:, 0])
        return torch.stack(outputs, 1), torch.stack(contexts, 1), cells, torch.stack(alphas, 1)

    def _score_function(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Score function for all steps of a pass, with its weights cast to the compute dtype once."""
        if self.score.kind != "additive":
            return self.score.score_keys
        W_1, v = cast(self.score.W_1, self.score.v)
        return lambda q, keys: additive_score(q, keys, W_1, v)

    def _masks(self, cells: list[Tensor]) -> list[Tensor] | None:
        """Variational dropout masks (B, D) between layers, shared by all steps; None if not used."""
        c = self.config
        if not (self.training and c.locked and c.dropout):
            return None
        return [dropout.keep_mask(cells[0], tuple(cells[0].shape), c.dropout) for _ in self.layers[1:]]

    def _step(
        self, u: Tensor, cells: list[Tensor], weights: list[list[Tensor]], masks: list[Tensor] | None
    ) -> list[Tensor]:
        """One step of all layers; u = W x + b_W of the first layer is precomputed."""
        after = list[Tensor]()
        for k, (layer, (W, R, b_W, b_R)) in enumerate(zip(self.layers, weights, strict=True)):
            if k:
                below = after[-self.layers[k - 1].n_states]
                if masks is None:
                    below = dropout.units(below, self.config.dropout, self.training)
                else:
                    below = below * masks[k - 1]
                u = linear(below, W, b_W)
            layer_cells, cells = cells[: layer.n_states], cells[layer.n_states :]
            after += layer.step(u, tuple(layer_cells), R, b_R)
        return after

    def align(self, ids: Tensor, state: Tensors) -> Tensor:
        """(B, T) ids -> (B, 1, 1, T, S) attention weights; S is 0 without attention."""
        y = self._scaled(ids)
        if self.config.attention == "none":
            return y.new_zeros(len(ids), 1, 1, ids.shape[1], 0)
        return self._run_with_attention(y, state)[3][:, None, None]


class EncoderDecoder(PairNetwork):
    """Transformer translation model (Vaswani et al. 2017) with a key/value cache in the decoder.

    State: source mask (B, S); keys and values of the source per layer (B, S, H, d); length (B,), the number of
    target tokens read; keys and values of the target per layer (B, P, H, d), right-aligned.
    """

    window: int

    def __init__(self, config: PairConfig, source_size: int, vocabulary: Vocabulary) -> None:
        super().__init__(config, source_size, vocabulary)
        self.window, D = config.longest, config.hidden
        self.learned = make_positions(config, config.longest)
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
        return float(self.config.hidden * self.config.inner_width * rows * T)

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
            source_mask = pad(state[0], (0, S - state[0].shape[1]))
            source = [pad(t, (0, 0, 0, 0, 0, S - t.shape[1])) for t in state[1:n]]
            cache = [pad(t, (0, 0, 0, 0, P - t.shape[1], 0)) for t in state[n + 1 :]]
            padded_states.append((source_mask, *source, state[n], *cache))
        return super().join(padded_states)

    def forward(self, ids: Tensor, state: Tensors) -> NetworkOutput:
        """(B, T) target ids -> (B, T, D); in training from an empty state, no cache is kept."""
        x, after, _ = self._decode(ids, state)
        x = dropout.apply(x, self.config, self.training, self.config.output_dropout)
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
        mask = causal_mask(length, P, T) if P else None
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
        x = add_positions(self._scaled(ids), positions, self.learned, c)
        return dropout.apply(x, c, self.training, c.input_dropout)


def build(config: PairConfig, source_size: int, vocabulary: Vocabulary) -> PairNetwork:
    """Build an untrained translation model."""
    network_class = EncoderDecoder if config.family == "transformer" else Seq2Seq
    return network_class(config, source_size, vocabulary)


class ConditionalLM(NeuralModel):
    """Language model of the target for one fixed source."""

    def __init__(self, network: PairNetwork, vocabulary: Vocabulary, source: Tensors) -> None:
        super().__init__(network, vocabulary, "line")
        self.source = source  # state of one row

    def start(self, rows: int) -> NeuralState:
        """Initial state: the encoded source, repeated for each row."""
        index = torch.zeros(rows, dtype=torch.int64, device=self.device)
        return NeuralState(tuple(tensor.index_select(0, index) for tensor in self.source))


def condition_on(network: PairNetwork, vocabulary: Vocabulary, sources: Sequence[Ids]) -> list[ConditionalLM]:
    """Encode the sources as one batch and return a language model for each; every source ends in `</s>`."""
    device = device_of(network)
    network.eval()
    ids, mask = pad_to_device(sources, vocabulary.eos, device)
    with exact_inference(), limit_threads(network.largest_matmul(*ids.shape)):
        state = NeuralState(network.encode(ids, mask))
        rows = [state.select(torch.tensor([i]).numpy()).tensors for i in range(len(sources))]
    return [ConditionalLM(network, vocabulary, row) for row in rows]


def pair_nats(network: PairNetwork, batch: PairBatch) -> Floats:
    """(B,) −log p(target | source) of each pair, including `</s>`."""
    B, T = batch.inputs.shape
    with exact_inference():
        with limit_threads(network.largest_matmul(B, T)):
            hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden.flatten(0, 1)
        target_ids = batch.targets.flatten()
        rows = max(1, LARGEST_PIECE // network.output.impossible.numel())  # bounds the logits in memory
        log_probs = [
            network.output.log_probs(hidden.index_select(0, positions)).gather(1, target_ids[positions, None])
            for positions in batch.target_positions.split(rows)
        ]
        log_p = check_outputs(torch.cat(log_probs)[:, 0].double().cpu().numpy(), network)
    total = np.zeros(B)
    np.add.at(total, batch.target_positions.cpu().numpy() // T, -log_p)
    return total


def mean_nats(network: PairNetwork, data: PairCollator) -> float:
    """Mean nats per target token, including `</s>`."""
    lengths = [len(target) for target in data.targets]
    total = sum(float(pair_nats(network, data(rows)).sum()) for rows in batches_by_length(lengths, BATCH_SIZE))
    return total / sum(lengths)


def attention_alignment(network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary) -> Floats:
    """(L, H, T, S) attention weights of each target token, including `</s>`, over the source tokens."""
    device = device_of(network)
    with exact_inference(), limit_threads(network.largest_matmul(1, len(target))):
        state = network.encode(*pad_to_device([source], vocabulary.eos, device))
        ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
        values: Floats = network.align(ids, state)[0].double().cpu().numpy()
    return check_outputs(values, network, allow_neg_inf=False)
