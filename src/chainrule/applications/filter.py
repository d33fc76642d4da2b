"""Select the lines of a corpus that are most similar to the training text of a model.

Lines are ranked by bits per byte, perplexity, or cross-entropy difference (Moore & Lewis 2010). The lines of lowest
cost are kept, or all lines are divided into buckets of equal size (Wenzek et al. 2020). Costs include the spelling
of unknown words: with p(`<unk>`) alone, a line of unknown words would rank among the best.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, Literal, NamedTuple, Self, get_args

import numpy as np

from chainrule.applications.line_scoring import LineScorer, LineScores, count_words, read_batches_for
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus, read_batches

Measure = Literal["perplexity", "bits-per-byte", "difference"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
LN2: Final = float(np.log(2))
LN_MAX: Final = float(np.log(np.finfo(np.float64).max))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCost:
    """Cost function of lines; lower means more similar to the reference. Costs are never NaN."""

    reference: Model
    against: Model | None = None  # background model of the cross-entropy difference
    by: Measure = "bits-per-byte"
    scorers: tuple[LineScorer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.by not in MEASURES:
            raise UsageError(f"by is '{self.by}'; choose one of {', '.join(MEASURES)}")
        if (self.by == "difference") != (self.against is not None):
            raise UsageError(
                "a difference compares two models: give --against a background model, and no other --by"
            )
        object.__setattr__(self, "scorers", tuple(LineScorer(model) for model in self.models))

    @classmethod
    def of(cls, reference: Model, against: Model | None = None, by: str | None = None) -> Self:
        """Create with the default measure: bits per byte, or the difference if a background model is given."""
        default = "bits-per-byte" if against is None else "difference"
        return cls(reference=reference, against=against, by=by or default)  # type: ignore[arg-type]

    @property
    def models(self) -> list[Model]:
        """The reference model and, if any, the background model."""
        return [self.reference] if self.against is None else [self.reference, self.against]

    def costs(self, lines: list[str]) -> Floats:
        """(N,) perplexity per word, bits per byte, or difference in bits per word of each line."""
        return self.shown(self.distances(lines))

    def shown(self, distances: Floats) -> Floats:
        """Convert distances to costs; a perplexity is infinite only for lines of probability 0."""
        if self.by != "perplexity":
            return distances
        return np.asarray(np.where(distances == np.inf, np.inf, np.exp(np.minimum(distances, LN_MAX))))

    def distances(self, lines: list[str]) -> Floats:
        """(N,) ranking key: the cost, or the log of the perplexity, which cannot overflow."""
        reference, *background = (self._nats(scorer, lines) for scorer in self.scorers)
        if self.by == "bits-per-byte":
            return np.asarray(reference.nats / LN2 / self.scorers[0].count_bytes(lines, reference.scores))
        if self.by == "perplexity":
            return np.asarray(reference.nats / reference.words)
        # Lines of probability 0 under the reference are infinitely far, whatever the background.
        difference = np.full(len(lines), np.inf)
        np.subtract(reference.nats, background[0].nats, out=difference, where=np.isfinite(reference.nats))
        return np.asarray(difference / LN2 / reference.words)

    def _nats(self, scorer: LineScorer, lines: list[str]) -> "_LineNats":
        """−log p of each line with unknown words spelled out; infinite if there are any and no speller."""
        scores = scorer.score(lines)
        words = scores.tokens if scorer.model.tokenizer.config.kind == "whitespace" else count_words(lines)
        return _LineNats(scores, -scores.log_probs_with_spelling, words)


class _LineNats(NamedTuple):
    scores: LineScores
    nats: Floats  # (N,)  −log p of the text
    words: Ids  # (N,)  including the end of the line


@dataclass(frozen=True, slots=True)
class Keep:
    """Number of lines to keep, as a fraction or a count."""

    share: float | None = None
    lines: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `20%` or `0.2` as a fraction and `1000` as a count; `1.0` keeps all lines."""
        value = text.strip()
        try:
            if value.isdecimal() and value.isascii():
                keep = cls(lines=int(value))
            else:
                keep = cls(share=float(value[:-1]) / 100 if value.endswith("%") else float(value))
        except ValueError:
            keep = cls(share=0.0)
        if not (keep.lines or 0 < (keep.share or 0) <= 1):
            raise UsageError(f"keep is '{text}'; give a part such as 0.2 or 20%, or a number of lines such as 1000")
        return keep

    def number(self, total: int) -> int:
        """Number of lines to keep out of `total`; a fraction is rounded, to at least one."""
        count = self.lines if self.share is None else max(1, round(self.share * total))
        return min(count or 0, total)


def measure_distances(judge: LineCost, corpus: Corpus, progress: Progress | bool = silent) -> Floats:
    """(N,) distance of every line of a corpus, read in batches."""
    progress = as_progress(progress)
    parts: list[Floats] = [np.zeros(0)]
    read, expected = 0, corpus.size_hint() or None
    for lines in read_batches_for(judge.models, corpus):
        parts.append(judge.distances(lines))
        read += sum(map(len, lines)) + len(lines)
        progress("scoring", read, expected if expected and read <= expected else None)
    return np.concatenate(parts)


def select_nearest(costs: Floats, number: int) -> Mask:
    """(N,) mask of the `number` lines of lowest cost; ties go to earlier lines."""
    if number >= len(costs):
        return np.ones(len(costs), dtype=bool)
    if number <= 0:
        return np.zeros(len(costs), dtype=bool)
    threshold = np.partition(costs, number - 1)[number - 1]
    is_kept: Mask = costs < threshold
    ties = np.flatnonzero(costs == threshold)
    is_kept[ties[: number - int(is_kept.sum())]] = True
    return is_kept


def assign_buckets(costs: Floats, number: int) -> Ids:
    """(N,) bucket of each line, 0 the nearest; buckets have equal size, ties go to earlier lines."""
    order = np.argsort(costs, kind="stable")
    parts = np.empty(len(costs), dtype=np.int16)
    parts[order] = np.arange(len(costs)) * number // max(1, len(costs))
    return parts


def reread_batches(corpus: Corpus, total: int) -> Iterator[tuple[slice, list[str]]]:
    """Read a corpus of `total` lines again; yield each batch with its line range. Raise if the corpus changed."""
    first = 0
    for lines in read_batches(corpus):
        last = first + len(lines)
        if last > total:
            break
        yield slice(first, last), lines
        first = last
    else:
        if first == total:
            return
    raise InputError(f"{corpus.name} changed while it was being read; start again")


def keep_nearest(
    judge: LineCost, corpus: Corpus, keep: str | Keep, progress: Progress | bool = silent
) -> Iterator[str]:
    """Lines nearest to the reference, in corpus order."""
    distances = measure_distances(judge, corpus, progress)
    selection = Keep.parse(keep) if isinstance(keep, str) else keep
    is_kept = select_nearest(distances, selection.number(len(distances)))
    for line_range, lines in reread_batches(corpus, len(distances)):
        yield from compress(lines, is_kept[line_range].tolist())
