"""Reproduce SRILM's deviation from the formulas of interpolated smoothing on Penn Treebank.

    python -m benchmarks.srilm_rule

If the interpolated probabilities of the words seen after h sum to within 3e-6 of 1, SRILM re-estimates this
context without interpolation, so that some probability is left for back-off. The table shows the perplexity by
the formulas, with this rule, and as published for SRILM 1.7.3.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.corpora import BENCHMARKS, machine, table
from benchmarks.results import ORDERS, PUBLISHED

from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Floats
from chainrule.ngram import smoothing
from chainrule.ngram.engine import count
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Counts, OrderCounts, absolute_discount, modified_discounts
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.prepared_corpus import prepare_corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode

EPSILON: Final = 3e-6
"""SRILM's Prob_Epsilon."""

Share = Callable[[OrderCounts], Floats]

METHODS: Final[Mapping[str, tuple[Callable[[Counts], list[OrderCounts]], Share]]] = {
    "modified Kneser–Ney": (
        smoothing.kneser_ney_counts,
        lambda order_counts: smoothing.modified_kneser_ney(
            order_counts, modified_discounts(order_counts.count, order_counts.n)
        ),
    ),
    "Kneser–Ney": (
        smoothing.kneser_ney_counts,
        lambda order_counts: smoothing.absolute(
            order_counts, absolute_discount(order_counts.count, order_counts.n)
        ),
    ),
    "absolute discounting, D = 0.75": (
        smoothing.raw_counts,
        lambda order_counts: smoothing.absolute(order_counts, 0.75),
    ),
    "Witten–Bell": (smoothing.raw_counts, smoothing.witten_bell),
}


def interpolate(
    counts: Counts, order_counts: list[OrderCounts], share_of: Share, epsilon: float
) -> tuple[BackoffTables, int]:
    """Estimate tables, without interpolation in contexts that keep less than `epsilon`; also count them."""
    predictable = counts.vocabulary.predictable
    prob, backoff, exceptions = [predictable / predictable.sum()], [], 0
    for level, level_counts in zip(counts.levels, order_counts, strict=True):
        share, below = share_of(level_counts), prob[-1][level.suffix] if level_counts.n > 1 else prob[-1]
        gamma = 1 - sums(level_counts, share)
        p = share + gamma[level.context] * below
        if level_counts.n > 1:
            is_full = sums(level_counts, p) > 1 - epsilon
            exceptions += int(is_full.sum())
            p = np.where(is_full[level.context], share, p)
            unseen = np.maximum(1 - sums(level_counts, below), np.finfo(float).tiny)  # mass of the shorter context
            backoff.append(np.where(is_full, gamma / unseen, gamma))
        prob.append(p)
    backoff.append(np.ones(len(counts.levels[-1])))
    return pack(counts, prob[1:], backoff), exceptions


def sums(order_counts: OrderCounts, values: Floats) -> Floats:
    """Sum values over the words seen after each context: (C,)."""
    return np.bincount(order_counts.context, values, order_counts.contexts).astype(np.float64)


def pack(counts: Counts, prob: list[Floats], backoff: list[Floats]) -> BackoffTables:
    V = counts.vocabulary.size
    with np.errstate(divide="ignore"):
        levels = [
            BackoffLevel(level.context * V + level.word, np.log(p), np.log(weight))
            for level, p, weight in zip(counts.levels, prob, backoff, strict=True)
        ]
    return BackoffTables(tuple(levels))


def main() -> None:
    argparse.ArgumentParser(
        description="Reproduce SRILM's rule for contexts without back-off mass; prints a Markdown table."
    ).parse_args()
    ptb = BENCHMARKS["ptb"]
    prepared = prepare_corpus(ptb.corpus("train"), TokenizerConfig(kind="whitespace"))
    vocabulary = prepared.tokenizer.vocabulary
    counts = count(prepared.train.ids, max(ORDERS), vocabulary)
    test = encode(ptb.corpus("test"), prepared.tokenizer)
    rows = []
    for method, (counts_of, share_of) in METHODS.items():
        for order in ORDERS[1:]:
            part = counts.up_to(order)
            cells, exceptions = [], 0
            for epsilon in (-1.0, EPSILON):
                tables, exceptions = interpolate(part, counts_of(part), share_of, epsilon)
                log_probs = token_log_probs(NgramModel(tables, vocabulary), test)
                cells.append(f"{np.exp(-log_probs.mean()):.4f}")
            published = PUBLISHED["ptb"]["SRILM 1.7.3"].get((method, order), "")
            rows.append([method, str(order), cells[0], str(exceptions), cells[1], str(published)])
    head = ["method", "order", "by the formulas", "affected contexts", "with SRILM's rule", "SRILM 1.7.3"]
    print(f"`python -m benchmarks.srilm_rule`: {machine()}\n\n{table(head, rows)}")


if __name__ == "__main__":
    main()
