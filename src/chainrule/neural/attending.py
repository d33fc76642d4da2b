"""Where networks with attention look, and the queries and keys it comes from.

Lives here: Transformers, recurrent networks with attention over their past, translators, encoders of hidden words.
Kernels show no weights: they are worked out again from what each block reads. Not here: what is counted over them
(inspection/attention.py). Letters: T tokens that look, S that are looked at, H heads of width d.
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

from chainrule.data.encoded import Encoded
from chainrule.inspection.attention import Attended, Kind
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.attention import Past, weigh
from chainrule.neural.block import Block
from chainrule.neural.cross import CrossBlock
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder import Blocks, Reader
from chainrule.neural.encoder_decoder import EncoderDecoder
from chainrule.neural.hidden import cut_spans
from chainrule.neural.network import Tensors
from chainrule.neural.pairs import PairNetwork
from chainrule.neural.positions import Rotation
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.seq2seq import Seq2Seq
from chainrule.neural.transformer import Transformer
from chainrule.neural.watching import given_to
from chainrule.training.threads import suited

LARGEST_PIECE = 1 << 21  # numbers: of the (H, T, S) weights that stand in memory at once
LARGEST_SUM = 1 << 26  # numbers: of the (T, S, D) sums of additive attention
STEPS = 64  # of a recurrent network, read at once


@dataclass(frozen=True, slots=True)
class Heads:
    """One attention of one row: what looks, what is looked at, and how the two are compared."""

    queries: Tensor  # (H, T, d)
    keys: Tensor  # (H, S, d)
    values: Tensor  # (H, S, d)
    seen: Tensor  # (T, S)
    score: Callable[[Tensor, Tensor], Tensor]  # (H, T, d), (H, S, d) -> (H, T, S)
    divisor: float | None  # the score is qᵀk over it; None: it is no dot product

    def weights(self, first: int = 0, last: int | None = None) -> Tensor:
        """(H, T, S) of the rows from and to: α = softmax(e) over what is seen, zeros where nothing is."""
        return weigh(self.score(self.queries[:, first:last], self.keys), self.seen[None, first:last])


def is_attentive(network: nn.Module) -> bool:
    """Whether this language model looks at its past by attention."""
    return isinstance(network, Transformer) or (isinstance(network, RecurrentNetwork) and hasattr(network, "past"))


def attended(model: NeuralModel, text: Encoded) -> Iterator[Attended]:
    """Where it looked while it read a text as its context rule says: stretch by stretch, in each layer by layer.

    Place t of the text is the moment before token t is predicted: the token read there is the one before it.
    """
    network = model.network
    ids = model.read_before(text.ids)
    for first, _, end in cut_spans(text, model.context == "line", network.window, None).tolist():
        state, step = network.start(1), _steps(network, end - first)
        for begin in range(first, end, step):
            stretch = torch.from_numpy(ids[begin : min(begin + step, end)]).to(model.device)[None]
            with exact(), suited(network.work(*stretch.shape)):
                found, state = heads(network, stretch, state)
            for layer, each in enumerate(found):
                yield from _records(each, layer, begin, first)


def _steps(network: Any, length: int) -> int:
    """Tokens read at once: of a Transformer all of a window, as its weights are cut later."""
    if isinstance(network, Transformer):
        return length
    widest: int = (network.config.memory + STEPS) * network.config.widths[-1]
    return max(1, min(STEPS, LARGEST_SUM // widest))


@singledispatch
def heads(network: Any, ids: Tensor, state: Tensors) -> tuple[list[Heads], Tensors]:
    """Read (1, T) ids from a state: every layer's attention, and the state after."""
    raise NotImplementedError


@heads.register
def _of_transformer(network: Transformer, ids: Tensor, state: Tensors) -> tuple[list[Heads], Tensors]:
    with given_to(network.blocks) as calls:
        after = network(ids, state).state
    return [of_block(block, *call) for block, call in zip(network.blocks, calls, strict=True)], after


@heads.register
def _of_recurrent(network: RecurrentNetwork, ids: Tensor, state: Tensors) -> tuple[list[Heads], Tensors]:
    """One head, over the states of the last layer."""
    view = copy.copy(network)
    view._modules = dict(network._modules)
    watched = _WatchedPast(network.past)
    view._modules["past"] = watched
    after = view(ids, state).state
    h, states, there = watched.found()  # (T, D), (M + T, D), (M + T,)
    T, M = len(h), network.config.memory
    back = torch.arange(M, M + T, device=h.device)[:, None] - torch.arange(M + T, device=h.device)  # (T, M + T)
    seen = (back >= 1) & (back <= M) & there
    known = int((~there).sum())  # what is not there stands before all that is
    states, seen, past = states[known:], seen[:, known:], network.past
    divisors = {"dot": 1.0, "general": 1.0, "scaled-dot": math.sqrt(h.shape[1])}
    keys = past.keys(states[None])
    return [Heads(h[None], keys, states[None], seen, past.look, divisors.get(past.kind))], after


class _WatchedPast(Past):
    """The same attention, its weights shared; notes what looked, and what there was and came to be looked at."""

    def __init__(self, past: Past) -> None:
        nn.Module.__init__(self)
        self.kind = past.kind
        self._parameters = past._parameters
        self.before: list[Tensors] = []  # memory (1, M, D) and which of it is there (1, M)
        self.looking: list[Tensor] = []  # (1, T, D)
        self.states: list[Tensor] = []  # (1, T, D)

    def forward(self, h: Tensor, memory: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.before.append((memory, valid))
        self.looking.append(h)
        self.states.append(h)
        return super().forward(h, memory, valid)

    def read(self, h: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        self.before.append((memory, valid))
        self.looking.append(h[:, None])
        return super().read(h, memory, valid)

    def remember(self, h: Tensor, memory: Tensor, valid: Tensor) -> list[Tensor]:
        self.states.append(h)
        return super().remember(h, memory, valid)

    def found(self) -> tuple[Tensor, Tensor, Tensor]:
        """(T, D) what looked, (M + T, D) what it could look at, (M + T,) whether that is there."""
        memory, valid = self.before[0]
        h, new = torch.cat(self.looking, dim=1)[0], torch.cat(self.states, dim=1)[0]
        return h, torch.cat([memory[0].to(h.dtype), new]), torch.cat([valid[0], valid.new_ones(len(new))])


def of_block(
    block: Block, x: Tensor, past: tuple[Tensor, Tensor], rotation: Rotation | None, mask: Tensor | None, *_: Any
) -> Heads:
    """The self-attention of a block that was called so, for one row and from nothing read."""
    assert (len(x), past[0].shape[1]) == (1, 0)
    x = block.norm_attention(x) if block.config.norm == "pre" else x
    T, D, H = x.shape[1], x.shape[2], block.config.heads
    q, k, v = block.qkv(x).view(1, T, 3, H, D // H).unbind(dim=2)  # (1, T, H, d) each
    if rotation is not None:
        q, k = rotation.turn(q), rotation.turn(k)
    everything = torch.ones(T, T, dtype=torch.bool, device=x.device)
    seen = everything.tril() if mask is None else everything & mask[0, 0]
    Q, K, V = (part[0].transpose(0, 1) for part in (q, k, v))
    return Heads(Q, K, V, seen, scaled_dot, math.sqrt(D // H))


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """qᵀk/√d: (H, T, d), (H, S, d) -> (H, T, S)."""
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def of_encoder(reader: Reader, ids: Ids) -> list[Attended]:
    """Where each token of one text looked, by layer; an encoder without attention looks nowhere."""
    if not isinstance(reader.encoder, Blocks):
        return []
    row = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device_of(reader))[None]
    with exact(), suited(reader.work(*row.shape)), given_to(reader.encoder.blocks) as calls:
        reader(row, torch.ones_like(row, dtype=torch.bool))
        found = [of_block(block, *call) for block, call in zip(reader.encoder.blocks, calls, strict=True)]
        return [part for k, each in enumerate(found) for part in _records(each, k, 0, 0, "encoder")]


def of_pair(network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary) -> list[Attended]:
    """Of a translator that reads a source and a target, both ended by `</s>`: source, target so far, across."""
    device = device_of(network)
    row = torch.from_numpy(np.asarray(source, dtype=np.int64)).to(device)[None]
    ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
    with exact(), suited(network.work(1, len(target))):
        state = network.encode(row, torch.ones_like(row, dtype=torch.bool))
        return of_encoder(network.reader, source) + across(network, ids, state)


@singledispatch
def across(network: Any, ids: Tensor, state: Tensors) -> list[Attended]:
    """The decoder's attentions, reading (1, T) ids from the state of one source."""
    raise NotImplementedError


@across.register
def _of_seq2seq(network: Seq2Seq, ids: Tensor, state: Tensors) -> list[Attended]:
    """c_i = Σ_j α_ij h_j, with queries s_{i−1}."""
    if network.config.attention == "none":
        return []
    asked: list[Tensor] = []
    score, view = copy.copy(network.score), copy.copy(network)

    def look(q: Tensor, keys: Tensor) -> Tensor:
        asked.append(q)
        return network.score.look(q, keys)

    setattr(score, "look", look)  # noqa: B010
    view._modules = dict(network._modules) | {"score": score}
    alpha = view.align(ids, state)[0, 0]  # (1, T, S)
    divisor = math.sqrt(state[1].shape[-1]) if score.kind == "scaled-dot" else 1.0
    q = torch.cat(asked, dim=1) if asked else None  # none of additive attention
    return [_across(0, alpha, q, state[1] if asked else None, divisor)]


@across.register
def _of_encoder_decoder(network: EncoderDecoder, ids: Tensor, state: Tensors) -> list[Attended]:
    queries = [block.q_cross for block in network.blocks]
    with given_to(network.blocks) as calls, given_to(queries) as asked:
        alphas = network.align(ids, state)[0]  # (L, H, T, S)
    found: list[Attended] = []
    for k, (block, call, (x,)) in enumerate(zip(network.blocks, calls, asked, strict=True)):
        found += _records(of_block(block, *call), k, 0, 0)
        found.append(_of_cross(block, k, x, call[4][0], alphas[k]))
    return found


def _of_cross(block: CrossBlock, layer: int, x: Tensor, keys: Tensor, alpha: Tensor) -> Attended:
    """From what its queries are made of, (1, T, D), and the source's keys, (1, S, H, d)."""
    H, d = keys.shape[2:]
    q = block.q_cross(x).view(-1, H, d).transpose(0, 1)  # (H, T, d)
    return _across(layer, alpha, q, keys[0].transpose(0, 1), math.sqrt(d))


def _across(layer: int, alpha: Tensor, q: Tensor | None, k: Tensor | None, divisor: float) -> Attended:
    T, S = alpha.shape[1:]
    return Attended(
        kind="cross",
        layer=layer,
        weights=_array(alpha),
        seen=np.ones((T, S), dtype=bool),
        queries_at=np.arange(T),
        keys_at=np.arange(S),
        new_keys=(0, S),
        queries=None if q is None else _array(q),
        keys=None if k is None else _array(k),
        divisor=divisor,
    )


def _records(each: Heads, layer: int, begin: int, first: int, kind: Kind = "self") -> Iterator[Attended]:
    """The attention of a stretch that begins at this place, so few rows at a time as memory is given to."""
    (H, S), T = each.keys.shape[:2], each.queries.shape[1]
    keys = None if each.divisor is None else _array(each.keys)
    for top in range(0, T, rows := max(1, LARGEST_PIECE // (H * S))):
        end = min(top + rows, T)
        with exact():
            alpha = _array(each.weights(top, end))
        yield Attended(
            kind=kind,
            layer=layer,
            weights=alpha,
            seen=each.seen[top:end].cpu().numpy(),
            queries_at=np.arange(begin + top, begin + end),
            keys_at=np.arange(begin + T - S, begin + T),
            first=first,
            new_keys=(S - T + top, S - T + end),
            queries=None if keys is None else _array(each.queries[:, top:end]),
            keys=keys,
            divisor=each.divisor or 1.0,
        )


def _array(tensor: Tensor) -> Floats:
    values: Floats = tensor.float().cpu().numpy()
    return values
