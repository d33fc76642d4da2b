"""What attention costs: multiplications of one layer by the lengths of the texts and the width.

Lives here: exact counts and a table of them. M tokens of a source, N of a target, k the width of the model; the
number of heads drops out, as H heads of width k/H cost what one of width k does. Softmax, norms and additions are
not counted.
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
    """Multiplications of one attention in one layer."""

    pairs: int  # scores and weighted sums: every token that looks with every token looked at
    maps: int  # W^Q, W^K, W^V, W^O: every token by itself

    @property
    def total(self) -> int:
        """Both together."""
        return self.pairs + self.maps


Rows = Sequence[tuple[str, Sequence[Cost | int]]]
"""Names, and the costs of each by length; a plain number where nothing compares pairs."""


def self_attention(tokens: int, k: int) -> Cost:
    """2 n²k + 4 nk² of n tokens: QKᵀ and its product with V; four maps. Encoder n = M, decoder n = N.

    Of a decoder the whole square is counted, as is worked out when a text is read at once; a kernel that leaves the
    future out needs about half of the pairs, and so does decoding with a cache: N(N + 1)k.

    >>> self_attention(3, 2)
    Cost(pairs=36, maps=48)
    """
    return Cost(pairs=2 * tokens**2 * k, maps=4 * tokens * k**2)


def cross_attention(source: int, target: int, k: int) -> Cost:
    """2 MNk + 2 (M + N)k²: W^Q and W^O of the target, W^K and W^V of the source."""
    return Cost(pairs=2 * source * target * k, maps=2 * (source + target) * k**2)


def past_attention(tokens: int, memory: int, k: int, score: str) -> Cost:
    """A recurrent network's over its last m states: Σ_t 2 min(t − 1, m) k, and what its score maps.

    General scores map each state once, k²; additive ones a query and a state, 2k², and their k numbers a pair are
    multiplied by v as the k of a dot product are by each other. Counted is what the equations need: a state that is
    looked at from several stretches of the text is mapped anew for each of them.
    """
    full = max(tokens - 1 - memory, 0)  # tokens before which more than m states stand
    short = tokens - full
    seen = short * (short - 1) // 2 + full * memory
    return Cost(pairs=2 * seen * k, maps={"general": 1, "additive": 2}.get(score, 0) * tokens * k**2)


def translator_attention(source: int, target: int, k: int, score: str) -> Cost:
    """A recurrent translator's: 2 MNk, and what its score maps, sources once and queries once a target token."""
    maps = {"general": source, "additive": source + target}.get(score, 0)
    return Cost(pairs=2 * source * target * k, maps=maps * k**2)


def feedforward(tokens: int, k: int, wide: int) -> int:
    """2 nkw of the net on each position, w its inner width: what a layer costs beside attention."""
    return 2 * tokens * k * wide


def crossing(k: int) -> int:
    """The length from which pairs cost more than maps in self-attention: 2 n²k = 4 nk² at n = 2k."""
    return 2 * k


def window_in_words(window: int, k: int) -> str:
    """What pairs cost in a full window, without name and full stop."""
    part = self_attention(window, k)
    return (
        f"in a full window of {window} tokens {100 * part.pairs / part.total:.0f} % of the multiplications of its "
        f"attention compare and sum pairs of tokens; from {crossing(k)} tokens on that is the larger part"
    )


def table(rows: Rows, columns: Sequence[str]) -> str:
    """A `<table>` of multiplications, a row a kind of attention, a column a length."""
    cells = [(name, *map(_cell, costs)) for name, costs in rows]
    return html_table(("", *columns), cells, label="Multiplications of one layer", is_headed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of a language model by the number of tokens it reads."""

    by_length: Mapping[int, Cost]
    formula: str
    beside: Mapping[str, Sequence[int]]  # what else a layer costs, by name, for each length
    words: tuple[str, ...] = ()  # worth saying, without name and full stop

    def figure(self, name: str, whose: str) -> Figure:
        """A table with its caption, which begins with whose costs they are, in HTML."""
        rows: Rows = [("attention", list(self.by_length.values())), *self.beside.items()]
        return _figure(name, f"{whose}: the", rows, [f"N = {n:,} tokens" for n in self.by_length], self.formula)

    def as_json(self) -> list[dict[str, int]]:
        """One object a length."""
        return [{"tokens": n, "pairs": cost.pairs, "maps": cost.maps} for n, cost in self.by_length.items()]


def of_transformer(k: int, wide: int, window: int) -> Costs:
    """A Transformer's, its full window among the lengths, beside its position-wise net."""
    lengths = sorted({*LENGTHS, window})
    return Costs(
        by_length={n: self_attention(n, k) for n in lengths},
        formula=f"attention 2 N²k + 4 Nk², the net 2 Nkw; k = {k}, w = {wide}",
        beside={"position-wise net": [feedforward(n, k, wide) for n in lengths]},
        words=(window_in_words(window, k),),
    )


def of_past(k: int, memory: int, score: str) -> Costs:
    """A recurrent network's that looks at its last states."""
    return Costs(
        by_length={n: past_attention(n, memory, k, score) for n in LENGTHS},
        formula=f"2 k for each of the last {memory} states that a token sees; k = {k}",
        beside={},
    )


def of_translator(k: int, score: str | None, lengths: Sequence[tuple[int, int]] = LENGTHS_OF_PAIRS) -> Figure:
    """By the lengths M, N of source and target; `score` of a recurrent network, None of a Transformer."""
    columns = [f"M = {M:,}, N = {N:,}" for M, N in lengths]
    if score is not None:
        rows: Rows = [("across", [translator_attention(M, N, k, score) for M, N in lengths])]
        return _figure("cost", "The", rows, columns, f"2 MNk and what its score maps, k = {k}")
    rows = [
        ("encoder, M² k + M k²", [self_attention(M, k) for M, _ in lengths]),
        ("across, M N k + (M + N) k²", [cross_attention(M, N, k) for M, N in lengths]),
        ("decoder, N² k + N k²", [self_attention(N, k) for _, N in lengths]),
    ]
    formula = (
        f"2 M²k + 4 Mk², 2 MNk + 2 (M + N)k² and 2 N²k + 4 Nk² with k = {k}. To translate the same source once more"
    )
    return _figure("cost", "The", rows, columns, f"{formula} re-uses the encoder")


def _figure(name: str, whose: str, rows: Rows, columns: Sequence[str], formula: str) -> Figure:
    """The table with its caption."""
    return Figure(
        name=name,
        drawing=table(rows, columns),
        caption=(
            f"{whose} multiplications of one layer, and the part of those of attention that compares and sums "
            f"pairs of tokens: {formula}."
        ),
        is_wide=True,
    )


def shown(number: int) -> str:
    """A count in the largest unit that leaves three digits or fewer before the point.

    >>> shown(950), shown(12_300_000), shown(999_999)
    ('950', '12.3 million', '1.00 million')
    """
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}"
    return str(number)


def _cell(cost: Cost | int) -> str:
    if isinstance(cost, int):
        return shown(cost)
    return Markup(f"{shown(cost.total)}<br><small>{_share(cost)}</small>")


def _share(cost: Cost) -> str:
    """How much of it is for pairs."""
    return f"{100 * cost.pairs / cost.total:.0f} % for pairs" if cost.total else "none for pairs"
