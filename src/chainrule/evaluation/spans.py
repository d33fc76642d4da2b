"""Spans of words: the tags that write them, and how many of them were found.

Lives here: IOB1, IOB2 and BIOES, which tag may follow which, exact-match precision, recall and F1 as at CoNLL.
Not here: reading tags from files (text/columns.py), scores word by word (tags.py).

A tag is `O`, outside, or a prefix and a label, such as `B-PER`; where all spans are of one kind, the prefix alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Mask

Scheme = Literal["iob1", "iob2", "bioes"]
"""`iob1`: I- inside, B- where a span directly follows one of the same label. `iob2`: B- begins every span.
`bioes`: B- begins, I- goes on, E- ends a span of several words; S- is a span of one."""

OUTSIDE: Final = "O"
_PREFIXES: Final[dict[Scheme, str]] = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}
_TAG: Final = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Words `first` to `last` of a sentence, from 0, both of them in it."""

    first: int
    last: int
    label: str


class Transitions(NamedTuple):
    """What well-formed sequences of K tags may hold."""

    follows: Mask  # (K, K)  whether the tag of the column may come right after the tag of the row
    starts: Mask  # (K,)  whether a sentence may start with it
    ends: Mask  # (K,)  whether a sentence may end with it


@dataclass(frozen=True, slots=True)
class SpanScores:
    """How many spans there are, how many were found, and how many of these are right in both ends and label."""

    gold: int
    found: int
    correct: int
    by_label: dict[str, "SpanScores"] = field(default_factory=dict)  # in the order of the labels

    @property
    def precision(self) -> float:
        """Which part of the spans found is right; 0 where none was found."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Which part of the spans there are was found; 0 where there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """2PR / (P + R), the harmonic mean of the two; 0 where nothing is right."""
        return 2 * self.correct / (self.gold + self.found) if self.correct else 0.0


class _Part(NamedTuple):
    """A tag taken apart."""

    prefix: str  # O, B, I, E or S
    label: str


_OUT: Final = _Part(OUTSIDE, "")


def detect(tags: Iterable[Sequence[str]]) -> Scheme | None:
    """The scheme these sentences' tags are written in; None where some tag is of none, or all are outside.

    A tag with E or S makes it `bioes`. Otherwise it is `iob2` if every span begins with B, and `iob1` if B stands
    only behind a span of the same label; no sequence with a span in it is both. Tags that are neither are taken for
    the scheme that fewer spans break, `iob1` where as many break either.
    """
    sentences = list(tags)
    names = {tag for sentence in sentences for tag in sentence}
    if names <= {OUTSIDE} or any(tag != OUTSIDE and not _TAG.fullmatch(tag) for tag in names):
        return None
    parts = {tag: _take_apart(tag, "bioes") for tag in names}
    if any(part.prefix in "ES" for part in parts.values()):
        return "bioes"
    breaks: Counter[Scheme] = Counter()
    for sentence in sentences:
        for left, right in pairwise([_OUT, *(parts[tag] for tag in sentence)]):
            breaks["iob2"] += not _may_follow(left, right, "iob2")
            breaks["iob1"] += not _may_follow(left, right, "iob1")
    return "iob2" if breaks["iob2"] < breaks["iob1"] else "iob1"


def read(tags: Sequence[str], scheme: Scheme) -> list[Span]:
    """The spans of a sentence from left to right, also where its tags are ill-formed, as conlleval reads them.

    A span begins with B or S, after E or S, and wherever the label is not the one before; it ends where the next
    one begins, and before O. So an I that follows nothing begins a span, and one without its E is a span still.
    (BIOES is read as seqeval reads it: conlleval has no S, and joins what follows E or S with the same label.)
    """
    parts = [_take_apart(tag, scheme) for tag in tags]
    spans: list[Span] = []
    for place, (left, right) in enumerate(pairwise([_OUT, *parts])):
        if right.prefix == OUTSIDE:
            continue
        begins = right.prefix in "BS" or left.prefix in "OES" or left.label != right.label
        spans.append(Span(place if begins else spans.pop().first, place, right.label))
    return spans


def write(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of `length` words with these spans, in whatever order they are given."""
    parts = [_OUT] * length
    free = 0
    for span in sorted(spans):
        if not free <= span.first <= span.last < length:
            raise InputError(
                f"{span} overlaps another span or leaves the sentence of {length} words; drop or mend it"
            )
        follows_its_like = (
            span.first > 0 and parts[span.first - 1] != _OUT and parts[span.first - 1].label == span.label
        )
        for place, prefix in enumerate(_prefixes(span.last - span.first + 1, scheme, follows_its_like), span.first):
            parts[place] = _Part(prefix, span.label)
        free = span.last + 1
    return [f"{part.prefix}-{part.label}" if part.label else part.prefix for part in parts]


def convert(tags: Sequence[str], from_: Scheme, to: Scheme) -> list[str]:
    """The same spans in another scheme; in the same one, ill-formed tags come back well-formed."""
    return write(read(tags, from_), len(tags), to)


def allowed(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """Which of these tags may follow which, start and end a sentence, if it is to be well-formed."""
    parts = [_take_apart(tag, scheme) for tag in tags]
    follows = [[_may_follow(left, right, scheme) for right in parts] for left in parts]
    return Transitions(
        np.array(follows, dtype=bool).reshape(len(parts), len(parts)),
        np.array([_may_follow(_OUT, part, scheme) for part in parts], dtype=bool),
        np.array([_may_follow(part, _OUT, scheme) for part in parts], dtype=bool),
    )


def score(gold: Sequence[Iterable[Span]], found: Sequence[Iterable[Span]]) -> SpanScores:
    """How the spans found compare with the gold ones, sentence by sentence: over all of them, and by label."""
    if len(gold) != len(found):
        raise InputError(f"{len(gold)} gold sentences against {len(found)} found; score the same sentences")
    there, claimed, correct = Counter[str](), Counter[str](), Counter[str]()
    for gold_spans, found_spans in zip(map(set, gold), map(set, found), strict=True):
        there.update(span.label for span in gold_spans)
        claimed.update(span.label for span in found_spans)
        correct.update(span.label for span in gold_spans & found_spans)
    labels = sorted(there | claimed)
    by_label = {label: SpanScores(there[label], claimed[label], correct[label]) for label in labels}
    return SpanScores(there.total(), claimed.total(), correct.total(), by_label)


def _take_apart(tag: str, scheme: Scheme) -> _Part:
    if tag == OUTSIDE:
        return _OUT
    match = _TAG.fullmatch(tag)
    if not match or match[1] not in _PREFIXES[scheme]:
        prefixes = ", ".join(f"{prefix}-" for prefix in _PREFIXES[scheme])
        raise InputError(
            f"{tag!r} is no tag of {scheme}, which has O and {prefixes} before a label; choose its scheme"
        )
    return _Part(match[1], match[2] or "")


def _may_follow(left: _Part, right: _Part, scheme: Scheme) -> bool:
    """Whether two neighbours are well-formed; the sentence stands between two O."""
    is_same = left.prefix != OUTSIDE and right.prefix != OUTSIDE and left.label == right.label
    if scheme == "iob1":
        return right.prefix != "B" or is_same
    if scheme == "iob2":
        return right.prefix != "I" or is_same
    # bioes: inside a span it goes on or ends; outside of one it does neither.
    return (is_same and right.prefix in "IE") if left.prefix in "BI" else right.prefix in "OBS"


def _prefixes(length: int, scheme: Scheme, follows_its_like: bool) -> str:
    """The prefixes of a span's words."""
    if scheme == "bioes":
        return "S" if length == 1 else "B" + "I" * (length - 2) + "E"
    return ("B" if scheme == "iob2" or follows_its_like else "I") + "I" * (length - 1)
