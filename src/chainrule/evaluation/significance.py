"""Paired bootstrap significance tests for any statistic of a test set, and for BLEU and chrF."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.config import check_seed
from chainrule.errors import UsageError
from chainrule.evaluation.translation import MetricName, check_aligned, load_metric
from chainrule.lm import Floats, Ids

Statistic = Callable[[Ids], float]
"""Metric of the examples with these ids (n,), which may repeat."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Difference A − B on the test set with its bootstrap confidence interval and p-value."""

    difference: float
    low: float  # 95 % confidence interval, low to high
    high: float
    p_value: float  # two-sided
    a: float  # metric of system A on the test set
    b: float  # metric of system B on the test set
    samples: int  # number of bootstrap samples


def paired_bootstrap(
    a: Statistic, b: Statistic, n: int, *, samples: int = 1000, seed: int | np.random.Generator = 0
) -> Comparison:
    """Compare two systems on `samples` bootstrap samples of n examples, the same samples for both.

    With d the difference on the test set and dᵢ the differences on the samples, the p-value is
    (1 + #{i : |dᵢ − d| ≥ |d|}) / (1 + samples) (Efron & Tibshirani 1993, ch. 16; Koehn 2004 resamples in the same
    way).
    """
    if n < 1 or samples < 1:
        raise UsageError(f"n is {n} and samples is {samples}; both must be 1 or more")
    if isinstance(seed, int):
        check_seed(seed)
    rng = np.random.default_rng(seed)
    all_ids = np.arange(n)
    whole_a, whole_b = float(a(all_ids)), float(b(all_ids))
    difference = whole_a - whole_b
    resampled = np.empty(samples)  # dᵢ
    for sample in range(samples):
        ids = rng.integers(n, size=n)
        resampled[sample] = a(ids) - b(ids)
    return _summarize(difference, resampled, whole_a, whole_b)


def _summarize(difference: float, resampled: Floats, a: float, b: float) -> Comparison:
    """Compute the confidence interval and p-value of a difference from the bootstrap differences."""
    samples = len(resampled)
    low, high = np.quantile(resampled, [0.025, 0.975])
    # Equal distances must compare as equal despite rounding, above all if the systems are identical.
    tolerance = 1e-12 * max(1.0, abs(difference))
    extreme = int(np.sum(np.abs(resampled - difference) >= abs(difference) - tolerance))
    p_value = (extreme + 1) / (samples + 1)
    return Comparison(difference, float(low), float(high), p_value, a, b, samples)


def compare_bleu(
    a: Sequence[str],
    b: Sequence[str],
    references: Sequence[str],
    metric: MetricName = "bleu",
    *,
    samples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Comparison:
    """Paired bootstrap test of corpus BLEU or chrF over sentences.

    Both scores are functions of n-gram statistics summed over sentences, which are computed only once.
    """
    check_aligned(a, references)
    check_aligned(b, references)
    score_a, score_b = (_corpus_score(texts, references, metric) for texts in (a, b))
    return paired_bootstrap(score_a, score_b, len(references), samples=samples, seed=seed)


def _corpus_score(hypotheses: Sequence[str], references: Sequence[str], name: MetricName) -> Statistic:
    metric = load_metric(name)
    counts = np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.int64)  # (n, counts)

    def score(ids: Ids) -> float:
        return float(metric._compute_score_from_stats(counts[ids].sum(axis=0).tolist()).score)

    return score


def compare_adjacent(
    numerators: Floats, denominator: Floats, *, samples: int = 1000, seed: int = 0
) -> list[Comparison | None]:
    """Paired bootstrap of 1 − rᵢ / rᵢ₊₁ for adjacent rows, rᵢ = Σ numerators[i] / Σ denominator.

    With the nats of each line in `numerators`, (M, n), and its bytes in `denominator`, (n,), rᵢ is the
    cross-entropy of model i and 1 − rᵢ / rᵢ₊₁ its relative reduction. All rows share the bootstrap samples, which
    are those of `paired_bootstrap` with the same seed.

    Two rows that are both 0 do not differ. If only rᵢ₊₁ is 0, on the test set or on a sample, the ratio is
    undefined and the comparison is None.
    """
    rows, n = numerators.shape
    if n < 1 or samples < 1:
        raise UsageError(f"n is {n} and samples is {samples}; both must be 1 or more")
    rng = np.random.default_rng(seed)
    ratios = np.empty((samples, rows))
    for sample in range(samples):
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        ratios[sample] = numerators @ weights / (denominator @ weights)
    whole = numerators.sum(axis=1) / denominator.sum()
    resampled = _relative_reduction(ratios[:, :-1], ratios[:, 1:])  # (samples, M − 1)
    differences = _relative_reduction(whole[:-1], whole[1:])
    is_defined = np.isfinite(differences) & np.isfinite(resampled).all(axis=0)
    return [
        _summarize(float(differences[i]), resampled[:, i], float(whole[i]), float(whole[i + 1]))
        if is_defined[i]
        else None
        for i in range(rows - 1)
    ]


def _relative_reduction(a: Floats, b: Floats) -> Floats:
    """Return 1 − a / b; 0 if both are 0, −inf if only b is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((a == 0) & (b == 0), 0.0, 1 - a / b)
