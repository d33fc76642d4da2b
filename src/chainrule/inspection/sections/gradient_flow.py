"""The gradient-flow section: how far back the gradient of one prediction reaches."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.analysis import recurrent_matrix
from chainrule.analysis.gradient_flow import (
    GradientFlow,
    comparable_flows,
    describe_cell,
    describe_reach,
    plot_gradient_flow,
    to_json,
)
from chainrule.analysis.section import Figure, Finding, Section
from chainrule.inspection.sample import Sample
from chainrule.lm import Floats
from chainrule.plots.html import escape, to_printable
from chainrule.progress import Progress, silent

BOUND_LABEL: Final = "bound"
MIN_LAGS_CAP: Final = 1000  # lags that are always allowed
CAPTION: Final = (
    "Norm of the gradient of one prediction <i>k</i> tokens back, relative to lag 0. A line is the mean over up to "
    "{positions} positions that have this lag, with the interquartile range shaded. On the log scale a straight "
    "line is exponential decay; where a line is low, the model can hardly learn dependencies of that length."
)
SHORT_CAPTION: Final = "As above, over up to {positions} positions."


def section(
    samples: Sequence[Sample],
    *,
    lags: int = 100,
    positions: int = 64,
    seed: int = 0,
    progress: Progress = silent,
) -> Section | None:
    """Return the gradient flow of every neural model; None if there is none."""
    all_flows = {
        sample.name: measure(sample, lags=lags, positions=positions, seed=seed, progress=progress)
        for sample in samples
    }
    flows = {name: model_flows for name, model_flows in all_flows.items() if model_flows}
    if not flows:
        return None
    bounds = {sample.name: gradient_bound(sample, lags) for sample in samples}
    return Section(
        name="gradient_flow",
        title="Gradient flow",
        findings=_findings(flows, bounds),
        figures=_figures(flows, bounds),
        data={name: {flow.what: to_json(flow) for flow in model_flows} for name, model_flows in flows.items()},
        arrays={
            key: values
            for model_flows in flows.values()
            for flow in model_flows
            for key, values in _arrays(flow).items()
        },
    )


def measure(
    sample: Sample, *, lags: int = 100, positions: int = 64, seed: int = 0, progress: Progress = silent
) -> list[GradientFlow]:
    """Return the flows of one model, the one for comparison first; empty for models that are not networks."""
    if sample.model.lm.network is None:
        return []
    from chainrule.neural.probes.gradient_flow import gradient_flow

    lm: Any = sample.model.lm
    lags = min(lags, max(MIN_LAGS_CAP, sample.text.tokens))  # larger lags do not occur, and each takes memory
    return gradient_flow(
        lm, sample.text, lags=lags, positions=positions, seed=seed, name=sample.name, progress=progress
    )


def gradient_bound(sample: Sample, lags: int) -> Floats | None:
    """Return the bound (‖R‖₂ · max φ′)^k, (K+1,), for the top layer of an Elman network; None otherwise.

    Below the top layer, or with attention over past states, gradients have other paths and there is no such bound.
    """
    network: Any = sample.model.lm.network
    config: Any = getattr(network, "config", None)
    if getattr(config, "nonlinearity", None) not in recurrent_matrix.MAX_SLOPE or config.attention != "none":
        return None
    R = network.layers[-1].R.detach().cpu().numpy().astype(np.float64)
    gain = float(np.linalg.norm(R, 2)) * recurrent_matrix.MAX_SLOPE[config.nonlinearity]
    return recurrent_matrix.gradient_bound(gain, lags)


# Findings.


def _findings(flows: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[Finding, ...]:
    """Return the reach of each model first, then cells and bounds."""
    reaches = [Finding(name, describe_reach(model_flows[0])) for name, model_flows in flows.items()]
    cells = [
        Finding(name, clause)
        for name, model_flows in flows.items()
        for flow in model_flows
        if (clause := describe_cell(flow))
    ]
    bound_findings = [
        Finding(name, f"in the top layer {recurrent_matrix.describe_gain(float(bound[1]))}.")
        for name in flows
        if (bound := bounds.get(name)) is not None and len(bound) > 1
    ]
    return (*reaches, *cells, *bound_findings)


# Figures.


def _figures(flows: Mapping[str, list[GradientFlow]], bounds: Mapping[str, Floats | None]) -> tuple[Figure, ...]:
    """Plot all models on one axis, then each model."""
    comparison = (
        [_comparison_figure([flow for model_flows in flows.values() for flow in comparable_flows(model_flows)])]
        if len(flows) > 1
        else []
    )
    pairs = [(flow, bounds.get(name)) for name, model_flows in flows.items() for flow in model_flows]
    single = [
        _model_figure(flow, bound, is_first=not (index or comparison)) for index, (flow, bound) in enumerate(pairs)
    ]
    return (*comparison, *single)


def _comparison_figure(flows: list[GradientFlow]) -> Figure:
    quantity = (
        "with respect to the state <i>h</i> of the top layer for recurrent networks (for an LSTM also its cell), "
        "and to the embeddings for others"
    )
    description = "; ".join(f"{flow.name}: {describe_reach(flow)}" for flow in flows)
    drawing = plot_gradient_flow(flows, title="Gradient flow of all models", description=to_printable(description))
    return Figure(name="all", drawing=drawing, caption=f"{_read(flows[0], CAPTION)} All models: {quantity}.")


def _model_figure(flow: GradientFlow, bound: Floats | None, is_first: bool) -> Figure:
    kind = {"c": "along the cell", "embedding": "by distance"}.get(flow.what, "by layer")
    note = {
        "h": "Gradient with respect to the recurrent state <i>h</i> of each layer.",
        "c": "Gradient with respect to the cell <i>c</i> of each layer. Dashed: the product of the forget gates, "
        "averaged over units, which a unit would pass back if the cell were the only path; far above the line, the "
        "gradient is in units other than those that remember.",
        "residual": "Gradient with respect to the input of each block (residual stream).",
        "embedding": "Gradient with respect to the embedding of each input word.",
    }[flow.what]
    dotted = bound[: flow.lags].tolist() if bound is not None and flow.what == "h" else None
    if dotted is not None:
        note += " Dotted: upper bound for the top layer, (σ<sub>max</sub> · max φ′)<sup><i>k</i></sup>."
    title = f"Gradient flow of {to_printable(flow.name)} {kind}"
    description = to_printable(f"{flow.name}: {describe_reach(flow)}")
    drawing = plot_gradient_flow(
        [flow], {BOUND_LABEL: dotted} if dotted else None, title=title, description=description
    )
    caption = f"{escape(flow.name)}: {_read(flow, CAPTION if is_first else SHORT_CAPTION)} {note}"
    return Figure(name=f"{flow.name}: {kind}", drawing=drawing, caption=caption)


def _read(flow: GradientFlow, words: str) -> str:
    return words.format(positions=flow.norms.shape[1])


def _arrays(flow: GradientFlow) -> dict[str, Floats]:
    """Return the norms and gate products, (L, P, K+1) each."""
    forget = {} if flow.forget is None else {f"{flow.name}/{flow.what}/forget": flow.forget}
    return {f"{flow.name}/{flow.what}": flow.norms, **forget}
