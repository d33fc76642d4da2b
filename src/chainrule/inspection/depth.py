"""Which order of an n-gram model answered each token, and why no longer one did: shares, words, text and bars.

Lives here: what is told of the orders of a text. Not here: how they are found, and what is called stored
(ngram/depth.py).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.reading import SHOWN, painted, text_html
from chainrule.inspection.surprisal import words_for
from chainrule.inspection.table import READ, html_table
from chainrule.lm import Floats, Ids, Mask

DEEPEST: Final = 0.6  # opacity of the colour of the longest n-gram
NAMES: Final = {1: "unigram", 2: "bigram", 3: "trigram"}


@dataclass(frozen=True, slots=True)
class Orders:
    """The n-grams that answered N tokens."""

    order: int  # n, of the model
    found: Ids  # (N,)  words in the n-gram that answered
    bits: Floats  # (N,)  −log₂ p
    reason: Ids  # (N,)  why no longer one answered: a place in `reasons`
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Answered:
    """The tokens that n-grams of one length answered."""

    order: int
    tokens: int
    share: float
    bits: float  # mean of those that are possible; 0 where none is
    impossible: int
    reasons: dict[str, int]  # why no longer n-gram answered, the most frequent first


def shares(orders: Orders) -> tuple[Answered, ...]:
    """One for each order from the longest down, those that answered nothing too."""
    made = []
    for order in range(orders.order, 0, -1):
        at = np.flatnonzero(orders.found == order)
        finite = orders.bits[at][np.isfinite(orders.bits[at])]
        why = Counter(orders.reasons[int(i)] for i in orders.reason[at])
        share = len(at) / max(len(orders.found), 1)
        mean = float(finite.mean()) if len(finite) else 0.0
        made.append(Answered(order, len(at), share, mean, len(at) - len(finite), dict(why.most_common())))
    return tuple(made)


def name_of(order: int) -> str:
    """The usual name of an n-gram.

    >>> name_of(2), name_of(5)
    ('bigram', '5-gram')
    """
    return NAMES.get(order, f"{order}-gram")


def in_words(orders: Orders) -> str:
    """The longest order's share and bits, and the most common of the shorter ones with the reason."""
    longest, *shorter = shares(orders)
    first = f"the {name_of(longest.order)} answered {100 * longest.share:.0f} % of tokens{_cost(longest)}"
    most = max(shorter, key=lambda each: each.tokens, default=None)
    if most is None or not most.tokens:
        return first
    reason, times = next(iter(most.reasons.items()))
    how = "all" if times == most.tokens else "mostly" if 2 * times > most.tokens else "most often"
    lost = int(np.count_nonzero(~np.isfinite(orders.bits)))
    end = f"; {100 * lost / len(orders.bits):.0f} % have no probability at all" if lost else ""
    found = f"{100 * most.share:.0f} % were found as {name_of(most.order)}s at most"
    return f"{first}; {found}, {how} because: {reason}{end}"


def orders_html(tokens: Sequence[str], orders: Orders, is_end: Mask, is_apart: bool = True) -> str:
    """The first tokens, the deeper coloured the longer the n-gram that answered, why on hover; then all reasons."""
    N = min(len(tokens), SHOWN)
    pieces = []
    for t in range(N):
        order = int(orders.found[t])
        remark = f"{name_of(order)}, {words_for(float(orders.bits[t]))}; {orders.reasons[int(orders.reason[t])]}"
        depth = DEEPEST * (order - 1) / max(orders.order - 1, 1)
        is_possible = math.isfinite(orders.bits[t])
        pieces.append(painted(tokens[t], f"rgba(0,114,178,{depth:.2f})", remark, is_possible=is_possible))
    return f"<div>{text_html(pieces, is_end[:N], is_apart)}{reasons_table(orders)}</div>"


def bars(orders: Orders, *, title: str) -> str:
    """The share of tokens each order answered, its mean bits written behind it."""
    found = shares(orders)
    told = [f"{100 * each.share:.0f} %{_cost(each)}" for each in found]

    def paint(axes: Any) -> None:
        places = range(len(found))
        drawn = axes.barh(places, [100 * each.share for each in found], height=0.66, color=plots.PALETTE[0])
        for bar, each in zip(drawn, found, strict=True):
            bar.set(alpha=0.25 + 0.7 * each.order / orders.order, clip_on=False)
        axes.bar_label(drawn, told, padding=4, fontsize=plots.FONT_SIZE)
        axes.set_yticks(places, [name_of(each.order) for each in found])
        axes.invert_yaxis()
        axes.set_xlim(0, max(100 * each.share for each in found) * 1.02 or 1.0)
        axes.set_xlabel("share of tokens, %")
        axes.grid(visible=False)

    description = "; ".join(f"{name_of(each.order)}: {words}" for each, words in zip(found, told, strict=True))
    right = 12 + max(map(plots.text_width, told))
    margins = plots.Margins(
        left=16 + max(plots.text_width(name_of(each.order)) for each in found), right=right, top=8
    )
    return plots.render(paint, title, description, margins, 58 + 26 * len(found))


def reasons_table(orders: Orders) -> str:
    """How often each order answered for which reason, as an HTML table."""
    rows = [
        (name_of(each.order), reason, f"{times:,}")
        for each in shares(orders)
        for reason, times in each.reasons.items()
    ]
    header = ("scored by", "reason", "tokens")
    return html_table(header, rows, label="Why no longer n-gram answered", look=READ, numbers=(2,))


def _cost(each: Answered) -> str:
    """What its tokens cost on average, behind a comma; nothing where there are none."""
    if not each.tokens:
        return ""
    impossible = f", {each.impossible:,} of them impossible" if each.impossible else ""
    return (f", at {each.bits:.1f} bits each" if each.impossible < each.tokens else "") + impossible
