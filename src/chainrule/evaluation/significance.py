"""Whether one system is better than another, or only was on this test set: the paired bootstrap.

Lives here: resampling of the test set, for any statistic of it and for BLEU and chrF. Not here: the scores
(overlap.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.errors import UsageError
from chainrule.evaluation.overlap import MetricName, check_aligned, load_metric
from chainrule.lm import Floats, Ids

Statistic = Callable[[Ids], float]
"""A figure of the examples with these ids (n,), some of them several times."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A − B on the test set, and how far chance in choosing the test set could have moved it."""

    difference: float
    low: float  # low to high: 95 % of the resampled differences
    high: float
    p_value: float  # two-sided
    a: float  # what is compared, each on the test set itself
    b: float
    samples: int  # test sets that were drawn


def paired_bootstrap(
    a: Statistic, b: Statistic, n: int, *, samples: int = 1000, seed: int | np.random.Generator = 0
) -> Comparison:
    """Compare two systems on `samples` test sets of n examples drawn with replacement, the same for both.

    With d the difference on the test set itself and dᵢ those on the drawn ones, the p-value is the part of the
    |dᵢ − d| ≥ |d|, d itself counted among them: how often resampling alone moves the difference by as much as it
    is away from nothing (Efron & Tibshirani 1993, ch. 16; Koehn 2004 resamples in the same way).
    """
    if n < 1 or samples < 1:
        raise UsageError(f"n is {n} and samples is {samples}; both must be 1 or more")
    if isinstance(seed, int) and seed < 0:
        raise UsageError(f"seed is {seed}; choose 0 or more")
    rng = np.random.default_rng(seed)
    everything = np.arange(n)
    whole_a, whole_b = float(a(everything)), float(b(everything))
    difference = whole_a - whole_b
    resampled = np.empty(samples)  # dᵢ
    for sample in range(samples):
        ids = rng.integers(n, size=n)
        resampled[sample] = a(ids) - b(ids)
    return _conclude(difference, resampled, whole_a, whole_b)


def _conclude(difference: float, resampled: Floats, a: float, b: float) -> Comparison:
    """The interval and the p-value of a difference, from those on the drawn test sets."""
    samples = len(resampled)
    low, high = np.quantile(resampled, [0.025, 0.975])
    # Rounding must not tell equal distances apart, least of all where the systems are the same.
    slack = 1e-12 * max(1.0, abs(difference))
    as_far = int(np.sum(np.abs(resampled - difference) >= abs(difference) - slack))
    p_value = (as_far + 1) / (samples + 1)
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
    """Paired bootstrap of corpus BLEU or chrF, sentences drawn; the n-grams are counted once.

    Both scores are functions of counts summed over sentences, so a drawn test set needs their sums alone.
    """
    check_aligned(a, references)
    check_aligned(b, references)
    score_a, score_b = (_corpus_score(texts, references, metric) for texts in (a, b))
    return paired_bootstrap(score_a, score_b, len(references), samples=samples, seed=seed)


def _corpus_score(found: Sequence[str], references: Sequence[str], name: MetricName) -> Statistic:
    metric = load_metric(name)
    counts = np.array(metric._extract_corpus_statistics(found, [references]), dtype=np.int64)  # (n, counts)

    def score(ids: Ids) -> float:
        return float(metric._compute_score_from_stats(counts[ids].sum(axis=0).tolist()).score)

    return score


def compare_neighbors(
    numerators: Floats, denominator: Floats, *, samples: int = 1000, seed: int = 0
) -> list[Comparison | None]:
    """Paired bootstrap of 1 − rᵢ / rᵢ₊₁ for neighbouring rows, rᵢ = Σ numerators[i] / Σ denominator.

    With the nats of each line in `numerators`, (M, n), and its bytes in `denominator`, (n,), rᵢ is the
    cross-entropy of model i, and 1 − rᵢ / rᵢ₊₁ the part of it that model i saves. All rows share the drawn test
    sets, which are those of `paired_bootstrap` with the same seed; the M sums of each are one product of matrices.

    Two rows that are both 0 do not differ. Where rᵢ₊₁ alone is 0, on the test set or on a drawn one, the ratio is
    undefined and the comparison is None.
    """
    rows, n = numerators.shape
    if n < 1 or samples < 1:
        raise UsageError(f"n is {n} and samples is {samples}; both must be 1 or more")
    rng = np.random.default_rng(seed)
    sums = np.empty((samples, rows))
    for sample in range(samples):
        times = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        sums[sample] = numerators @ times / (denominator @ times)
    whole = numerators.sum(axis=1) / denominator.sum()
    resampled = _savings(sums[:, :-1], sums[:, 1:])  # (samples, M − 1)
    differences = _savings(whole[:-1], whole[1:])
    is_defined = np.isfinite(differences) & np.isfinite(resampled).all(axis=0)
    return [
        _conclude(float(differences[i]), resampled[:, i], float(whole[i]), float(whole[i + 1]))
        if is_defined[i]
        else None
        for i in range(rows - 1)
    ]


def _savings(a: Floats, b: Floats) -> Floats:
    """1 − a / b; 0 where both are 0, −inf where b alone is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((a == 0) & (b == 0), 0.0, 1 - a / b)
