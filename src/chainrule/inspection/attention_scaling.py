"""Variance of attention scores: theory, simulation, and measurement on the heads of a model.

For independent q, k ~ N(μ, σ²I), E[qᵀk] = μᵀμ and Var[qᵀk] = 2σ²μᵀμ + dσ⁴; for other means and covariances
Var[qᵀk] = tr(Σ_q Σ_k) + μ_qᵀ Σ_k μ_q + μ_kᵀ Σ_q μ_k. With μ = 0 the variance of qᵀk grows with d, and that of
qᵀk/√d is σ⁴.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.inspection.report import Figure
from chainrule.lm import Floats, Mask
from chainrule.neural.probes.measurements import AttentionRecord
from chainrule.plots import figures
from chainrule.plots.html import Markup, html_table

WIDTHS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ROOM: Final = figures.Margins(left=58, right=76)


class Moments(NamedTuple):
    """Mean and variance of qᵀk."""

    mean: float
    variance: float


class Simulation(NamedTuple):
    """Sample mean and variance of qᵀk with their standard errors."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float


def isotropic_moments(mean: Floats | float, sigma: float, d: int) -> Moments:
    """Return the moments for q, k ~ N(μ, σ²I) in d dimensions; a scalar μ is repeated d times.

    >>> isotropic_moments(0.0, 1.0, 64)
    Moments(mean=0.0, variance=64.0)
    """
    mu = np.broadcast_to(np.asarray(mean, dtype=np.float64), (d,))
    square = float(mu @ mu)
    return Moments(square, 2 * sigma**2 * square + d * sigma**4)


def general_moments(mean_q: Floats, covariance_q: Floats, mean_k: Floats, covariance_k: Floats) -> Moments:
    """Return the moments for independent q and k with means (d,) and covariances (d, d)."""
    trace = float(np.sum(covariance_q * covariance_k.T))  # tr(Σ_q Σ_k)
    mean_terms = float(mean_q @ covariance_k @ mean_q + mean_k @ covariance_q @ mean_k)
    return Moments(float(mean_q @ mean_k), trace + mean_terms)


def simulate(mean: Floats | float, sigma: float, d: int, pairs: int, rng: np.random.Generator) -> Simulation:
    """Sample the dot products of `pairs` random pairs.

    The standard error of a variance v of n numbers with fourth central moment m is √((m − v²)/n).
    """
    mu = np.broadcast_to(np.asarray(mean, dtype=np.float64), (d,))
    products = np.empty(pairs)
    for first in range(0, pairs, step := max(1, (1 << 20) // d)):
        n = min(step, pairs - first)
        q, k = (mu + sigma * rng.standard_normal((n, d)) for _ in range(2))
        products[first : first + n] = (q * k).sum(axis=1)
    centred = products - products.mean()
    variance = float((centred**2).mean())
    error = np.sqrt(max(float((centred**4).mean()) - variance**2, 0.0) / pairs)
    return Simulation(float(products.mean()), variance, float(np.sqrt(variance / pairs)), float(error))


@dataclass(frozen=True, slots=True)
class ScoreSums:
    """Sums over segments for H heads of width d."""

    visible: Floats  # (3, H)  visible pairs: count, Σ qᵀk, Σ (qᵀk)²
    every: Floats  # (3, H)  the same over all query-key pairs of a segment
    products: Floats  # (2, H, d)  visible pairs: Σ q_i k_i, Σ (q_i k_i)²
    queries: Floats  # (H, 1 + d, 1 + d)  Σ (1, q)(1, q)ᵀ: count, sums, squares
    keys: Floats  # (H, 1 + d, 1 + d)

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        return ScoreSums(*map(np.add, astuple(self), astuple(other)))


def accumulate(record: AttentionRecord) -> ScoreSums | None:
    """Return the sums of one segment; None if its scores are not dot products."""
    if record.queries is None or record.keys is None:
        return None
    q, k = record.queries.astype(np.float64), record.keys.astype(np.float64)  # (H, T, d), (H, S, d)
    scores = q @ k.transpose(0, 2, 1)  # (H, T, S)
    mask = record.mask.astype(np.float64)
    first, last = record.new_keys
    products = [(a * (mask @ b)).sum(axis=1) for a, b in ((q, k), (q**2, k**2))]
    return ScoreSums(
        _moments(scores, record.mask),
        _moments(scores, np.ones_like(record.mask)),
        np.stack(products),
        _outer(q),
        _outer(k[:, first:last]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScores:
    """Statistics of the unscaled dot products of one head."""

    layer: int  # from 0
    head: int  # from 0
    width: int  # d
    mean: float  # over visible pairs
    visible: float  # variance over visible pairs
    every: float  # variance over all pairs of a segment
    predicted: float  # variance for independent queries and keys of these moments
    products: float  # Σ_i Var(q_i k_i): variance for uncorrelated dimensions

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
        """Measured over predicted variance; None if the prediction is 0."""
        return self.visible / self.predicted if self.predicted > 0 else None

    @property
    def by_width(self) -> Floats:
        """(d,) variance of the dot product over 1 … d dimensions, averaged over all orderings of them.

        Among m of d dimensions, each is included with probability m/d and each pair with m(m−1)/(d(d−1)).
        """
        m = np.arange(1, self.width + 1)
        pair_share = m * (m - 1) / max(self.width * (self.width - 1), 1)
        curve: Floats = m / self.width * self.products + pair_share * (self.visible - self.products)
        return np.maximum(curve, 0.0)


def summarize(sums: ScoreSums, layer: int) -> list[HeadScores]:
    """Return the score statistics of each head of a layer."""
    count = np.maximum(sums.visible[0], 1)  # (H,)
    product_variances = (sums.products[1] / count[:, None] - (sums.products[0] / count[:, None]) ** 2).sum(axis=1)
    visible, every = _variance(sums.visible), _variance(sums.every)
    heads = []
    for h in range(len(count)):
        predicted = general_moments(*_mean_and_covariance(sums.queries[h]), *_mean_and_covariance(sums.keys[h]))
        heads.append(
            HeadScores(
                layer=layer,
                head=h,
                width=sums.products.shape[2],
                mean=float(sums.visible[1, h] / count[h]),
                visible=float(visible[h]),
                every=float(every[h]),
                predicted=max(predicted.variance, 0.0),
                products=max(float(product_variances[h]), 0.0),
            )
        )
    return heads


def describe(heads: Sequence[HeadScores], divisor: float) -> list[str]:
    """Describe the spread of scores in clauses without model name and full stop; the model divides by `divisor`."""
    if not heads:
        return []
    pairs = [(head.scaled_deviation, head.deviation) for head in heads]
    scaled, raw = np.median(np.array(pairs), axis=0).tolist()
    scope = f" in the median head, d = {heads[0].width}" if len(heads) > 1 else ""
    note = "" if divisor > 1 or heads[0].width == 1 else "; this model does not divide by √d"
    clauses = [
        f"its scores have a standard deviation of {scaled:.2g} with division by √d and {raw:.2g} "
        f"without{scope}{note}"
    ]
    ratios = [head.ratio for head in heads if head.ratio is not None]
    if ratios:
        clauses.append(
            f"the variance of its scores is {float(np.median(ratios)):.2f} times that of independent queries and "
            "keys with the same means and covariances"
        )
    return clauses


def _moments(scores: Floats, mask: Mask) -> Floats:
    """Return count, sum and sum of squares: (H, T, S), (T, S) -> (3, H)."""
    count = np.full(len(scores), mask.sum(), dtype=np.float64)
    return np.stack([count, *(np.einsum("hts,ts->h", power, mask) for power in (scores, scores**2))])


def _variance(moments: Floats) -> Floats:
    """Return the variance from count, sum and sum of squares: (3, H) -> (H,)."""
    count = np.maximum(moments[0], 1)
    variance: Floats = np.maximum(moments[2] / count - (moments[1] / count) ** 2, 0.0)
    return variance


def _outer(x: Floats) -> Floats:
    """Return Σ (1, x)(1, x)ᵀ: (H, n, d) -> (H, 1 + d, 1 + d)."""
    extended = np.concatenate([np.ones((*x.shape[:2], 1)), x], axis=2)
    product: Floats = extended.transpose(0, 2, 1) @ extended
    return product


def _mean_and_covariance(outer: Floats) -> tuple[Floats, Floats]:
    """Return mean (d,) and covariance (d, d), divided by n: (1 + d, 1 + d) -> (d,), (d, d)."""
    count = max(float(outer[0, 0]), 1.0)
    mean = outer[0, 1:] / count
    return mean, outer[1:, 1:] / count - np.outer(mean, mean)


def draw_simulated(
    widths: Sequence[int] = WIDTHS, *, pairs: int = 4000, mean: float = 0.0, sigma: float = 1.0, seed: int = 0
) -> str:
    """Plot pairs drawn from N(μ, σ²I) as an `<svg>`: dots are simulated, lines are theory."""
    rng = np.random.default_rng(seed)
    simulations = [simulate(mean, sigma, d, pairs, rng) for d in widths]
    lines = [
        [isotropic_moments(mean, sigma, d).variance / divisor for d, divisor in zip(widths, divisors, strict=True)]
        for divisors in _by(widths)
    ]
    dots = [
        [simulation.variance / divisor for simulation, divisor in zip(simulations, divisors, strict=True)]
        for divisors in _by(widths)
    ]

    def paint(axes: Any) -> None:
        for colour, line, points in zip(figures.PALETTE, lines, dots, strict=False):
            axes.plot(widths, line, lw=1.4, color=colour, alpha=0.7)
            axes.plot(widths, points, "o", ms=5, mew=0, color=colour)
        _finish(axes, widths, [line[-1] for line in lines])

    raw, scaled = dots
    description = (
        f"Variance of the dot product of {pairs:,} pairs of vectors whose entries have mean {mean:g} and standard "
        f"deviation {sigma:g}. From d = {widths[0]} to {widths[-1]} it goes from {raw[0]:.3g} to {raw[-1]:.3g}; "
        f"divided by √d the variance goes from {scaled[0]:.3g} to {scaled[-1]:.3g}."
    )
    return figures.render(paint, "Variance of random dot products by width", description, ROOM)


def draw_measured(heads: Sequence[HeadScores], *, model: str) -> str:
    """Plot the heads of a model as an `<svg>`: the median head, and the middle 80 % as a band."""
    d = heads[0].width
    widths = np.unique(np.geomspace(1, d, 48).round().astype(int))
    curves = np.stack([variance.by_width[widths - 1] for variance in heads])  # (heads, n)
    variances = [curves / np.asarray(divisor) for divisor in _by(widths.tolist())]
    least = max(min(float(variance.max()) for variance in variances) * 1e-4, 1e-12)  # a log scale cannot show 0
    uncorrelated = float(np.median([variance.products / d for variance in heads]))  # per dimension, if uncorrelated
    medians = [np.maximum(np.median(variance, axis=0), least) for variance in variances]

    def paint(axes: Any) -> None:
        for colour, variance, median in zip(figures.PALETTE, variances, medians, strict=False):
            low, high = (np.maximum(np.quantile(variance, q, axis=0), least) for q in (0.1, 0.9))
            if len(heads) > 1:
                axes.fill_between(widths, low, high, color=colour, alpha=0.18, lw=0)
            axes.plot(widths, median, lw=2, color=colour, marker="o", ms=4 if d < 3 else 0, mew=0)
        for colour, divisor in zip(figures.PALETTE, _by(widths.tolist()), strict=False):
            axes.plot(widths, np.maximum(widths * uncorrelated / divisor, least), lw=1.4, ls=":", color=colour)
        _finish(axes, widths.tolist(), [float(median[-1]) for median in medians])

    raw, scaled = medians
    description = (
        f"Variance of the dot product over 1 to {d} dimensions of a head, the median of {len(heads)} heads. Raw it "
        f"goes from {raw[0]:.3g} to {raw[-1]:.3g}, divided by the square root of the number of dimensions from "
        f"{scaled[0]:.3g} to {scaled[-1]:.3g}."
    )
    return figures.render(paint, f"Variance of the scores of {model} by width", description, ROOM)


def _by(widths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the divisors of the variances of qᵀk and of qᵀk/√d."""
    return [1] * len(widths), list(widths)


def _finish(axes: Any, widths: Sequence[int], ends: Sequence[float]) -> None:
    """Set log scales and tick labels, and label both lines at their ends."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.margins(x=0.03, y=0.08)
    axes.minorticks_off()
    powers = [2**i for i in range(12)]
    axes.set_xticks(shown := [x for x in powers if widths[0] <= x <= widths[-1]], [str(x) for x in shown])
    axes.yaxis.set_major_formatter("{x:,.4g}")
    axes.set_xlabel("dimensions d of a query and a key")
    axes.set_title("variance of the score", loc="left", fontsize=figures.FONT_SIZE, x=-0.1)
    low, high = axes.get_ylim()
    heights = figures.spread_labels(
        [float(np.log(end)) for end in ends], np.log(high / low) / 14, np.log(low), np.log(high)
    )
    for colour, name, end, height in zip(figures.PALETTE, ("qᵀk", "qᵀk / √d"), ends, heights, strict=False):
        axes.annotate(
            name,
            (widths[-1], end),
            xytext=(1.04, (height - np.log(low)) / np.log(high / low)),
            textcoords="axes fraction",
            va="center",
            color=colour,
            annotation_clip=False,
        )


LENGTHS: Final = (16, 64, 256, 1024)  # tokens
LENGTHS_OF_PAIRS: Final = ((16, 16), (64, 64), (64, 256), (256, 64), (256, 256))  # M, N


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Multiplications of one attention layer."""

    pairs: int  # scores and weighted sums over query-key pairs
    projections: int  # W^Q, W^K, W^V, W^O, per token

    @property
    def total(self) -> int:
        """Sum of both."""
        return self.pairs + self.projections


Rows = Sequence[tuple[str, Sequence[Cost | int]]]
"""(name, costs by length); an int is a cost without pairwise terms."""


def self_attention(tokens: int, k: int) -> Cost:
    """Return 2 n²k + 4 nk² for n tokens: QKᵀ and its product with V; four projections (n = M or n = N).

    For a decoder the full square is counted, as computed in one parallel pass; a causal kernel, or decoding with a
    cache, needs about half of the pairs: N(N + 1)k.

    >>> self_attention(3, 2)
    Cost(pairs=36, projections=48)
    """
    return Cost(pairs=2 * tokens**2 * k, projections=4 * tokens * k**2)


def cross_attention(source: int, target: int, k: int) -> Cost:
    """Return 2 MNk + 2 (M + N)k²: W^Q and W^O of the target, W^K and W^V of the source."""
    return Cost(pairs=2 * source * target * k, projections=2 * (source + target) * k**2)


def memory_attention(tokens: int, memory: int, k: int, score: str) -> Cost:
    """Return the cost of attention over the last m recurrent states: Σ_t 2 min(t − 1, m) k plus projections.

    General scores project each state, k²; additive scores project query and state, 2k², and multiply k numbers per
    pair by v. States that several segments attend to are counted once per segment.
    """
    full = max(tokens - 1 - memory, 0)  # tokens with more than m preceding states
    short = tokens - full
    visible = short * (short - 1) // 2 + full * memory
    return Cost(pairs=2 * visible * k, projections={"general": 1, "additive": 2}.get(score, 0) * tokens * k**2)


def translator_attention(source: int, target: int, k: int, score: str) -> Cost:
    """Return 2 MNk plus the projections of the score function of a recurrent translation model."""
    maps = {"general": source, "additive": source + target}.get(score, 0)
    return Cost(pairs=2 * source * target * k, projections=maps * k**2)


def feedforward(tokens: int, k: int, inner: int) -> int:
    """Return 2 nkw for a position-wise network of inner width w."""
    return 2 * tokens * k * inner


def crossover_length(k: int) -> int:
    """Return the length from which pairs cost more than projections: 2 n²k = 4 nk² at n = 2k."""
    return 2 * k


def describe_window(window: int, k: int) -> str:
    """Describe the share of pairwise cost in a full window, without model name and full stop."""
    cost = self_attention(window, k)
    return (
        f"in a full window of {window} tokens, {100 * cost.pairs / cost.total:.0f} % of the multiplications in "
        f"attention are pairwise (scores and weighted sums); from {crossover_length(k)} tokens on they dominate"
    )


def cost_table(rows: Rows, columns: Sequence[str]) -> str:
    """Return a `<table>` of multiplications: one row per kind of attention, one column per length."""
    cells = [(name, *map(_cell, costs)) for name, costs in rows]
    return html_table(
        ("", *columns),
        cells,
        label="Multiplications of one layer",
        is_headed=True,
        numbers=range(1, len(columns) + 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Attention cost of a language model by number of tokens."""

    by_length: Mapping[int, Cost]
    formula: str
    other_costs: Mapping[str, Sequence[int]]  # cost of the other parts of a layer, by name, per length
    words: tuple[str, ...] = ()  # findings, without model name and full stop

    def figure(self, name: str, prefix: str) -> Figure:
        """Return the table; its caption begins with the model name `prefix`, in HTML."""
        rows: Rows = [("attention", list(self.by_length.values())), *self.other_costs.items()]
        return _figure(name, f"{prefix}: the", rows, [f"N = {n:,} tokens" for n in self.by_length], self.formula)

    def as_json(self) -> list[dict[str, int]]:
        """Return one object per length."""
        return [{"tokens": n, "pairs": cost.pairs, "maps": cost.projections} for n, cost in self.by_length.items()]


def transformer_costs(k: int, inner: int, window: int) -> Costs:
    """Return the costs of a Transformer, including its full window and its feed-forward network."""
    lengths = sorted({*LENGTHS, window})
    return Costs(
        by_length={n: self_attention(n, k) for n in lengths},
        formula=f"attention 2 N²k + 4 Nk², feed-forward 2 Nkw; k = {k}, w = {inner}",
        other_costs={"feed-forward network": [feedforward(n, k, inner) for n in lengths]},
        words=(describe_window(window, k),),
    )


def memory_costs(k: int, memory: int, score: str) -> Costs:
    """Return the costs of a recurrent network that attends to its last states."""
    return Costs(
        by_length={n: memory_attention(n, memory, k, score) for n in LENGTHS},
        formula=f"2 k for each of the last {memory} states visible to a token; k = {k}",
        other_costs={},
    )


def translator_figure(k: int, score: str | None, lengths: Sequence[tuple[int, int]] = LENGTHS_OF_PAIRS) -> Figure:
    """Return the costs by source and target length; `score` is None for a Transformer."""
    columns = [f"M = {M:,}, N = {N:,}" for M, N in lengths]
    if score is not None:
        rows: Rows = [("cross-attention", [translator_attention(M, N, k, score) for M, N in lengths])]
        return _figure("cost", "The", rows, columns, f"2 MNk plus the projections of the score function, k = {k}")
    rows = [
        ("encoder, M² k + M k²", [self_attention(M, k) for M, _ in lengths]),
        ("cross-attention, M N k + (M + N) k²", [cross_attention(M, N, k) for M, N in lengths]),
        ("decoder, N² k + N k²", [self_attention(N, k) for _, N in lengths]),
    ]
    formula = f"2 M²k + 4 Mk², 2 MNk + 2 (M + N)k² and 2 N²k + 4 Nk² with k = {k}"
    return _figure("cost", "The", rows, columns, f"{formula}. Translating the same source again reuses the encoder")


def _figure(name: str, prefix: str, rows: Rows, columns: Sequence[str], formula: str) -> Figure:
    """Return the table with its caption."""
    return Figure(
        name=name,
        drawing=cost_table(rows, columns),
        caption=(
            f"{prefix} multiplications of one layer, with the share of attention spent on pairs of tokens (scores "
            f"and weighted sums): {formula}."
        ),
        is_wide=True,
    )


def format_count(number: int) -> str:
    """Format a count in the largest unit that leaves at most three digits before the point.

    >>> format_count(950), format_count(12_300_000), format_count(999_999)
    ('950', '12.3 million', '1.00 million')
    """
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}"
    return str(number)


def _cell(cost: Cost | int) -> str:
    if isinstance(cost, int):
        return format_count(cost)
    return Markup(f"{format_count(cost.total)}<br><small>{_share(cost)}</small>")


def _share(cost: Cost) -> str:
    return f"{100 * cost.pairs / cost.total:.0f} % for pairs" if cost.total else "none for pairs"
