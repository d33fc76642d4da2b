"""How good translations are: BLEU and chrF, by length of the source, beside another system; the model's nats."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.evaluation.overlap import LengthBucket, Overlap, bleu, bleu_by_length, chrf
from chainrule.evaluation.significance import Comparison, compare_bleu
from chainrule.progress import Progress, silent
from chainrule.tasks.translate import BEAM, Translator, with_end
from chainrule.text.pairs import Pairs

EDGES: Final = (10, 15, 20, 30, 40)  # words of the source where buckets begin
WORDS: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    """The figures of one system on one set of pairs."""

    found: list[str]
    bleu: Overlap
    chrf: Overlap
    by_length: list[LengthBucket]
    nats_per_token: float  # of the references, `</s>` included
    unfinished: int  # translations that were cut off
    seconds: float  # of translating
    against: Comparison | None = None  # BLEU, this system minus the other

    @property
    def perplexity(self) -> float:
        """Of the references, a token."""
        return float(np.exp(min(self.nats_per_token, 700)))

    def as_json(self) -> dict[str, Any]:
        """All of it but the translations, by name."""
        buckets = [
            {"from": b.low, "below": b.high, "sentences": b.sentences, "bleu": b.score} for b in self.by_length
        ]
        other = self.against
        return {
            "sentences": len(self.found),
            "bleu": self.bleu.score,
            "bleu_signature": self.bleu.signature,
            "chrf": self.chrf.score,
            "chrf_signature": self.chrf.signature,
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
    progress: Progress = silent,
) -> TranslationReport:
    """Translate the sources and compare with the targets; `other` are another system's translations of them."""
    nats = -translator.score(pairs.sources, pairs.targets, progress)  # first: what cannot be scored is refused now
    start = time.perf_counter()
    best = [made[0] for made in translator.translate_all(pairs.sources, decoding, progress=progress)]
    seconds = time.perf_counter() - start
    found = [translation.text for translation in best]
    tokens = sum(len(with_end(translator.target, text)) for text in pairs.targets)
    return TranslationReport(
        found=found,
        bleu=bleu(found, pairs.targets),
        chrf=chrf(found, pairs.targets),
        by_length=bleu_by_length(found, pairs.targets, [words(text) for text in pairs.sources], edges),
        nats_per_token=float(nats.sum()) / tokens,
        unfinished=sum(not translation.is_finished for translation in best),
        seconds=seconds,
        against=None if other is None else compare_bleu(found, other, pairs.targets),
    )


def words(text: str) -> int:
    """How long a sentence is, whatever the tokenizer: words and punctuation marks."""
    return len(WORDS.findall(text))


def _interval(found: Comparison) -> dict[str, float]:
    return {"difference": found.difference, "low": found.low, "high": found.high, "p_value": found.p_value}
