"""The variance of attention scores: the law, a simulation, and what a model's own heads show.

Lives here, in numbers and pictures: for q, k ~ N(μ, σ²I) independent, E[qᵀk] = μᵀμ and Var[qᵀk] = 2σ²μᵀμ + dσ⁴;
for other means and covariances Var[qᵀk] = tr(Σ_q Σ_k) + μ_qᵀ Σ_k μ_q + μ_kᵀ Σ_q μ_k. So with μ = 0 the raw variance
grows with d, and that of qᵀk/√d stays at σ⁴. Not here: queries and keys of a model (neural/attending.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection import labels, plots
from chainrule.inspection.attention import Attended
from chainrule.lm import Floats, Mask

WIDTHS: Final = tuple(2**i for i in range(10))  # 1 … 512
ROOM: Final = plots.Margins(left=58, right=76)


class Law(NamedTuple):
    """Mean and variance of qᵀk."""

    mean: float
    variance: float


class Simulation(NamedTuple):
    """The same of pairs that were drawn, with standard errors."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float


def law(mean: Floats | float, sigma: float, d: int) -> Law:
    """q and k both from N(μ, σ²I) in d dimensions; μ is given, or is one number d times.

    >>> law(0.0, 1.0, 64)
    Law(mean=0.0, variance=64.0)
    """
    mu = np.broadcast_to(np.asarray(mean, dtype=np.float64), (d,))
    square = float(mu @ mu)
    return Law(square, 2 * sigma**2 * square + d * sigma**4)


def general(mean_q: Floats, covariance_q: Floats, mean_k: Floats, covariance_k: Floats) -> Law:
    """Independent q and k, each with its own mean (d,) and covariance (d, d)."""
    trace = float(np.sum(covariance_q * covariance_k.T))  # tr(Σ_q Σ_k)
    of_means = float(mean_q @ covariance_k @ mean_q + mean_k @ covariance_q @ mean_k)
    return Law(float(mean_q @ mean_k), trace + of_means)


def simulate(mean: Floats | float, sigma: float, d: int, pairs: int, rng: np.random.Generator) -> Simulation:
    """The dot products of so many pairs drawn.

    The standard error of a variance v of n numbers with fourth central moment m is √((m − v²)/n).
    """
    mu = np.broadcast_to(np.asarray(mean, dtype=np.float64), (d,))
    products = np.empty(pairs)
    for first in range(0, pairs, step := max(1, (1 << 20) // d)):
        n = min(step, pairs - first)
        q, k = (mu + sigma * rng.standard_normal((n, d)) for _ in range(2))
        products[first : first + n] = (q * k).sum(axis=1)
    apart = products - products.mean()
    variance = float((apart**2).mean())
    error = np.sqrt(max(float((apart**4).mean()) - variance**2, 0.0) / pairs)
    return Simulation(float(products.mean()), variance, float(np.sqrt(variance / pairs)), float(error))


@dataclass(frozen=True, slots=True)
class Sums:
    """What is added up over stretches, for each of H heads of width d."""

    visible: Floats  # (3, H)  pairs that may look: how many, Σ qᵀk, Σ (qᵀk)²
    every: Floats  # (3, H)  the same of every query with every key of its stretch
    products: Floats  # (2, H, d)  visible pairs: Σ q_i k_i, Σ (q_i k_i)²
    queries: Floats  # (H, 1 + d, 1 + d)  Σ of (1, q)(1, q)ᵀ: how many, sums, squares
    keys: Floats  # (H, 1 + d, 1 + d)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.visible + other.visible,
            self.every + other.every,
            self.products + other.products,
            self.queries + other.queries,
            self.keys + other.keys,
        )


def count(part: Attended) -> Sums | None:
    """The sums of one stretch; None where its scores are no dot products."""
    if part.queries is None or part.keys is None:
        return None
    q, k = part.queries.astype(np.float64), part.keys.astype(np.float64)  # (H, T, d), (H, S, d)
    scores = q @ k.transpose(0, 2, 1)  # (H, T, S)
    seen = part.seen.astype(np.float64)
    first, last = part.new_keys
    products = [(a * (seen @ b)).sum(axis=1) for a, b in ((q, k), (q**2, k**2))]
    return Sums(
        _moments(scores, part.seen),
        _moments(scores, np.ones_like(part.seen)),
        np.stack(products),
        _outer(q),
        _outer(k[:, first:last]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScores:
    """The dot products of one head, before anything divides them."""

    layer: int  # from 0
    head: int  # from 0
    width: int  # d
    mean: float  # over pairs that may look
    visible: float  # variance over pairs that may look
    every: float  # variance over all pairs of a stretch
    predicted: float  # variance if queries and keys with these means and covariances were independent
    products: float  # Σ_i Var(q_i k_i) over pairs that may look: the variance if dimensions had nothing in common

    @property
    def deviation(self) -> float:
        """Standard deviation of qᵀk."""
        return float(np.sqrt(self.visible))

    @property
    def scaled_deviation(self) -> float:
        """Standard deviation of qᵀk/√d."""
        return float(np.sqrt(self.visible / self.width))

    @property
    def ratio(self) -> float | None:
        """The variance as part of the predicted; None where nothing varies."""
        return self.visible / self.predicted if self.predicted > 0 else None

    @property
    def by_width(self) -> Floats:
        """(d,) the variance of the dot product over 1 … d of its dimensions, the mean over all orders of them.

        Among m of d dimensions, each stands with the chance m/d and each two with m(m−1)/(d(d−1)).
        """
        m = np.arange(1, self.width + 1)
        both = m * (m - 1) / max(self.width * (self.width - 1), 1)
        curve: Floats = m / self.width * self.products + both * (self.visible - self.products)
        return np.maximum(curve, 0.0)


def summarize(sums: Sums, layer: int) -> list[HeadScores]:
    """The variances of a layer, head by head."""
    number = np.maximum(sums.visible[0], 1)  # (H,)
    singles = (sums.products[1] / number[:, None] - (sums.products[0] / number[:, None]) ** 2).sum(axis=1)
    visible, every = _variance(sums.visible), _variance(sums.every)
    found = []
    for h in range(len(number)):
        predicted = general(*_mean_and_covariance(sums.queries[h]), *_mean_and_covariance(sums.keys[h]))
        found.append(
            HeadScores(
                layer=layer,
                head=h,
                width=sums.products.shape[2],
                mean=float(sums.visible[1, h] / number[h]),
                visible=float(visible[h]),
                every=float(every[h]),
                predicted=max(predicted.variance, 0.0),
                products=max(float(singles[h]), 0.0),
            )
        )
    return found


def in_words(found: Sequence[HeadScores], divisor: float) -> list[str]:
    """How far scores spread, in clauses without name and full stop; `divisor` is what the model divides by."""
    if not found:
        return []
    pairs = [(each.scaled_deviation, each.deviation) for each in found]
    scaled, raw = np.median(np.array(pairs), axis=0).tolist()
    whose = f" in the median head, d = {found[0].width}" if len(found) > 1 else ""
    used = "" if divisor > 1 or found[0].width == 1 else "; this model does not divide by √d"
    words = [f"its scores have a standard deviation of {scaled:.2g} with √d and {raw:.2g} without{whose}{used}"]
    ratios = [each.ratio for each in found if each.ratio is not None]
    if ratios:
        words.append(
            f"the variance of its scores is {float(np.median(ratios)):.2f} times what independent queries and keys "
            "of the same means and covariances would have"
        )
    return words


def _moments(scores: Floats, counted: Mask) -> Floats:
    """(H, T, S), (T, S) -> (3, H)."""
    number = np.full(len(scores), counted.sum(), dtype=np.float64)
    return np.stack([number, *(np.einsum("hts,ts->h", power, counted) for power in (scores, scores**2))])


def _variance(moments: Floats) -> Floats:
    """(3, H) -> (H,)."""
    number = np.maximum(moments[0], 1)
    found: Floats = np.maximum(moments[2] / number - (moments[1] / number) ** 2, 0.0)
    return found


def _outer(x: Floats) -> Floats:
    """(H, n, d) -> (H, 1 + d, 1 + d)."""
    wide = np.concatenate([np.ones((*x.shape[:2], 1)), x], axis=2)
    found: Floats = wide.transpose(0, 2, 1) @ wide
    return found


def _mean_and_covariance(outer: Floats) -> tuple[Floats, Floats]:
    """(1 + d, 1 + d) -> (d,), (d, d); the covariance divides by n."""
    number = max(float(outer[0, 0]), 1.0)
    mean = outer[0, 1:] / number
    return mean, outer[1:, 1:] / number - np.outer(mean, mean)


def draw_simulated(
    widths: Sequence[int] = WIDTHS, *, pairs: int = 4000, mean: float = 0.0, sigma: float = 1.0, seed: int = 0
) -> str:
    """An `<svg>` of pairs drawn from N(μ, σ²I): dots are simulated, lines are the law."""
    rng = np.random.default_rng(seed)
    found = [simulate(mean, sigma, d, pairs, rng) for d in widths]
    lines = [[law(mean, sigma, d).variance / by for d, by in zip(widths, of, strict=True)] for of in _by(widths)]
    dots = [[each.variance / by for each, by in zip(found, of, strict=True)] for of in _by(widths)]

    def paint(axes: Any) -> None:
        for colour, line, points in zip(plots.PALETTE, lines, dots, strict=False):
            axes.plot(widths, line, lw=1.4, color=colour, alpha=0.7)
            axes.plot(widths, points, "o", ms=5, mew=0, color=colour)
        _finish(axes, widths, [line[-1] for line in lines])

    raw, scaled = dots
    words = (
        f"Variance of the dot product of {pairs:,} pairs of vectors whose entries have mean {mean:g} and standard "
        f"deviation {sigma:g}. From d = {widths[0]} to {widths[-1]} it goes from {raw[0]:.3g} to {raw[-1]:.3g}; "
        f"divided by √d the variance goes from {scaled[0]:.3g} to {scaled[-1]:.3g}."
    )
    return plots.render(paint, "Variance of random dot products by width", words, ROOM)


def draw_measured(found: Sequence[HeadScores], *, model: str) -> str:
    """An `<svg>` of a model's heads of one width: the median head, and behind it the middle 80 % of all."""
    d = found[0].width
    widths = np.unique(np.geomspace(1, d, 48).round().astype(int))
    curves = np.stack([each.by_width[widths - 1] for each in found])  # (heads, n)
    both = [curves / np.asarray(by) for by in _by(widths.tolist())]
    least = max(min(float(each.max()) for each in both) * 1e-4, 1e-12)  # on a log scale zero has no place
    apart = float(np.median([each.products / d for each in found]))  # a dimension, where they share nothing
    middles = [np.maximum(np.median(each, axis=0), least) for each in both]

    def paint(axes: Any) -> None:
        for colour, each, middle in zip(plots.PALETTE, both, middles, strict=False):
            low, high = (np.maximum(np.quantile(each, part, axis=0), least) for part in (0.1, 0.9))
            if len(found) > 1:
                axes.fill_between(widths, low, high, color=colour, alpha=0.18, lw=0)
            axes.plot(widths, middle, lw=2, color=colour, marker="o", ms=4 if d < 3 else 0, mew=0)
        for colour, by in zip(plots.PALETTE, _by(widths.tolist()), strict=False):
            axes.plot(widths, np.maximum(widths * apart / by, least), lw=1.4, ls=":", color=colour)
        _finish(axes, widths.tolist(), [float(middle[-1]) for middle in middles])

    raw, scaled = middles
    words = (
        f"Variance of the dot product over 1 to {d} dimensions of a head, the median of {len(found)} heads. Raw it "
        f"goes from {raw[0]:.3g} to {raw[-1]:.3g}, divided by the square root of the number of dimensions from "
        f"{scaled[0]:.3g} to {scaled[-1]:.3g}."
    )
    return plots.render(paint, f"Variance of the scores of {model} by width", words, ROOM)


def _by(widths: Sequence[int]) -> tuple[list[int], list[int]]:
    """What the variances of qᵀk and of qᵀk/√d are divided by."""
    return [1] * len(widths), list(widths)


def _finish(axes: Any, widths: Sequence[int], ends: Sequence[float]) -> None:
    """Log scales, readable numbers, and the names of both lines at their ends."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.margins(x=0.03, y=0.08)
    axes.minorticks_off()
    powers = [2**i for i in range(12)]
    axes.set_xticks(shown := [x for x in powers if widths[0] <= x <= widths[-1]], [str(x) for x in shown])
    axes.yaxis.set_major_formatter("{x:,.4g}")
    axes.set_xlabel("dimensions d of a query and a key")
    axes.set_title("variance of the score", loc="left", fontsize=plots.FONT_SIZE, x=-0.1)
    low, high = axes.get_ylim()
    places = labels.spread([float(np.log(end)) for end in ends], np.log(high / low) / 14, np.log(low), np.log(high))
    for colour, name, end, place in zip(plots.PALETTE, ("qᵀk", "qᵀk / √d"), ends, places, strict=False):
        axes.annotate(
            name,
            (widths[-1], end),
            xytext=(1.04, (place - np.log(low)) / np.log(high / low)),
            textcoords="axes fraction",
            va="center",
            color=colour,
            annotation_clip=False,
        )
