"""Label statistics, evaluation report and temperature scaling of text classifiers.

Shapes and symbols: N texts, K labels, T temperature.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.evaluation.classes import Calibration, ClassificationReport, calibration, evaluate
from chainrule.lm import Floats, Ids
from chainrule.text.labelled import LabelledTexts

MIN_TEMPERATURE: Final = 0.5  # a validation set classified without errors would give 0
MAX_TEMPERATURE: Final = 20.0
MIN_SUSPICIOUS_TEXTS: Final = 10  # minimum number of texts for the swapped-column check
SUSPICIOUS_LABEL_RATIO: Final = 0.9  # ratio of distinct labels to texts that suggests swapped columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierReport:
    """Evaluation of predicted labels against the true ones."""

    classes: ClassificationReport
    calibration: Calibration  # after temperature scaling
    majority: str  # most frequent label in the training data
    majority_accuracy: float  # accuracy of always predicting it
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """JSON document of all figures."""
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


def count_labels(examples: LabelledTexts) -> dict[str, int]:
    """Count texts per label, sorted by label; raise or warn if the data look wrong."""
    counts, total = dict(sorted(Counter(examples.labels).items())), len(examples)
    if not total:
        raise InputError(f"{examples.name} holds no examples; give texts of two labels or more")
    if total >= MIN_SUSPICIOUS_TEXTS and len(counts) >= SUSPICIOUS_LABEL_RATIO * total:
        message = f"{examples.name} has {len(counts)} different labels for {total} texts"
        if len(set(examples.texts)) <= total / 2:
            raise InputError(
                f"{message}: label and text look swapped; put the label first, or name the columns in a first line"
            )
        warnings.warn(f"{message}: is the label the first column?", ChainruleWarning, stacklevel=3)
    if len(counts) < 2:
        raise InputError(
            f"{examples.name} has one label alone, '{next(iter(counts), '')}'; a classifier needs two or more"
        )
    return counts


def encode_labels(examples: LabelledTexts, counts: dict[str, int]) -> Ids:
    """(N,) label ids; raise for a label that is not in `counts`."""
    label_ids = {label: k for k, label in enumerate(counts)}
    for i, label in enumerate(examples.labels, start=1):
        if label not in label_ids:
            raise InputError(
                f"{examples.name}, example {i} has the label {label!r}, which the training texts do not; "
                f"they have {', '.join(list(counts)[:10])}: mend or drop it"
            )
    return np.array([label_ids[label] for label in examples.labels], dtype=np.int64)


def find_unknown_labels(examples: LabelledTexts, counts: dict[str, int]) -> list[str]:
    """Sorted labels that are not in `counts`, listed in a warning."""
    unknown = sorted(set(examples.labels) - counts.keys())
    if unknown:
        listed = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        message = f"{examples.name}: the model never met {listed}; what is labelled so counts as an error"
        warnings.warn(f"{message}, and the log loss is infinite", ChainruleWarning, stacklevel=3)
    return unknown


def apply_temperature(log_p: Floats, temperature: float) -> Floats:
    """log softmax(log p / T): (N, K) -> (N, K)."""
    z = log_p / temperature
    return np.asarray(z - np.logaddexp.reduce(z, axis=1, keepdims=True))


def fit_temperature(log_p: Floats, gold: Ids) -> float:
    """Temperature between 0.5 and 20 that maximises Σ log p_T(true label) (Guo et al. 2017).

    With β = 1/T the negative log-likelihood is convex in β with slope Σ (Σ_k p_k z_k − z_true), z = log p; its zero
    is found by bisection. Texts whose true label has probability 0 are ignored: no T changes that.
    """
    is_possible = np.isfinite(log_p[np.arange(len(gold)), gold])
    z, truth = log_p[is_possible], gold[is_possible]
    if not len(truth):
        return 1.0

    def slope(temperature: float) -> float:
        p = np.exp(apply_temperature(z, temperature))
        mean = (p * np.where(p > 0, z, 0.0)).sum(axis=1)  # 0 · −∞ = 0
        return float((mean - z[np.arange(len(z)), truth]).sum())

    low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
    for _ in range(50):
        middle = (low + high) / 2
        # The slope decreases with T: if it is negative, a larger β (smaller T) still lowers the loss.
        low, high = (low, middle) if slope(float(np.exp(middle))) < 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def validation_metrics(log_p: Floats, gold: Ids, temperature: float, labels: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, macro F1 and calibration error before and after temperature scaling on the validation texts."""
    classes = evaluate([labels[k] for k in gold], [labels[k] for k in log_p.argmax(axis=1)], labels)
    before, after = (calibration(np.exp(apply_temperature(log_p, T)), gold) for T in (1.0, temperature))
    return {
        "valid_accuracy": classes.accuracy,
        "valid_macro_f1": classes.macro_f1,
        "temperature": temperature,
        "valid_calibration_error_before": before.expected_error,
        "valid_calibration_error": after.expected_error,
    }
