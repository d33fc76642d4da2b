"""The recurrent matrices of a network, gate by gate, and matrices of the same width as they are first drawn.

Lives here: from weights to numbers. Not here: what the numbers mean (inspection/matrix.py). Letter: D width.
"""

import math
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import ChainruleError
from chainrule.inspection.matrix import Recurrence, Spectrum
from chainrule.neural.initialization import fill
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.progress import Progress, silent
from chainrule.training.threads import suited

SMALL = 0.1  # the small first weights are uniform within ± this / √D
SEED = 0


def recurrences(network: RecurrentNetwork, progress: Progress = silent) -> list[Recurrence]:
    """A `Recurrence` for each layer, with drawn matrices of its width."""
    drawn: dict[int, dict[str, Spectrum]] = {}
    found = []
    for k, layer in enumerate(network.layers):
        progress("recurrent matrices", k, len(network.layers))
        if layer.width not in drawn:
            drawn[layer.width] = {name: spectrum(R) for name, R in first_weights(layer.width).items()}
        found.append(_recurrence(k + 1, layer, drawn[layer.width], other_ways(network, k)))
    progress("recurrent matrices", len(network.layers), len(network.layers))
    return found


def other_ways(network: RecurrentNetwork, place: int) -> str:
    """What errors come back through beside the states of this layer, counted from 0; empty of a top layer alone."""
    ways = ["the layers above it"] if place + 1 < len(network.layers) else []
    ways += ["attention to the past"] if network.config.attention != "none" else []
    return " and ".join(ways)


def spectrum(R: Tensor) -> Spectrum:
    """Of a matrix (D, D), in double precision on the processor.

    By torch: on two busy cores numpy took several times as long (D = 650: 1.8 to 6.6 s, torch 0.2 to 0.6 s).
    """
    exact = R.detach().double().cpu()
    if not bool(torch.isfinite(exact).all()):
        raise ChainruleError(
            "a recurrent matrix holds what is no finite number; train the model anew with a lower learning_rate"
        )
    with suited(0.0):  # one thread: eigenvalues are found one after another
        return Spectrum(torch.linalg.eigvals(exact).numpy(), torch.linalg.svdvals(exact).numpy())


def first_weights(width: int) -> dict[str, Tensor]:
    """(D, D) matrices as training would begin with them; the same each time, the caller's randomness untouched."""
    found = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for name, how in (("orthogonal", "orthogonal"), ("xavier", "xavier"), ("small", "uniform")):
            found[name] = torch.empty(width, width)
            fill(found[name], how, SMALL / math.sqrt(width))  # type: ignore[arg-type]
    return found


def _recurrence(number: int, layer: Any, drawn: dict[str, Spectrum], others: str) -> Recurrence:
    matrices = layer.R.chunk(layer.gates, dim=0)  # each (D, D)
    names = layer.gate_names or ("",)
    spectra = {name: spectrum(R) for name, R in zip(names, matrices, strict=True)}
    return Recurrence(
        layer=number,
        spectra=spectra,
        nonlinearity=getattr(layer, "nonlinearity", ""),
        other_ways=others,
        drawn=drawn,
    )
