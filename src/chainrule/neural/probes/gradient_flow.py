"""Gradient flow: ‖∂L_T/∂h_{T−k}‖ of single losses at many positions T, for all lags k at once.

    L_T = −log p(w_{T+1} | w_1 … w_T); all paths are included: time, upper layers, norms, attention over the past

Each position becomes one row of a batch; one backward pass gives the gradients of all rows. The spectra of the
recurrent matrices, which bound the flow through an Elman layer, are computed at the end of the file.
Notation: N tokens of the text, P positions, K lags, B rows, T tokens of a row, D width, L layers.
"""

import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from chainrule.data.encoded import EncodedText
from chainrule.errors import ChainruleError, ConfigError
from chainrule.lm import Floats, Ids
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.layers.attention import PIECE
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.model import LARGEST_PIECE, NeuralModel
from chainrule.neural.network import Tensors
from chainrule.neural.probes.activations import capture_inputs, record_recurrence
from chainrule.neural.probes.hidden_states import context_spans
from chainrule.neural.probes.measurements import GradientFlow, Quantity, Recurrence, Spectrum
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.transformer import Transformer
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference, limit_threads

Loss = Callable[[Tensor], Tensor]
"""Hidden states (B, T, D) -> scalar loss."""


ROOM: Final = 1 << 24  # approximate number of activations per pass; autograd keeps two or three of each
AHEAD: Final = 1 << 12  # tokens per forward pass while computing initial states
CHOICE: Final = 4  # candidate positions per sampled position


class Rows(NamedTuple):
    """Token range read for each position."""

    last: Ids  # (P,) the position T, ascending
    first: Ids  # (P,) first token of the row: T − K, or the start of the context
    begin: Ids  # (P,) start of the context: a line, a window or the text


class Text(NamedTuple):
    """Inputs and targets of the network."""

    read: Tensor  # (N,) inputs: the previous token
    follows: Tensor  # (N,) targets


class GradientNorms(NamedTuple):
    """Gradient norms at each position of a row (L, B, T), or at each lag (L, B, K+1)."""

    norms: Floats
    forget: Floats | None = None  # mean product of the forget gates after this position


def gradient_flow(
    lm: NeuralModel,
    text: EncodedText,
    *,
    lags: int = 100,
    positions: int = 64,
    seed: int = 0,
    name: str = "",
    progress: Progress = silent,
) -> list[GradientFlow]:
    """Return one record per quantity that the loss is differentiated with respect to.

    Recurrent: h of each layer and c of an LSTM. Transformer: word vectors and the residual stream into each block.
    Feed-forward: word vectors. Each position is a row of K + 1 tokens, read from the state after the preceding
    text. Empty if the network is not supported or no token has a loss.
    """
    if lags < 1 or positions < 1:
        raise ConfigError(f"gradient flow has {lags} lags at {positions} positions; choose 1 or more of both")
    if not is_supported(lm.network) or not len((rows := sample_rows(lm, text, lags, positions, seed)).last):
        return []
    inputs, task = _as_tensors(lm, text), f"gradient flow of {name}" if name else "gradient flow"
    states = initial_states(lm, inputs.read, rows)
    batches, batch_norms = _pieces(lm, rows), list[dict[Quantity, GradientNorms]]()
    for done, batch in enumerate(batches):
        progress(task, done, len(batches))
        batch_rows = Rows(*(field[batch] for field in rows))
        batch_norms.append(_by_lag(_read(lm, inputs, batch_rows, [states[i] for i in batch]), batch_rows, lags))
    progress(task, len(batches), len(batches))
    order = np.argsort(np.concatenate(batches))
    joined = {what: _joined([batch_rows[what] for batch_rows in batch_norms], order) for what in batch_norms[0]}
    return [GradientFlow(name=name, what=what, **values) for what, values in joined.items()]


def sample_rows(lm: NeuralModel, text: EncodedText, lags: int, positions: int, seed: int) -> Rows:
    """Sample positions spread over the text, preferring those with the longest context.

    Of the CHOICE · P positions with the longest context up to K (and all ties), one is drawn from each of P
    sections of the text. Impossible tokens have no loss and are skipped.
    """
    spans = (
        context_spans(text, lm.context == "line", lm.network.window, None) if text.tokens else np.zeros((0, 3), int)
    )
    begin = np.repeat(spans[:, 0], spans[:, 2] - spans[:, 0])  # (N,)
    past = np.minimum(np.arange(text.tokens) - begin, lags)  # (N,)
    pool = np.flatnonzero(lm.vocabulary.predictable[text.ids])
    if len(pool) > CHOICE * positions:
        pool = pool[past[pool] >= -np.partition(-past[pool], CHOICE * positions - 1)[CHOICE * positions - 1]]
    if len(pool) > positions:
        edges = np.linspace(0, len(pool), positions + 1).astype(int)
        pool = pool[np.random.default_rng(seed).integers(edges[:-1], edges[1:])]
    return Rows(last=pool, first=np.maximum(begin[pool], pool - lags), begin=begin[pool])


def initial_states(lm: NeuralModel, read: Tensor, rows: Rows) -> list[Tensors]:
    """Return the state at the start of each row, after the preceding text."""
    states: list[Tensors] = []
    current, position = -1, -1
    with exact_inference(), limit_threads(lm.network.largest_matmul(1, 1)):
        for begin, first in zip(rows.begin.tolist(), rows.first.tolist(), strict=True):
            if begin != current:
                state, current, position = lm.network.start(1), begin, begin
            for start in range(position, first, AHEAD):
                state = lm.network(read[None, start : min(start + AHEAD, first)], state).state
            position = first
            states.append(state)
    return states


def _as_tensors(lm: NeuralModel, text: EncodedText) -> Text:
    device = lm.device
    inputs, targets = lm.shift_inputs(text.ids), text.ids.astype(np.int64)
    return Text(torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))


def _pieces(lm: NeuralModel, rows: Rows) -> list[Ids]:
    """Split the rows into batches of similar length and bounded memory."""
    lengths = rows.last - rows.first + 1
    T = int(lengths.max())
    max_rows = min(ROOM // (T * _size(lm.network, T)), LARGEST_PIECE // lm.vocabulary.size)
    return np.array_split(np.argsort(-lengths, kind="stable"), math.ceil(len(lengths) / max(1, max_rows)))


def _read(lm: NeuralModel, text: Text, rows: Rows, states: list[Tensors]) -> dict[Quantity, GradientNorms]:
    """Forward and backward pass over a batch of rows; right padding has no effect."""
    ends = torch.from_numpy(rows.last - rows.first).to(lm.device)  # (B,)
    position = rows.first[:, None] + np.arange(int(ends.max()) + 1)  # (B, T)
    ids = text.read[torch.from_numpy(np.minimum(position, len(text.read) - 1)).to(lm.device)]
    targets = text.follows[torch.from_numpy(rows.last).to(lm.device)]  # (B,)
    state = tuple(s.detach().requires_grad_() if s.is_floating_point() else s for s in lm.network.join(states))

    def loss(hidden: Tensor) -> Tensor:
        """Σ L_T over the rows; each term depends only on its own row."""
        last_hidden = hidden[torch.arange(len(ends), device=ends.device), ends]  # (B, D)
        log_p = lm.network.output.log_probs(last_hidden).gather(1, targets[:, None])
        check_outputs(log_p.detach().double().cpu().numpy(), lm.network)
        return -log_p.sum()

    with exact_inference(), torch.enable_grad(), limit_threads(lm.network.largest_matmul(*ids.shape)):
        return gradient_norms(lm.network, ids, state, loss, ends)


def _by_lag(
    norms_by_position: dict[Quantity, GradientNorms], rows: Rows, lags: int
) -> dict[Quantity, GradientNorms]:
    """(L, B, T) by position -> (L, B, K+1) by lag; NaN where the row is shorter, inf for overflow."""
    position = (rows.last - rows.first)[:, None] - np.arange(lags + 1)  # (B, K+1)

    def to_lags(values: Floats) -> Floats:
        numbers = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
        return np.where(position >= 0, np.take_along_axis(numbers, np.maximum(position, 0)[None], axis=2), np.nan)

    return {
        what: GradientNorms(to_lags(norms), None if forget is None else to_lags(forget))
        for what, (norms, forget) in norms_by_position.items()
    }


def _joined(parts: Sequence[GradientNorms], order: Ids) -> dict[str, Any]:
    """Concatenate the rows of all batches in text order."""
    fields = zip(GradientNorms._fields, zip(*parts, strict=True), strict=True)
    return {name: None if p[0] is None else np.concatenate(p, axis=1)[:, order] for name, p in fields}


def is_supported(network: nn.Module) -> bool:
    """Whether this kind of network is supported."""
    return gradient_norms.dispatch(type(network)) is not gradient_norms.dispatch(object)


@singledispatch
def gradient_norms(
    network: Any, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor
) -> dict[Quantity, GradientNorms]:
    """Gradient norms at (B, T) ids, read from a state, for the loss at the last token (B,) of each row."""
    raise NotImplementedError


@gradient_norms.register
def _of_recurrent(
    network: RecurrentNetwork, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor
) -> dict[Quantity, GradientNorms]:
    """h, and c of an LSTM, by autograd through the unrolled reference cells."""
    (view, records), T = record_recurrence(network), ids.shape[1]
    total = loss(view(ids, state).hidden)
    nodes = [node for record in records for values in zip(*record.states, strict=True) for node in values]
    grads = torch.autograd.grad(total, nodes, materialize_grads=True)
    by_state = (torch.stack(grads[i : i + T]) for i in range(0, len(grads), T))  # (T, B, D): h, c of layer 1, …
    h, c, f = [], [], []
    for layer, record in zip(network.layers, records, strict=True):
        h.append(next(by_state))
        if layer.n_states == 2:
            c.append(next(by_state))
            f.append(torch.stack([gates[layer.gate_names.index("f")].detach() for gates in record.gates]))
        # Recorded layers form reference cycles, which would delay freeing memory.
        record.states.clear()
        record.gates.clear()
    norms: dict[Quantity, GradientNorms] = {"h": GradientNorms(_norms(h, time=0))}
    return norms | {"c": GradientNorms(_norms(c, time=0), _forget_products(f, ends))} if c else norms


@gradient_norms.register
def _of_transformer(
    network: Transformer, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor
) -> dict[Quantity, GradientNorms]:
    """Word vectors, and the residual stream into each block."""
    rows, index = _vectors(network.embedding, ids)
    with capture_inputs(network.blocks) as calls:
        hidden = functional_call(network, {"embedding": rows}, (index, state), tie_weights=False).hidden
    words, *residual = torch.autograd.grad(
        loss(hidden), [rows, *(call[0] for call in calls)], materialize_grads=True
    )
    return {
        "embedding": GradientNorms(_norms([words.view(*ids.shape, -1)], time=1)),
        "residual": GradientNorms(_norms(residual, time=1)),
    }


@gradient_norms.register
def _of_feedforward(
    network: Feedforward, ids: Tensor, state: Tensors, loss: Loss, ends: Tensor
) -> dict[Quantity, GradientNorms]:
    """Word vectors; the ids in the state are replaced by vectors as well."""
    before = state[0].shape[1]  # n−2
    rows, index = _vectors(network.embedding, torch.cat([state[0], ids], dim=1))
    arguments = (index[:, before:], (index[:, :before],))
    hidden = functional_call(network, {"embedding": rows}, arguments, tie_weights=False).hidden
    (words,) = torch.autograd.grad(loss(hidden), [rows])
    return {"embedding": GradientNorms(_norms([words.view(*index.shape, -1)[:, before:]], time=1))}


def _vectors(E: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """A separate vector for every position (B·T, E), and the index of each position's vector (B, T)."""
    index = torch.arange(ids.numel(), device=ids.device).view_as(ids)
    return E.detach()[ids].flatten(0, 1).requires_grad_(), index


def _norms(errors: Sequence[Tensor], time: Literal[0, 1]) -> Floats:
    """L tensors (T, B, D), or (B, T, D) with time 1 -> (L, B, T); in float64, so that squares do not underflow."""
    norms = torch.stack([error.double().norm(dim=-1) for error in errors]).cpu()
    return np.asarray(norms if time else norms.transpose(1, 2))


def _forget_products(gates: Sequence[Tensor], ends: Tensor) -> Floats:
    """L tensors (T, B, D), (B,) -> (L, B, T) mean over units of f_{t+1} ⊙ … ⊙ f_last; 1 at the last token."""
    steps = torch.arange(len(gates[0]), device=ends.device)[:, None, None]  # (T, 1, 1)
    products = []
    for f in gates:
        next_f = torch.where(steps < ends[:, None], torch.cat([f[1:], f[:1]]).double(), 1.0)  # f_{t+1}
        products.append(next_f.flip(0).cumprod(dim=0).flip(0).mean(dim=-1).t())
    means: Floats = torch.stack(products).cpu().numpy()
    return means


def _size(network: Any, T: int) -> int:
    """Approximate number of activations per token in rows of T: outputs of each matrix, and attention weights."""
    excluded = {
        id(network.embedding),
        *map(id, network.output.parameters()),
    }  # the output layer reads only the last token of a row
    matrix_outputs = sum(len(p) for p in network.parameters() if p.dim() == 2 and id(p) not in excluded)
    attention_weights = 2 * T * getattr(network.config, "heads", 0) * network.config.layers
    if getattr(network.config, "attention", "none") == "additive":
        attention_weights = (PIECE + network.config.memory) * network.config.widths[-1]
    return int(max(1, matrix_outputs + attention_weights))


SMALL = 0.1  # small initialisation: uniform within ± this / √D
SEED = 0


def recurrent_spectra(network: RecurrentNetwork, progress: Progress = silent) -> list[Recurrence]:
    """Return the recurrent spectra of each layer, with spectra of initial matrices of the same width."""
    initial_spectra: dict[int, dict[str, Spectrum]] = {}
    recurrences = []
    with limit_threads(0.0):  # one thread: the eigenvalue solver is sequential
        for k, layer in enumerate(network.layers):
            progress("recurrent matrices", k, len(network.layers))
            if (D := layer.width) not in initial_spectra:
                initial_spectra[D] = {name: spectrum(R) for name, R in initial_matrices(D).items()}
            recurrences.append(_recurrence(k + 1, layer, initial_spectra[D], other_gradient_paths(network, k)))
    progress("recurrent matrices", len(network.layers), len(network.layers))
    return recurrences


def other_gradient_paths(network: RecurrentNetwork, index: int) -> str:
    """Name the gradient paths other than the recurrence of this layer (counted from 0); empty if none."""
    paths = ["the layers above it"] if index + 1 < len(network.layers) else []
    paths += ["attention to the past"] if network.config.attention != "none" else []
    return " and ".join(paths)


def spectrum(R: Tensor) -> Spectrum:
    """Return the eigenvalues and singular values of a (D, D) matrix, in double precision on the CPU.

    Computed by torch, because NumPy was several times slower on two busy cores (D = 650: 1.8 to 6.6 s, torch 0.2 to
    0.6 s).
    """
    R64 = R.detach().double().cpu()
    if not bool(torch.isfinite(R64).all()):
        raise ChainruleError(
            "a recurrent matrix contains a non-finite value; train the model again with a lower learning_rate"
        )
    return Spectrum(torch.linalg.eigvals(R64).numpy(), torch.linalg.svdvals(R64).numpy())


def initial_matrices(width: int) -> dict[str, Tensor]:
    """(D, D) matrices for each initialisation, with a fixed seed; the global RNG state is preserved."""
    matrices = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for name, method in (("orthogonal", "orthogonal"), ("xavier", "xavier"), ("small", "uniform")):
            matrices[name] = torch.empty(width, width)
            initialize(matrices[name], method, SMALL / math.sqrt(width))  # type: ignore[arg-type]
    return matrices


def _recurrence(number: int, layer: Any, initial_spectra: dict[str, Spectrum], other_paths: str) -> Recurrence:
    matrices = layer.R.chunk(layer.gates, dim=0)  # each (D, D)
    names = layer.gate_names or ("",)
    spectra = {name: spectrum(R) for name, R in zip(names, matrices, strict=True)}
    return Recurrence(
        layer=number,
        spectra=spectra,
        nonlinearity=getattr(layer, "nonlinearity", ""),
        other_paths=other_paths,
        random_spectra=initial_spectra,
    )
