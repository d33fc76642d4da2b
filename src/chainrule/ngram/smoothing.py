"""Smoothing methods: estimate the back-off tables of a model from its counts.

The counts have one table per order. An n-gram is identified by its row in the table of its order; a row refers to
its context w_1…w_{n−1} and its suffix w_2…w_n by their rows in the table of the next lower order.

The interpolated methods have the form p(w | h) = α(h, w) + γ(h) p(w | h′) with γ(h) = 1 − Σ_w α(h, w), where h′ is
h without its first word and the uniform distribution is the order below 1; one function per method returns α for
all n-grams of one order. Katz and stupid backoff give p(w | h) directly. c is the count and c(h) = Σ_w c(h, w).
"""

import warnings
from dataclasses import dataclass

import numpy as np

from chainrule.errors import ChainruleWarning
from chainrule.lm import Context, Floats, Ids, Mask, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find_ngrams, take_or_default
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Level:
    """All n-grams of one order, sorted by context, then by word."""

    context: Ids  # (M,)  row of w_1…w_{n−1} in the next lower order; 0 (the empty context) at order 1
    word: Ids  # (M,)  w_n
    suffix: Ids  # (M,)  row of w_2…w_n in the next lower order; 0 at order 1
    count: Ids  # (M,)  occurrences in the text
    begins: Mask  # (M,)  True if w_1 is <s>, so that no word can precede the n-gram

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all orders; `levels[k]` has order k + 1. At order 1 every id has a row and the row is the id."""

    levels: tuple[Level, ...]
    vocabulary: Vocabulary

    @property
    def order(self) -> int:
        """Highest order n."""
        return len(self.levels)

    def up_to(self, order: int) -> "Counts":
        """Return the counts of orders 1 to `order`."""
        return Counts(self.levels[:order], self.vocabulary)


def insert_bos(ids: Ids, vocabulary: Vocabulary, context: Context) -> Ids:
    """Insert `<s>` before every line, or once before a stream: (N,) -> (N + L,)."""
    if context == "stream":
        return np.concatenate([[vocabulary.bos], ids])
    ends = np.flatnonzero(ids == vocabulary.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.insert(ids, starts, vocabulary.bos)


def copy_eos_contexts_to_bos(counts: Counts) -> Counts:
    """Return the counts of a stream with c(<s> w_2…w_n) set to c(</s> w_2…w_n): a text starts like a line.

    Needed for smoothing methods without lower-order estimates (add-k), where backing off from a `<s>` context would
    give the uniform distribution.
    """
    vocabulary, first = counts.vocabulary, counts.levels[0]
    levels = [first]
    new_row = np.arange(len(first))  # new row of each n-gram of the next lower order
    copy_row = np.full(len(first), -1)  # row of its copy that begins with <s>; −1 if it does not begin with </s>
    copy_row[vocabulary.eos] = vocabulary.bos
    for level in counts.levels[1:]:
        retained = np.flatnonzero(~level.begins)
        copied = np.flatnonzero(copy_row[level.context] >= 0)
        rows = np.concatenate([retained, copied])
        context = np.concatenate([new_row[level.context[retained]], copy_row[level.context[copied]]])
        order = np.argsort(context * vocabulary.size + level.word[rows])
        rows, begins = rows[order], order >= len(retained)
        suffix = new_row[level.suffix[rows]]
        levels.append(Level(context[order], level.word[rows], suffix, level.count[rows], begins))
        new_row, copy_row = np.full(len(level), -1), np.full(len(level), -1)
        new_row[rows[~begins]] = np.flatnonzero(~begins)
        copy_row[rows[begins]] = np.flatnonzero(begins)
    return Counts(tuple(levels), vocabulary)


FALLBACK = (0.5, 1.0, 1.5)
"""Default D1, D2, D3+ for texts whose counts of counts do not give valid discounts."""
EPSILON = 1e-12
"""Probability mass below this value is treated as rounding error."""
BUCKETS = 24
"""Jelinek–Mercer: buckets of c(h) by powers of two: 1, 2–3, 4–7, …"""
PSEUDO_COUNT = 0.01
"""Jelinek–Mercer: added to the expected counts of both outcomes, so that no λ becomes 0 or 1."""


@dataclass(frozen=True, slots=True)
class OrderCounts:
    """Raw or continuation counts of the n-grams of one order."""

    n: int  # order
    context: Ids  # (M,)  row of h in the next lower order
    count: Ids  # (M,)  c(h, w)
    begins: Mask  # (M,)  h begins with <s>
    contexts: int  # C, number of rows of the next lower order

    @property
    def total(self) -> Floats:
        """max(c(h), 1) of each n-gram's context, (M,)."""
        return np.asarray(np.maximum(self.context_totals, 1)[self.context])

    @property
    def context_totals(self) -> Floats:
        """c(h) of every context, (C,)."""
        return np.bincount(self.context, self.count, self.contexts).astype(np.float64)

    @property
    def types(self) -> Floats:
        """N₁₊(h •), the number of distinct words after each n-gram's context, (M,)."""
        return np.asarray(np.bincount(self.context, self.count > 0, self.contexts)[self.context])


def raw_counts(counts: Counts) -> list[OrderCounts]:
    """Return the raw counts of every order."""
    return [_order_counts(counts, k, level.count) for k, level in enumerate(counts.levels)]


def kneser_ney_counts(counts: Counts) -> list[OrderCounts]:
    """Return raw counts for the highest order and continuation counts for the lower orders."""
    above = [*counts.levels[1:], None]
    return [_order_counts(counts, k, continuation_counts(level, above[k])) for k, level in enumerate(counts.levels)]


def _order_counts(counts: Counts, k: int, count: Ids) -> OrderCounts:
    level = counts.levels[k]
    return OrderCounts(k + 1, level.context, count, level.begins, len(counts.levels[k - 1]) if k else 1)


def continuation_counts(level: Level, above: Level | None) -> Ids:
    """Return N₁₊(• w_1…w_n), the number of distinct words before each n-gram (Kneser & Ney 1995).

    The raw count is used for the top order and for n-grams that begin with `<s>`.
    """
    if above is None:
        return level.count
    return np.where(level.begins, level.count, np.bincount(above.suffix, minlength=len(level)))


def estimate(counts: Counts, config: Config, weights: list[Floats] | None = None) -> BackoffTables:
    """Estimate the tables; `weights` are the λ of Jelinek–Mercer, one array of contexts for each order."""
    masks = [level.count > cut_off for level, cut_off in zip(counts.levels, config.cut_offs(), strict=True)]
    masks[0] = np.ones(counts.vocabulary.size, dtype=bool)  # unigrams are never pruned
    if config.smoothing == "katz":
        return _to_tables(counts, *katz(counts, masks), masks)
    if config.smoothing == "stupid-backoff":
        prob = [maximum_likelihood(order) for order in raw_counts(counts)]
        backoff = [np.full(len(level), config.backoff) for level in counts.levels]
        return _to_tables(counts, prob, backoff, masks, missing=config.backoff)
    is_kneser_ney = config.smoothing in ("kneser-ney", "modified-kneser-ney")
    orders = kneser_ney_counts(counts) if is_kneser_ney else raw_counts(counts)
    alphas = [_discounted(order, config, counts, weights) for order in orders]
    return _to_tables(counts, *_interpolate(counts, alphas, masks), masks)


def _discounted(order: OrderCounts, config: Config, counts: Counts, weights: list[Floats] | None) -> Floats:
    """Return the discounted probabilities α(h, w) of one order."""
    D = config.discount
    match config.smoothing:
        case "laplace" | "add-k":
            k = 1.0 if config.smoothing == "laplace" else config.k
            V = int(counts.vocabulary.predictable.sum())
            return additive(order, k, V, is_top=order.n == counts.order)
        case "witten-bell":
            return witten_bell(order)
        case "absolute" | "kneser-ney":
            return absolute(order, absolute_discount(order.count, order.n) if D is None else D)
        case "modified-kneser-ney":
            return modified_kneser_ney(order, modified_discounts(order.count, order.n))
        case "jelinek-mercer":
            assert weights is not None, "Jelinek-Mercer needs weights from held-out text"
            return weights[order.n - 1][order.context] * maximum_likelihood(order)
        case _:
            return maximum_likelihood(order)


def _interpolate(counts: Counts, alphas: list[Floats], masks: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """Return p(w | h) = α(h, w) + γ(h) p(w | h′) and γ(h) of each order, starting from the uniform distribution.

    The α of pruned n-grams is added to γ.
    """
    p_shorter = _uniform(counts.vocabulary)
    prob: list[Floats] = []
    backoff: list[Floats] = []
    for level, alpha, keep in zip(counts.levels, alphas, masks, strict=True):
        contexts = len(backoff[-1]) if backoff else 1
        gamma = 1.0 - np.bincount(level.context, alpha * keep, contexts)
        gamma[np.abs(gamma) < 1e-15 * counts.vocabulary.size] = 0  # rounding error
        below = prob[-1][level.suffix] if prob else p_shorter
        prob.append(alpha * keep + gamma[level.context] * below)
        if backoff:
            backoff[-1] = gamma
        backoff.append(np.ones(len(level)))
    return prob, backoff


def _uniform(vocabulary: Vocabulary) -> Floats:
    """Return the uniform distribution (V,) over the predictable ids."""
    predictable = vocabulary.predictable
    return np.asarray(predictable / predictable.sum())


def _to_tables(
    counts: Counts, prob: list[Floats], backoff: list[Floats], masks: list[Mask], missing: float = 1.0
) -> BackoffTables:
    """Remove the pruned n-grams, renumber the others and convert to float32 logarithms."""
    V = counts.vocabulary.size
    levels: list[BackoffLevel] = []
    new_row: Ids = np.zeros(1, dtype=np.int64)  # new row of each context in the next lower order
    with np.errstate(divide="ignore"):  # log 0 = −inf is intended
        for level, p, weight, keep in zip(counts.levels, prob, backoff, masks, strict=True):
            key = new_row[level.context[keep]] * V + level.word[keep]
            log_prob, log_backoff = np.log(p[keep]), np.log(weight[keep])
            levels.append(BackoffLevel(key, log_prob.astype(np.float32), log_backoff.astype(np.float32)))
            new_row = np.cumsum(keep) - 1
        return BackoffTables(tuple(levels), float(np.float32(np.log(missing))))


def counts_of_counts(count: Ids, most: int) -> Ids:
    """Return n_0 … n_most; n_0 is not used.

    >>> counts_of_counts(np.array([1, 1, 2, 5, 0]), 3).tolist()
    [1, 2, 1, 0]
    """
    return np.bincount(count[count <= most], minlength=most + 1)


def absolute_discount(count: Ids, order: int) -> float:
    """D = n_1 / (n_1 + 2 n_2) (Ney, Essen & Kneser 1994)."""
    _, n1, n2 = (int(n) for n in counts_of_counts(count, 2))
    if n1 == 0 or n2 == 0:
        _warn(order, f"n1={n1}, n2={n2}", "the default discount 0.5")
        return FALLBACK[0]
    return n1 / (n1 + 2 * n2)


@dataclass(frozen=True, slots=True)
class Discounts:
    """Discounts of modified Kneser–Ney for counts of 1, 2, and 3 or more."""

    one: float
    two: float
    three: float

    def of(self, count: Ids) -> Floats:
        """Return D(c) for each count; D(0) = 0."""
        return np.array([0.0, self.one, self.two, self.three])[np.minimum(count, 3)]


def modified_discounts(count: Ids, order: int) -> Discounts:
    """D1, D2, D3+ (Chen & Goodman 1999, eq. 26): Y = n_1/(n_1+2n_2), D_r = r − (r+1) Y n_{r+1}/n_r.

    Training computes modified Kneser–Ney in the extension (cpp/ngram/build/discounts.cpp, kneser_ney.cpp), with the
    same results.
    """
    n = [int(x) for x in counts_of_counts(count, 4)]
    if min(n[1:]) == 0:
        _warn(order, ", ".join(f"n{r}={n[r]}" for r in range(1, 5)), "default discounts 0.5, 1, 1.5")
        return Discounts(*FALLBACK)
    Y = n[1] / (n[1] + 2 * n[2])
    D = [r - (r + 1) * Y * n[r + 1] / n[r] for r in (1, 2, 3)]
    if not all(0 <= d <= r for r, d in enumerate(D, start=1)):
        _warn(order, f"D1, D2, D3+ come out as {D[0]:.3g}, {D[1]:.3g}, {D[2]:.3g}", "default discounts 0.5, 1, 1.5")
        return Discounts(*FALLBACK)
    return Discounts(*D)


def good_turing_ratios(count: Ids, order: int, most: int = 5) -> Floats:
    """Return the discount ratios d_0 … d_{most+1} of Katz (1987); counts above `most` are not discounted.

    c* = (c+1) n_{c+1}/n_c, A = (k+1) n_{k+1}/n_1, d_c = (c*/c − A)/(1 − A); d_c = 1 if c* ≥ c or d_c ∉ (0, 1).
    """
    n = counts_of_counts(count, most + 1).astype(np.float64)
    d = np.ones(most + 2)
    if n[1] == 0 or (most + 1) * n[most + 1] >= n[1]:
        _warn(order, f"n1={int(n[1])}, n{most + 1}={int(n[most + 1])}", "no discount")
        return d
    A = (most + 1) * n[most + 1] / n[1]
    for c in range(1, most + 1):
        expected = (c + 1) * n[c + 1] / n[c] if n[c] else 0.0
        ratio = (expected / c - A) / (1 - A)
        if expected < c and 0 < ratio < 1:
            d[c] = ratio
    if (d == 1).all():
        _warn(order, ", ".join(f"n{r}={int(n[r])}" for r in range(1, most + 2)), "no discount")
    return d


def _warn(order: int, why: str, used: str) -> None:
    warnings.warn(fallback_message(order, used, why), ChainruleWarning, stacklevel=2)


def fallback_message(order: int, used: str, why: str) -> str:
    """Return the warning for an order whose discounts cannot be estimated."""
    return f"order {order}: using {used}: discounts cannot be estimated from this text ({why})"


def maximum_likelihood(order: OrderCounts) -> Floats:
    """Relative frequency, c / c(h)."""
    return np.asarray(order.count / order.total)


def additive(order: OrderCounts, k: float, predictable: int, is_top: bool) -> Floats:
    """Additive smoothing, (c + k) / (c(h) + kV) = c / (c(h) + kV) + γ(h)/V.

    α is nonzero only for the top order and for the shorter contexts at the start of a line, so that these are
    interpolated with the uniform distribution.
    """
    alpha = order.count / (order.total + k * predictable)
    return np.where(is_top | order.begins, alpha, 0.0)


def witten_bell(order: OrderCounts) -> Floats:
    """λ c / c(h) with λ = c(h) / (c(h) + N₁₊(h •)) (Witten & Bell 1991, method C)."""
    return np.asarray(order.count / (order.total + order.types))


def absolute(order: OrderCounts, discount: float) -> Floats:
    """max(c − D, 0) / c(h) (Ney, Essen & Kneser 1994); Kneser–Ney is the same on continuation counts."""
    return np.asarray(np.maximum(order.count - discount, 0) / order.total)


def modified_kneser_ney(order: OrderCounts, discounts: Discounts) -> Floats:
    """(c − D(c)) / c(h), D(c) being D1, D2 or D3+ (Chen & Goodman 1999, eq. 25)."""
    return np.asarray(np.maximum(order.count - discounts.of(order.count), 0) / order.total)


def katz(counts: Counts, masks: list[Mask]) -> tuple[list[Floats], list[Floats]]:
    """Return the probabilities and back-off weights of every order; `masks` select the n-grams that are not pruned.

    p(w | h) = d_c c / c(h) if (h, w) was seen, otherwise α(h) p(w | h′), where h′ is h without its first word.
    """
    first, *longer = raw_counts(counts)
    prob = [_katz_unigrams(first, counts.vocabulary)]
    backoff: list[Floats] = []
    for order, level, keep in zip(longer, counts.levels[1:], masks[1:], strict=True):
        p = np.where(keep, _katz_discounted(order), 0.0)
        p_lower = np.where(keep, prob[-1][level.suffix], 0.0)
        mass = np.bincount(order.context, p, order.contexts)
        unseen_mass = 1 - np.bincount(order.context, p_lower, order.contexts)  # Σ p(w | h′) of the unseen words
        has_unseen = unseen_mass > EPSILON
        backoff.append(np.where(has_unseen, (1 - mass) / np.where(has_unseen, unseen_mass, 1), 0))
        # If every word was seen after h, the discounted probabilities are rescaled to sum to 1.
        prob.append(p / np.where(has_unseen, 1, mass)[order.context])
    return prob, [*backoff, np.ones(len(counts.levels[-1]))]


def _katz_discounted(order: OrderCounts) -> Floats:
    """Return d_c c / c(h); if no count after h is discounted, c(h) + 1 leaves mass for unseen words."""
    ratios = good_turing_ratios(order.count, order.n)
    d = ratios[np.minimum(order.count, len(ratios) - 1)]
    kept_mass = np.bincount(order.context, d * order.count, order.contexts)
    is_full = kept_mass >= order.context_totals * (1 - EPSILON)
    return np.asarray(d * order.count / (order.total + is_full[order.context]))


def _katz_unigrams(order: OrderCounts, vocabulary: Vocabulary) -> Floats:
    """Return discounted unigrams; the remaining mass is shared by the unseen words, or by all if there are none."""
    p = _katz_discounted(order)
    is_unseen = vocabulary.predictable & (order.count == 0)
    receivers = is_unseen if is_unseen.any() else vocabulary.predictable
    return np.asarray(p + receivers * ((1 - p.sum()) / receivers.sum()))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Statistics of N held-out tokens under the counts of n orders."""

    estimate: Floats  # (n, N)  maximum-likelihood estimate c(h, w)/c(h)
    bucket: Ids  # (n, N)  bucket of c(h)
    is_seen: Mask  # (n, N)  c(h) > 0
    uniform: Floats  # (N,)  probability under the uniform distribution


def estimate_lambdas(
    counts: Counts,
    held_out: Ids,
    context: Context,
    is_bucketed: bool,
    iterations: int = 500,
    progress: Progress = silent,
) -> Floats:
    """Return the λ of each order and bucket, (n, BUCKETS), that maximize the likelihood of `held_out`."""
    data = _lookup(counts, held_out, context, is_bucketed)
    weights = np.full((counts.order, BUCKETS), 0.5)
    visited = np.zeros(weights.shape, dtype=bool)
    for i in range(iterations):
        progress("Jelinek-Mercer weights", i + 1, iterations)
        before = weights.copy()
        weights, visited = _em_step(weights, data)
        if np.abs(weights - before).max() < 1e-6:
            break
    return np.stack([_fill_unvisited(w, v) for w, v in zip(weights, visited, strict=True)])


def expand_lambdas(counts: Counts, weights: Floats, is_bucketed: bool) -> list[Floats]:
    """Return the λ of every context of every order."""
    return [
        weights[k][_bucket(order.context_totals, is_bucketed)] * (order.context_totals > 0)
        for k, order in enumerate(raw_counts(counts))
    ]


def _bucket(total: Floats, is_bucketed: bool) -> Ids:
    """Return the bucket floor(log2(total)), or 0 for all if not bucketed."""
    if not is_bucketed:
        return np.zeros(len(total), dtype=np.int64)
    return np.minimum(np.log2(np.maximum(total, 1)).astype(np.int64), BUCKETS - 1)


def _lookup(counts: Counts, held_out: Ids, context: Context, is_bucketed: bool) -> HeldOut:
    vocabulary = counts.vocabulary
    tokens = insert_bos(held_out.astype(np.int64), vocabulary, context)
    is_predicted = tokens != vocabulary.bos
    before = np.zeros(len(tokens), dtype=np.int64)  # row of the context; the empty context at order 1
    estimates, buckets, is_seen = [], [], []
    for level, order in zip(counts.levels, raw_counts(counts), strict=True):
        row = find_ngrams(level.context * vocabulary.size + level.word, before, tokens, vocabulary.size)
        total = take_or_default(order.context_totals, before, np.zeros(len(before)))[is_predicted]
        count = take_or_default(level.count.astype(np.float64), row, np.zeros(len(row)))[is_predicted]
        estimates.append(count / np.maximum(total, 1))
        buckets.append(_bucket(total, is_bucketed))
        is_seen.append(total > 0)
        before = np.concatenate([[-1], row[:-1]])
    uniform = vocabulary.predictable[tokens[is_predicted]] / vocabulary.predictable.sum()
    return HeldOut(np.stack(estimates), np.stack(buckets), np.stack(is_seen), uniform)


def _em_step(weights: Floats, data: HeldOut) -> tuple[Floats, Mask]:
    """Run one step of EM; return the new λ and the mask of those that some token uses."""
    n = len(weights)
    token_weights = np.take_along_axis(weights, data.bucket, axis=1) * data.is_seen  # (n, N)
    mixed = [data.uniform]
    for k in range(n):
        mixed.append(token_weights[k] * data.estimate[k] + (1 - token_weights[k]) * mixed[-1])
    reach = (mixed[-1] > 0).astype(np.float64)  # (N,)  posterior probability of backing off to order k
    new_weights, visited = weights.copy(), np.zeros(weights.shape, dtype=bool)
    for k in reversed(range(n)):
        posterior = reach * token_weights[k] * data.estimate[k] / np.maximum(mixed[k + 1], np.finfo(float).tiny)
        trials = np.bincount(data.bucket[k], reach * data.is_seen[k], BUCKETS)
        visited[k] = trials > 0
        successes = np.bincount(data.bucket[k], posterior, BUCKETS)
        smoothed = (successes + PSEUDO_COUNT) / (trials + 2 * PSEUDO_COUNT)
        new_weights[k] = np.where(visited[k], smoothed, weights[k])
        reach = np.maximum(reach - posterior, 0)  # rounding must not make it negative
    return new_weights, visited


def _fill_unvisited(weights: Floats, visited: Mask) -> Floats:
    """Interpolate the λ of buckets without held-out tokens from their neighbours; unchanged if none has any."""
    at = np.flatnonzero(visited)
    return np.interp(np.arange(len(weights)), at, weights[at]) if len(at) else weights
