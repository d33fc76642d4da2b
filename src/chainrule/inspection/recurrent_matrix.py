"""The recurrent-matrix section: eigenvalues, singular values, and the gradient bound they imply. D width, k steps.

A gradient going k steps back through h_t = φ(R h_{t−1} + …) is multiplied by k Jacobians diag(φ′) R, so its norm
changes by at most (σ_max · γ)^k, γ = max φ′ (Pascanu et al. 2013). The bound covers the path along the states of
one layer. Below the top layer, or with attention over past states, gradients also return along other paths, and
the product is not a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection.report import Figure, Finding, Section
from chainrule.inspection.text_excerpt import Sample
from chainrule.lm import Floats
from chainrule.neural.cells import CELLS
from chainrule.neural.probes.measurements import MAX_SLOPE, UNIT_TOLERANCE, Complexes, Recurrence
from chainrule.plots import figures
from chainrule.plots.html import RULED, escape, html_table
from chainrule.progress import Progress, silent

GATE_NAMES: Final[Mapping[str, str]] = {
    "": "state",
    "i": "input gate",
    "f": "forget gate",
    "g": "candidate",
    "o": "output gate",
    "r": "reset gate",
    "z": "update gate",
    "n": "candidate",
}
"""Names of the gates by letter; an Elman layer has one matrix and no letter."""

INITIALIZATIONS: Final[Mapping[str, str]] = {
    name: f"{name.replace('xavier', 'Xavier')} initialization" for name in ("orthogonal", "xavier", "small")
}


def gradient_bound(gain: float, lags: int) -> Floats:
    """Return the upper bound gain^k on the gradient k steps back, (lags + 1,), finite."""
    with np.errstate(over="ignore", under="ignore"):
        powers: Floats = np.minimum(gain ** np.arange(lags + 1, dtype=np.float64), np.finfo(np.float64).max)
    return powers


def describe(recurrence: Recurrence) -> str:
    """Describe what the matrices of a layer imply for the gradient."""
    main = recurrence.main
    measured = f"spectral radius {main.radius:.2f} and largest singular value {main.norm:.2f}"
    gain = recurrence.gain
    if gain is None:
        return (
            f"the candidate's recurrent matrix of layer {recurrence.layer} has {measured}; "
            "the path through the gates is not bounded by it"
        )
    clause = f"the recurrent matrix of layer {recurrence.layer} has {measured}"
    if not recurrence.is_bound:
        return (
            f"{clause}: along this layer alone {_product(gain)}; gradients also return through "
            f"{recurrence.other_paths}, which this does not bound"
        )
    return f"{clause}: {describe_gain(gain)}"


def describe_gain(gain: float) -> str:
    """Describe the effect of σ_max · max φ′ on a gradient without other backward paths.

    >>> describe_gain(1.000001)
    'σ_max · max φ′ = 1.00: the gradient need not vanish and cannot explode'
    """
    if abs(gain - 1) <= UNIT_TOLERANCE:
        return f"{_product(gain)}: the gradient need not vanish and cannot explode"
    if gain < 1:
        left = f"after 10 tokens at most {gain**10:.2g} of it is left"
        return f"{_product(gain)} < 1: the gradient must vanish, {left}"
    return f"{_product(gain)} > 1: the gradient can explode, but need not"


def _product(gain: float) -> str:
    """Format with two decimals, or more if that would hide a difference from 1."""
    shown = f"{gain:.2f}"
    return f"σ_max · max φ′ = {f'{gain:.6g}' if shown == '1.00' and abs(gain - 1) > UNIT_TOLERANCE else shown}"


PANEL: Final = 150  # pixels
GAP: Final = 26
HEAD: Final = 22
NARROWEST, WIDEST = 150, 234  # pixels of one panel; five fit side by side in 1,040
LOWEST: Final = 1e-8  # limits of the bound axis
HIGHEST: Final = 1e8


def plot_eigenvalues(recurrences: Sequence[Recurrence], *, title: str) -> str:
    """Plot one complex plane per layer, then one per random initialization of the first layer's width."""
    panels = {}
    for recurrence in recurrences:
        gate = recurrence.main_gate
        name = f"layer {recurrence.layer}" + (f", {GATE_NAMES[gate]} {gate}" if gate else "")
        panels[name] = recurrence.main.eigenvalues
    layers = len(panels)
    panels |= {INITIALIZATIONS[name]: random.eigenvalues for name, random in recurrences[0].random_spectra.items()}
    planes = [
        _plane(values, f"{title}, {name}", name, figures.PALETTE[0 if index < layers else 1])
        for index, (name, values) in enumerate(panels.items())
    ]
    if not planes[0].startswith("<svg"):
        return planes[0]  # matplotlib is missing
    style = f"flex:0 0 {panel_width(len(planes))};min-width:0"
    limit = f"max-width:{WIDEST}px"
    cells = "".join(f'<div style="{style}"><div style="{limit}">{plane}</div></div>' for plane in planes)
    return f'<div style="display:flex;flex-wrap:wrap">{cells}</div>'


def panel_width(count: int) -> str:
    """Return the CSS width of each of `count` panels: all in one row if it is wide enough, otherwise in even rows.

    (least − 100 %) · 999 is huge if the row is narrower than `least` and negative otherwise, so each `min` applies
    below its width: five panels are laid out as 5, then 3 + 2, then 2 + 2 + 1.
    """
    steps = []
    columns = count
    for across in sorted({-(-count // rows) for rows in range(2, count + 1)}, reverse=True):
        steps.append(f"min(({NARROWEST * columns}px - 100%)*999,100%/{across})")
        columns = across
    return f"max({','.join([f'100%/{count}', *steps])})" if steps else "100%"


def plot_bounds(curves: Mapping[str, Floats], *, title: str) -> str:
    """Plot (σ_max · γ)^k by lag k on a log scale, clipped to a readable range, with a line at 1."""

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        axes.axhline(1.0, color=figures.PALETTE[-1], lw=1)
        for index, (name, values) in enumerate(curves.items()):
            shown = values[: max(2, int(((values >= LOWEST) & (values <= HIGHEST)).sum()))]
            colour = figures.PALETTE[index % len(figures.PALETTE)]
            axes.plot(np.clip(shown, LOWEST, HIGHEST), lw=2, color=colour, label=name)
        axes.set_xlabel("tokens back, k")
        axes.set_ylabel("upper bound on the relative gradient")
        axes.set_ylim(LOWEST, HIGHEST)
        axes.set_yticks([LOWEST, 1e-4, 1.0, 1e4, HIGHEST])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)

    ends = "; ".join(f"{name}: {values[1]:.3g} per step" for name, values in curves.items())
    margins = figures.Margins(left=66, top=20 + 18 * -(-len(curves) // 2))
    return figures.render(paint, title, ends + ".", margins)


def spectrum_table(recurrences: Sequence[Recurrence]) -> str:
    """Return a table of the norms of every matrix, followed by the random initializations of each width."""
    rows = [
        (f"layer {recurrence.layer}, {GATE_NAMES[gate]} {gate}".strip(), recurrence.width, spectrum)
        for recurrence in recurrences
        for gate, spectrum in recurrence.spectra.items()
    ]
    by_width = {recurrence.width: recurrence.random_spectra for recurrence in recurrences}
    rows += [
        (INITIALIZATIONS[name], width, spectrum)
        for width, spectra in by_width.items()
        for name, spectrum in spectra.items()
    ]
    cells = [
        (name, str(width), f"{spectrum.radius:.3f}", f"{spectrum.norm:.3f}", f"{100 * spectrum.outside:.0f} %")
        for name, width, spectrum in rows
    ]
    header = ("matrix", "width", "spectral radius", "largest singular value", "eigenvalues outside the unit circle")
    return html_table(header, cells, label="Norms of recurrent matrices", style=RULED, numbers=range(1, 5))


def _plane(values: Complexes, title: str, name: str, colour: str) -> str:
    """Return one `<svg>`."""
    margins = figures.Margins(left=GAP, right=4, top=HEAD, bottom=HEAD)
    height, width = PANEL + 2 * HEAD, PANEL + GAP + 4
    description = f"{name}: largest modulus {np.abs(values).max():.2f}."
    return figures.render(
        lambda axes: _paint_plane(axes, values, name, colour),
        title,
        description,
        margins,
        height,
        width,
        is_compact=True,
    )


def _paint_plane(axes: Any, values: Complexes, name: str, colour: str) -> None:
    """Draw eigenvalues with the unit circle, scaled to the largest modulus."""
    limit = 1.08 * max(1.0, float(np.abs(values).max()))
    decade = 10.0 ** np.floor(np.log10(limit))
    tick = decade * max(step for step in (1, 2, 5) if step * decade <= limit)
    angle = np.linspace(0.0, 2 * np.pi, 73)
    axes.plot(np.cos(angle), np.sin(angle), lw=1, color=figures.PALETTE[-1])
    figures.draw_dots(axes, values.real, values.imag, colour)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xticks=[-tick, 0, tick], yticks=[-tick, 0, tick])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.spines[:].set_visible(False)
    axes.grid(visible=True, axis="both")
    axes.set_title(name, fontsize=figures.FONT_SIZE, pad=4)


LAGS: Final = 100
CURVES: Final = 8  # lines of the bound plot


def section(samples: Sequence[Sample], *, progress: Progress = silent) -> Section | None:
    """Return the recurrent matrices of every recurrent model; None without recurrent models. Ignores the text."""
    recurrent = [sample for sample in samples if sample.model.family in CELLS]
    if not recurrent:
        return None
    recurrences = {sample.name: _recurrences(sample, progress) for sample in recurrent}
    return Section(
        name="recurrent_matrix",
        title="Recurrent matrices",
        findings=tuple(
            Finding(name, f"{describe(layer)}.") for name, layers in recurrences.items() for layer in layers
        ),
        figures=(
            *(figure for name, layers in recurrences.items() for figure in _figures(name, layers)),
            *_bound_figures(recurrences),
        ),
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
    from chainrule.neural.probes.gradient_flow import recurrent_spectra

    return recurrent_spectra(sample.model.lm.network, progress)


def _figures(name: str, layers: Sequence[Recurrence]) -> Iterator[Figure]:
    kind = "" if layers[0].nonlinearity else " of the candidate matrix"
    yield Figure(
        name=f"{name}: eigenvalues",
        drawing=plot_eigenvalues(layers, title=f"Eigenvalues of {name}"),
        caption=(
            f"{escape(name)}: eigenvalues{kind} in the complex plane, with the unit circle. Components along "
            "eigenvectors inside the circle shrink at every token, outside it they grow. For comparison, random "
            f"initializations of width {layers[0].width}: orthogonal (on the circle), Xavier (filling it) and "
            "small (at its centre). Scales differ between panels."
        ),
        is_wide=True,
    )
    yield Figure(
        name=f"{name}: sizes",
        drawing=spectrum_table(layers),
        caption=(
            f"{escape(name)}: norms of every recurrent matrix. The largest singular value is the largest growth "
            "of a vector in one step, the spectral radius the asymptotic growth per step, which is never larger."
        ),
        is_wide=True,
    )


def _bound_figures(recurrences: dict[str, list[Recurrence]]) -> list[Figure]:
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
    drawing = plot_bounds(dict(list(curves.items())[:CURVES]), title="Bound on the gradient by lag")
    caption = (
        "Upper bound on the relative gradient <i>k</i> tokens back in the top layer: "
        f"(σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>, max φ′ {', '.join(sorted(slopes))}. "
        "A falling line means that the gradient must vanish; a rising one that it can explode, but need not."
    )
    return [Figure(name="bound", drawing=drawing, caption=caption)]
