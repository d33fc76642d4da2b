"""Where heads look: how far back, how evenly, at which tokens.

Lives here: the record of one stretch of attention and what is counted over many of them. Not here: the weights
themselves (neural/attending.py), their scores (score_law.py), pictures (attention_map.py). Letters: H heads,
T tokens that look, S tokens that are looked at, d the width of a head.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from chainrule.lm import Floats, Ids, Mask

Kind = Literal["self", "encoder", "cross"]
CLEAR: Final = 0.5  # share of its weight from which a head is named after one token
EVEN: Final = 0.9  # part of the possible entropy from which it is called broad
ITSELF, PREVIOUS, FIRST = "own token", "previous token", "first token"
BROAD, MIXED = "broad", "mixed"
SHARES: Final = {PREVIOUS: "previous", FIRST: "first", ITSELF: "itself"}
ON: Final = {PREVIOUS: "the token before", FIRST: "the first token", ITSELF: "the token that looks"}
DOES: Final = {
    PREVIOUS: ("looks at the token before", "look at the token before"),
    FIRST: ("rests on the first token", "rest on the first token"),
    ITSELF: ("looks at its own token", "look at their own token"),
    BROAD: ("spreads its weight nearly evenly", "spread their weight nearly evenly"),
}
"""What one head of a name does, and what several do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """Where the heads of one layer looked in one stretch of text, and what they compared."""

    kind: Kind = "self"  # at the tokens before, at all of a text, at another text
    layer: int  # from 0
    weights: Floats  # (H, T, S)  a row sums to one, or to zero where nothing can be seen
    seen: Mask  # (T, S)  what may be looked at
    queries_at: Ids  # (T,)  places in the text
    keys_at: Ids  # (S,)
    first: int = 0  # place of the first token since the model began anew
    new_keys: tuple[int, int]  # those of the S keys, from and to, that no earlier stretch has counted
    queries: Floats | None = None  # (H, T, d)  None where the score is no product of the two
    keys: Floats | None = None  # (H, S, d)
    divisor: float = 1.0  # the score is qᵀk over this


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How one head looks, the mean over the tokens that look; they have two or more tokens to choose from."""

    layer: int  # from 0
    head: int  # from 0
    distance: float  # tokens: Σ_l α_{t,l} |t − l|
    entropy: float  # bits: −Σ_l α log2 α
    possible: float  # bits: log2 of how many tokens can be seen
    itself: float  # weight on the token that looks
    previous: float  # on the one before
    first: float  # on the first, where that stands two or more back
    by_distance: Floats  # (K,) mean weight on a token k back, of those that can be seen
    pairs: Floats  # (K,) how many were seen at that distance

    @property
    def evenness(self) -> float:
        """The entropy as part of the possible, 0 to 1; 0 where there is no choice."""
        return self.entropy / self.possible if self.possible > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Its numbers but for the curve, layers and heads counted from 1."""
        numbers = ("distance", "entropy", "possible", "evenness", "itself", "previous", "first")
        found = {name: getattr(self, name) for name in numbers}
        return {"layer": self.layer + 1, "head": self.head + 1, "name": self.name, **found}

    @property
    def name(self) -> str:
        """What it looks at in words, where that is clear."""
        if self.evenness >= EVEN:
            return BROAD
        shares = {PREVIOUS: self.previous, FIRST: self.first, ITSELF: self.itself}
        best = max(shares, key=shares.__getitem__)
        return best if shares[best] >= CLEAR else MIXED


@dataclass(frozen=True, slots=True)
class Sums:
    """What is added up over stretches; of the axis of two, tokens with a choice come first, then all that look.

    The five quantities are distance, entropy, and the weights on the token itself, the previous and the first.
    """

    totals: Floats  # (2, 5, H)
    counts: Floats  # (2, 5)
    possible: Floats  # (2,)  bits
    weights: Floats  # (H, K)  by distance
    pairs: Floats  # (K,)
    even: Floats  # (K,)  the weights that equal shares would give

    def __add__(self, other: "Sums") -> "Sums":
        K = max(len(self.pairs), len(other.pairs))
        curves = ((self.weights, other.weights), (self.pairs, other.pairs), (self.even, other.even))
        longer = [_widened(one, K) + _widened(two, K) for one, two in curves]
        return Sums(self.totals + other.totals, self.counts + other.counts, self.possible + other.possible, *longer)


def count(part: Attended) -> Sums:
    """The sums of one stretch."""
    ahead = part.queries_at[:, None] - part.keys_at  # (T, S)  how far back
    gap, seen = np.abs(ahead), part.seen
    visible = seen.sum(axis=1)  # (T,)
    targets = (seen & (ahead == 0), seen & (ahead == 1), seen & (part.keys_at == part.first) & (gap >= 2))
    rows = np.stack(
        [
            np.einsum("hts,ts->ht", part.weights, gap, optimize=True),
            entropy(part.weights),
            *(np.einsum("hts,ts->ht", part.weights, target, optimize=True) for target in targets),
        ]
    ).astype(np.float64)  # (5, H, T)
    there = np.stack([visible > 0] * 2 + [target.any(axis=1) for target in targets])  # (5, T)
    chosen = np.stack([visible > 1, visible > 0])  # (2, T)
    counted = (chosen[:, None] & there).astype(np.float64)  # (2, 5, T)
    bits = np.log2(np.maximum(visible, 1))
    return Sums(
        np.einsum("qht,cqt->cqh", rows, counted), counted.sum(axis=2), chosen @ bits, *_curves(part, gap, visible)
    )


def heads(sums: Sums, layer: int) -> list[Head]:
    """The means of a layer, head by head; 0 where nothing was counted."""
    which = 0 if sums.counts[0, 0] else 1
    counts = sums.counts[which]
    means = sums.totals[which] / np.maximum(counts, 1)[:, None]  # (5, H)
    possible = float(sums.possible[which] / max(counts[0], 1))
    curves = sums.weights / np.maximum(sums.pairs, 1)
    return [
        Head(
            layer=layer,
            head=h,
            distance=float(means[0, h]),
            entropy=float(means[1, h]),
            possible=possible,
            itself=float(means[2, h]),
            previous=float(means[3, h]),
            first=float(means[4, h]),
            by_distance=curves[h],
            pairs=sums.pairs,
        )
        for h in range(len(curves))
    ]


def even_curve(sums: Sums) -> Floats:
    """(K,) the mean weight at each distance if every token looked at all it can see alike."""
    curve: Floats = sums.even / np.maximum(sums.pairs, 1)
    return curve


def summarize(parts: Iterable[Attended]) -> list[Head]:
    """The heads of all layers that occur, in their order."""
    total: dict[int, Sums] = {}
    for part in parts:
        found = count(part)
        total[part.layer] = total[part.layer] + found if part.layer in total else found
    return [head for layer in sorted(total) for head in heads(total[layer], layer)]


def entropy(weights: Floats) -> Floats:
    """−Σ α log2 α in bits over the last axis: (…, S) -> (…).

    >>> float(entropy(np.array([0.5, 0.25, 0.25, 0.0])))
    1.5
    """
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    # Of one weight of 1 it is 0, and not −0.
    return np.maximum(-(weights * logs).sum(axis=-1), 0.0)  # type: ignore[no-any-return]


def diagonal_distance(weights: Floats) -> Floats:
    """How far from the diagonal weights lie, in tokens of the source, the mean over the target: (…, T, S) -> (…).

    The middle of target token t of T belongs to the place (t + ½) S / T of the source.
    """
    T, S = weights.shape[-2:]
    across = np.abs(np.arange(S) + 0.5 - (np.arange(T) + 0.5)[:, None] * S / T)  # (T, S)
    found: Floats = (weights * across).sum(axis=-1).mean(axis=-1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """How one head looks at another text, the mean over the tokens that look."""

    layer: int  # from 0
    head: int  # from 0
    entropy: float  # bits
    possible: float  # bits: log2 of the length of that text
    strongest: float  # weight on the token most looked at
    diagonal: float  # tokens of that text between the weights and the diagonal

    def as_json(self) -> dict[str, Any]:
        """Its numbers, layers and heads counted from 1."""
        return asdict(self) | {"layer": self.layer + 1, "head": self.head + 1}


def summarize_across(pairs: Sequence[Floats]) -> list[Across]:
    """The heads over several pairs of texts, each (L, H, T, S); L and H are the same in all."""
    tokens = sum(pair.shape[2] for pair in pairs)
    total = sum(
        np.stack(
            [
                entropy(pair).sum(axis=-1),
                np.full(pair.shape[:2], pair.shape[2] * np.log2(pair.shape[3])),
                pair.max(axis=-1).sum(axis=-1),
                diagonal_distance(pair) * pair.shape[2],
            ]
        )
        for pair in pairs
    )  # (4, L, H)
    means = np.moveaxis(np.asarray(total) / tokens, 0, -1)  # (L, H, 4)
    names = ("entropy", "possible", "strongest", "diagonal")
    return [
        Across(layer=k, head=h, **dict(zip(names, means[k, h].tolist(), strict=True)))
        for k, h in np.ndindex(means.shape[:2])
    ]


def telling(found: Sequence[Head], most: int) -> list[Head]:
    """The heads best worth a large picture: the clearest of each name, broad ones last, then the least even."""
    order = (PREVIOUS, FIRST, ITSELF, MIXED, BROAD)
    clearest: dict[str, Head] = {}
    for head in sorted(found, key=lambda head: head.evenness):
        clearest.setdefault(head.name, head)
    chosen = [clearest[name] for name in order if name in clearest]
    rest = [head for head in sorted(found, key=lambda head: head.evenness) if head not in chosen]
    return (chosen + rest)[:most]


def in_words(found: Sequence[Head]) -> list[str]:
    """What heads do, in clauses without name and full stop, the most telling first."""
    distance, bits, possible = (
        float(np.mean([getattr(head, name) for head in found])) for name in ("distance", "entropy", "possible")
    )
    even = f"{bits:.1f} bits of entropy where equal shares would have {possible:.1f}"
    if len(found) == 1:
        does = f"{DOES[found[0].name][0]}; it " if found[0].name in DOES else ""
        return [f"its attention {does}looks {distance:.1f} tokens back on average, with {even}"]
    times = {name: sum(head.name == name for head in found) for name in DOES}
    clear = [f"{number} {DOES[name][number > 1]}" for name, number in times.items() if number]
    listed = f"{', '.join(clear[:-1])} and {clear[-1]}" if len(clear) > 1 else "".join(clear)
    kinds = f"of its {len(found)} heads {listed or 'none looks at one token in particular'}"
    words = [f"{kinds}; on average a head looks {distance:.1f} tokens back, with {even}"]
    for head in telling(found, 2):
        if head.name in SHARES:
            share = getattr(head, SHARES[head.name])
            words.append(
                f"head {head.head + 1} of layer {head.layer + 1} has {100 * share:.0f} % of its weight on "
                f"{ON[head.name]}"
            )
    return words


def across_in_words(found: Sequence[Across]) -> list[str]:
    """How a translator looks at its source, as sentences."""
    names = ("strongest", "entropy", "possible", "diagonal")
    strongest, bits, possible, away = (float(np.mean([getattr(each, name) for each in found])) for name in names)
    words = [
        f"Each token of a translation puts {100 * strongest:.0f} % of its weight on one token of the source, with "
        f"{bits:.1f} bits of entropy where equal shares would have {possible:.1f}.",
        f"Its weights lie {away:.1f} tokens of the source away from the diagonal.",
    ]
    if len(found) > 1:
        best = max(found, key=lambda each: each.strongest)
        where = f"Head {best.head + 1} of layer {best.layer + 1}"
        words.append(f"{where} is the sharpest, {100 * best.strongest:.0f} % of its weight is on one token.")
    return words


def _curves(part: Attended, gap: Ids, visible: Ids) -> tuple[Floats, Floats, Floats]:
    """Sums by distance: of weights (H, K), of pairs (K,), of equal shares (K,)."""
    at = gap[part.seen]
    K = int(at.max()) + 1 if len(at) else 1
    shares = np.broadcast_to(1 / np.maximum(visible, 1)[:, None], gap.shape)[part.seen]
    by_head = [np.bincount(at, alpha[part.seen], minlength=K) for alpha in part.weights]
    pairs: Floats = np.bincount(at, minlength=K).astype(np.float64)
    even: Floats = np.bincount(at, shares, minlength=K).astype(np.float64)
    return np.stack(by_head), pairs, even


def _widened(values: Floats, K: int) -> Floats:
    """Zeros behind the last axis up to a length of K."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, K - values.shape[-1])])
