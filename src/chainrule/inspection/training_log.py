"""The log of a run as arrays, and what can be read off them: JSON Lines in, one record out.

Lives here: parsing, and statistics over a run's steps. Not here: writing the log (training/log.py), drawing it
(training_plot.py), what it means in words (microscope/training.py).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats

FINISHED = "train_log.jsonl"
FEWEST_LINES = 3  # of a tenth, below which nothing is known of how lines scatter
Measure = Literal["nats", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validations:
    """What the validation text said, the lower the better; one entry a validation."""

    step: Floats  # (v,)
    epoch: Floats  # (v,) epochs that were over
    value: Floats  # (v,) nats a token, or an error rate
    measure: Measure = "nats"

    @property
    def best(self) -> int:
        """Which was the lowest, the first among equals."""
        return int(np.argmin(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLog:
    """A run by the lines of its log, n of them; NaN where a line does not say."""

    step: Floats  # (n,) updates that were made
    loss: Floats  # (n,) nats a token over the steps since the line before
    learning_rate: Floats  # (n,)
    gradient_norm: Floats  # (n,) mean, before clipping
    largest_gradient_norm: Floats  # (n,)
    clipped: Floats  # (n,) part of the steps
    clipped_by: Mapping[str, Floats] = field(default_factory=dict)  # (n,) clipped steps that each matrix caused
    gradient_norms: Mapping[str, Floats] = field(default_factory=dict)  # (n,) root mean square, of each matrix
    update_ratio: Mapping[str, Floats] = field(default_factory=dict)  # (n,) ‖Δθ‖ / ‖θ‖ of each matrix
    validations: Validations | None = None

    @property
    def steps(self) -> Floats:
        """(n,) How many steps each line tells of."""
        return np.maximum(1.0, np.diff(self.step, prepend=0.0))

    @property
    def clipped_share(self) -> float:
        """Part of all steps that were clipped."""
        is_known = np.isfinite(self.clipped)
        steps = self.steps[is_known]
        return float(self.clipped[is_known] @ steps / steps.sum()) if len(steps) else 0.0

    @property
    def blame(self) -> dict[str, float]:
        """Part of the clipped steps that each matrix caused, the largest first; empty where none was noted."""
        times = {name: float(np.nansum(values)) for name, values in self.clipped_by.items()}
        total = sum(times.values())
        ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
        return {name: count / total for name, count in ranked if count}

    @property
    def usual_ratio(self) -> dict[str, float]:
        """The median ‖Δθ‖ / ‖θ‖ of each matrix while the rate was at least half its highest, the smallest first."""
        rate = np.nan_to_num(self.learning_rate)
        is_full = rate >= 0.5 * rate.max()
        kept = {name: values[is_full & np.isfinite(values)] for name, values in self.update_ratio.items()}
        medians = {name: float(np.median(values)) for name, values in kept.items() if len(values)}
        return dict(sorted(medians.items(), key=lambda item: (item[1], item[0])))


@dataclass(frozen=True, slots=True)
class Fall:
    """How the loss moved from the tenth of a run before the last to the last."""

    before: float
    after: float
    error: float  # standard error of the difference, by how lines scatter
    lines: int  # of both together

    @property
    def by_chance(self) -> float:
        """The fall that lines which scatter so, around no change, show once in a hundred times.

        Student's t, with lines − 3 degrees of freedom, by the first terms of Fisher's expansion at z = 2.326.
        """
        z, free = 2.326, float(self.lines - 3)
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return self.error * sum(term / free**power for power, term in enumerate(terms))


def last_tenth(log: TrainingLog) -> Fall | None:
    """The mean loss in the two last tenths of the steps; None where one has too few lines to see them scatter."""
    return _fall(log, (0.8, 0.9), (0.9, 1.0))


def fall_since(log: TrainingLog, step: float) -> Fall | None:
    """From the tenth of the run that ends at this step to its last, or to what follows the step; None as above."""
    part = step / float(log.step[-1])
    return _fall(log, (part - 0.1, part), (max(part, 0.9), 1.0))


def _fall(log: TrainingLog, *spans: tuple[float, float]) -> Fall | None:
    """Between two parts of the run. How far it falls within them is no scatter: lines scatter around one slope."""
    done = log.step / log.step[-1]
    means, across, up = [], [], []
    for low, high in spans:
        is_inside = (done > low + 1e-9) & (done <= high + 1e-9) & np.isfinite(log.loss)
        losses = log.loss[is_inside]
        if len(losses) < FEWEST_LINES:
            return None
        means.append(float(np.average(losses, weights=log.steps[is_inside])))
        across.append(done[is_inside] - done[is_inside].mean())
        up.append(losses - losses.mean())
    x, y = np.concatenate(across), np.concatenate(up)
    around = y - x * (x @ y) / ((x @ x) or 1.0)
    variance = float(around @ around) / (len(y) - 3)  # two means and a slope were fitted
    return Fall(means[0], means[1], (variance * sum(1 / len(each) for each in up)) ** 0.5, len(y))


def loss_before(log: TrainingLog, step: float) -> float:
    """The mean training loss over the tenth of the run that ends at this step; infinite where none is known."""
    is_near = (log.step <= step) & (log.step > step - 0.1 * log.step[-1]) & np.isfinite(log.loss)
    return float(np.average(log.loss[is_near], weights=log.steps[is_near])) if is_near.any() else float("inf")


def parse(content: bytes, name: str = FINISHED) -> TrainingLog | None:
    """The run that wrote these lines; None where no step is told of. A last line that was cut off is left out."""
    entries = _entries(content, name)
    lines = [entry for entry in entries if "event" not in entry and _number(entry.get("step")) > 0]
    if not lines:
        return None
    keys = ("step", "loss", "learning_rate", "gradient_norm", "largest_gradient_norm", "clipped")
    return TrainingLog(
        **{key: _column(lines, key) for key in keys},
        clipped_by=_columns(lines, "clipped_by", missing=0.0),
        gradient_norms=_columns(lines, "gradient_norms"),
        update_ratio=_columns(lines, "update_ratio"),
        validations=_validations([entry for entry in entries if entry.get("event") == "validation"]),
    )


def _entries(content: bytes, name: str) -> list[dict[str, Any]]:
    found = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # nothing ends it: the run was killed as it wrote
                break
            raise InputError(f"{name}, line {number} is not JSON ({error}); remove that line") from error
        if not isinstance(entry, dict):
            raise InputError(f"{name}, line {number} is no JSON object; remove that line")
        found.append(entry)
    return found


def _validations(lines: Sequence[Mapping[str, Any]]) -> Validations | None:
    measure: Measure = "error" if any("error" in line for line in lines) else "nats"
    kept = [line for line in lines if np.isfinite(_number(line.get(measure)))]
    if not kept:
        return None
    step, epoch, value = (_column(kept, key) for key in ("step", "epoch", measure))
    return Validations(step=step, epoch=epoch, value=value, measure=measure)


def _columns(lines: Sequence[Mapping[str, Any]], key: str, missing: float = float("nan")) -> dict[str, Floats]:
    """One array for each name any line has under the key; `missing` where a line has the key without the name."""
    parts = [line.get(key) for line in lines]
    names = dict.fromkeys(name for part in parts if isinstance(part, dict) for name in part)

    def value(part: Any, name: str) -> float:
        return _number(part.get(name, missing)) if isinstance(part, dict) else float("nan")

    return {name: np.array([value(part, name) for part in parts]) for name in names}


def _column(lines: Sequence[Mapping[str, Any]], key: str) -> Floats:
    return np.array([_number(line.get(key)) for line in lines])


def _number(value: Any) -> float:
    """NaN for null, for what is not there and for what is no finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else float("nan")
    except OverflowError:  # a whole number beyond the range of float64
        return float("nan")
    return number if np.isfinite(number) else float("nan")
