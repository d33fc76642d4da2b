"""How good translations are: BLEU, chrF, exact matches, by length, beside another system; the model's nats."""

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, InputError
from chainrule.evaluation import overlap
from chainrule.evaluation.overlap import LengthBucket, Overlap, bleu, bleu_by_length, chrf, exact_match
from chainrule.evaluation.significance import Comparison, compare_bleu
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks.translate import BEAM, Translator
from chainrule.tasks.translation import with_end
from chainrule.text.pairs import Pairs

EDGES: Final = (10, 15, 20, 30, 40)  # words of the source where buckets begin
WORDS: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    """The figures of one system on one set of pairs."""

    found: list[str]
    numbers: tuple[int, ...]  # the line of each, from 1
    left_out: int  # pairs with an empty side
    bleu: Overlap
    chrf: Overlap
    exact_match: float  # the part that is the target to the letter, white space aside
    by_length: list[LengthBucket]
    nats_per_token: float  # of the references, `</s>` included
    unfinished: int  # translations that were cut off
    seconds: float  # of translating
    against: Comparison | None = None  # BLEU, this system minus the other

    @property
    def perplexity(self) -> float:
        """Of the references, a token."""
        return float(np.exp(min(self.nats_per_token, 700)))

    @property
    def by_line(self) -> list[str]:
        """A translation for every line of the file, empty for the pairs that were left out."""
        lines = [""] * max(len(self.found) + self.left_out, *self.numbers)
        for number, text in zip(self.numbers, self.found, strict=True):
            lines[number - 1] = text
        return lines

    def as_json(self) -> dict[str, Any]:
        """All of it but the translations, by name."""
        buckets = [
            {"from": b.low, "below": b.high, "sentences": b.sentences, "bleu": b.score} for b in self.by_length
        ]
        other = self.against
        return {
            "sentences": len(self.found),
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
    pairs: Pairs,
    decoding: Decoding = BEAM,
    *,
    other: Sequence[str] | None = None,
    edges: Sequence[int] = EDGES,
    progress: Progress | bool = silent,
) -> TranslationReport:
    """Translate the sources and compare with the targets; `other` are another system's translations of them.

    Pairs with an empty side are left out and counted; `other` may hold a text for them all the same.
    """
    progress = as_progress(progress)
    pairs, other = _whole(pairs, other)
    nats = -translator.score(pairs.sources, pairs.targets, progress)  # first: what cannot be scored is refused now
    start = time.perf_counter()
    best = [made[0] for made in translator.translate_all(pairs.sources, decoding, progress=progress)]
    seconds = time.perf_counter() - start
    found = [translation.text for translation in best]
    _warn_of_short(found, pairs.targets)
    tokens = sum(len(with_end(translator.target, text)) for text in pairs.targets)
    return TranslationReport(
        found=found,
        numbers=pairs.numbers,
        left_out=pairs.left_out,
        bleu=bleu(found, pairs.targets),
        chrf=chrf(found, pairs.targets),
        exact_match=exact_match(found, pairs.targets),
        by_length=bleu_by_length(found, pairs.targets, [words(text) for text in pairs.sources], edges),
        nats_per_token=float(nats.sum()) / tokens,
        unfinished=sum(not translation.is_finished for translation in best),
        seconds=seconds,
        against=None if other is None else compare_bleu(found, other, pairs.targets),
    )


def words(text: str) -> int:
    """How long a sentence is, whatever the tokenizer: words and punctuation marks."""
    return len(WORDS.findall(text))


def _whole(pairs: Pairs, other: Sequence[str] | None) -> tuple[Pairs, Sequence[str] | None]:
    """The pairs without those that have an empty side, and the other system's texts of the same lines."""
    both = zip(pairs.sources, pairs.targets, pairs.numbers, strict=True)
    kept = [(i, *each) for i, each in enumerate(both) if each[0].strip() and each[1].strip()]
    if not kept:
        raise InputError(f"{pairs.name}: none of {len(pairs)} pairs has text on both sides; give at least one")
    rows, sources, targets, numbers = zip(*kept, strict=True)
    lines = len(pairs) + pairs.left_out
    if other is not None:
        if not isinstance(other, str) and len(other) == lines > len(kept):
            other = [other[i] for i in ([n - 1 for n in numbers] if pairs.left_out else rows)]
        if not isinstance(other, str) and len(other) != len(kept):
            raise InputError(f"other has {len(other)} texts but {pairs.name} has {lines} pairs; give one a pair")
        overlap.check_aligned(other, targets)  # before the work
    return Pairs(sources, targets, pairs.name, numbers, lines - len(kept)), other


def _warn_of_short(found: Sequence[str], targets: Sequence[str]) -> None:
    short = [
        name for name, texts in (("translations", found), ("targets", targets)) if not overlap.has_four_grams(texts)
    ]
    if short:
        message = f"BLEU counts up to 4 words in a row, which the {' and the '.join(short)} do not have"
        warnings.warn(f"{message}: go by the exact matches and chrF", ChainruleWarning, stacklevel=3)


def _interval(found: Comparison) -> dict[str, Any]:
    return {
        "other_bleu": found.b,
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p_value": found.p_value,
        "is_two_sided": True,
        "resamples": found.samples,
    }
