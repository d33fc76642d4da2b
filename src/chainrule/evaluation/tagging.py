"""Tagging metrics (accuracy, confusion matrix, span scores) and conversion between span schemes."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.lm import Ids, Mask

Sentences = Sequence[Sequence[str]]
"""Tags of the words of each sentence."""
Scheme = Literal["iob1", "iob2", "bioes"]
"""`iob1`: I- inside, B- only if a span directly follows one of the same label. `iob2`: B- begins every span.
`bioes`: B- begins, I- continues and E- ends a span of several words; S- is a single-word span."""
OUTSIDE: Final = "O"
_PREFIXES: Final[dict[Scheme, str]] = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}
_TAG: Final = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)


class Mistake(NamedTuple):
    """Pair of a gold tag and a wrong predicted tag, with its frequency."""

    gold: str
    predicted: str
    frequency: int


@dataclass(frozen=True, slots=True)
class Confusion:
    """Confusion matrix of tags."""

    labels: tuple[str, ...]  # K tags, by decreasing gold frequency, then by name
    counts: Ids  # (K, K)  rows: gold tags, columns: predicted tags

    @property
    def gold(self) -> Ids:
        """Number of words with each gold tag, (K,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def predicted(self) -> Ids:
        """Number of words with each predicted tag, (K,)."""
        return np.asarray(self.counts.sum(axis=0))

    def most_confused(self, n: int) -> list[Mistake]:
        """Return the n most frequent mistakes, ties in the order of the labels."""
        if n < 0:
            raise UsageError(f"n is {n}; choose how many mistakes to list, 0 or more")
        mistakes = [
            Mistake(self.labels[row], self.labels[column], int(self.counts[row, column]))
            for row, column in np.argwhere(self.counts)
            if row != column
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.frequency)[:n]


def accuracy(gold: Sentences, predicted: Sentences) -> float:
    """Return the fraction of words with the correct tag; 0 if there are no words.

    >>> accuracy([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
    0.6666666666666666
    """
    pairs = Counter(_pair(gold, predicted))
    correct = sum(count for (gold_tag, predicted_tag), count in pairs.items() if gold_tag == predicted_tag)
    return correct / pairs.total() if pairs else 0.0


def confusion(gold: Sentences, predicted: Sentences) -> Confusion:
    """Return the confusion matrix over all gold and predicted tags."""
    pairs = Counter(_pair(gold, predicted))
    frequency = Counter(tag for tags in gold for tag in tags)
    labels = sorted({tag for pair in pairs for tag in pair}, key=lambda label: (-frequency[label], label))
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for (gold_tag, predicted_tag), count in pairs.items():
        counts[index[gold_tag], index[predicted_tag]] = count
    return Confusion(tuple(labels), counts)


def _pair(gold: Sentences, predicted: Sentences) -> Iterator[tuple[str, str]]:
    """Yield the gold and the predicted tag of each word."""
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold)} gold sentences but {len(predicted)} predictions; give one for each"
        )
    for number, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(gold_tags) != len(predicted_tags):
            raise InputError(
                f"sentence {number} has {len(gold_tags)} gold tags and {len(predicted_tags)} predicted ones; "
                "give each of its words one tag on both sides"
            )
        yield from zip(gold_tags, predicted_tags, strict=True)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Span of words `first` to `last`, inclusive, counted from 0."""

    first: int
    last: int
    label: str


class Transitions(NamedTuple):
    """Allowed transitions between K tags."""

    follows: Mask  # (K, K)  whether the column's tag may follow the row's tag
    starts: Mask  # (K,)  whether a sentence may start with it
    ends: Mask  # (K,)  whether a sentence may end with it


@dataclass(frozen=True, slots=True)
class SpanScores:
    """Numbers of gold, predicted and correct spans; a span is correct if its boundaries and label match."""

    gold: int
    predicted: int
    correct: int
    by_label: dict[str, "SpanScores"] = field(default_factory=dict)  # sorted by label

    @property
    def precision(self) -> float:
        """Fraction of predicted spans that are correct; 0 if none was predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of gold spans that were predicted; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """2PR / (P + R); 0 if no span is correct."""
        return 2 * self.correct / (self.gold + self.predicted) if self.correct else 0.0


class _Tag(NamedTuple):
    """Parsed tag."""

    prefix: str  # O, B, I, E or S
    label: str


_OUT: Final = _Tag(OUTSIDE, "")


def detect_scheme(tags: Iterable[Sequence[str]]) -> Scheme | None:
    """Detect the tagging scheme; None if a tag belongs to no scheme or all tags are `O`.

    A tag with E or S means `bioes`. Otherwise the scheme is `iob2` if every span begins with B, and `iob1` if B
    occurs only after a span of the same label; no sequence with a span satisfies both. Tags that satisfy neither
    are assigned to the scheme with fewer violations, `iob1` if equal.
    """
    sentences = list(tags)
    names = {tag for sentence in sentences for tag in sentence}
    if names <= {OUTSIDE} or any(tag != OUTSIDE and not _TAG.fullmatch(tag) for tag in names):
        return None
    parts = {tag: _parse_tag(tag, "bioes") for tag in names}
    if any(part.prefix in "ES" for part in parts.values()):
        return "bioes"
    violations: Counter[Scheme] = Counter()
    for sentence in sentences:
        for left, right in pairwise([_OUT, *(parts[tag] for tag in sentence)]):
            violations["iob2"] += not _may_follow(left, right, "iob2")
            violations["iob1"] += not _may_follow(left, right, "iob1")
    return "iob2" if violations["iob2"] < violations["iob1"] else "iob1"


def tags_to_spans(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """Return the spans of a sentence from left to right; ill-formed tags are read as conlleval reads them.

    A span begins at B or S, after E or S, and where the label changes; it ends where the next span begins and
    before O. An I after O therefore begins a span, and a missing E does not invalidate one. BIOES is read as
    seqeval reads it, because conlleval does not support S and merges spans of the same label after E or S.
    """
    parts = [_parse_tag(tag, scheme) for tag in tags]
    spans: list[Span] = []
    for position, (left, right) in enumerate(pairwise([_OUT, *parts])):
        if right.prefix == OUTSIDE:
            continue
        is_start = right.prefix in "BS" or left.prefix in "OES" or left.label != right.label
        spans.append(Span(position if is_start else spans.pop().first, position, right.label))
    return spans


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the tags of a sentence of `length` words with these spans, given in any order."""
    parts = [_OUT] * length
    end = 0  # of the previous span
    for span in sorted(spans):
        if not end <= span.first <= span.last < length:
            raise InputError(
                f"{span} overlaps another span or exceeds the sentence of {length} words; remove or correct it"
            )
        follows_same_label = (
            span.first > 0 and parts[span.first - 1] != _OUT and parts[span.first - 1].label == span.label
        )
        prefixes = _prefixes(span.last - span.first + 1, scheme, follows_same_label)
        for position, prefix in enumerate(prefixes, span.first):
            parts[position] = _Tag(prefix, span.label)
        end = span.last + 1
    return [f"{part.prefix}-{part.label}" if part.label else part.prefix for part in parts]


def convert_tags(tags: Sequence[str], from_: Scheme, to: Scheme) -> list[str]:
    """Convert tags to another scheme; converting to the same scheme repairs ill-formed tags."""
    return spans_to_tags(tags_to_spans(tags, from_), len(tags), to)


def allowed_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """Return which tags may follow one another, and which may start or end a well-formed sentence."""
    parts = [_parse_tag(tag, scheme) for tag in tags]
    follows = [[_may_follow(left, right, scheme) for right in parts] for left in parts]
    return Transitions(
        np.array(follows, dtype=bool).reshape(len(parts), len(parts)),
        np.array([_may_follow(_OUT, part, scheme) for part in parts], dtype=bool),
        np.array([_may_follow(part, _OUT, scheme) for part in parts], dtype=bool),
    )


def score_spans(gold: Sequence[Iterable[Span]], predicted: Sequence[Iterable[Span]]) -> SpanScores:
    """Score predicted spans against gold spans, sentence by sentence, overall and by label."""
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold)} gold sentences but {len(predicted)} predictions; give one for each"
        )
    gold_counts, predicted_counts, correct = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, predicted_spans in zip(map(set, gold), map(set, predicted), strict=True):
        gold_counts.update(span.label for span in gold_spans)
        predicted_counts.update(span.label for span in predicted_spans)
        correct.update(span.label for span in gold_spans & predicted_spans)
    labels = sorted(gold_counts | predicted_counts)
    by_label = {label: SpanScores(gold_counts[label], predicted_counts[label], correct[label]) for label in labels}
    return SpanScores(gold_counts.total(), predicted_counts.total(), correct.total(), by_label)


def _parse_tag(tag: str, scheme: Scheme) -> _Tag:
    if tag == OUTSIDE:
        return _OUT
    match = _TAG.fullmatch(tag)
    if not match or match[1] not in _PREFIXES[scheme]:
        prefixes = ", ".join(f"{prefix}-" for prefix in _PREFIXES[scheme])
        raise InputError(
            f"{tag!r} is not a tag of {scheme}, which has O and {prefixes} before a label; choose its scheme"
        )
    return _Tag(match[1], match[2] or "")


def _may_follow(left: _Tag, right: _Tag, scheme: Scheme) -> bool:
    """Return whether `right` may follow `left`; O precedes and follows a sentence."""
    is_same = left.prefix != OUTSIDE and right.prefix != OUTSIDE and left.label == right.label
    if scheme == "iob1":
        return right.prefix != "B" or is_same
    if scheme == "iob2":
        return right.prefix != "I" or is_same
    # bioes: a span must be continued or ended; outside a span neither is possible.
    return (is_same and right.prefix in "IE") if left.prefix in "BI" else right.prefix in "OBS"


def _prefixes(length: int, scheme: Scheme, follows_same_label: bool) -> str:
    """Return the prefixes of the words of a span."""
    if scheme == "bioes":
        return "S" if length == 1 else "B" + "I" * (length - 2) + "E"
    return ("B" if scheme == "iob2" or follows_same_label else "I") + "I" * (length - 1)
