"""The recurrent matrix: what a step does to a state, and so to a gradient on its way back.

Lives here: the section of an inspection. Not here: the numbers (neural/matrices.py), drawings
(inspection/matrix_plot.py).
"""

from collections.abc import Sequence
from typing import Any, Final

from chainrule.inspection import matrix_plot
from chainrule.inspection.foreign import isolated
from chainrule.inspection.matrix import STEEPEST, Recurrence, Spectrum, bound, in_words
from chainrule.inspection.section import Figure, Section
from chainrule.lm import Floats
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent

RECURRENT: Final = ("rnn", "lstm", "gru")
LAGS: Final = 100
CURVES: Final = 8  # of the bound on one axis


def section(samples: Sequence[Sample], *, progress: Progress | bool = silent) -> Section | None:
    """The recurrent matrices of every recurrent model; None where there is none. The text plays no part."""
    progress = as_progress(progress)
    recurrent = [sample for sample in samples if sample.model.family in RECURRENT]
    if not recurrent:
        return None
    found = {sample.name: _recurrences(sample, progress) for sample in recurrent}
    figures: list[Figure] = []
    for name, layers in found.items():
        figures += [_planes(name, layers), _sizes(name, layers)]
    return Section(
        name="recurrent_matrix",
        title="The recurrent matrix",
        findings=tuple(f"{name}: {in_words(layer)}." for name, layers in found.items() for layer in layers),
        figures=(*figures, *_bounds(found)),
        data={name: [_data(layer) for layer in layers] for name, layers in found.items()},
        arrays={
            f"{name}/layer {layer.layer}/{gate or 'R'}/{what}": values
            for name, layers in found.items()
            for layer in layers
            for gate, spectrum in layer.spectra.items()
            for what, values in _arrays(spectrum).items()
        },
    )


def _recurrences(sample: Sample, progress: Progress) -> list[Recurrence]:
    from chainrule.neural.matrices import recurrences

    return recurrences(sample.model.lm.network, progress)  # type: ignore[attr-defined]


def _planes(name: str, layers: Sequence[Recurrence]) -> Figure:
    kind = "" if layers[0].nonlinearity else " of the candidate, the matrix that new content comes through,"
    return Figure(
        name=f"{name}: eigenvalues",
        drawing=matrix_plot.eigenvalues(layers, title=f"Eigenvalues of {name}"),
        caption=(
            f"{isolated(name)}: the eigenvalues{kind} on the complex plane, one dot each, with the unit circle. "
            "What lies along an eigenvector inside the circle shrinks at every token, outside it grows. Beside "
            f"them matrices of width {layers[0].width} as they are drawn before training: orthogonal ones lie on "
            "the circle, Xavier's fill it, small ones lie at its centre. Every plane has a scale of its own."
        ),
        is_wide=True,
    )


def _sizes(name: str, layers: Sequence[Recurrence]) -> Figure:
    return Figure(
        name=f"{name}: sizes",
        drawing=matrix_plot.table(layers),
        caption=(
            f"{isolated(name)}: every recurrent matrix in numbers. The largest singular value says how much "
            "longer one step can make a vector at most, the spectral radius how much longer each step makes it in "
            "the long run; the first is never smaller."
        ),
        is_wide=True,
    )


def _bounds(found: dict[str, list[Recurrence]]) -> list[Figure]:
    """One picture for all Elman layers whose gradient is bound, where there is one."""
    curves: dict[str, Floats] = {}
    steepest: set[str] = set()
    for name, layers in found.items():
        for layer in layers:
            if layer.gain is not None and layer.is_bound:
                curves[f"{name}, layer {layer.layer}"] = bound(layer.gain, LAGS)
                steepest.add(f"{STEEPEST[layer.nonlinearity]:g} for {layer.nonlinearity}")
    if not curves:
        return []
    drawing = matrix_plot.bounds(dict(list(curves.items())[:CURVES]), title="Bound on the gradient by lag")
    caption = (
        "The most that can be left of a gradient <i>k</i> tokens back in the top layer: "
        f"(σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>, max φ′ {', '.join(sorted(steepest))}. "
        "A line that falls forces vanishing; one that rises permits an explosion and does not force it."
    )
    return [Figure(name="bound", drawing=drawing, caption=caption)]


def _data(layer: Recurrence) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "width": layer.width,
        "nonlinearity": layer.nonlinearity or None,
        "gain": layer.gain,
        "is_bound": layer.is_bound,
        "matrices": {gate or "R": _numbers(each) for gate, each in layer.spectra.items()},
        "drawn": {name: _numbers(each) for name, each in layer.drawn.items()},
    }


def _numbers(spectrum: Spectrum) -> dict[str, float]:
    return {
        "spectral_radius": spectrum.radius,
        "largest_singular_value": spectrum.norm,
        "outside_unit_circle": spectrum.outside,
    }


def _arrays(spectrum: Spectrum) -> dict[str, Floats]:
    return {
        "eigenvalues, real": spectrum.eigenvalues.real,
        "eigenvalues, imaginary": spectrum.eigenvalues.imag,
        "singular values": spectrum.singular_values,
    }
