"""How the error of single losses flows back through a network: ‖∂L_T/∂h_{T−k}‖ for many T and all lags k at once.

    L_T = −log p(w_{T+1} | w_1 … w_T);  every path counts: through time, upper layers, norms, attention to the past

Lives here: which tokens are looked at, the rows they make, one backward pass for all rows, kinds of networks.
Not here: the statistics of the norms (inspection/flow.py), recurrent kernels (flow_kernel.py).
Letters: N tokens of the text, P positions, K lags, B rows, T tokens of a row, D width, L layers.
"""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from chainrule.data.encoded import Encoded
from chainrule.errors import ConfigError
from chainrule.inspection.flow import GradientFlow, What
from chainrule.lm import Floats, Ids
from chainrule.neural import flow_kernel
from chainrule.neural.adapter import LARGEST_PIECE, NeuralModel
from chainrule.neural.attention import PIECE
from chainrule.neural.device import exact
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.flow_kernel import Errors, Loss
from chainrule.neural.hidden import cut_spans
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.transformer import Transformer
from chainrule.neural.watching import given_to, watched
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.threads import suited

Way = Literal["fastest", "cells", "kernels"]

ROOM: Final = 1 << 24  # numbers that the layers make in one pass, about; autograd keeps two or three of each
AHEAD: Final = 1 << 12  # tokens read at once on the way to a row
CHOICE: Final = 4  # positions there are to choose from, for each that is chosen


class Rows(NamedTuple):
    """What is read for each position."""

    last: Ids  # (P,) the position T, ascending
    first: Ids  # (P,) the first token of the row: T − K, or where what the network reads begins
    begin: Ids  # (P,) where that is: a line, a window, the text


class Text(NamedTuple):
    """The text as the network sees it."""

    read: Tensor  # (N,) what is read before each token: the one before it
    follows: Tensor  # (N,) the tokens


class Signal(NamedTuple):
    """What reaches each place of each row, (L, B, T), or each lag, (L, B, K+1)."""

    norms: Floats
    forget: Floats | None = None  # the mean product of the forget gates after this place


def gradient_flow(
    lm: NeuralModel,
    text: Encoded,
    *,
    lags: int = 100,
    positions: int = 64,
    seed: int = 0,
    name: str = "",
    way: Way = "fastest",
    progress: Progress = silent,
) -> list[GradientFlow]:
    """One record for each thing that the loss is derived by; none of a network of another kind, or without a loss.

    Recurrent: h of each layer, as its cell makes it, and c of an LSTM. Transformer: the word vectors, and the
    residual path into each block. Feed-forward: the word vectors. Each position is a row of K + 1 tokens, read from
    the state that the text before leaves. `fastest`: recurrent cells on the processor (two thirds of the kernels'
    time), kernels on the GPU (an LSTM's take a third of the cells' time).
    """
    if lags < 1 or positions < 1:
        raise ConfigError(f"gradient flow has {lags} lags at {positions} positions; choose 1 or more of both")
    if not is_known(lm.network) or not len((rows := choose_rows(lm, text, lags, positions, seed)).last):
        return []
    read, task = _as_tensors(lm, text), f"gradient flow of {name}" if name else "gradient flow"
    states = first_states(lm, read.read, rows)
    pieces, found = _pieces(lm, rows), list[dict[What, Signal]]()
    for done, piece in enumerate(pieces):
        progress(task, done, len(pieces))
        part = Rows(*(each[piece] for each in rows))
        found.append(_by_lag(_read(lm, read, part, [states[i] for i in piece], way), part, lags))
    progress(task, len(pieces), len(pieces))
    order = np.argsort(np.concatenate(pieces))
    joined = {what: _joined([part[what] for part in found], order) for what in found[0]}
    return [GradientFlow(name=name, what=what, **values) for what, values in joined.items()]


def choose_rows(lm: NeuralModel, text: Encoded, lags: int, positions: int, seed: int) -> Rows:
    """Positions all over the text, those with the longest past preferred; of impossible tokens there is no loss.

    From CHOICE · P positions of the longest past up to K, and all others of the same, one is drawn in each of P
    parts of the text.
    """
    spans = cut_spans(text, lm.context == "line", lm.network.window, None) if text.tokens else np.zeros((0, 3), int)
    begin = np.repeat(spans[:, 0], spans[:, 2] - spans[:, 0])  # (N,)
    past = np.minimum(np.arange(text.tokens) - begin, lags)  # (N,)
    pool = np.flatnonzero(lm.vocabulary.predictable[text.ids])
    if len(pool) > CHOICE * positions:
        pool = pool[past[pool] >= -np.partition(-past[pool], CHOICE * positions - 1)[CHOICE * positions - 1]]
    if len(pool) > positions:
        edges = np.linspace(0, len(pool), positions + 1).astype(int)
        pool = pool[np.random.default_rng(seed).integers(edges[:-1], edges[1:])]
    return Rows(last=pool, first=np.maximum(begin[pool], pool - lags), begin=begin[pool])


def first_states(lm: NeuralModel, read: Tensor, rows: Rows) -> list[Tensors]:
    """The state in which each row begins, after all that the network has read of the text before it."""
    states: list[Tensors] = []
    begun, at = -1, -1
    with exact(), suited(lm.network.work(1, 1)):
        for begin, first in zip(rows.begin.tolist(), rows.first.tolist(), strict=True):
            if begin != begun:
                state, begun, at = lm.network.start(1), begin, begin
            for place in range(at, first, AHEAD):
                state = lm.network(read[None, place : min(place + AHEAD, first)], state).state
            at = first
            states.append(state)
    return states


def _as_tensors(lm: NeuralModel, text: Encoded) -> Text:
    both = (lm.read_before(text.ids), text.ids.astype(np.int64))
    return Text(*(torch.from_numpy(ids).to(lm.device) for ids in both))


def _pieces(lm: NeuralModel, rows: Rows) -> list[Ids]:
    """Rows of like length, so many that what is kept of them is bounded."""
    lengths = rows.last - rows.first + 1
    T = int(lengths.max())
    most = min(ROOM // (T * _size(lm.network, T)), LARGEST_PIECE // lm.vocabulary.size)
    return np.array_split(np.argsort(-lengths, kind="stable"), math.ceil(len(lengths) / max(1, most)))


def _read(lm: NeuralModel, text: Text, rows: Rows, states: list[Tensors], way: Way) -> dict[What, Signal]:
    """Read the rows side by side; what is padded behind their ends cannot be seen from before it."""
    ends = torch.from_numpy(rows.last - rows.first).to(lm.device)  # (B,)
    place = rows.first[:, None] + np.arange(int(ends.max()) + 1)  # (B, T)
    ids = text.read[torch.from_numpy(np.minimum(place, len(text.read) - 1)).to(lm.device)]
    targets = text.follows[torch.from_numpy(rows.last).to(lm.device)]  # (B,)
    state = tuple(s.detach().requires_grad_() if s.is_floating_point() else s for s in lm.network.join(states))

    def loss(hidden: Tensor) -> Tensor:
        """Σ L_T over the rows: each depends on its own row alone."""
        chosen = hidden[torch.arange(len(ends), device=ends.device), ends]  # (B, D)
        log_p = lm.network.output.log_probs(chosen).gather(1, targets[:, None])
        check_outputs(log_p.detach().double().cpu().numpy(), lm.network)
        return -log_p.sum()

    with exact(), torch.enable_grad(), suited(lm.network.work(*ids.shape)):
        return signals(lm.network, ids, state, loss, ends, way)


def _by_lag(found: dict[What, Signal], rows: Rows, lags: int) -> dict[What, Signal]:
    """(L, B, T) by place -> (L, B, K+1) by lag, NaN where a row has none; a number beyond all others is inf."""
    place = (rows.last - rows.first)[:, None] - np.arange(lags + 1)  # (B, K+1)

    def turned(values: Floats) -> Floats:
        numbers = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
        return np.where(place >= 0, np.take_along_axis(numbers, np.maximum(place, 0)[None], axis=2), np.nan)

    return {
        what: Signal(turned(norms), None if forget is None else turned(forget))
        for what, (norms, forget) in found.items()
    }


def _joined(parts: Sequence[Signal], order: Ids) -> dict[str, Any]:
    """The rows of all pieces, in the order of the text."""
    fields = zip(Signal._fields, zip(*parts, strict=True), strict=True)
    return {name: None if p[0] is None else np.concatenate(p, axis=1)[:, order] for name, p in fields}


def is_known(network: nn.Module) -> bool:
    """Whether the flow in this kind of network can be followed."""
    return signals.dispatch(type(network)) is not signals.dispatch(object)


@singledispatch
def signals(network: Any, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor, way: Way) -> dict[What, Signal]:
    """What reaches (B, T) ids, read from a state, when `loss` looks at each row's last, (B,)."""
    raise NotImplementedError


@signals.register
def _of_recurrent(
    network: RecurrentNetwork, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor, way: Way
) -> dict[What, Signal]:
    """h and, of an LSTM, c."""
    is_fused = flow_kernel.is_possible(network) and (way == "kernels" or (way == "fastest" and ids.is_cuda))
    found = (flow_kernel.errors if is_fused else cell_errors)(network, ids, state, loss)
    signal: dict[What, Signal] = {"h": Signal(_norms([error.h for error in found], time=0))}
    cells = [(error.c, error.f) for error in found if error.c is not None and error.f is not None]
    if cells:
        c, f = zip(*cells, strict=True)
        signal["c"] = Signal(_norms(c, time=0), _kept(f, ends))
    return signal


def cell_errors(network: RecurrentNetwork, ids: Tensor, state: Tensors, loss: Loss) -> list[Errors]:
    """Those of each layer, run by the reference cells: every h_t and c_t is a node."""
    (view, layers), T = watched(network), ids.shape[1]
    total = loss(view(ids, state).hidden)
    nodes = [node for layer in layers for values in zip(*layer.states, strict=True) for node in values]
    slopes = torch.autograd.grad(total, nodes, materialize_grads=True)
    by_state = (torch.stack(slopes[i : i + T]) for i in range(0, len(slopes), T))  # (T, B, D): h, c of layer 1, …
    found = []
    for layer, seen in zip(network.layers, layers, strict=True):
        h, *c = [next(by_state) for _ in range(layer.memories)]
        f = [torch.stack([gates[layer.gate_names.index("f")].detach() for gates in seen.gates]) for _ in c]
        found.append(Errors(h, *c, *f))
        del seen.states[:], seen.gates[:]  # watched layers refer to themselves, and so would live on for a while
    return found


@signals.register
def _of_transformer(
    network: Transformer, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor, way: Way
) -> dict[What, Signal]:
    """Word vectors, and the residual path into each block."""
    rows, places = _vectors(network.embedding, ids)
    with given_to(network.blocks) as calls:
        hidden = functional_call(network, {"embedding": rows}, (places, state), tie_weights=False).hidden
    words, *residual = torch.autograd.grad(
        loss(hidden), [rows, *(call[0] for call in calls)], materialize_grads=True
    )
    return {
        "embedding": Signal(_norms([words.view(*ids.shape, -1)], time=1)),
        "residual": Signal(_norms(residual, time=1)),
    }


@signals.register
def _of_feedforward(
    network: Feedforward, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor, way: Way
) -> dict[What, Signal]:
    """Word vectors; those of the state, read before, are vectors as well."""
    before = state[0].shape[1]  # n−2
    rows, places = _vectors(network.embedding, torch.cat([state[0], ids], dim=1))
    given = (places[:, before:], (places[:, :before],))
    hidden = functional_call(network, {"embedding": rows}, given, tie_weights=False).hidden
    (words,) = torch.autograd.grad(loss(hidden), [rows])
    return {"embedding": Signal(_norms([words.view(*places.shape, -1)[:, before:]], time=1))}


def _vectors(E: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """A vector for every place, (B·T, E), and the row of it that each place reads, (B, T)."""
    places = torch.arange(ids.numel(), device=ids.device).view_as(ids)
    return E.detach()[ids].flatten(0, 1).requires_grad_(), places


def _norms(errors: Sequence[Tensor], time: Literal[0, 1]) -> Floats:
    """L of (T, B, D), or of (B, T, D) with time 1 -> (L, B, T); in float64, where no square vanishes."""
    norms = torch.stack([error.double().norm(dim=-1) for error in errors]).cpu()
    return np.asarray(norms if time else norms.transpose(1, 2))


def _kept(gates: Sequence[Tensor], ends: Tensor) -> Floats:
    """L of (T, B, D), (B,) -> (L, B, T) the mean over units of f_{t+1} ⊙ … up to the row's last; 1 there."""
    steps = torch.arange(len(gates[0]), device=ends.device)[:, None, None]  # (T, 1, 1)
    found = []
    for f in gates:
        later = torch.where(steps < ends[:, None], torch.cat([f[1:], f[:1]]).double(), 1.0)  # f_{t+1}
        found.append(later.flip(0).cumprod(dim=0).flip(0).mean(dim=-1).t())
    kept: Floats = torch.stack(found).cpu().numpy()
    return kept


def _size(network: Any, T: int) -> int:
    """Numbers that the layers make of one token in rows of T, about: those of each matrix, and attention's."""
    own = {id(network.embedding), *map(id, network.output.parameters())}  # the output sees a row's last alone
    made = sum(len(p) for p in network.parameters() if p.dim() == 2 and id(p) not in own)
    looks = 2 * T * getattr(network.config, "heads", 0) * network.config.layers
    if getattr(network.config, "attention", "none") == "additive":
        looks = (PIECE + network.config.memory) * network.config.widths[-1]
    return int(max(1, made + looks))
