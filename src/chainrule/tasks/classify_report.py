"""The labels of a classifier, how it is judged, and the temperature that makes its probabilities believable.

Lives here: which labels there are, and whether they can be; the report of tasks/classify.py; fitting the
temperature. Not here: the figures (evaluation/classes.py).
Letters: N texts, K labels, T the temperature.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.evaluation.classes import Calibration, Classes, calibration, evaluate
from chainrule.lm import Floats, Ids
from chainrule.text.labelled import Labelled

COOLEST: Final = 0.5  # temperatures; a validation set without a mistake would ask for 0
HOTTEST: Final = 20.0
FEW: Final = 10  # texts from where labels that hardly recur are suspicious
MOSTLY: Final = 0.9  # of the texts: so many different labels hardly recur


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How labels that were found compare with the true ones."""

    classes: Classes
    calibration: Calibration  # of the probabilities as they are given, tempered
    majority: str  # the label most frequent in training
    majority_accuracy: float  # of giving every text that label
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """All of it, by name."""
        c, k = self.classes, self.calibration
        columns = zip(c.labels, c.precision, c.recall, c.f1, c.support, strict=True)
        return {
            "texts": int(c.support.sum()),
            "accuracy": c.accuracy,
            "macro_precision": c.macro_precision,
            "macro_recall": c.macro_recall,
            "macro_f1": c.macro_f1,
            "micro_f1": c.micro_f1,
            "majority": {"label": self.majority, "accuracy": self.majority_accuracy},
            "log_loss": k.log_loss,
            "brier": k.brier,
            "expected_calibration_error": k.expected_error,
            "maximum_calibration_error": k.maximum_error,
            "labels": {
                label: {"precision": float(p), "recall": float(r), "f1": float(f), "texts": int(n)}
                for label, p, r, f, n in columns
            },
            "confusion": {
                label: dict(zip(c.labels, row, strict=True))
                for label, row in zip(c.labels, c.confusion.tolist(), strict=True)
            },
            "reliability": [
                {"above": b.low, "to": b.high, "texts": b.count, "confidence": b.confidence, "accuracy": b.accuracy}
                for b in k.bins
            ],
            "seconds": self.seconds,
        }


def count(examples: Labelled) -> dict[str, int]:
    """How many texts each label has, in order of the labels' names."""
    times, total = dict(sorted(Counter(examples.labels).items())), len(examples)
    if not total:
        raise InputError(f"{examples.name} holds no examples; give texts of two labels or more")
    if total >= FEW and len(times) >= MOSTLY * total:
        message = f"{examples.name} has {len(times)} different labels for {total} texts"
        if len(set(examples.texts)) <= total / 2:
            raise InputError(
                f"{message}: label and text look swapped; put the label first, or name the columns in a first line"
            )
        warnings.warn(f"{message}: is the label the first column?", ChainruleWarning, stacklevel=3)
    if len(times) < 2:
        raise InputError(
            f"{examples.name} has one label alone, '{next(iter(times), '')}'; a classifier needs two or more"
        )
    return times


def number(examples: Labelled, counts: dict[str, int]) -> Ids:
    """(N,) the ids of the labels; one that was not learnt is refused."""
    numbers = {label: k for k, label in enumerate(counts)}
    for place, label in enumerate(examples.labels, start=1):
        if label not in numbers:
            raise InputError(
                f"{examples.name}, example {place} has the label {label!r}, which the training texts do not; "
                f"they have {', '.join(list(counts)[:10])}: mend or drop it"
            )
    return np.array([numbers[label] for label in examples.labels], dtype=np.int64)


def unmet_labels(examples: Labelled, counts: dict[str, int]) -> list[str]:
    """Labels that were not learnt, sorted, and named in a warning."""
    unmet = sorted(set(examples.labels) - counts.keys())
    if unmet:
        listed = ", ".join(unmet[:5]) + (", …" if len(unmet) > 5 else "")
        message = f"{examples.name}: the model never met {listed}; what is labelled so counts as an error"
        warnings.warn(f"{message}, and the log loss is infinite", ChainruleWarning, stacklevel=3)
    return unmet


def tempered(log_p: Floats, temperature: float) -> Floats:
    """log softmax(log p / T): (N, K) -> (N, K)."""
    z = log_p / temperature
    return np.asarray(z - np.logaddexp.reduce(z, axis=1, keepdims=True))


def fit_temperature(log_p: Floats, gold: Ids) -> float:
    """The T, from 0.5 to 20, for which Σ log p_T(true label) is highest (Guo et al. 2017).

    With β = 1/T the nats are convex in β, their slope Σ (Σ_k p_k z_k − z_true) for z = log p: its zero is bisected.
    Texts whose true label is impossible do not count: they are so at every T.
    """
    is_possible = np.isfinite(log_p[np.arange(len(gold)), gold])
    z, truth = log_p[is_possible], gold[is_possible]
    if not len(truth):
        return 1.0

    def slope(temperature: float) -> float:
        p = np.exp(tempered(z, temperature))
        mean = (p * np.where(p > 0, z, 0.0)).sum(axis=1)  # 0 · −∞ is 0 here
        return float((mean - z[np.arange(len(z)), truth]).sum())

    low, high = np.log(COOLEST), np.log(HOTTEST)
    for _ in range(50):
        middle = (low + high) / 2
        # The slope falls as T grows: where it is below 0, more β (less T) still lowers the nats.
        low, high = (low, middle) if slope(float(np.exp(middle))) < 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def validation_figures(log_p: Floats, gold: Ids, temperature: float, labels: tuple[str, ...]) -> dict[str, Any]:
    """What the validation texts say; the calibration errors are those before and after the temperature."""
    found = evaluate([labels[k] for k in gold], [labels[k] for k in log_p.argmax(axis=1)], labels)
    before, after = (calibration(np.exp(tempered(log_p, T)), gold) for T in (1.0, temperature))
    return {
        "valid_accuracy": found.accuracy,
        "valid_macro_f1": found.macro_f1,
        "temperature": temperature,
        "valid_calibration_error_before": before.expected_error,
        "valid_calibration_error": after.expected_error,
    }
