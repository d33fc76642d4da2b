"""Spectra of recurrent weight matrices by gate, and of freshly initialized matrices for comparison.

Letter: D width.
"""

import math
from typing import Any

import torch
from torch import Tensor

from chainrule.analysis.recurrent_matrix import Recurrence, Spectrum
from chainrule.errors import ChainruleError
from chainrule.neural.layers.initialization import initialize
from chainrule.neural.recurrent import RecurrentNetwork
from chainrule.progress import Progress, silent
from chainrule.training.device import limit_threads

SMALL = 0.1  # small initialisation: uniform within ± this / √D
SEED = 0


def recurrent_spectra(network: RecurrentNetwork, progress: Progress = silent) -> list[Recurrence]:
    """Return the recurrent spectra of each layer, with spectra of initial matrices of the same width."""
    initial_spectra: dict[int, dict[str, Spectrum]] = {}
    layer_spectra = []
    for k, layer in enumerate(network.layers):
        progress("recurrent matrices", k, len(network.layers))
        if layer.width not in initial_spectra:
            initial_spectra[layer.width] = {name: spectrum(R) for name, R in initial_matrices(layer.width).items()}
        layer_spectra.append(
            _recurrence(k + 1, layer, initial_spectra[layer.width], other_gradient_paths(network, k))
        )
    progress("recurrent matrices", len(network.layers), len(network.layers))
    return layer_spectra


def other_gradient_paths(network: RecurrentNetwork, index: int) -> str:
    """Name the gradient paths other than the recurrence of this layer (counted from 0); empty if none."""
    paths = ["the layers above it"] if index + 1 < len(network.layers) else []
    paths += ["attention to the past"] if network.config.attention != "none" else []
    return " and ".join(paths)


def spectrum(R: Tensor) -> Spectrum:
    """Eigenvalues and singular values of (D, D), in double precision on the CPU.

    Computed by torch: on two busy cores NumPy was several times slower (D = 650: 1.8 to 6.6 s, torch 0.2 to 0.6 s).
    """
    R64 = R.detach().double().cpu()
    if not bool(torch.isfinite(R64).all()):
        raise ChainruleError(
            "a recurrent matrix contains a non-finite value; train the model again with a lower learning_rate"
        )
    with limit_threads(0.0):  # one thread: the eigenvalue solver is sequential
        return Spectrum(torch.linalg.eigvals(R64).numpy(), torch.linalg.svdvals(R64).numpy())


def initial_matrices(width: int) -> dict[str, Tensor]:
    """(D, D) matrices for each initialization, with a fixed seed; the global RNG state is preserved."""
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
