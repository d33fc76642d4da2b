"""Gate activations and states of every layer of a recurrent network over a text.

The values at a token are those of the step that reads it. A `line` model is reset and reads `<s>` in place of
`</s>`; the values of that step are stored at the `</s>`. With attention added to the state, h is the cell's output
before the addition. Letters: N tokens of the text, B rows, T steps, D width.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText
from chainrule.inspection.cells import LayerStates
from chainrule.lm import Floats, Ids
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import exact_inference
from chainrule.neural.network import Tensors
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.neural.watching import RecurrenceRecord, record_recurrence
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.threads import limit_threads

MOST_BYTES = 1 << 28  # memory limit for the arrays of all models together
STEPS_AT_ONCE = 256  # steps of a stream between copies of the recorded values
TOKENS_AT_ONCE = 1 << 11  # tokens per batch of lines
STATE_NAMES = ("h", "c")


def read_gate_activations(
    model: NeuralModel, text: EncodedText, progress: Progress = silent, *, models: int = 1
) -> list[LayerStates]:
    """Return (N, D) float32 gate activations and states of each layer from the start of the text.

    The number of tokens is limited by `MOST_BYTES`, shared evenly by `models` models: 8,603 for one model of two
    LSTM layers with 650 cells, 4,301 each for two; 1,000 tokens take 31 MB. While reading, `TOKENS_AT_ONCE` tokens,
    or one longer line, are in memory twice.
    """
    network = model.network
    assert isinstance(network, RecurrentNetwork)
    N = min(text.tokens, max_tokens(network, models))
    arrays = [_empty(layer, N) for layer in network.layers]
    view, records = record_recurrence(network)
    done = 0
    for position, row, step in _reading(model, view, text.ids[:N]):
        for layer, record, layer_arrays in zip(network.layers, records, arrays, strict=True):
            _put(layer.gate_names, record, layer_arrays, position, row, step)
        done += len(position)
        progress("gates and states", done, N)
    for layer_arrays in arrays:
        for values in layer_arrays.values():
            check_outputs(values, network, allow_neg_inf=False)
    return [
        LayerStates(
            layer=k + 1,
            gates={name: layer_arrays[name] for name in layer.gate_names},
            h=layer_arrays["h"],
            c=layer_arrays.get("c"),
            nonlinearity=getattr(layer, "nonlinearity", "tanh"),
        )
        for k, (layer, layer_arrays) in enumerate(zip(network.layers, arrays, strict=True))
    ]


def max_tokens(network: RecurrentNetwork, models: int = 1) -> int:
    """Maximum number of tokens when this many models share the memory; at least one."""
    numbers: int = sum((len(layer.gate_names) + layer.n_states) * layer.width for layer in network.layers)
    return max(1, MOST_BYTES // (4 * numbers * models))


def _empty(layer: torch.nn.Module, N: int) -> dict[str, Floats]:
    names = (*layer.gate_names, *STATE_NAMES[: layer.n_states])
    return {name: np.empty((N, layer.width), dtype=np.float32) for name in names}


def _put(
    names: tuple[str, ...], record: RecurrenceRecord, arrays: dict[str, Floats], position: Ids, row: Ids, step: Ids
) -> None:
    """Copy recorded values at these rows and steps to their text positions, then clear the record."""
    for recorded, keys in ((record.gates, names), (record.states, STATE_NAMES)):
        for i, name in enumerate(keys[: len(recorded[0])] if recorded else ()):
            values = torch.stack([tensors[i] for tensors in recorded])  # (T, B, D)
            arrays[name][position] = values[step, row].float().cpu().numpy()
        recorded.clear()


def _reading(model: NeuralModel, view: RecurrentNetwork, ids: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Run the network over a text; yield text positions (n,) and the row and step of each."""
    # The input starts with `<s>`, which has no text position.
    inputs = torch.from_numpy(model.map_boundaries(np.concatenate([[model.vocabulary.bos], ids]))).to(model.device)
    if model.context == "line":
        starts = np.concatenate([[0], np.flatnonzero(ids == model.vocabulary.eos) + 1])
        yield from _lines(view, inputs, starts)
    else:
        yield from _stream(view, inputs)


def _stream(view: RecurrentNetwork, inputs: Tensor) -> Iterator[tuple[Ids, Ids, Ids]]:
    state: Tensors = view.start(1)
    for first in range(0, len(inputs), STEPS_AT_ONCE):
        piece = inputs[None, first : first + STEPS_AT_ONCE]
        with exact_inference(), limit_threads(view.largest_matmul(*piece.shape)):
            state = view(piece, state).state
        step = np.arange(piece.shape[1])
        yield _placed(first + step, np.zeros_like(step), step)


def _lines(view: RecurrentNetwork, inputs_all: Tensor, starts: Ids) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Batch lines of similar length; right padding has no effect."""
    lengths = np.diff(np.append(starts, len(inputs_all)))
    order = np.argsort(lengths, kind="stable")
    done = 0
    while done < len(order):
        last = done + 1
        while last < len(order) and (last - done + 1) * lengths[order[last]] <= TOKENS_AT_ONCE:
            last += 1
        rows = order[done:last]
        position = starts[rows, None] + np.arange(lengths[rows].max())  # (B, T)
        row, step = np.nonzero(position < (starts + lengths)[rows, None])
        inputs = inputs_all[torch.from_numpy(np.minimum(position, len(inputs_all) - 1)).to(inputs_all.device)]
        with exact_inference(), limit_threads(view.largest_matmul(*inputs.shape)):
            view(inputs, view.start(len(inputs)))
        yield _placed(position[row, step], row, step)
        done = last


def _placed(position: Ids, row: Ids, step: Ids) -> tuple[Ids, Ids, Ids]:
    """Convert input positions to text positions, without the leading `<s>`."""
    is_text = position > 0
    return position[is_text] - 1, row[is_text], step[is_text]
