"""Filters of next-token distributions: temperature, truncation and repetition control.

Every filter is a pure function of log-probabilities (K, V) -> (K, V). Removed tokens become -inf; the other values
are unchanged unless the function renormalizes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from chainrule.decoding.settings import Decoding, check_range
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Vocabulary

ROUNDING: Final = 1e-9  # relative tolerance in comparisons of probability mass with a threshold


def normalize(log_p: Floats) -> Floats:
    """Normalize each row in float64; raise if a row contains NaN or has no possible token.

    >>> np.exp(normalize(np.log([[1.0, 3.0]])))
    array([[0.25, 0.75]])
    """
    shifted = _shift_by_max(log_p)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def exclude(log_p: Floats, token: int, fallback: int) -> Floats:
    """Make one token impossible; if no other token of a row is possible, `fallback` gets probability 1.

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
    """Return p^{1/T}, renormalized; T = 0 selects the argmax, the lowest id among equals."""
    check_range("temperature", T)
    if T == 0:
        return normalize(top_k(log_p, 1))
    with np.errstate(over="ignore"):  # a tiny T sends all but the maximum to -inf, as intended
        return normalize(_shift_by_max(log_p) / T)


def top_k(log_p: Floats, k: int) -> Floats:
    """Keep the k most probable tokens of each row, the lowest ids among equals."""
    check_range("top_k", k)
    V = log_p.shape[-1]
    if k >= V:
        return log_p
    kth = np.partition(log_p, V - k, axis=-1)[:, V - k, None]
    return _keep_top(log_p, kth, np.full_like(kth, k, dtype=np.intp))


def top_indices(values: Floats, k: int) -> Ids:
    """Return the indices of the k largest values of (V,) in descending order, the lowest index among equals first.

    >>> top_indices(np.array([0.1, 0.4, 0.1, 0.4]), 3)
    array([1, 3, 0])
    """
    if k == 1 and len(values):
        return np.array([values.argmax()])
    threshold = np.partition(values, -k)[-k] if k < len(values) else -np.inf
    indices = np.flatnonzero(values >= threshold)
    return indices[np.argsort(-values[indices], kind="stable")][:k]


def top_p(log_p: Floats, p: float) -> Floats:
    """Keep the smallest set of tokens with probability mass p (nucleus sampling, Holtzman et al. 2020).

    Ties are broken in favour of the lowest ids.

    >>> np.exp(top_p(np.log([[0.5, 0.3, 0.2]]), 0.7)).round(3)
    array([[0.5, 0.3, 0. ]])
    """
    check_range("top_p", p)
    if p == 1:
        return log_p
    descending = -np.sort(-log_p, axis=-1)
    mass = np.cumsum(np.exp(normalize(descending)), axis=-1)
    below = np.sum(mass < p * (1 - ROUNDING), axis=-1, keepdims=True)
    k = np.minimum(below + 1, log_p.shape[-1])
    return _keep_top(log_p, np.take_along_axis(descending, k - 1, axis=-1), k)


def min_p(log_p: Floats, fraction: float) -> Floats:
    """Keep the tokens at least `fraction` times as probable as the most probable one (Nguyen et al. 2024)."""
    check_range("min_p", fraction)
    ratio = np.exp(_shift_by_max(log_p))
    return np.where(ratio >= fraction * (1 - ROUNDING), log_p, -np.inf)


HASH_MODULUS: Final = 2**127 - 1
HASH_BASE: Final = 0x2545F4914F6CDD1D9E3779B97F4A7C15


class TokenHistory:
    """Append-only token sequence with an index, so that filters need not scan it at each step.

    N-grams are looked up by a 127-bit rolling polynomial hash of their first n - 1 ids (Karp and Rabin 1987), so
    that neither time nor memory depends on n.

    Args:
        ids: Initial ids.
        n: Order of the n-grams to index, or None.

    """

    def __init__(self, ids: Sequence[int] = (), n: int | None = None) -> None:
        self._n = n
        self._parent: TokenHistory | None = None
        self._shared = 0  # number of leading ids, which the parent indexes
        self._ids: list[int] = []  # ids after the shared ones
        self._distinct: set[int] = set()  # distinct ids that the parent does not have
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
        """Return a history that continues this one and shares its index; this one must not change afterwards."""
        child = TokenHistory(n=self._n)
        child._parent, child._shared, child._hash = self, len(self), self._hash
        child._distinct_ids, child._distinct_count = self._distinct_ids.copy(), self._distinct_count
        return child

    def append(self, id_: int) -> None:
        """Append one id in constant time."""
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
        """Distinct ids of the text."""
        return self._distinct_ids[: self._distinct_count]

    def completions(self, n: int) -> Ids:
        """Return the ids that would repeat an n-gram of the text; n must be the indexed order."""
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


def repetition_penalty(log_p: Floats, histories: Sequence[TokenHistory], penalty: float) -> Floats:
    """Multiply log p of the tokens already in each row's text by `penalty`, then renormalize.

    A penalty above 1 discourages repetition: p becomes p^penalty. Keskar et al. 2019 (section 4.1) divide logits,
    whose sign is arbitrary; log-probabilities are never positive. A row without any possible token is unchanged.
    """
    check_range("repetition_penalty", penalty)
    out = normalize(log_p)
    with np.errstate(over="ignore"):
        for row, history in zip(out, histories, strict=True):
            row[history.distinct] *= penalty
    return normalize(_restore_empty_rows(out, log_p))


def no_repeat_ngram(log_p: Floats, histories: Sequence[TokenHistory], n: int) -> Floats:
    """Exclude each token that would repeat an n-gram of the row's text.

    A row in which no token remains possible is unchanged.
    """
    check_range("no_repeat_ngram", n)
    out = np.array(log_p, dtype=np.float64)
    for row, history in zip(out, histories, strict=True):
        row[history.completions(n)] = -np.inf
    return _restore_empty_rows(out, log_p)


def _keep_top(log_p: Floats, kth: Floats, k: Ids) -> Floats:
    """Keep the k largest values of each row, given the k-th largest; ties go to the lowest ids."""
    is_above, is_equal = log_p > kth, log_p == kth
    ties_kept = k - is_above.sum(axis=-1, keepdims=True)
    return np.where(is_above | (is_equal & (is_equal.cumsum(axis=-1) <= ties_kept)), log_p, -np.inf)


def _shift_by_max(log_p: Floats) -> Floats:
    """Return log(p / max p), exactly 0 at the maximum."""
    highest = np.max(log_p, axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise ConfigError(
            "every token has probability 0 here, or a probability is NaN; "
            "use a smoothed model, or retrain the model if its training diverged"
        )
    shifted: Floats = np.asarray(log_p, dtype=np.float64) - highest
    return shifted


def _restore_empty_rows(filtered: Floats, log_p: Floats) -> Floats:
    """Return the filtered rows, with the original where no token is left."""
    return np.where(np.isneginf(filtered).all(axis=-1, keepdims=True), log_p, filtered)


def apply_filters(
    log_p: Floats, histories: Sequence[TokenHistory], settings: Decoding, vocabulary: Vocabulary
) -> Floats:
    """Apply penalties, temperature and truncation, in this order, (K, V) -> (K, V).

    `histories` contains the ids of each row so far, including the prompt (see `make_history`). The result is
    normalized even if the model's scores are not. Tokens that are not predictable, such as `<s>`, are impossible,
    and so is `<unk>` with `unk="exclude"`; if no other token is possible, `</s>` gets probability 1.
    """
    allowed = mask_unpredictable(log_p, vocabulary)
    if settings.unk == "exclude" and vocabulary.unk is not None:
        allowed = exclude(allowed, vocabulary.unk, fallback=vocabulary.eos)
    normalized = allowed = normalize(allowed)
    if settings.repetition_penalty != 1:
        allowed = repetition_penalty(allowed, histories, settings.repetition_penalty)
    if settings.no_repeat_ngram is not None:
        allowed = no_repeat_ngram(allowed, histories, settings.no_repeat_ngram)
    T = 0.0 if settings.strategy == "greedy" else settings.temperature
    if T != 1:
        allowed = temperature(allowed, T)
    if settings.top_k is not None:
        allowed = top_k(allowed, settings.top_k)
    if settings.top_p is not None:
        allowed = top_p(allowed, settings.top_p)
    if settings.min_p is not None:
        allowed = min_p(allowed, settings.min_p)
    return allowed if allowed is normalized else normalize(allowed)


def make_history(words: Sequence[int], settings: Decoding) -> TokenHistory:
    """Return a token history with the indexes that the settings need."""
    is_used = settings.repetition_penalty != 1 or settings.no_repeat_ngram is not None
    return TokenHistory(words if is_used else (), settings.no_repeat_ngram)


NORMALIZATION_TOLERANCE: Final = 1e-6
"""Largest deviation from 1 of the sum of a distribution that is treated as float32 rounding."""


def next_token_distribution(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """Return log p of each possible next token, (K, V), corrected for rounding of the sum.

    Rows of unnormalized or quantized models, which do not sum to one, are unchanged.
    """
    log_p = mask_unpredictable(log_p, vocabulary)
    with np.errstate(over="ignore"):
        total = np.exp(log_p).sum(axis=1, keepdims=True)
    is_rounding = np.abs(total - 1) < NORMALIZATION_TOLERANCE
    return np.asarray(log_p - np.log(np.where(is_rounding, total, 1.0)))


def mask_unpredictable(log_p: Floats, vocabulary: Vocabulary) -> Floats:
    """Set unpredictable tokens to -inf; returns the input itself if they already are."""
    unpredictable = _unpredictable(vocabulary)
    if np.isneginf(log_p[:, unpredictable]).all():
        return log_p
    out = np.array(log_p)
    out[:, unpredictable] = -np.inf
    return out


@lru_cache(maxsize=8)
def _unpredictable(vocabulary: Vocabulary) -> Ids:
    """Return the ids that are never predicted; cached, because it scans the vocabulary."""
    return np.flatnonzero(~vocabulary.predictable)
