"""Select the lines of a text that are most like the training text of a model.

The cost of a line is its bits per byte, its perplexity, or the cross-entropy difference of Moore & Lewis (2010).
The lines of the lowest cost are kept, or all lines are divided into equal parts by cost (Wenzek et al. 2020).

All costs are of the text itself, its unknown words spelled out: by p(`<unk>`) alone a line of nothing but unknown
words would be among the nearest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, Literal, NamedTuple, Self, get_args

import numpy as np

from chainrule.applications.lines import LineScores, Scorer, batches_for, count_words
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask
from chainrule.model import Model
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus, read_batches

By = Literal["perplexity", "bits-per-byte", "difference"]
WAYS: Final[tuple[By, ...]] = get_args(By)
LN2: Final = float(np.log(2))
LN_MOST: Final = float(np.log(np.finfo(np.float64).max))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The cost of a line: the lower, the nearer it is to the reference. No cost is NaN."""

    reference: Model
    against: Model | None = None  # a model of text in general, for the difference
    by: By = "bits-per-byte"
    scorers: tuple[Scorer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise UsageError(f"by is '{self.by}'; choose one of {', '.join(WAYS)}")
        if (self.by == "difference") != (self.against is not None):
            raise UsageError("a difference is of two models: give --against a background model, and no other --by")
        object.__setattr__(self, "scorers", tuple(Scorer(model) for model in self.models))

    @classmethod
    def of(cls, reference: Model, against: Model | None = None, by: str | None = None) -> Self:
        """By bits per byte, or by the difference where there is a background, unless `by` says otherwise."""
        default = "bits-per-byte" if against is None else "difference"
        return cls(reference=reference, against=against, by=by or default)  # type: ignore[arg-type]

    @property
    def models(self) -> list[Model]:
        """Those that read the text."""
        return [self.reference] if self.against is None else [self.reference, self.against]

    def costs(self, lines: list[str]) -> Floats:
        """(N,) the perplexity a word, the bits per byte, or the difference in bits a word, of each line."""
        return self.shown(self.distances(lines))

    def shown(self, distances: Floats) -> Floats:
        """Distances as costs: a perplexity is infinite where the line is impossible, and only there."""
        if self.by != "perplexity":
            return distances
        return np.asarray(np.where(distances == np.inf, np.inf, np.exp(np.minimum(distances, LN_MOST))))

    def distances(self, lines: list[str]) -> Floats:
        """(N,) what the nearest lines are chosen by: the costs, of perplexity the logarithm, which has no bound."""
        own, *general = (self._judged(scorer, lines) for scorer in self.scorers)
        if self.by == "bits-per-byte":
            return np.asarray(own.nats / LN2 / self.scorers[0].count_bytes(lines, own.scores))
        if self.by == "perplexity":
            return np.asarray(own.nats / own.words)
        # What the reference finds impossible is far, whatever the background says of it.
        far, is_near = np.full(len(lines), np.inf), np.isfinite(own.nats)
        difference = np.subtract(own.nats, general[0].nats, out=far, where=is_near)
        return np.asarray(difference / LN2 / own.words)

    def _judged(self, scorer: Scorer, lines: list[str]) -> "_Judged":
        """−log p of each line, with the spelling of its unknown words; infinite where the model has no speller."""
        scores = scorer.score(lines)
        words = scores.tokens if scorer.model.tokenizer.config.kind == "whitespace" else count_words(lines)
        return _Judged(scores, -scores.log_probs_with_spelling, words)


class _Judged(NamedTuple):
    scores: LineScores
    nats: Floats  # (N,)  −log p of the text
    words: Ids  # (N,)  with one for the end of the line


@dataclass(frozen=True, slots=True)
class Keep:
    """How many lines to keep: a part of all, or a number."""

    share: float | None = None
    lines: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`20%` and `0.2` are a fifth of the lines, `1000` is a thousand lines, `1.0` is all of them."""
        given = text.strip()
        try:
            if given.isdecimal() and given.isascii():
                found = cls(lines=int(given))
            else:
                found = cls(share=float(given[:-1]) / 100 if given.endswith("%") else float(given))
        except ValueError:
            found = cls(share=0.0)
        if not (found.lines or 0 < (found.share or 0) <= 1):
            raise UsageError(f"keep is '{text}'; give a part such as 0.2 or 20%, or a number of lines such as 1000")
        return found

    def number(self, total: int) -> int:
        """So many of `total` lines: the whole number nearest to the part, at least one of them."""
        wanted = self.lines if self.share is None else max(1, round(self.share * total))
        return min(wanted or 0, total)


def measure(judge: Judge, corpus: Corpus, progress: Progress | bool = silent) -> Floats:
    """The distance of every line of a text, (N,): eight bytes a line are all that is held."""
    progress = as_progress(progress)
    parts: list[Floats] = [np.zeros(0)]
    read, expected = 0, corpus.size_hint() or None
    for lines in batches_for(judge.models, corpus):
        parts.append(judge.distances(lines))
        read += sum(map(len, lines)) + len(lines)
        progress("scoring", read, expected if expected and read <= expected else None)
    return np.concatenate(parts)


def nearest(costs: Floats, number: int) -> Mask:
    """(N,) which lines have the lowest costs or distances, so many of them; the earlier among equals."""
    if number >= len(costs):
        return np.ones(len(costs), dtype=bool)
    if number <= 0:
        return np.zeros(len(costs), dtype=bool)
    highest = np.partition(costs, number - 1)[number - 1]
    is_kept: Mask = costs < highest
    equals = np.flatnonzero(costs == highest)
    is_kept[equals[: number - int(is_kept.sum())]] = True
    return is_kept


def buckets(costs: Floats, number: int) -> Ids:
    """(N,) the part each line belongs to, from 0, the nearest, on: parts of equal size, the earlier first."""
    order = np.argsort(costs, kind="stable")
    parts = np.empty(len(costs), dtype=np.int16)
    parts[order] = np.arange(len(costs)) * number // max(1, len(costs))
    return parts


def read_again(corpus: Corpus, total: int) -> Iterator[tuple[slice, list[str]]]:
    """A second reading of a text that had so many lines: batches of them, and which lines of all they are."""
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
    raise InputError(f"{corpus.name} changed while it was read; leave it alone and begin anew")


def keep_nearest(
    judge: Judge, corpus: Corpus, keep: str | Keep, progress: Progress | bool = silent
) -> Iterator[str]:
    """The lines of a text that are nearest to the reference, in the order of the text."""
    progress = as_progress(progress)
    distances = measure(judge, corpus, progress)
    wanted = Keep.parse(keep) if isinstance(keep, str) else keep
    is_kept = nearest(distances, wanted.number(len(distances)))
    for here, lines in read_again(corpus, len(distances)):
        yield from compress(lines, is_kept[here].tolist())
