"""Evaluate translations: BLEU, chrF, exact match, BLEU by source length, and comparison with another system."""

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, InputError
from chainrule.evaluation.significance import Comparison, compare_bleu
from chainrule.evaluation.translation import (
    CorpusScore,
    LengthBucket,
    bleu,
    bleu_by_length,
    check_aligned,
    chrf,
    exact_match,
    has_four_grams,
)
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks.translate import BEAM, Translator, encode_with_eos
from chainrule.text.parallel import SentencePairs

EDGES: Final = (10, 15, 20, 30, 40)  # lower bounds of the source-length buckets, in words
WORDS: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    """Evaluation of one system on one test set."""

    translations: list[str]
    numbers: tuple[int, ...]  # line number of each, from 1
    left_out: int  # pairs with an empty side
    bleu: CorpusScore
    chrf: CorpusScore
    exact_match: float  # fraction identical to the reference up to white space
    by_length: list[LengthBucket]
    nats_per_token: float  # of the references, `</s>` included
    unfinished: int  # translations that reached max_tokens
    seconds: float  # translation time
    against: Comparison | None = None  # BLEU difference to another system

    @property
    def perplexity(self) -> float:
        """Perplexity per token of the references."""
        return float(np.exp(min(self.nats_per_token, 700)))

    @property
    def by_line(self) -> list[str]:
        """One translation per line of the file, empty for skipped pairs."""
        lines = [""] * max(len(self.translations) + self.left_out, *self.numbers)
        for number, text in zip(self.numbers, self.translations, strict=True):
            lines[number - 1] = text
        return lines

    def as_json(self) -> dict[str, Any]:
        """JSON document without the translations."""
        buckets = [
            {"from": b.low, "below": b.high, "sentences": b.sentences, "bleu": b.score} for b in self.by_length
        ]
        other = self.against
        return {
            "sentences": len(self.translations),
            "left_out": self.left_out,
            "bleu": self.bleu.score,
            "bleu_signature": self.bleu.signature,
            "chrf": self.chrf.score,
            "chrf_signature": self.chrf.signature,
            "exact_match": self.exact_match,
            "nats_per_token": self.nats_per_token,
            "perplexity": self.perplexity,
            "unfinished": self.unfinished,
            "by_source_words": buckets,
            "seconds": self.seconds,
            **({} if other is None else {"bleu_minus_other": _interval(other)}),
        }


def evaluate(
    translator: Translator,
    pairs: SentencePairs,
    decoding: Decoding = BEAM,
    *,
    other: Sequence[str] | None = None,
    edges: Sequence[int] = EDGES,
    progress: Progress | bool = silent,
) -> TranslationReport:
    """Translate the sources and compare with the targets; `other` holds translations of another system.

    Pairs with an empty side are skipped and counted; `other` may still contain lines for them.
    """
    progress = as_progress(progress)
    pairs, other = _drop_empty(pairs, other)
    nats = -translator.score(pairs.sources, pairs.targets, progress)  # first, so that invalid input fails early
    start = time.perf_counter()
    best = [candidates[0] for candidates in translator.translate_all(pairs.sources, decoding, progress=progress)]
    seconds = time.perf_counter() - start
    translations = [translation.text for translation in best]
    _warn_short_texts(translations, pairs.targets)
    tokens = sum(len(encode_with_eos(translator.target, text)) for text in pairs.targets)
    return TranslationReport(
        translations=translations,
        numbers=pairs.numbers,
        left_out=pairs.left_out,
        bleu=bleu(translations, pairs.targets),
        chrf=chrf(translations, pairs.targets),
        exact_match=exact_match(translations, pairs.targets),
        by_length=bleu_by_length(translations, pairs.targets, [count_words(text) for text in pairs.sources], edges),
        nats_per_token=float(nats.sum()) / tokens,
        unfinished=sum(not translation.is_finished for translation in best),
        seconds=seconds,
        against=None if other is None else compare_bleu(translations, other, pairs.targets),
    )


def count_words(text: str) -> int:
    """Number of words and punctuation marks, independent of the tokenizer."""
    return len(WORDS.findall(text))


def _drop_empty(pairs: SentencePairs, other: Sequence[str] | None) -> tuple[SentencePairs, Sequence[str] | None]:
    """Drop pairs with an empty side, and the corresponding lines of `other`."""
    triples = zip(pairs.sources, pairs.targets, pairs.numbers, strict=True)
    complete = [(i, *triple) for i, triple in enumerate(triples) if triple[0].strip() and triple[1].strip()]
    if not complete:
        raise InputError(f"{pairs.name}: none of {len(pairs)} pairs has text on both sides; give at least one")
    rows, sources, targets, numbers = zip(*complete, strict=True)
    lines = len(pairs) + pairs.left_out
    if other is not None:
        if not isinstance(other, str) and len(other) == lines > len(complete):
            other = [other[i] for i in ([n - 1 for n in numbers] if pairs.left_out else rows)]
        if not isinstance(other, str) and len(other) != len(complete):
            raise InputError(f"other has {len(other)} texts but {pairs.name} has {lines} pairs; give one per pair")
        check_aligned(other, targets)  # fail before translating
    return SentencePairs(sources, targets, pairs.name, numbers, lines - len(complete)), other


def _warn_short_texts(translations: Sequence[str], targets: Sequence[str]) -> None:
    short = [
        name for name, texts in (("translations", translations), ("targets", targets)) if not has_four_grams(texts)
    ]
    if short:
        message = f"BLEU uses n-grams of up to 4 words, but the {' and the '.join(short)} are shorter"
        warnings.warn(f"{message}: go by the exact matches and chrF", ChainruleWarning, stacklevel=3)


def _interval(comparison: Comparison) -> dict[str, Any]:
    return {
        "other_bleu": comparison.b,
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "p_value": comparison.p_value,
        "is_two_sided": True,
        "resamples": comparison.samples,
    }
