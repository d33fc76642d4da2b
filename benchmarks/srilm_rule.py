"""The rule by which SRILM leaves the formulas of interpolated smoothing, tried on Penn Treebank.

    python -m benchmarks.srilm_rule

Where the interpolated probabilities of the words seen after h come within 3e-6 of 1, SRILM estimates this one
context anew without interpolation, so that something is left to back off with. The table shows the perplexity
by the formulas, with that rule added, and as published for SRILM 1.7.3.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.corpora import BENCHMARKS, machine, table
from benchmarks.results import ORDERS, PUBLISHED

from chainrule.evaluation.scores import token_log_probs
from chainrule.lm import Floats
from chainrule.ngram import smoothing
from chainrule.ngram.counts import Counts, count
from chainrule.ngram.discounts import absolute_discount, modified_discounts
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Seen
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.preparation import prepare
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode

EPSILON: Final = 3e-6
"""SRILM's Prob_Epsilon."""

Share = Callable[[Seen], Floats]

METHODS: Final[Mapping[str, tuple[Callable[[Counts], list[Seen]], Share]]] = {
    "modified Kneser–Ney": (
        smoothing.continued,
        lambda seen: smoothing.modified_kneser_ney(seen, modified_discounts(seen.count, seen.order)),
    ),
    "Kneser–Ney": (
        smoothing.continued,
        lambda seen: smoothing.absolute(seen, absolute_discount(seen.count, seen.order)),
    ),
    "absolute discounting, D = 0.75": (smoothing.raw, lambda seen: smoothing.absolute(seen, 0.75)),
    "Witten–Bell": (smoothing.raw, smoothing.witten_bell),
}


def interpolate(counts: Counts, seen: list[Seen], share_of: Share, epsilon: float) -> tuple[BackoffTables, int]:
    """Tables by the formulas, but for contexts that keep less than `epsilon`; also how many those are."""
    predictable = counts.vocabulary.predictable
    prob, backoff, exceptions = [predictable / predictable.sum()], [], 0
    for level, now in zip(counts.levels, seen, strict=True):
        share, below = share_of(now), prob[-1][level.suffix] if now.order > 1 else prob[-1]
        gamma = 1 - sums(now, share)
        p = share + gamma[level.context] * below
        if now.order > 1:
            is_full = sums(now, p) > 1 - epsilon
            exceptions += int(is_full.sum())
            p = np.where(is_full[level.context], share, p)
            left = np.maximum(1 - sums(now, below), np.finfo(float).tiny)  # of the shorter context
            backoff.append(np.where(is_full, gamma / left, gamma))
        prob.append(p)
    backoff.append(np.ones(len(counts.levels[-1])))
    return pack(counts, prob[1:], backoff), exceptions


def sums(seen: Seen, values: Floats) -> Floats:
    """(C,) the sum over the words seen after each context."""
    return np.bincount(seen.context, values, seen.contexts).astype(np.float64)


def pack(counts: Counts, prob: list[Floats], backoff: list[Floats]) -> BackoffTables:
    V = counts.vocabulary.size
    with np.errstate(divide="ignore"):
        levels = [
            BackoffLevel(level.context * V + level.word, np.log(p), np.log(weight))
            for level, p, weight in zip(counts.levels, prob, backoff, strict=True)
        ]
    return BackoffTables(tuple(levels))


def main() -> None:
    argparse.ArgumentParser(description="SRILM's rule for contexts without mass, as a Markdown table.").parse_args()
    ptb = BENCHMARKS["ptb"]
    prepared = prepare(ptb.corpus("train"), TokenizerConfig(kind="whitespace"))
    vocabulary = prepared.tokenizer.vocabulary
    counts = count(prepared.train.ids, max(ORDERS), vocabulary)
    test = encode(ptb.corpus("test"), prepared.tokenizer)
    rows = []
    for method, (seen_of, share_of) in METHODS.items():
        for order in ORDERS[1:]:
            part = counts.up_to(order)
            cells, exceptions = [], 0
            for epsilon in (-1.0, EPSILON):
                tables, exceptions = interpolate(part, seen_of(part), share_of, epsilon)
                log_probs = token_log_probs(NgramModel(tables, vocabulary), test)
                cells.append(f"{np.exp(-log_probs.mean()):.4f}")
            published = PUBLISHED["ptb"]["SRILM 1.7.3"].get((method, order), "")
            rows.append([method, str(order), cells[0], str(exceptions), cells[1], str(published)])
    head = ["method", "order", "by the formulas", "contexts it touches", "with SRILM's rule", "SRILM 1.7.3"]
    print(f"`python -m benchmarks.srilm_rule`: {machine()}\n\n{table(head, rows)}")


if __name__ == "__main__":
    main()
