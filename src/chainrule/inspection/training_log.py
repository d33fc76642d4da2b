"""Parse training logs (JSON Lines) into arrays and compute statistics over the steps of a run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats

LOG_NAME = "train_log.jsonl"
MIN_LINES = 3  # fewest lines of a tenth from which noise can be estimated
Measure = Literal["nats", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validations:
    """Validation results, lower is better; one entry per validation."""

    step: Floats  # (v,)
    epoch: Floats  # (v,) completed epochs
    value: Floats  # (v,) nats per token, or an error rate
    measure: Measure = "nats"

    @property
    def best(self) -> int:
        """Index of the lowest value, the first among ties."""
        return int(np.argmin(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLog:
    """The n lines of a training log; NaN where a line has no value."""

    step: Floats  # (n,) number of updates so far
    loss: Floats  # (n,) nats per token over the steps since the previous line
    learning_rate: Floats  # (n,)
    gradient_norm: Floats  # (n,) mean, before clipping
    largest_gradient_norm: Floats  # (n,)
    clipped: Floats  # (n,) share of the steps
    clipped_by: Mapping[str, Floats] = field(
        default_factory=dict
    )  # (n,) clipped steps by the matrix with the largest gradient
    gradient_norms: Mapping[str, Floats] = field(default_factory=dict)  # (n,) root mean square per matrix
    update_ratio: Mapping[str, Floats] = field(default_factory=dict)  # (n,) ‖Δθ‖ / ‖θ‖ per matrix
    validations: Validations | None = None

    @property
    def steps(self) -> Floats:
        """(n,) number of steps covered by each line."""
        return np.maximum(1.0, np.diff(self.step, prepend=0.0))

    @property
    def clipped_share(self) -> float:
        """Share of all steps that were clipped."""
        is_known = np.isfinite(self.clipped)
        steps = self.steps[is_known]
        return float(self.clipped[is_known] @ steps / steps.sum()) if len(steps) else 0.0

    @property
    def clipping_shares(self) -> dict[str, float]:
        """Share of the clipped steps caused by each matrix, largest first; empty if none is recorded."""
        counts = {name: float(np.nansum(values)) for name, values in self.clipped_by.items()}
        total = sum(counts.values())
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {name: count / total for name, count in ranked if count}

    @property
    def median_update_ratio(self) -> dict[str, float]:
        """Median ‖Δθ‖ / ‖θ‖ of each matrix while the learning rate was above half its peak, ascending."""
        rate = np.nan_to_num(self.learning_rate)
        is_full = rate >= 0.5 * rate.max()
        ratios = {name: values[is_full & np.isfinite(values)] for name, values in self.update_ratio.items()}
        medians = {name: float(np.median(values)) for name, values in ratios.items() if len(values)}
        return dict(sorted(medians.items(), key=lambda item: (item[1], item[0])))


@dataclass(frozen=True, slots=True)
class LossChange:
    """Change of the mean loss between two parts of a run."""

    before: float
    after: float
    error: float  # standard error of the difference
    lines: int  # lines in both parts

    @property
    def significant_change(self) -> float:
        """The fall exceeded with probability 1 % if the loss does not change.

        Student's t with lines − 3 degrees of freedom, by the first terms of Fisher's expansion at z = 2.326.
        """
        z, degrees = 2.326, float(self.lines - 3)
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return self.error * sum(term / degrees**power for power, term in enumerate(terms))


def change_in_last_tenth(log: TrainingLog) -> LossChange | None:
    """Compare the mean loss of the last two tenths; None if either has too few lines to estimate noise."""
    return _change_between(log, (0.8, 0.9), (0.9, 1.0))


def change_since(log: TrainingLog, step: float) -> LossChange | None:
    """Compare the tenth of the run that ends at `step` with the last tenth, or what follows; None as above."""
    position = step / float(log.step[-1])
    return _change_between(log, (position - 0.1, position), (max(position, 0.9), 1.0))


def _change_between(log: TrainingLog, *spans: tuple[float, float]) -> LossChange | None:
    """Compare two parts of the run; noise is estimated around a common slope."""
    position = log.step / log.step[-1]
    means, x_parts, y_parts = [], [], []
    for low, high in spans:
        is_inside = (position > low + 1e-9) & (position <= high + 1e-9) & np.isfinite(log.loss)
        losses = log.loss[is_inside]
        if len(losses) < MIN_LINES:
            return None
        means.append(float(np.average(losses, weights=log.steps[is_inside])))
        x_parts.append(position[is_inside] - position[is_inside].mean())
        y_parts.append(losses - losses.mean())
    x, y = np.concatenate(x_parts), np.concatenate(y_parts)
    residuals = y - x * (x @ y) / ((x @ x) or 1.0)
    variance = float(residuals @ residuals) / (len(y) - 3)  # two means and a slope were fitted
    return LossChange(means[0], means[1], (variance * sum(1 / len(part) for part in y_parts)) ** 0.5, len(y))


def mean_loss_before(log: TrainingLog, step: float) -> float:
    """Return the mean training loss over the tenth of the run that ends at `step`; infinite if unknown."""
    is_near = (log.step <= step) & (log.step > step - 0.1 * log.step[-1]) & np.isfinite(log.loss)
    return float(np.average(log.loss[is_near], weights=log.steps[is_near])) if is_near.any() else float("inf")


def parse(content: bytes, name: str = LOG_NAME) -> TrainingLog | None:
    """Parse a log; None if it has no steps. An incomplete last line is ignored."""
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
    entries = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # incomplete last line of a killed run
                break
            raise InputError(f"{name}, line {number} is not JSON ({error}); remove that line") from error
        if not isinstance(entry, dict):
            raise InputError(f"{name}, line {number} is not a JSON object; remove that line")
        entries.append(entry)
    return entries


def _validations(lines: Sequence[Mapping[str, Any]]) -> Validations | None:
    measure: Measure = "error" if any("error" in line for line in lines) else "nats"
    finite = [line for line in lines if np.isfinite(_number(line.get(measure)))]
    if not finite:
        return None
    step, epoch, value = (_column(finite, key) for key in ("step", "epoch", measure))
    return Validations(step=step, epoch=epoch, value=value, measure=measure)


def _columns(lines: Sequence[Mapping[str, Any]], key: str, missing: float = float("nan")) -> dict[str, Floats]:
    """Return one array per name under `key`; `missing` if a line has the key without the name."""
    parts = [line.get(key) for line in lines]
    names = dict.fromkeys(name for part in parts if isinstance(part, dict) for name in part)

    def value(part: Any, name: str) -> float:
        return _number(part.get(name, missing)) if isinstance(part, dict) else float("nan")

    return {name: np.array([value(part, name) for part in parts]) for name in names}


def _column(lines: Sequence[Mapping[str, Any]], key: str) -> Floats:
    return np.array([_number(line.get(key)) for line in lines])


def _number(value: Any) -> float:
    """Return a finite float, or NaN for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else float("nan")
    except OverflowError:  # an integer beyond the range of float64
        return float("nan")
    return number if np.isfinite(number) else float("nan")
