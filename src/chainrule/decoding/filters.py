"""What may be chosen next: pure functions on the rows of a distribution.

Lives here: functions of log-probabilities, (K, V) in and (K, V) out; what they remove becomes -inf, and the
rest keeps its value unless a function says that it renormalises. Not here: their order (shaping.py), drawing
from what is left (sample.py).
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from chainrule.decoding.ranges import check
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids

ROUNDING: Final = 1e-9  # a mass or a ratio below its bound by no more than this share of it has reached it


Text: TypeAlias = "Sequence[int] | TokenHistory"


def normalize(log_p: Floats) -> Floats:
    """Make each row sum to one, in float64; a row with NaN, or with nothing possible, is refused.

    >>> np.exp(normalize(np.log([[1.0, 3.0]])))
    array([[0.25, 0.75]])
    """
    shifted = _from_highest(log_p)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def exclude(log_p: Floats, token: int, fallback: int) -> Floats:
    """Make one token impossible; a row in which no other token is possible becomes `fallback` with probability 1.

    >>> np.exp(exclude(np.log([[0.5, 0.3, 0.2]]), 0, fallback=2)).round(3)
    array([[0. , 0.3, 0.2]])
    """
    if np.isneginf(log_p[:, token]).all():
        return log_p
    out = np.array(log_p)
    out[:, token] = -np.inf
    is_empty = np.isneginf(out).all(axis=-1) & (log_p[:, token] > -np.inf)
    out[is_empty, fallback] = 0.0
    return out


def temperature(log_p: Floats, T: float) -> Floats:
    """p^{1/T}, renormalised; T = 0 puts all on the argmax, the lowest id among equals."""
    check("temperature", T)
    if T == 0:
        return normalize(top_k(log_p, 1))
    with np.errstate(over="ignore"):  # a tiny T sends all but the highest to -inf, as it should
        return normalize(_from_highest(log_p) / T)


def top_k(log_p: Floats, k: int) -> Floats:
    """Keep the k most probable tokens of each row, the lowest ids among equals."""
    check("top_k", k)
    V = log_p.shape[-1]
    if k >= V:
        return log_p
    kth = np.partition(log_p, V - k, axis=-1)[:, V - k, None]
    return _keep(log_p, kth, np.full_like(kth, k, dtype=np.intp))


def top_p(log_p: Floats, p: float) -> Floats:
    """Keep the smallest set whose share of the row's mass reaches p, the lowest ids among equals.

    Nucleus sampling (Holtzman et al. 2020).

    >>> np.exp(top_p(np.log([[0.5, 0.3, 0.2]]), 0.7)).round(3)
    array([[0.5, 0.3, 0. ]])
    """
    check("top_p", p)
    if p == 1:
        return log_p
    falling = -np.sort(-log_p, axis=-1)
    mass = np.cumsum(np.exp(normalize(falling)), axis=-1)
    too_few = np.sum(mass < p * (1 - ROUNDING), axis=-1, keepdims=True)
    k = np.minimum(too_few + 1, log_p.shape[-1])
    return _keep(log_p, np.take_along_axis(falling, k - 1, axis=-1), k)


def min_p(log_p: Floats, fraction: float) -> Floats:
    """Keep the tokens at least `fraction` times as probable as the most probable one (Nguyen et al. 2024)."""
    check("min_p", fraction)
    ratio = np.exp(_from_highest(log_p))
    return np.where(ratio >= fraction * (1 - ROUNDING), log_p, -np.inf)


HASH_MODULUS: Final = 2**127 - 1
HASH_BASE: Final = 0x2545F4914F6CDD1D9E3779B97F4A7C15


class TokenHistory:
    """The ids of a text that grows, indexed so that the filters need not scan it at each step.

    The n-grams are looked up by a rolling polynomial hash of 127 bits of their first n - 1 ids (Karp and Rabin
    1987), so that neither time nor memory grows with n.

    Args:
        ids: The first ids.
        n: Order of the n-grams that are indexed; None: none are.

    """

    def __init__(self, ids: Sequence[int] = (), n: int | None = None) -> None:
        self._n = n
        self._parent: TokenHistory | None = None
        self._shared = 0  # ids that are indexed by the parent
        self._ids: list[int] = []  # those after them
        self._distinct: set[int] = set()  # those that the parent does not have
        self._distinct_ids = np.empty(16, dtype=np.intp)
        self._distinct_count = 0
        self._hash = 0  # of the last n - 1 ids
        self._weight = pow(HASH_BASE, n - 1, HASH_MODULUS) if n is not None else 0
        self._followers: dict[int, list[int]] = {}  # hash of n - 1 ids -> ids that came after them
        for id_ in ids:
            self.append(id_)

    def __len__(self) -> int:
        return self._shared + len(self._ids)

    def fork(self) -> "TokenHistory":
        """Return a text that begins with this one, which must not change any more; the index is shared."""
        child = TokenHistory(n=self._n)
        child._parent, child._shared, child._hash = self, len(self), self._hash
        child._distinct_ids, child._distinct_count = self._distinct_ids.copy(), self._distinct_count
        return child

    def append(self, id_: int) -> None:
        """Add one id, in time that does not depend on the length of the text."""
        if not self._contains(id_):
            self._distinct.add(id_)
            if self._distinct_count == len(self._distinct_ids):
                self._distinct_ids = np.concatenate([self._distinct_ids, np.empty_like(self._distinct_ids)])
            self._distinct_ids[self._distinct_count] = id_
            self._distinct_count += 1
        if self._n is None:
            return
        if len(self) >= self._n - 1:
            self._followers.setdefault(self._hash, []).append(id_)
        self._ids.append(id_)
        value = self._hash * HASH_BASE + id_ + 1
        if len(self) >= self._n:
            value -= (self._id(len(self) - self._n) + 1) * self._weight
        self._hash = value % HASH_MODULUS

    @property
    def distinct(self) -> Ids:
        """The distinct ids of the text."""
        return self._distinct_ids[: self._distinct_count]

    def completions(self, n: int) -> Ids:
        """The ids that would complete an n-gram of the text; n must be the order that is indexed."""
        if n != self._n:
            raise ValueError(f"the n-grams of order {self._n} are indexed, not those of order {n}")
        if len(self) < n - 1:
            return np.empty(0, dtype=np.intp)
        followers = self._followers.get(self._hash, [])
        if self._parent is not None:
            followers = self._parent._followers.get(self._hash, []) + followers
        return np.array(followers, dtype=np.intp)

    def _contains(self, id_: int) -> bool:
        return id_ in self._distinct or (self._parent is not None and id_ in self._parent._distinct)

    def _id(self, position: int) -> int:
        if position >= self._shared:
            return self._ids[position - self._shared]
        assert self._parent is not None
        return self._parent._ids[position]


def repetition_penalty(log_p: Floats, seen: Sequence[Text], penalty: float) -> Floats:
    """Multiply log p of the tokens already in the row's text by `penalty`, then renormalise.

    A penalty above 1 discourages. Keskar et al. 2019 (section 4.1) divide logits, whose sign is arbitrary;
    log-probabilities are never positive, so that here one rule does for all: p becomes p^penalty. A row left
    with nothing stays as it was.
    """
    check("repetition_penalty", penalty)
    out = normalize(log_p)
    with np.errstate(over="ignore"):
        for row, ids in zip(out, seen, strict=True):
            row[ids.distinct if isinstance(ids, TokenHistory) else np.unique(np.asarray(ids, dtype=np.intp))] *= (
                penalty
            )
    return normalize(_unless_impossible(out, log_p))


def no_repeat_ngram(log_p: Floats, history: Sequence[Text], n: int) -> Floats:
    """Make impossible each token that would complete an n-gram already in the row's history.

    A row left with nothing stays as it was.
    """
    check("no_repeat_ngram", n)
    out = np.array(log_p, dtype=np.float64)
    for row, ids in zip(out, history, strict=True):
        indexed = ids.completions(n) if isinstance(ids, TokenHistory) else None
        row[indexed if indexed is not None else _completions(np.asarray(ids, dtype=np.intp), n)] = -np.inf
    return _unless_impossible(out, log_p)


def _completions(ids: Ids, n: int) -> Ids:
    """The tokens that followed each earlier occurrence of the last n-1 ids."""
    if len(ids) < n:
        return ids[:0]
    ngrams = np.lib.stride_tricks.sliding_window_view(ids, n)  # (len - n + 1, n)
    is_repeat = (ngrams[:, :-1] == ids[len(ids) - n + 1 :]).all(axis=-1)
    completions: Ids = ngrams[is_repeat, -1]
    return completions


def _keep(log_p: Floats, kth: Floats, k: Ids) -> Floats:
    """Keep k tokens a row, given its k-th largest value: all above it, then of its equals the lowest ids."""
    above, level = log_p > kth, log_p == kth
    room = k - above.sum(axis=-1, keepdims=True)
    return np.where(above | (level & (level.cumsum(axis=-1) <= room)), log_p, -np.inf)


def _from_highest(log_p: Floats) -> Floats:
    """Log of p / max p, exactly 0 at the maximum."""
    highest = np.max(log_p, axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise ConfigError(
            "the model leaves no token possible here, or its probabilities are not numbers; "
            "choose a smoothed model that was trained without divergence"
        )
    shifted: Floats = np.asarray(log_p, dtype=np.float64) - highest
    return shifted


def _unless_impossible(filtered: Floats, log_p: Floats) -> Floats:
    """The filtered rows, save those in which nothing is left."""
    return np.where(np.isneginf(filtered).all(axis=-1, keepdims=True), log_p, filtered)
