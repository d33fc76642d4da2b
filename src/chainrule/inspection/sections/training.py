"""The training section: loss, gradient norm, clipping, learning rate and update ratios from the training log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.analysis import training_log
from chainrule.analysis.section import Figure, Finding, Section, round_for_json, strip_tags
from chainrule.analysis.training_log import TrainingLog, diagnose, format_percent, format_value
from chainrule.inspection.sample import Sample
from chainrule.lm import Floats
from chainrule.plots.html import escape
from chainrule.progress import Progress, silent

BY_NOISE: Final = ("nce", "sampled")  # output layers whose training loss is not a log-probability


def section(samples: Sequence[Sample], *, progress: Progress = silent) -> Section | None:
    """Return the training curves of these models; None if none has a log."""
    samples_by_name = {sample.name: sample for sample in samples}
    logs: dict[str, TrainingLog] = {}
    for name, sample in samples_by_name.items():
        log = training_log.parse(getattr(sample.model.lm, "log", b""), f"{name}, train_log.jsonl")
        if log is not None:
            logs[name] = log
    if not logs:
        return None
    clips = {name: getattr(samples_by_name[name].model.config, "clip", None) for name in logs}
    outputs = {name: getattr(samples_by_name[name].model.config, "output", None) for name in logs}
    unnormalized = [name for name in logs if outputs[name] in BY_NOISE]
    figures = [_loss(logs, unnormalized)]
    for done, (name, log) in enumerate(logs.items()):
        progress("drawing the training", done, len(logs))
        figures += _figures(name, log, clips[name], f"-{done + 1}" if len(logs) > 1 else "")
    figures.append(_learning_rate(logs))
    return Section(
        name="training",
        title="Training",
        findings=_findings(logs, clips, is_named=len(samples_by_name) > 1),
        figures=tuple(figures),
        data={name: _data(log, clips[name]) for name, log in logs.items()},
        arrays={f"{name}/{key}": values for name, log in logs.items() for key, values in _arrays(log).items()},
    )


def _findings(
    logs: Mapping[str, TrainingLog], clips: Mapping[str, float | None], *, is_named: bool
) -> tuple[Finding, ...]:
    """Return the diagnoses of all models, most important first, with the model if there are several."""
    diagnoses = [(*diagnosis, name) for name, log in logs.items() for diagnosis in diagnose(log, clips[name])]
    ranked = sorted(diagnoses, key=lambda diagnosis: diagnosis[0])
    return tuple(Finding(name if is_named else None, sentence) for _, sentence, name in ranked)


def _loss(logs: Mapping[str, TrainingLog], unnormalized: Sequence[str]) -> Figure:
    ends = "; ".join(f"{escape(name)}: {_last(log, name in unnormalized)}" for name, log in logs.items())
    caption = (
        "Training loss by step (lines) and validation loss (points), in nats per token; lower is better. Training "
        "loss is measured with dropout and can be above validation loss. Validation rising while training falls "
        "means overfitting. "
        f"At the end (training: the last tenth of the run): {ends}."
    )
    if unnormalized:
        caption += (
            f" The training loss of {', '.join(map(escape, unnormalized))} is that of noise-contrastive or sampled "
            "training, not a log-probability: compare the validation points only."
        )
    drawing = training_log.plot_loss(logs, description=strip_tags(caption), is_nats=not unnormalized)
    return Figure(name="loss", drawing=drawing, caption=caption)


def _last(log: TrainingLog, is_noisy: bool) -> str:
    nats = training_log.mean_loss_before(log, float(log.step[-1]))
    training = f"training {nats:.2f}" if is_noisy else f"training {format_value(nats, 'nats')}"
    summary = training if np.isfinite(nats) else "training loss unknown"
    valid = log.validations
    return (
        summary if valid is None else f"{summary}, validation {format_value(float(valid.value[-1]), valid.measure)}"
    )


def _figures(name: str, log: TrainingLog, clip: float | None, suffix: str) -> list[Figure]:
    """Return the figures of one model."""
    who = f" of {escape(name)}" if suffix else ""
    figures = []
    if (np.nan_to_num(log.largest_gradient_norm) > 0).any():
        figures.append(_gradient_norm(name, log, clip, who, suffix))
    if log.clipping_shares:
        figures.append(_clipped_by(name, log, who, suffix))
    if training_log.select_matrices(log):
        figures.append(_update_ratio(name, log, who, suffix))
    return figures


def _gradient_norm(name: str, log: TrainingLog, clip: float | None, who: str, suffix: str) -> Figure:
    line = f" Gradients above the dashed line, clip = {clip:g}, are scaled down to it." if clip else ""
    caption = (
        f"Gradient norm{who} before clipping, on a log scale: mean and maximum over the steps between two lines of "
        f"the log.{line} Filled (right axis): share of clipped steps, {format_percent(log.clipped_share)} over the "
        "whole run."
    )
    drawing = training_log.plot_gradient_norm(name, log, clip=clip, description=strip_tags(caption))
    return Figure(name=f"gradient-norm{suffix}", drawing=drawing, caption=caption)


def _clipped_by(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    steps = round(sum(float(np.nansum(values)) for values in log.clipped_by.values()))
    caption = (
        f"Cause of the {steps:,} clipped steps{who}: share in which the matrix had the largest part of the squared "
        "gradient norm. A single dominant matrix determines how much all others are scaled down."
    )
    drawing = training_log.plot_clipping(name, log, description=strip_tags(caption))
    return Figure(name=f"clipped-by{suffix}", drawing=drawing, caption=caption)


def _update_ratio(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    total, shown = len(log.update_ratio), len(training_log.select_matrices(log))
    which = (
        f" Shown are the {shown} of {total} matrices with the smallest and largest ratios." if shown < total else ""
    )
    caption = (
        f"Update-to-weight ratio of each matrix{who}, ‖Δθ‖ / ‖θ‖ per step, on a log scale. About 10⁻³ (dotted) is "
        "typical; far below it a matrix hardly learns, above 10⁻² training is likely unstable. "
        f"The ratio falls with the learning rate.{which}"
    )
    drawing = training_log.plot_update_ratio(name, log, description=strip_tags(caption))
    return Figure(name=f"update-ratio{suffix}", drawing=drawing, caption=caption)


def _learning_rate(logs: Mapping[str, TrainingLog]) -> Figure:
    caption = "Learning rate by step, as set by the schedule."
    drawing = training_log.plot_learning_rate(logs, description=caption)
    return Figure(name="learning-rate", drawing=drawing, caption=caption)


def _data(log: TrainingLog, clip: float | None) -> dict[str, Any]:
    curves = {
        key: [round_for_json(values) for values in training_log.downsample(log.step, getattr(log, key))]
        for key in ("loss", "learning_rate", "gradient_norm", "clipped")
    }
    x, y = training_log.downsample(log.step, log.largest_gradient_norm, np.max)
    valid = log.validations
    return {
        "steps": int(log.step[-1]),
        "clip": clip,
        "clipped_share": log.clipped_share,
        "clipped_by": log.clipping_shares,
        "usual_update_ratio": log.median_update_ratio,
        "curves": curves | {"largest_gradient_norm": [round_for_json(x), round_for_json(y)]},
        "validation": None
        if valid is None
        else {
            "measure": valid.measure,
            "step": round_for_json(valid.step),
            "epoch": round_for_json(valid.epoch),
            "value": round_for_json(valid.value),
        },
    }


def _arrays(log: TrainingLog) -> dict[str, Floats]:
    keys = ("step", "loss", "learning_rate", "gradient_norm", "largest_gradient_norm", "clipped")
    arrays = {key: getattr(log, key) for key in keys}
    for key in ("clipped_by", "gradient_norms", "update_ratio"):
        arrays |= {f"{key}/{name}": values for name, values in getattr(log, key).items()}
    if log.validations is not None:
        arrays |= {"validation/step": log.validations.step, "validation/value": log.validations.value}
    return arrays
