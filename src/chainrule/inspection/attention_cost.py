"""Number of multiplications of one attention layer by text length and model width.

M source tokens, N target tokens, k model width. The number of heads cancels: H heads of width k/H cost as much as
one of width k. Softmax, normalization and additions are not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.inspection.section import Figure
from chainrule.inspection.table import Markup, html_table

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
    """Return 2 MNk plus the projections of the score function of a recurrent translator."""
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
    return html_table(("", *columns), cells, label="Multiplications of one layer", is_headed=True)


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
