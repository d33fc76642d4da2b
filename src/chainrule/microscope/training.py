"""How a network was trained, by its log: loss, gradient norm, clipping and its causes, learning rate, updates.

Lives here: the section of the page, its figures with their captions. Not here: reading the log
(inspection/training_log.py), drawing (inspection/training_plot.py), sentences (inspection/training_findings.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import training_log, training_plot
from chainrule.inspection.foreign import isolated
from chainrule.inspection.section import Figure, Section, plain, rounded
from chainrule.inspection.training_findings import Finding, findings, per_cent, worth
from chainrule.inspection.training_log import TrainingLog
from chainrule.lm import Floats
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent

BY_NOISE: Final = ("nce", "sampled")  # output layers whose training loss is no log-probability


def section(samples: Sequence[Sample], *, progress: Progress | bool = silent) -> Section | None:
    """What the logs of these models say; None where none of them has one."""
    progress = as_progress(progress)
    named = {sample.name: sample for sample in samples}
    logs: dict[str, TrainingLog] = {}
    for name, sample in named.items():
        log = training_log.parse(getattr(sample.model.lm, "log", b""), f"{name}, train_log.jsonl")
        if log is not None:
            logs[name] = log
    if not logs:
        return None
    clips = {name: getattr(named[name].model.config, "clip", None) for name in logs}
    outputs = {name: getattr(named[name].model.config, "output", None) for name in logs}
    noisy = [name for name in logs if outputs[name] in BY_NOISE]
    figures = [_loss(logs, noisy)]
    for done, (name, log) in enumerate(logs.items()):
        progress("drawing the training", done, len(logs))
        figures += _figures(name, log, clips[name], f"-{done + 1}" if len(logs) > 1 else "")
    figures.append(_learning_rate(logs))
    return Section(
        name="training",
        title="Training",
        findings=_sentences({name: findings(log, clips[name]) for name, log in logs.items()}, len(named) > 1),
        figures=tuple(figures),
        data={name: _data(log, clips[name]) for name, log in logs.items()},
        arrays={f"{name}/{key}": values for name, log in logs.items() for key, values in _arrays(log).items()},
    )


def _sentences(found: Mapping[str, Sequence[Finding]], is_named: bool) -> tuple[str, ...]:
    """The most telling first, whichever model they are of; named where several are looked at."""
    ranked = sorted(
        ((rank, name, words) for name, each in found.items() for rank, words in each), key=lambda f: f[0]
    )
    if not is_named:
        return tuple(words for _, _, words in ranked)
    return tuple(f"{name}: {words}" for _, name, words in ranked)


def _loss(logs: Mapping[str, TrainingLog], noisy: Sequence[str]) -> Figure:
    ends = "; ".join(f"{isolated(name)}: {_last(log, name in noisy)}" for name, log in logs.items())
    caption = (
        "Training loss by step (lines), and the validation text as measured on the way (points), in nats a token; "
        "lower is better. Training is measured with dropout on, so that it may lie above validation. "
        "Where points turn up while the line goes on falling, the text is being learnt by heart. "
        f"At the end (training: the last tenth of the run): {ends}."
    )
    if noisy:
        caption += (
            f" The training loss of {', '.join(map(isolated, noisy))} is one against noise words, "
            "no log-probability: compare its points alone."
        )
    drawing = training_plot.loss(logs, description=plain(caption), is_nats=not noisy)
    return Figure(name="loss", drawing=drawing, caption=caption)


def _last(log: TrainingLog, is_noisy: bool) -> str:
    nats = training_log.loss_before(log, float(log.step[-1]))
    known = f"training {nats:.2f}" if is_noisy else f"training {worth(nats, 'nats')}"
    words = known if np.isfinite(nats) else "training loss unknown"
    valid = log.validations
    return words if valid is None else f"{words}, validation {worth(float(valid.value[-1]), valid.measure)}"


def _figures(name: str, log: TrainingLog, clip: float | None, suffix: str) -> list[Figure]:
    """Those that are of one model each."""
    who = f" of {isolated(name)}" if suffix else ""
    figures = []
    if (np.nan_to_num(log.largest_gradient_norm) > 0).any():
        figures.append(_gradient_norm(name, log, clip, who, suffix))
    if log.blame:
        figures.append(_clipped_by(name, log, who, suffix))
    if training_plot.drawn(log):
        figures.append(_update_ratio(name, log, who, suffix))
    return figures


def _gradient_norm(name: str, log: TrainingLog, clip: float | None, who: str, suffix: str) -> Figure:
    line = f" A step whose norm is above the dashed line, clip = {clip:g}, is scaled down to it." if clip else ""
    caption = (
        f"Norm of the gradient{who} before clipping, a number without unit, on a log scale: mean and largest of "
        f"the steps between two lines of the log.{line} Filled, with the scale at the right: per cent of the steps "
        f"that were clipped, {per_cent(log.clipped_share)} over the whole run."
    )
    drawing = training_plot.gradient_norm(name, log, clip=clip, description=plain(caption))
    return Figure(name=f"gradient-norm{suffix}", drawing=drawing, caption=caption)


def _clipped_by(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    times = round(sum(float(np.nansum(values)) for values in log.clipped_by.values()))
    caption = (
        f"What the {times:,} clipped steps{who} came from: per cent of them in which the matrix had the largest "
        "part of the squared norm. A matrix that is alone at the top decides how far all others move."
    )
    drawing = training_plot.clipped_by(name, log, description=plain(caption))
    return Figure(name=f"clipped-by{suffix}", drawing=drawing, caption=caption)


def _update_ratio(name: str, log: TrainingLog, who: str, suffix: str) -> Figure:
    total, shown = len(log.update_ratio), len(training_plot.drawn(log))
    which = f" Of {total} matrices the {shown} that move least and most are drawn." if shown < total else ""
    caption = (
        f"How far one step moves each matrix{who}, as a part of its size, ‖Δθ‖ / ‖θ‖, on a log scale. "
        "About 10⁻³ (dotted) is usual; far below it a matrix hardly learns, above 10⁻² what it knew is soon lost. "
        f"It falls with the learning rate.{which}"
    )
    drawing = training_plot.update_ratio(name, log, description=plain(caption))
    return Figure(name=f"update-ratio{suffix}", drawing=drawing, caption=caption)


def _learning_rate(logs: Mapping[str, TrainingLog]) -> Figure:
    caption = "The learning rate by step, as the schedule set it: the factor, without unit, of every update."
    drawing = training_plot.learning_rate(logs, description=caption)
    return Figure(name="learning-rate", drawing=drawing, caption=caption)


def _data(log: TrainingLog, clip: float | None) -> dict[str, Any]:
    curves = {
        key: [rounded(values) for values in training_plot.thin(log.step, getattr(log, key))]
        for key in ("loss", "learning_rate", "gradient_norm", "clipped")
    }
    x, y = training_plot.thin(log.step, log.largest_gradient_norm, np.max)
    valid = log.validations
    return {
        "steps": int(log.step[-1]),
        "clip": clip,
        "clipped_share": log.clipped_share,
        "clipped_by": log.blame,
        "usual_update_ratio": log.usual_ratio,
        "curves": curves | {"largest_gradient_norm": [rounded(x), rounded(y)]},
        "validation": None
        if valid is None
        else {
            "measure": valid.measure,
            "step": rounded(valid.step),
            "epoch": rounded(valid.epoch),
            "value": rounded(valid.value),
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
