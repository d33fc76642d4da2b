"""Back-off orders of an n-gram model over a text: shares, reasons, and figures."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.reading import MAX_SHOWN, lines_html, token_span
from chainrule.inspection.surprisal import format_bits
from chainrule.inspection.table import READ, html_table
from chainrule.lm import Floats, Ids, Mask

DEEPEST: Final = 0.6  # opacity for the longest n-gram
NAMES: Final = {1: "unigram", 2: "bigram", 3: "trigram"}


@dataclass(frozen=True, slots=True)
class Orders:
    """Length of the n-gram that gave the probability of each of N tokens."""

    order: int  # order of the model
    matched_order: Ids  # (N,)  length of the n-gram that gave the probability
    bits: Floats  # (N,)  −log₂ p
    reason: Ids  # (N,)  why no longer n-gram was used: index into `reasons`
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class OrderStatistics:
    """Tokens scored by n-grams of one length."""

    order: int
    tokens: int
    share: float
    bits: float  # mean over tokens of nonzero probability; 0 if there are none
    impossible: int
    reasons: dict[str, int]  # why no longer n-gram was used, most frequent first


def order_statistics(orders: Orders) -> tuple[OrderStatistics, ...]:
    """Return one entry per order, from the longest down, including unused orders."""
    statistics = []
    for order in range(orders.order, 0, -1):
        indices = np.flatnonzero(orders.matched_order == order)
        finite = orders.bits[indices][np.isfinite(orders.bits[indices])]
        reasons = Counter(orders.reasons[int(i)] for i in orders.reason[indices])
        share = len(indices) / max(len(orders.matched_order), 1)
        mean = float(finite.mean()) if len(finite) else 0.0
        statistics.append(
            OrderStatistics(
                order, len(indices), share, mean, len(indices) - len(finite), dict(reasons.most_common())
            )
        )
    return tuple(statistics)


def ngram_name(order: int) -> str:
    """Return the usual name of an n-gram order.

    >>> ngram_name(2), ngram_name(5)
    ('bigram', '5-gram')
    """
    return NAMES.get(order, f"{order}-gram")


def describe(orders: Orders) -> str:
    """Describe the share and cost of the longest order and of the most frequent shorter one, with its reason."""
    longest, *shorter = order_statistics(orders)
    first = f"{100 * longest.share:.0f} % of tokens were scored by a {ngram_name(longest.order)}{_cost(longest)}"
    most = max(shorter, key=lambda entry: entry.tokens, default=None)
    if most is None or not most.tokens:
        return first
    reason, count = next(iter(most.reasons.items()))
    frequency = "all" if count == most.tokens else "mostly" if 2 * count > most.tokens else "most often"
    impossible = int(np.count_nonzero(~np.isfinite(orders.bits)))
    end = f"; {100 * impossible / len(orders.bits):.0f} % have probability 0" if impossible else ""
    shorter_clause = f"{100 * most.share:.0f} % backed off to {ngram_name(most.order)}s"
    return f"{first}; {shorter_clause}, {frequency} because: {reason}{end}"


def orders_html(tokens: Sequence[str], orders: Orders, is_end: Mask, is_apart: bool = True) -> str:
    """Colour the first tokens by the length of the n-gram used, with the reason on hover; then list all reasons."""
    N = min(len(tokens), MAX_SHOWN)
    spans = []
    for t in range(N):
        order = int(orders.matched_order[t])
        tooltip = (
            f"{ngram_name(order)}, {format_bits(float(orders.bits[t]))}; {orders.reasons[int(orders.reason[t])]}"
        )
        depth = DEEPEST * (order - 1) / max(orders.order - 1, 1)
        is_possible = math.isfinite(orders.bits[t])
        spans.append(token_span(tokens[t], f"rgba(0,114,178,{depth:.2f})", tooltip, is_possible=is_possible))
    return f"<div>{lines_html(spans, is_end[:N], is_apart)}{reasons_table(orders)}</div>"


def plot_orders(orders: Orders, *, title: str) -> str:
    """Plot the share of tokens scored by each order, labelled with their mean bits."""
    statistics = order_statistics(orders)
    labels = [f"{100 * entry.share:.0f} %{_cost(entry)}" for entry in statistics]

    def paint(axes: Any) -> None:
        rows = range(len(statistics))
        drawn = axes.barh(rows, [100 * entry.share for entry in statistics], height=0.66, color=plots.PALETTE[0])
        for bar, entry in zip(drawn, statistics, strict=True):
            bar.set(alpha=0.25 + 0.7 * entry.order / orders.order, clip_on=False)
        axes.bar_label(drawn, labels, padding=4, fontsize=plots.FONT_SIZE)
        axes.set_yticks(rows, [ngram_name(entry.order) for entry in statistics])
        axes.invert_yaxis()
        axes.set_xlim(0, max(100 * entry.share for entry in statistics) * 1.02 or 1.0)
        axes.set_xlabel("share of tokens, %")
        axes.grid(visible=False)

    description = "; ".join(
        f"{ngram_name(entry.order)}: {text}" for entry, text in zip(statistics, labels, strict=True)
    )
    right = 12 + max(map(plots.text_width, labels))
    margins = plots.Margins(
        left=16 + max(plots.text_width(ngram_name(entry.order)) for entry in statistics), right=right, top=8
    )
    return plots.render(paint, title, description, margins, 58 + 26 * len(statistics))


def reasons_table(orders: Orders) -> str:
    """Return an HTML table of how often each order was used for which reason."""
    rows = [
        (ngram_name(entry.order), reason, f"{count:,}")
        for entry in order_statistics(orders)
        for reason, count in entry.reasons.items()
    ]
    header = ("scored by", "reason", "tokens")
    return html_table(header, rows, label="Why no longer n-gram was used", style=READ, numbers=(2,))


def _cost(entry: OrderStatistics) -> str:
    """Format the mean cost of the tokens after a comma; empty without tokens."""
    if not entry.tokens:
        return ""
    impossible = f", {entry.impossible:,} of them impossible" if entry.impossible else ""
    return (f", at {entry.bits:.1f} bits each" if entry.impossible < entry.tokens else "") + impossible
