"""Corpus BLEU and chrF as computed by sacrebleu, BLEU by source length, and exact match.

Hypotheses and references are raw, detokenized text; sacrebleu tokenizes them (13a).
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

TOKENIZED_LINES: Final = 100
"""Number of hypotheses ending in ' .' from which the text is assumed to be tokenized."""


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """Corpus score from 0 to 100."""

    score: float
    signature: str  # sacrebleu signature
    details: dict[str, Any]  # components of the score


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """BLEU of the sentences with `low` ≤ source length < `high`."""

    low: int
    high: float  # infinite for the last bucket
    sentences: int
    score: float | None  # corpus BLEU; None if the bucket is empty


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """Compute corpus BLEU (Papineni et al. 2002) with 13a tokens, exponential smoothing and one reference.

    >>> round(bleu(["the cat sat on the mat"], ["the cat sat on the rug"]).score, 2)  # 100 · (1/3)^(1/4)
    75.98
    """
    check_aligned(hypotheses, references)
    if sum(text.endswith(" .") for text in hypotheses) >= TOKENIZED_LINES:
        message = (
            f"{TOKENIZED_LINES} texts or more end in ' .': "
            "BLEU is meant for text without tokenization; join the tokens"
        )
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    metric = load_metric("bleu")
    result = metric.corpus_score(hypotheses, [references])
    details = {
        "precisions": [float(p) for p in result.precisions],  # of 1-grams to 4-grams, in percent
        "brevity_penalty": float(result.bp),
        "found_length": int(result.sys_len),  # in tokens
        "reference_length": int(result.ref_len),
    }
    return CorpusScore(float(result.score), str(metric.get_signature()), details)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """Compute corpus chrF2 (Popović 2015), the F2-score of character n-grams up to order 6.

    >>> round(chrf(["ab"], ["abc"]).score, 2)  # precision 1, recall (2/3 + 1/2) / 2
    63.64
    """
    check_aligned(hypotheses, references)
    metric = load_metric("chrf")
    result = metric.corpus_score(hypotheses, [references])
    details = {"character_order": result.char_order, "word_order": result.word_order, "beta": result.beta}
    return CorpusScore(float(result.score), str(metric.get_signature()), details)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the fraction of texts equal to their references up to whitespace.

    >>> exact_match(["a  cat", "a dog"], ["a cat", "a Dog"])
    0.5
    """
    check_aligned(hypotheses, references)
    return sum(a.split() == b.split() for a, b in zip(hypotheses, references, strict=True)) / len(hypotheses)


def has_four_grams(texts: Sequence[str]) -> bool:
    """Return whether any text has a 4-gram; otherwise BLEU is not meaningful."""
    return bool(load_metric("bleu").corpus_score(texts, [texts]).totals[3])


def bleu_by_length(
    hypotheses: Sequence[str], references: Sequence[str], lengths: Sequence[int], edges: Sequence[int]
) -> list[LengthBucket]:
    """Compute corpus BLEU for each bucket of source length, shortest first.

    Edges 10 and 20 define three buckets: [0, 10), [10, 20) and [20, ∞).
    """
    check_aligned(hypotheses, references)
    if len(lengths) != len(hypotheses):
        raise InputError(
            f"there are {len(hypotheses)} texts but {len(lengths)} lengths; give one length for each text"
        )
    bounds = [0, *edges, math.inf]
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        raise UsageError(f"edges are {list(edges)}; choose lengths above 0, each larger than the one before")
    metric = load_metric("bleu")
    buckets = []
    for low, high in itertools.pairwise(bounds):
        rows = [row for row, length in enumerate(lengths) if low <= length < high]
        texts, answers = [hypotheses[row] for row in rows], [references[row] for row in rows]
        score = float(metric.corpus_score(texts, [answers]).score) if rows else None
        buckets.append(LengthBucket(int(low), high, len(rows), score))
    return buckets


def check_aligned(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise unless there is exactly one reference for each text, and at least one text."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise UsageError("one text was given; give lists of texts, such as [text]")
    if len(hypotheses) != len(references):
        raise InputError(
            f"there are {len(hypotheses)} texts but {len(references)} references; give one for each text"
        )
    if not hypotheses:
        raise InputError("there is no text to compare with a reference; give at least one")


def load_metric(name: MetricName) -> "Metric":
    """Return the sacrebleu metric with default settings."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise MissingExtra("BLEU and chrF need sacrebleu: pip install 'chainrule[tasks]'") from error
    if name not in ("bleu", "chrf"):
        raise UsageError(f"metric is {name!r}; choose bleu or chrf")
    # force=True suppresses sacrebleu's log message about tokenized text; `bleu` issues a warning instead.
    return BLEU(force=True) if name == "bleu" else CHRF()
