"""Gradient flow: how far back the error of one prediction reaches, of any network.

Lives here: the section of an inspection, in words, pictures and numbers. Not here: the gradients (neural/flow.py),
their statistics and drawing (inspection/flow.py, flow_plot.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from chainrule.inspection import flow_plot, matrix
from chainrule.inspection.flow import GradientFlow, half_life
from chainrule.inspection.foreign import isolated, plain_text
from chainrule.inspection.section import Figure, Section, finite, rounded
from chainrule.lm import Floats
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent

LABEL: Final = "bound"
FEW: Final = 1000  # lags that are no burden
READ: Final = (
    "The error of one prediction on its way back through the text: how large its gradient still is <i>k</i> tokens "
    "before, as a part of what it is at lag 0. A line is the mean over up to {positions} positions with much text "
    "before them (those that have this lag), the middle half of them shaded. The scale is logarithmic: a straight "
    "line halves at a steady pace, and where a line lies low the model can hardly learn from what stands so far "
    "back."
)
AGAIN: Final = "The same, over up to {positions} positions."


def section(
    samples: Sequence[Sample],
    *,
    lags: int = 100,
    positions: int = 64,
    seed: int = 0,
    progress: Progress | bool = silent,
) -> Section | None:
    """The flow in every network; None where there is none."""
    progress = as_progress(progress)
    made = {
        sample.name: flows(sample, lags=lags, positions=positions, seed=seed, progress=progress)
        for sample in samples
    }
    found = {name: each for name, each in made.items() if each}
    if not found:
        return None
    bounds = {sample.name: bound(sample, lags) for sample in samples}
    return Section(
        name="gradient_flow",
        title="Gradient flow",
        findings=_findings(found, bounds),
        figures=_figures(found, bounds),
        data={name: {flow.what: _data(flow) for flow in each} for name, each in found.items()},
        arrays={key: values for each in found.values() for flow in each for key, values in _arrays(flow).items()},
    )


def flows(
    sample: Sample, *, lags: int = 100, positions: int = 64, seed: int = 0, progress: Progress | bool = silent
) -> list[GradientFlow]:
    """What flows in one model, what is compared with other models first; nothing of one that is no network."""
    progress = as_progress(progress)
    if not hasattr(sample.model.lm, "network"):
        return []
    from chainrule.neural.flow import gradient_flow

    lm: Any = sample.model.lm
    lags = min(lags, max(FEW, sample.text.tokens))  # there are no others, and each takes memory
    return gradient_flow(
        lm, sample.text, lags=lags, positions=positions, seed=seed, name=sample.name, progress=progress
    )


def compared(found: Sequence[GradientFlow]) -> list[GradientFlow]:
    """What is held against other models: the first flow, and that along an LSTM's cell, its other way back."""
    cells = [replace(flow, name=f"{flow.name}, cell", forget=None) for flow in found if flow.what == "c"]
    return [*found[:1], *cells]


def bound(sample: Sample, lags: int) -> Floats | None:
    """(K+1,) the most that can be left in an Elman network's top layer: (‖R‖₂ · max φ')^k; None of other models.

    Below the top layer, and with attention to the past, errors have other ways back, and there is no such bound.
    """
    network: Any = getattr(sample.model.lm, "network", None)
    config: Any = getattr(network, "config", None)
    if getattr(config, "nonlinearity", None) not in matrix.STEEPEST or config.attention != "none":
        return None
    R = network.layers[-1].R.detach().cpu().numpy().astype(np.float64)
    gain = float(np.linalg.norm(R, 2)) * matrix.STEEPEST[config.nonlinearity]
    return matrix.bound(gain, lags)


# Words.


def _findings(found: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[str, ...]:
    """First of each model how far its signal reaches, then what there is beside it."""
    first = [f"{name}: {reach_in_words(each[0])}" for name, each in found.items()]
    along = [f"{name}: {words}" for name, each in found.items() for flow in each if (words := _cell_in_words(flow))]
    limits = [
        f"{name}: in the top layer {matrix.gain_in_words(float(limit[1]))}."
        for name in found
        if (limit := bounds.get(name)) is not None and len(limit) > 1
    ]
    return (*first, *along, *limits)


def reach_in_words(flow: GradientFlow) -> str:
    """How fast the signal falls in the top layer, and where next to nothing is left of it."""
    top, far = flow.layers - 1, flow.lags - 1
    left, half = flow.relative()[top], flow.half_life(top)
    if half is None:
        return "too little text stands before the predictions to follow a signal, or they leave nothing to learn."
    if flow.what == "embedding" and left[-1] == 0:
        return (
            f"the signal reaches {_tokens(int(np.argmax(left == 0)))}, the model's whole window, and none further."
        )
    where = {"h": f" in layer {top + 1}", "embedding": " on its way to the word vectors"}.get(flow.what, "")
    if flow.what == "h" and flow.layers == 1:
        where = ""
    if math.isinf(half):
        return f"the signal {_unfading(float(left[-1]), where, far)}."
    lower = [f"{_after(flow.half_life(layer))} in layer {layer + 1}" for layer in range(top)]
    others = f" ({', '.join(lower)})" if flow.what == "h" and lower else ""
    rest = f"; {_tokens(far)} back, as far as was looked, {_part(left[-1])} of it is left"
    reach = flow.reach(top)
    if reach is not None:
        end = f"; {_tokens(far)} back {_part(left[-1])} is left" if far > reach else ""
        rest = f", 99 % of it after {_tokens(reach)}{end}"
    return f"half of the signal is gone {_after(half)}{where}{others}{rest}."


def _cell_in_words(flow: GradientFlow) -> str:
    kept = flow.kept()
    top = flow.layers - 1
    half = flow.half_life(top)
    if kept is None or half is None:
        return ""
    gates = _after(half_life(kept[top]))
    return (
        f"along the cell of layer {top + 1} half of the signal is gone {_after(half)}; the product of its forget "
        f"gates, mean of all units, falls to a half {gates}."
    )


def _after(half: float | None) -> str:
    if half is None or math.isinf(half):
        return "not within these lags"
    if half < 0.1:
        return "at once"
    return f"after {half:.1f} tokens" if half < 10 else f"after {half:.0f} tokens"


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number:,} tokens"


def _part(part: float) -> str:
    if part < 1e-5:
        return "less than 0.001 %"
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"


def _unfading(left: float, where: str, far: int) -> str:
    if math.isinf(left):
        return f"grows{where} beyond all numbers within {_tokens(far)}"
    if left > 1.5:
        return f"grows{where}: {_tokens(far)} back it is {left:.3g} times as large"
    fades = "fades slowly" if left < 0.95 else "does not fade"
    return f"{fades}{where}: {_tokens(far)} back {_part(left)} of it is left"


# Pictures.


def _figures(found: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[Figure, ...]:
    """All models on one axis, then each by itself."""
    together = [_together([flow for each in found.values() for flow in compared(each)])] if len(found) > 1 else []
    each_flow = [(flow, bounds.get(name)) for name, each in found.items() for flow in each]
    alone = [_alone(flow, limit, is_first=not (place or together)) for place, (flow, limit) in enumerate(each_flow)]
    return (*together, *alone)


def _together(first: list[GradientFlow]) -> Figure:
    what = (
        "of recurrent networks by the state <i>h</i> of the top layer (of an LSTM also by its cell), of others by "
        "the word vectors"
    )
    words = "; ".join(f"{flow.name}: {reach_in_words(flow)}" for flow in first)
    drawing = flow_plot.draw(first, title="Gradient flow of all models", description=plain_text(words))
    return Figure(name="all", drawing=drawing, caption=f"{_read(first[0], READ)} All models, {what}.")


def _alone(flow: GradientFlow, limit: Floats | None, is_first: bool) -> Figure:
    kind = {"c": "along the cell", "embedding": "by distance"}.get(flow.what, "by layer")
    more = {
        "h": "By <i>h</i>, the state that each layer carries from token to token.",
        "c": "By <i>c</i>, the cell of each layer. Dashed: the product of the forget gates, what a unit would pass "
        "on if the cell were the only way back, the mean over all units; where it lies far above the line, the "
        "error sits in other units than those that keep.",
        "residual": "By what enters each block, the residual path.",
        "embedding": "By the vector of each word that was read.",
    }[flow.what]
    dotted = limit[: flow.lags].tolist() if limit is not None and flow.what == "h" else None
    if dotted is not None:
        more += (
            " Dotted: the most that can be left in the top layer, (σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>."
        )
    title = f"Gradient flow of {plain_text(flow.name)} {kind}"
    description = plain_text(f"{flow.name}: {reach_in_words(flow)}")
    drawing = flow_plot.draw([flow], {LABEL: dotted} if dotted else None, title=title, description=description)
    caption = f"{isolated(flow.name)}: {_read(flow, READ if is_first else AGAIN)} {more}"
    return Figure(name=f"{flow.name}: {kind}", drawing=drawing, caption=caption)


def _read(flow: GradientFlow, words: str) -> str:
    return words.format(positions=flow.norms.shape[1])


# Numbers.


def _data(flow: GradientFlow) -> list[dict[str, Any]]:
    """One entry a layer."""
    mean, left, kept = flow.mean(), flow.relative(), flow.kept()
    low, middle, high = (flow.quantile(q) for q in (0.25, 0.5, 0.75))
    return [
        {
            "layer": layer + 1,
            "lags": list(range(flow.lags)),
            "mean": rounded(mean[layer]),
            "relative": rounded(left[layer]),
            "median": rounded(middle[layer]),
            "quartiles": [rounded(low[layer]), rounded(high[layer])],
            "half_life": finite(flow.half_life(layer)),
            "reach": flow.reach(layer),
        }
        | ({} if kept is None else {"forget": rounded(kept[layer])})
        for layer in range(flow.layers)
    ]


def _arrays(flow: GradientFlow) -> dict[str, Floats]:
    """(L, P, K+1) each."""
    kept = {} if flow.forget is None else {f"{flow.name}/{flow.what}/forget": flow.forget}
    return {f"{flow.name}/{flow.what}": flow.norms, **kept}
