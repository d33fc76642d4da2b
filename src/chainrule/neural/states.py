"""Gates and states of every layer of a recurrent network while it reads a text.

Lives here: reading, by the reference cells, as the model's context rule says. Not here: what is made of the numbers
(inspection/cells.py). Letters: N tokens of the text, B rows, T steps, D width.

A token's gates and states are those of the step that reads it. A `line` model reads no `</s>`: it begins anew and
reads `<s>`, and what it does then stands at the `</s>`. Where attention is added to the state, h is the cell's own.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import Encoded
from chainrule.inspection.cells import LayerStates
from chainrule.lm import Floats, Ids
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import exact
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.watching import Watched, watched
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.threads import suited

MOST_BYTES = 1 << 28  # of all arrays of all models looked at together; what is read is cut to this
STEPS_AT_ONCE = 256  # of a stream; then what was watched is put into the arrays and forgotten
TOKENS_AT_ONCE = 1 << 11  # of lines side by side
STATE_NAMES = ("h", "c")


def read_states(
    model: NeuralModel, text: Encoded, progress: Progress = silent, *, models: int = 1
) -> list[LayerStates]:
    """What each layer did at each token from the text's beginning, (N, D) arrays of float32.

    As many tokens are read as fit into `MOST_BYTES`, which so many models that are kept together share evenly:
    8,603 for one model of two LSTM layers with 650 cells, 4,301 each for two such; 1,000 take 31 MB.
    While reading, `TOKENS_AT_ONCE` of them, or one line where it is longer, are in memory twice.
    """
    network = model.network
    assert isinstance(network, RecurrentNetwork)
    N = min(text.tokens, most_tokens(network, models))
    arrays = [_empty(layer, N) for layer in network.layers]
    view, found = watched(network)
    done = 0
    for place, row, step in _reading(model, view, text.ids[:N]):
        for layer, watch, into in zip(network.layers, found, arrays, strict=True):
            _put(layer.gate_names, watch, into, place, row, step)
        done += len(place)
        progress("gates and states", done, N)
    for into in arrays:
        for values in into.values():
            check_outputs(values, network, may_be_impossible=False)
    return [
        LayerStates(
            layer=k + 1,
            gates={name: into[name] for name in layer.gate_names},
            h=into["h"],
            c=into.get("c"),
            nonlinearity=getattr(layer, "nonlinearity", "tanh"),
        )
        for k, (layer, into) in enumerate(zip(network.layers, arrays, strict=True))
    ]


def most_tokens(network: RecurrentNetwork, models: int = 1) -> int:
    """How many tokens are read at most where so many models share the memory; at least one."""
    numbers: int = sum((len(layer.gate_names) + layer.memories) * layer.width for layer in network.layers)
    return max(1, MOST_BYTES // (4 * numbers * models))


def _empty(layer: torch.nn.Module, N: int) -> dict[str, Floats]:
    names = (*layer.gate_names, *STATE_NAMES[: layer.memories])
    return {name: np.empty((N, layer.width), dtype=np.float32) for name in names}


def _put(names: tuple[str, ...], watch: Watched, into: dict[str, Floats], place: Ids, row: Ids, step: Ids) -> None:
    """What was watched at these rows and steps goes to these places of the text; then it is forgotten."""
    for made, keys in ((watch.gates, names), (watch.states, STATE_NAMES)):
        for i, name in enumerate(keys[: len(made[0])] if made else ()):
            values = torch.stack([tensors[i] for tensors in made])  # (T, B, D)
            into[name][place] = values[step, row].float().cpu().numpy()
        made.clear()


def _reading(model: NeuralModel, view: RecurrentNetwork, ids: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Read a piece; (n,) places in the text, and the row and the step at which each was read; and so on."""
    # Before the text stands `<s>`, read like any token; it has no place of its own: −1.
    read = torch.from_numpy(model.as_read(np.concatenate([[model.vocabulary.bos], ids]))).to(model.device)
    if model.context == "line":
        starts = np.concatenate([[0], np.flatnonzero(ids == model.vocabulary.eos) + 1])
        yield from _lines(view, read, starts)
    else:
        yield from _stream(view, read)


def _stream(view: RecurrentNetwork, read: Tensor) -> Iterator[tuple[Ids, Ids, Ids]]:
    state: Tensors = view.start(1)
    for first in range(0, len(read), STEPS_AT_ONCE):
        piece = read[None, first : first + STEPS_AT_ONCE]
        with exact(), suited(view.work(*piece.shape)):
            state = view(piece, state).state
        step = np.arange(piece.shape[1])
        yield _placed(first + step, np.zeros_like(step), step)


def _lines(view: RecurrentNetwork, read: Tensor, starts: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Lines of like length side by side; what is padded behind them cannot be seen from before it."""
    lengths = np.diff(np.append(starts, len(read)))
    order = np.argsort(lengths, kind="stable")
    done = 0
    while done < len(order):
        last = done + 1
        while last < len(order) and (last - done + 1) * lengths[order[last]] <= TOKENS_AT_ONCE:
            last += 1
        chosen = order[done:last]
        place = starts[chosen, None] + np.arange(lengths[chosen].max())  # (B, T)
        row, step = np.nonzero(place < (starts + lengths)[chosen, None])
        inputs = read[torch.from_numpy(np.minimum(place, len(read) - 1)).to(read.device)]
        with exact(), suited(view.work(*inputs.shape)):
            view(inputs, view.start(len(inputs)))
        yield _placed(place[row, step], row, step)
        done = last


def _placed(place: Ids, row: Ids, step: Ids) -> tuple[Ids, Ids, Ids]:
    """From places in what is read to places in the text, `<s>` before it left out."""
    is_text = place > 0
    return place[is_text] - 1, row[is_text], step[is_text]
