"""The recurrent-matrix section: spectra of the recurrent matrices and the gradient bound they imply."""

from collections.abc import Sequence
from typing import Final

from chainrule.analysis import recurrent_matrix
from chainrule.analysis.recurrent_matrix import MAX_SLOPE, Recurrence, describe, gradient_bound
from chainrule.analysis.section import Figure, Finding, Section
from chainrule.inspection.sample import Sample
from chainrule.lm import Floats
from chainrule.neural.cells import CELLS
from chainrule.plots.html import escape
from chainrule.progress import Progress, silent

LAGS: Final = 100
CURVES: Final = 8  # lines of the bound plot


def section(samples: Sequence[Sample], *, progress: Progress = silent) -> Section | None:
    """Return the recurrent matrices of every recurrent model; None if there is none. The text is not used."""
    recurrent = [sample for sample in samples if sample.model.family in CELLS]
    if not recurrent:
        return None
    recurrences = {sample.name: _recurrences(sample, progress) for sample in recurrent}
    figures: list[Figure] = []
    for name, layers in recurrences.items():
        figures += [_planes(name, layers), _sizes(name, layers)]
    return Section(
        name="recurrent_matrix",
        title="Recurrent matrices",
        findings=tuple(
            Finding(name, f"{describe(layer)}.") for name, layers in recurrences.items() for layer in layers
        ),
        figures=(*figures, *_bounds(recurrences)),
        data={name: [layer.as_json() for layer in layers] for name, layers in recurrences.items()},
        arrays={
            f"{name}/layer {layer.layer}/{gate or 'R'}/{what}": values
            for name, layers in recurrences.items()
            for layer in layers
            for gate, spectrum in layer.spectra.items()
            for what, values in spectrum.arrays().items()
        },
    )


def _recurrences(sample: Sample, progress: Progress) -> list[Recurrence]:
    from chainrule.neural.probes.recurrent_matrices import recurrent_spectra

    return recurrent_spectra(sample.model.lm.network, progress)


def _planes(name: str, layers: Sequence[Recurrence]) -> Figure:
    kind = "" if layers[0].nonlinearity else " of the candidate matrix"
    return Figure(
        name=f"{name}: eigenvalues",
        drawing=recurrent_matrix.plot_eigenvalues(layers, title=f"Eigenvalues of {name}"),
        caption=(
            f"{escape(name)}: eigenvalues{kind} in the complex plane, with the unit circle. Components along "
            "eigenvectors inside the circle shrink at every token, outside it they grow. For comparison, random "
            f"initializations of width {layers[0].width}: orthogonal (on the circle), Xavier (filling it) and "
            "small (at its centre). Scales differ between panels."
        ),
        is_wide=True,
    )


def _sizes(name: str, layers: Sequence[Recurrence]) -> Figure:
    return Figure(
        name=f"{name}: sizes",
        drawing=recurrent_matrix.spectrum_table(layers),
        caption=(
            f"{escape(name)}: norms of every recurrent matrix. The largest singular value is the largest growth "
            "of a vector in one step, the spectral radius the asymptotic growth per step, which is never larger."
        ),
        is_wide=True,
    )


def _bounds(recurrences: dict[str, list[Recurrence]]) -> list[Figure]:
    """Plot the bound for all Elman layers that have one."""
    curves: dict[str, Floats] = {}
    slopes: set[str] = set()
    for name, layers in recurrences.items():
        for layer in layers:
            if layer.gain is not None and layer.is_bound:
                curves[f"{name}, layer {layer.layer}"] = gradient_bound(layer.gain, LAGS)
                slopes.add(f"{MAX_SLOPE[layer.nonlinearity]:g} for {layer.nonlinearity}")
    if not curves:
        return []
    drawing = recurrent_matrix.plot_bounds(
        dict(list(curves.items())[:CURVES]), title="Bound on the gradient by lag"
    )
    caption = (
        "Upper bound on the relative gradient <i>k</i> tokens back in the top layer: "
        f"(σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>, max φ′ {', '.join(sorted(slopes))}. "
        "A falling line means that the gradient must vanish; a rising one that it can explode, but need not."
    )
    return [Figure(name="bound", drawing=drawing, caption=caption)]
