"""Extract attention weights, queries and keys from networks with attention.

Supports Transformers, recurrent networks with attention over past states, translation models and masked encoders.
Fused kernels do not return weights, so they are recomputed from the inputs of each block.
Notation: T query positions, S key positions, H heads of width d.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.data.encoded import EncodedText
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.encoders.encoder import TextEncoder, TransformerEncoder
from chainrule.neural.encoders.seq2seq import EncoderDecoder, PairNetwork, Seq2Seq
from chainrule.neural.layers.attention import MemoryAttention, masked_softmax
from chainrule.neural.layers.positions import Rotation
from chainrule.neural.layers.transformer_block import CrossBlock, TransformerBlock
from chainrule.neural.model import NeuralModel
from chainrule.neural.network import Tensors
from chainrule.neural.probes.activations import capture_inputs
from chainrule.neural.probes.hidden_states import context_spans
from chainrule.neural.probes.measurements import AttentionRecord, Kind
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.transformer import Transformer
from chainrule.training.device import device_of, exact_inference, limit_threads

LARGEST_PIECE = 1 << 21  # largest number of (H, T, S) weights in memory at once
LARGEST_SUM = 1 << 26  # largest number of (T, S, D) sums of additive attention
STEPS = 64  # tokens per forward pass of a recurrent network


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """Attention of one layer for one row: queries, keys, values, mask and score function."""

    queries: Tensor  # (H, T, d)
    keys: Tensor  # (H, S, d)
    values: Tensor  # (H, S, d)
    mask: Tensor  # (T, S)
    score: Callable[[Tensor, Tensor], Tensor]  # (H, T, d), (H, S, d) -> (H, T, S)
    divisor: float | None  # d of the score qᵀk / d; None: not a dot product

    def weights(self, first: int = 0, last: int | None = None) -> Tensor:
        """(H, T, S) α = softmax(e) over visible keys, for query rows `first` to `last`; 0 if none is visible."""
        return masked_softmax(self.score(self.queries[:, first:last], self.keys), self.mask[None, first:last])


def has_attention(network: nn.Module) -> bool:
    """Whether this language model attends to its past."""
    return isinstance(network, Transformer) or (isinstance(network, RecurrentNetwork) and hasattr(network, "past"))


def iter_attention(model: NeuralModel, text: EncodedText) -> Iterator[AttentionRecord]:
    """Yield the attention of a text, read by the model's context rule, span by span and layer by layer.

    Query position t predicts token t of the text; its input is token t − 1.
    """
    network = model.network
    ids = model.shift_inputs(text.ids)
    for first, _, end in context_spans(text, model.context == "line", network.window, None).tolist():
        state, step = network.start(1), _steps(network, end - first)
        for begin in range(first, end, step):
            inputs = torch.from_numpy(ids[begin : min(begin + step, end)]).to(model.device)[None]
            with exact_inference(), limit_threads(network.largest_matmul(*inputs.shape)):
                layer_heads, state = attention_heads(network, inputs, state)
            for layer, layer_head in enumerate(layer_heads):
                yield from _records(layer_head, layer, begin, first)


def _steps(network: Any, length: int) -> int:
    """Tokens per forward pass: a whole window for a Transformer, whose weights are chunked later."""
    if isinstance(network, Transformer):
        return length
    widest: int = (network.config.memory + STEPS) * network.config.widths[-1]
    return max(1, min(STEPS, LARGEST_SUM // widest))


@singledispatch
def attention_heads(network: Any, ids: Tensor, state: Tensors) -> tuple[list[AttentionHeads], Tensors]:
    """Read (1, T) ids from a state; return the attention of every layer and the new state."""
    raise NotImplementedError


@attention_heads.register
def _of_transformer(network: Transformer, ids: Tensor, state: Tensors) -> tuple[list[AttentionHeads], Tensors]:
    with capture_inputs(network.blocks) as calls:
        after = network(ids, state).state
    return [block_heads(block, *call) for block, call in zip(network.blocks, calls, strict=True)], after


@attention_heads.register
def _of_recurrent(network: RecurrentNetwork, ids: Tensor, state: Tensors) -> tuple[list[AttentionHeads], Tensors]:
    """Return the single attention head over the states of the last layer."""
    view = copy.copy(network)
    view._modules = dict(network._modules)
    recorder = _RecordingAttention(network.past)
    view._modules["past"] = recorder
    after = view(ids, state).state
    h, states, is_valid = recorder.recorded()  # (T, D), (M + T, D), (M + T,)
    T, M = len(h), network.config.memory
    distance = torch.arange(M, M + T, device=h.device)[:, None] - torch.arange(M + T, device=h.device)  # (T, M + T)
    is_visible = (distance >= 1) & (distance <= M) & is_valid
    n_empty = int((~is_valid).sum())  # empty memory slots come first
    states, is_visible, past = states[n_empty:], is_visible[:, n_empty:], network.past
    divisors = {"dot": 1.0, "general": 1.0, "scaled-dot": math.sqrt(h.shape[1])}
    keys = past.keys(states[None])
    return [
        AttentionHeads(h[None], keys, states[None], is_visible, past.score_keys, divisors.get(past.kind))
    ], after


class _RecordingAttention(MemoryAttention):
    """Attention module with shared weights that records its queries, states and memory."""

    def __init__(self, past: MemoryAttention) -> None:
        nn.Module.__init__(self)
        self.kind = past.kind
        self._parameters = past._parameters
        self.before: list[Tensors] = []  # memory (1, M, D) and its validity (1, M)
        self.queries: list[Tensor] = []  # (1, T, D)
        self.states: list[Tensor] = []  # (1, T, D)

    def forward(self, h: Tensor, memory: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.before.append((memory, valid))
        self.queries.append(h)
        self.states.append(h)
        return super().forward(h, memory, valid)

    def attend_step(self, h: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        self.before.append((memory, valid))
        self.queries.append(h[:, None])
        return super().attend_step(h, memory, valid)

    def append(self, h: Tensor, memory: Tensor, valid: Tensor) -> list[Tensor]:
        self.states.append(h)
        return super().append(h, memory, valid)

    def recorded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (T, D), states that can be attended to (M + T, D), and their validity (M + T,)."""
        memory, valid = self.before[0]
        h, new = torch.cat(self.queries, dim=1)[0], torch.cat(self.states, dim=1)[0]
        return h, torch.cat([memory[0].to(h.dtype), new]), torch.cat([valid[0], valid.new_ones(len(new))])


def block_heads(
    block: TransformerBlock,
    x: Tensor,
    past: tuple[Tensor, Tensor],
    rotation: Rotation | None,
    mask: Tensor | None,
    *_: Any,
) -> AttentionHeads:
    """Recompute the self-attention of a block from its call arguments, for one row and an empty cache."""
    assert (len(x), past[0].shape[1]) == (1, 0)
    x = block.norm_attention(x) if block.config.norm == "pre" else x
    T, D, H = x.shape[1], x.shape[2], block.config.heads
    q, k, v = block.qkv(x).view(1, T, 3, H, D // H).unbind(dim=2)  # (1, T, H, d) each
    if rotation is not None:
        q, k = rotation.rotate(q), rotation.rotate(k)
    all_pairs = torch.ones(T, T, dtype=torch.bool, device=x.device)
    is_visible = all_pairs.tril() if mask is None else all_pairs & mask[0, 0]
    Q, K, V = (part[0].transpose(0, 1) for part in (q, k, v))
    return AttentionHeads(Q, K, V, is_visible, scaled_dot, math.sqrt(D // H))


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """qᵀk/√d: (H, T, d), (H, S, d) -> (H, T, S)."""
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def encoder_attention(reader: TextEncoder, ids: Ids) -> list[AttentionRecord]:
    """Return the self-attention of an encoder on one text by layer; empty for a recurrent encoder."""
    if not isinstance(reader.encoder, TransformerEncoder):
        return []
    row = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device_of(reader))[None]
    with (
        exact_inference(),
        limit_threads(reader.largest_matmul(*row.shape)),
        capture_inputs(reader.encoder.blocks) as calls,
    ):
        reader(row, torch.ones_like(row, dtype=torch.bool))
        heads_by_layer = [
            block_heads(block, *call) for block, call in zip(reader.encoder.blocks, calls, strict=True)
        ]
        return [part for k, head in enumerate(heads_by_layer) for part in _records(head, k, 0, 0, "encoder")]


def translation_attention(
    network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary
) -> list[AttentionRecord]:
    """Return encoder, decoder and cross-attention of a translation model; both texts end in `</s>`."""
    device = device_of(network)
    row = torch.from_numpy(np.asarray(source, dtype=np.int64)).to(device)[None]
    ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
    with exact_inference(), limit_threads(network.largest_matmul(1, len(target))):
        state = network.encode(row, torch.ones_like(row, dtype=torch.bool))
        return encoder_attention(network.reader, source) + decoder_attention(network, ids, state)


@singledispatch
def decoder_attention(network: Any, ids: Tensor, state: Tensors) -> list[AttentionRecord]:
    """Return the attention of the decoder, reading (1, T) ids from the state of one source."""
    raise NotImplementedError


@decoder_attention.register
def _of_seq2seq(network: Seq2Seq, ids: Tensor, state: Tensors) -> list[AttentionRecord]:
    """Return α of c_i = Σ_j α_ij h_j, with queries s_{i−1}."""
    if network.config.attention == "none":
        return []
    recorded_queries: list[Tensor] = []
    score, view = copy.copy(network.score), copy.copy(network)

    def record_query(q: Tensor, keys: Tensor) -> Tensor:
        recorded_queries.append(q)
        return network.score.score_keys(q, keys)

    setattr(score, "score_keys", record_query)  # noqa: B010
    view._modules = dict(network._modules) | {"score": score}
    alpha = view.align(ids, state)[0, 0]  # (1, T, S)
    divisor = math.sqrt(state[1].shape[-1]) if score.kind == "scaled-dot" else 1.0
    q = torch.cat(recorded_queries, dim=1) if recorded_queries else None  # additive attention has none
    return [_cross_record(0, alpha, q, state[1] if recorded_queries else None, divisor)]


@decoder_attention.register
def _of_encoder_decoder(network: EncoderDecoder, ids: Tensor, state: Tensors) -> list[AttentionRecord]:
    queries = [block.q_cross for block in network.blocks]
    with capture_inputs(network.blocks) as calls, capture_inputs(queries) as query_inputs:
        alphas = network.align(ids, state)[0]  # (L, H, T, S)
    records: list[AttentionRecord] = []
    for k, (block, call, (x,)) in enumerate(zip(network.blocks, calls, query_inputs, strict=True)):
        records += _records(block_heads(block, *call), k, 0, 0)
        records.append(_of_cross(block, k, x, call[4][0], alphas[k]))
    return records


def _of_cross(block: CrossBlock, layer: int, x: Tensor, keys: Tensor, alpha: Tensor) -> AttentionRecord:
    """Cross-attention from the input of the query projection (1, T, D) and the keys of the source (1, S, H, d)."""
    H, d = keys.shape[2:]
    q = block.q_cross(x).view(-1, H, d).transpose(0, 1)  # (H, T, d)
    return _cross_record(layer, alpha, q, keys[0].transpose(0, 1), math.sqrt(d))


def _cross_record(layer: int, alpha: Tensor, q: Tensor | None, k: Tensor | None, divisor: float) -> AttentionRecord:
    T, S = alpha.shape[1:]
    return AttentionRecord(
        kind="cross",
        layer=layer,
        weights=_to_numpy(alpha),
        mask=np.ones((T, S), dtype=bool),
        query_positions=np.arange(T),
        key_positions=np.arange(S),
        new_keys=(0, S),
        queries=None if q is None else _to_numpy(q),
        keys=None if k is None else _to_numpy(k),
        divisor=divisor,
    )


def _records(
    head: AttentionHeads, layer: int, begin: int, first: int, kind: Kind = "self"
) -> Iterator[AttentionRecord]:
    """Yield the attention of a span starting at `begin`, in row chunks of bounded size."""
    (H, S), T = head.keys.shape[:2], head.queries.shape[1]
    keys = None if head.divisor is None else _to_numpy(head.keys)
    for start in range(0, T, rows := max(1, LARGEST_PIECE // (H * S))):
        end = min(start + rows, T)
        with exact_inference():
            alpha = _to_numpy(head.weights(start, end))
        yield AttentionRecord(
            kind=kind,
            layer=layer,
            weights=alpha,
            mask=head.mask[start:end].cpu().numpy(),
            query_positions=np.arange(begin + start, begin + end),
            key_positions=np.arange(begin + T - S, begin + T),
            first=first,
            new_keys=(S - T + start, S - T + end),
            queries=None if keys is None else _to_numpy(head.queries[:, start:end]),
            keys=keys,
            divisor=head.divisor or 1.0,
        )


def _to_numpy(tensor: Tensor) -> Floats:
    values: Floats = tensor.float().cpu().numpy()
    return values
