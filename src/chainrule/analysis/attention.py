"""Statistics of attention weights: distance, entropy, and weight on particular tokens.

H heads, T query tokens, S key tokens, d head dimension.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from chainrule.lm import Floats, Ids, Mask

Kind = Literal["self", "encoder", "cross"]
MIN_SHARE: Final = 0.5  # weight share from which a head is named after one token
MIN_EVENNESS: Final = 0.9  # fraction of the maximum entropy from which a head is called broad
ITSELF, PREVIOUS, FIRST = "own token", "previous token", "first token"
BROAD, MIXED = "broad", "mixed"
SHARE_FIELDS: Final = {PREVIOUS: "previous", FIRST: "first", ITSELF: "itself"}
TARGET_NAMES: Final = {PREVIOUS: "the previous token", FIRST: "the first token", ITSELF: "the current token"}
DESCRIPTIONS: Final = {
    PREVIOUS: ("attends to the previous token", "attend to the previous token"),
    FIRST: ("attends to the first token", "attend to the first token"),
    ITSELF: ("attends to the current token", "attend to the current token"),
    BROAD: ("has nearly uniform weights", "have nearly uniform weights"),
}
"""Predicates for one head of a kind and for several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRecord:
    """Attention weights of one layer over one segment of text, with the queries and keys."""

    kind: Kind = "self"  # causal, bidirectional, or cross-attention
    layer: int  # from 0
    weights: Floats  # (H, T, S)  a row sums to 1, or to 0 if all keys are masked
    mask: Mask  # (T, S)  True: the key is visible to the query
    query_positions: Ids  # (T,)  positions in the text
    key_positions: Ids  # (S,)
    first: int = 0  # position of the first token since the context was reset
    new_keys: tuple[int, int]  # range of keys that no earlier segment has counted
    queries: Floats | None = None  # (H, T, d)  None if the score is not a dot product
    keys: Floats | None = None  # (H, S, d)
    divisor: float = 1.0  # the score is qᵀk / divisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Attention statistics of one head, averaged over the queries that see at least two tokens."""

    layer: int  # from 0
    head: int  # from 0
    distance: float  # tokens: Σ_l α_{t,l} |t − l|
    entropy: float  # bits: −Σ_l α log2 α
    possible: float  # bits: log2 of the number of visible tokens
    itself: float  # weight on the current token
    previous: float  # weight on the previous token
    first: float  # weight on the first token, if it is two or more back
    by_distance: Floats  # (K,) mean weight on a visible token k positions back
    pairs: Floats  # (K,) number of visible pairs at that distance

    @property
    def evenness(self) -> float:
        """Entropy divided by its maximum, 0 to 1; 0 if only one token is visible."""
        return self.entropy / self.possible if self.possible > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the scalar statistics; layers and heads are counted from 1."""
        fields = ("distance", "entropy", "possible", "evenness", "itself", "previous", "first")
        values = {name: getattr(self, name) for name in fields}
        return {"layer": self.layer + 1, "head": self.head + 1, "name": self.name, **values}

    @property
    def name(self) -> str:
        """The kind of head: the token it mostly attends to, "broad" or "mixed"."""
        if self.evenness >= MIN_EVENNESS:
            return BROAD
        shares = {PREVIOUS: self.previous, FIRST: self.first, ITSELF: self.itself}
        best = max(shares, key=shares.__getitem__)
        return best if shares[best] >= MIN_SHARE else MIXED


@dataclass(frozen=True, slots=True)
class AttentionSums:
    """Sums over segments; index 0 of the leading axis covers queries with a choice, index 1 all queries.

    The five quantities are distance, entropy, and the weights on the current, the previous and the first token.
    """

    totals: Floats  # (2, 5, H)
    counts: Floats  # (2, 5)
    possible: Floats  # (2,)  bits
    weights: Floats  # (H, K)  by distance
    pairs: Floats  # (K,)
    even: Floats  # (K,)  uniform weights

    def __add__(self, other: "AttentionSums") -> "AttentionSums":
        K = max(len(self.pairs), len(other.pairs))
        curves = ((self.weights, other.weights), (self.pairs, other.pairs), (self.even, other.even))
        padded = [_pad_last_axis(a, K) + _pad_last_axis(b, K) for a, b in curves]
        return AttentionSums(
            self.totals + other.totals, self.counts + other.counts, self.possible + other.possible, *padded
        )


def accumulate(record: AttentionRecord) -> AttentionSums:
    """Return the sums of one segment."""
    offset = record.query_positions[:, None] - record.key_positions  # (T, S)  tokens back
    distance, mask = np.abs(offset), record.mask
    visible = mask.sum(axis=1)  # (T,)
    targets = (
        mask & (offset == 0),
        mask & (offset == 1),
        mask & (record.key_positions == record.first) & (distance >= 2),
    )
    rows = np.stack(
        [
            np.einsum("hts,ts->ht", record.weights, distance, optimize=True),
            entropy(record.weights),
            *(np.einsum("hts,ts->ht", record.weights, target, optimize=True) for target in targets),
        ]
    ).astype(np.float64)  # (5, H, T)
    is_defined = np.stack([visible > 0] * 2 + [target.any(axis=1) for target in targets])  # (5, T)
    is_counted = np.stack([visible > 1, visible > 0])  # (2, T)
    counted = (is_counted[:, None] & is_defined).astype(np.float64)  # (2, 5, T)
    bits = np.log2(np.maximum(visible, 1))
    return AttentionSums(
        np.einsum("qht,cqt->cqh", rows, counted),
        counted.sum(axis=2),
        is_counted @ bits,
        *_curves(record, distance, visible),
    )


def head_statistics(sums: AttentionSums, layer: int) -> list[Head]:
    """Return the mean statistics of each head of a layer; 0 if nothing was counted."""
    row = 0 if sums.counts[0, 0] else 1
    counts = sums.counts[row]
    means = sums.totals[row] / np.maximum(counts, 1)[:, None]  # (5, H)
    possible = float(sums.possible[row] / max(counts[0], 1))
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


def uniform_curve(sums: AttentionSums) -> Floats:
    """Return the mean weight at each distance, (K,), under uniform attention."""
    curve: Floats = sums.even / np.maximum(sums.pairs, 1)
    return curve


def summarize(records: Iterable[AttentionRecord]) -> list[Head]:
    """Return the statistics of every head, ordered by layer."""
    total: dict[int, AttentionSums] = {}
    for record in records:
        sums = accumulate(record)
        total[record.layer] = total[record.layer] + sums if record.layer in total else sums
    return [head for layer in sorted(total) for head in head_statistics(total[layer], layer)]


def entropy(weights: Floats) -> Floats:
    """−Σ α log2 α in bits over the last axis: (…, S) -> (…).

    >>> float(entropy(np.array([0.5, 0.25, 0.25, 0.0])))
    1.5
    """
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    # Avoid −0 when a single weight is 1.
    return np.maximum(-(weights * logs).sum(axis=-1), 0.0)  # type: ignore[no-any-return]


def diagonal_distance(weights: Floats) -> Floats:
    """Return the mean distance of the weights from the diagonal, in source tokens: (…, T, S) -> (…).

    Target token t of T corresponds to source position (t + ½) S / T.
    """
    T, S = weights.shape[-2:]
    offset = np.abs(np.arange(S) + 0.5 - (np.arange(T) + 0.5)[:, None] * S / T)  # (T, S)
    distance: Floats = (weights * offset).sum(axis=-1).mean(axis=-1)
    return distance


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossHead:
    """Cross-attention statistics of one head, averaged over the target tokens."""

    layer: int  # from 0
    head: int  # from 0
    entropy: float  # bits
    possible: float  # bits: log2 of the source length
    strongest: float  # largest weight
    diagonal: float  # distance from the diagonal, in source tokens

    def as_json(self) -> dict[str, Any]:
        """Return the statistics; layers and heads are counted from 1."""
        return asdict(self) | {"layer": self.layer + 1, "head": self.head + 1}


def summarize_cross(pairs: Sequence[Floats]) -> list[CrossHead]:
    """Return the statistics of every head over several pairs, each (L, H, T, S) with equal L and H."""
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
        CrossHead(layer=k, head=h, **dict(zip(names, means[k, h].tolist(), strict=True)))
        for k, h in np.ndindex(means.shape[:2])
    ]


def select_representative(heads: Sequence[Head], most: int) -> list[Head]:
    """Return at most `most` heads to plot: the clearest of each kind, broad ones last, then by evenness."""
    order = (PREVIOUS, FIRST, ITSELF, MIXED, BROAD)
    clearest: dict[str, Head] = {}
    for head in sorted(heads, key=lambda head: head.evenness):
        clearest.setdefault(head.name, head)
    chosen = [clearest[name] for name in order if name in clearest]
    rest = [head for head in sorted(heads, key=lambda head: head.evenness) if head not in chosen]
    return (chosen + rest)[:most]


def describe(heads: Sequence[Head]) -> list[str]:
    """Describe the heads in clauses without model name and full stop, most important first."""
    distance, bits, possible = (
        float(np.mean([getattr(head, name) for head in heads])) for name in ("distance", "entropy", "possible")
    )
    statistics = f"{distance:.1f} tokens and a mean entropy of {bits:.1f} bits (uniform attention: {possible:.1f})"
    if len(heads) == 1:
        kind = f"{DESCRIPTIONS[heads[0].name][0]}; it " if heads[0].name in DESCRIPTIONS else ""
        return [f"its head {kind}has a mean distance of {statistics}"]
    counts = {name: sum(head.name == name for head in heads) for name in DESCRIPTIONS}
    clear = [f"{number} {DESCRIPTIONS[name][number > 1]}" for name, number in counts.items() if number]
    listed = f"{', '.join(clear[:-1])} and {clear[-1]}" if len(clear) > 1 else "".join(clear)
    summary = f"of its {len(heads)} heads {listed or 'none focuses on one particular token'}"
    clauses = [f"{summary}; the heads have a mean distance of {statistics}"]
    for head in select_representative(heads, 2):
        if head.name in SHARE_FIELDS:
            share = getattr(head, SHARE_FIELDS[head.name])
            clauses.append(
                f"head {head.head + 1} of layer {head.layer + 1} puts {100 * share:.0f} % of its weight on "
                f"{TARGET_NAMES[head.name]}"
            )
    return clauses


def describe_cross(heads: Sequence[CrossHead]) -> list[str]:
    """Describe the cross-attention of a translation model in sentences."""
    names = ("strongest", "entropy", "possible", "diagonal")
    strongest, bits, possible, distance = (
        float(np.mean([getattr(head, name) for head in heads])) for name in names
    )
    sentences = [
        f"On average a target token puts {100 * strongest:.0f} % of its attention on one source token, with an "
        f"entropy of {bits:.1f} bits (uniform attention: {possible:.1f}).",
        f"The mean distance of the weights from the diagonal is {distance:.1f} source tokens.",
    ]
    if len(heads) > 1:
        best = max(heads, key=lambda head: head.strongest)
        where = f"Head {best.head + 1} of layer {best.layer + 1}"
        sentences.append(f"{where} is the sharpest: {100 * best.strongest:.0f} % of its weight is on one token.")
    return sentences


def _curves(record: AttentionRecord, distance: Ids, visible: Ids) -> tuple[Floats, Floats, Floats]:
    """Return sums by distance: weights (H, K), pairs (K,), uniform weights (K,)."""
    distances = distance[record.mask]
    K = int(distances.max()) + 1 if len(distances) else 1
    uniform = np.broadcast_to(1 / np.maximum(visible, 1)[:, None], distance.shape)[record.mask]
    by_head = [np.bincount(distances, alpha[record.mask], minlength=K) for alpha in record.weights]
    pairs: Floats = np.bincount(distances, minlength=K).astype(np.float64)
    even: Floats = np.bincount(distances, uniform, minlength=K).astype(np.float64)
    return np.stack(by_head), pairs, even


def _pad_last_axis(values: Floats, K: int) -> Floats:
    """Zero-pad the last axis to length K."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, K - values.shape[-1])])
