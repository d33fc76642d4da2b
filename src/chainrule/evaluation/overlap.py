"""Overlap of found texts with their references: BLEU and chrF of a whole corpus, as sacrebleu computes them.

Lives here: the scores with their signatures, BLEU by length of the source, exact matches. Not here: whether a
difference between two systems means anything (significance.py). Texts come raw and detokenised; sacrebleu
tokenises (13a).
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from chainrule.errors import ChainruleWarning, InputError, MissingExtra, UsageError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

MetricName = Literal["bleu", "chrf"]

TOKENISED: Final = 100
"""From so many lines ending in a period apart, a text looks as if it had been tokenised."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A corpus score from 0 to 100, how it was computed, and what it is made of."""

    score: float
    signature: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """The sentences whose source has `low` ≤ length < `high`."""

    low: int
    high: float  # infinite for the last
    sentences: int
    score: float | None  # corpus BLEU; None where there are no sentences


def bleu(found: Sequence[str], references: Sequence[str]) -> Overlap:
    """Corpus BLEU (Papineni et al. 2002): 13a tokens, exponential smoothing, one reference each.

    >>> round(bleu(["the cat sat on the mat"], ["the cat sat on the rug"]).score, 2)  # 100 · (1/3)^(1/4)
    75.98
    """
    check_aligned(found, references)
    if sum(text.endswith(" .") for text in found) >= TOKENISED:
        message = (
            f"{TOKENISED} texts or more end in ' .': BLEU is meant for text without tokenisation; join the tokens"
        )
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    metric = load_metric("bleu")
    result = metric.corpus_score(found, [references])
    details = {
        "precisions": [float(p) for p in result.precisions],  # of 1-grams to 4-grams, in percent
        "brevity_penalty": float(result.bp),
        "found_length": int(result.sys_len),  # in tokens
        "reference_length": int(result.ref_len),
    }
    return Overlap(float(result.score), str(metric.get_signature()), details)


def chrf(found: Sequence[str], references: Sequence[str]) -> Overlap:
    """Corpus chrF2 (Popović 2015): F-score of character n-grams up to 6, recall counting twice as much.

    >>> round(chrf(["ab"], ["abc"]).score, 2)  # precision 1, recall (2/3 + 1/2) / 2
    63.64
    """
    check_aligned(found, references)
    metric = load_metric("chrf")
    result = metric.corpus_score(found, [references])
    details = {"character_order": result.char_order, "word_order": result.word_order, "beta": result.beta}
    return Overlap(float(result.score), str(metric.get_signature()), details)


def exact_match(found: Sequence[str], references: Sequence[str]) -> float:
    """The part of the texts that are their references to the letter, white space aside.

    >>> exact_match(["a  cat", "a dog"], ["a cat", "a Dog"])
    0.5
    """
    check_aligned(found, references)
    return sum(a.split() == b.split() for a, b in zip(found, references, strict=True)) / len(found)


def has_four_grams(texts: Sequence[str]) -> bool:
    """Whether any of these texts has the four tokens in a row that BLEU counts; without them it says nothing."""
    return bool(load_metric("bleu").corpus_score(texts, [texts]).totals[3])


def bleu_by_length(
    found: Sequence[str], references: Sequence[str], lengths: Sequence[int], edges: Sequence[int]
) -> list[LengthBucket]:
    """Corpus BLEU of the sentences in each bucket of source length, shortest first.

    Edges 10 and 20 make three buckets: below 10, from 10 to below 20, and from 20.
    """
    check_aligned(found, references)
    if len(lengths) != len(found):
        raise InputError(f"there are {len(found)} texts but {len(lengths)} lengths; give one length for each text")
    bounds = [0, *edges, math.inf]
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        raise UsageError(f"edges are {list(edges)}; choose lengths above 0, each larger than the one before")
    metric = load_metric("bleu")
    buckets = []
    for low, high in itertools.pairwise(bounds):
        rows = [row for row, length in enumerate(lengths) if low <= length < high]
        hypotheses, answers = [found[row] for row in rows], [references[row] for row in rows]
        score = float(metric.corpus_score(hypotheses, [answers]).score) if rows else None
        buckets.append(LengthBucket(int(low), high, len(rows), score))
    return buckets


def check_aligned(found: Sequence[str], references: Sequence[str]) -> None:
    """Refuse texts that cannot be compared one by one with their references."""
    if isinstance(found, str) or isinstance(references, str):
        raise UsageError("one text was given; give lists of texts, such as [text]")
    if len(found) != len(references):
        raise InputError(f"there are {len(found)} texts but {len(references)} references; give one for each text")
    if not found:
        raise InputError("there is no text to compare with a reference; give at least one")


def load_metric(name: MetricName) -> "Metric":
    """The metric of sacrebleu with its default settings."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise MissingExtra("BLEU and chrF need sacrebleu: pip install 'chainrule[tasks]'") from error
    if name not in ("bleu", "chrf"):
        raise UsageError(f"metric is {name!r}; choose bleu or chrf")
    # force: sacrebleu would write about tokenised text to its log; `bleu` warns of it.
    return BLEU(force=True) if name == "bleu" else CHRF()
