"""Trace how far an n-gram model backs off for each token, and why.

A token is matched by the longest stored n-gram that ends in it; its log p is the stored log-probability plus the
back-off weights of the longer contexts. In back-off methods (Katz, stupid backoff) the stored value depends on the
count of that n-gram alone. In interpolated methods (Kneser–Ney, Witten–Bell, Jelinek–Mercer, add-k) it already
includes all lower orders.

"Stored" means present in the tables, which may hold fewer n-grams than the training text because of pruning. A
context counts as stored if at least one word is stored after it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.lm import Batch, Floats, Ids, Mask
from chainrule.ngram.model import NgramModel, NgramState

FULL_ORDER: Final = 0
WORD_NOT_STORED: Final = 1
CONTEXT_NOT_STORED: Final = 2
LINE_START: Final = 3
REASONS: Final = (
    "full order: the model has no longer n-grams",
    "backed off: context seen, word not seen after it",
    "backed off: context not seen",
    "beginning of the line: no more words before it",
)
"""Why no longer n-gram matched, indexed by the constants above; a pruned n-gram counts as not seen."""


@dataclass(frozen=True, slots=True)
class BackoffTrace:
    """Back-off path of (B, T) tokens; values where the batch's mask is False are undefined."""

    order: int  # n of the model
    matched: Ids  # (B, T)  order of the longest stored n-gram, 1 to n
    stored: Floats  # (B, T)  its stored log p
    weights: Floats  # (B, T, n−1)  [m−1]: log back-off weight of the context of m words, 0 if it was not applied
    is_stored: Mask  # (B, T, n−1)  [m−1]: whether any word is stored after the context of m words
    reason: Ids  # (B, T)  index into REASONS: why no longer n-gram matched

    @property
    def log_prob(self) -> Floats:
        """log p (B, T), summed in the same order as in `score`."""
        total = self.stored.copy()
        for m in range(1, self.order):
            total += self.weights[..., m - 1]
        return total


def trace_backoff(model: NgramModel, batch: Batch, state: NgramState) -> BackoffTrace:
    """Find the longest stored n-gram and the applied back-off weights of each target of a batch."""
    tokens = model.prepend_context(state, batch.inputs)  # (B, n−1+T)
    targets = np.ascontiguousarray(batch.targets, dtype=np.int32)
    lengths, stored, weights, is_stored = model.engine.depth(tokens, targets)
    matched = lengths.astype(np.int64)
    reason = _reasons(model.order, matched, is_stored, _has_context(model, tokens))
    return BackoffTrace(model.order, matched, stored, weights, is_stored, reason)


def _reasons(order: int, matched: Ids, is_stored: Mask, has_context: Mask) -> Ids:
    """Return why the context one word longer than that of the matched n-gram was not used, (B, T)."""
    if order == 1:
        return np.full(matched.shape, FULL_ORDER)
    next_longer = np.minimum(matched, order - 1)[..., None] - 1  # a context with as many words as the n-gram

    def of_next_longer(values: Mask) -> Mask:
        return np.asarray(np.take_along_axis(values, next_longer, axis=-1)[..., 0])

    reason = np.where(of_next_longer(is_stored), WORD_NOT_STORED, CONTEXT_NOT_STORED)
    reason = np.where(of_next_longer(has_context), reason, LINE_START)
    return np.where(matched == order, FULL_ORDER, reason)


def _has_context(model: NgramModel, tokens: Ids) -> Mask:
    """Return whether m words are available as context at [m−1], (B, T, n−1); `<s>` counts as the first word."""
    n = model.order
    T = tokens.shape[1] - (n - 1)
    is_begin = tokens == model.vocabulary.bos
    if model.context == "line":
        is_begin |= tokens == model.vocabulary.eos  # the next line begins
    is_open = np.ones((len(tokens), T), dtype=bool)
    has_context = np.ones((*is_open.shape, n - 1), dtype=bool)
    for m in range(1, n):
        has_context[..., m - 1] = is_open
        is_open = is_open & ~is_begin[:, n - m : n - m + T]
    return has_context
