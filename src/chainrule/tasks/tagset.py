"""The tags of a tagger: which there are, how spans are written while they are learnt, how those found compare.

Lives here: tags of the training file -> ids -> tags, and the report on them. Not here: the schemes themselves and
what is counted (evaluation/spans.py, evaluation/tags.py).
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, get_args

import numpy as np

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation import spans, tags
from chainrule.evaluation.spans import Scheme, SpanScores
from chainrule.lm import Ids, Mask
from chainrule.text.columns import Tagged

_BILOU: Final = re.compile(r"[BILU]-.+|O", re.DOTALL)
_SPAN: Final = re.compile(r"[A-Z]-.+", re.DOTALL)  # whatever the letter may mean
MOST_TAGS: Final = 1 << 13  # the tables of transitions have its square
_TO_BIOES: Final = {"L": "E", "U": "S"}


@dataclass(frozen=True, slots=True)
class TagSet:
    """The tags a model knows, and how it learns spans."""

    names: tuple[str, ...]  # as they are learnt; the i-th is tag i of the network
    scheme: Scheme | None  # in which the training file writes spans; None: its tags say nothing of spans
    learnt: Scheme | None  # in which they are learnt

    @classmethod
    def of(cls, sentences: Sequence[Tagged], wanted: str, name: str) -> Self:
        """What these sentences hold, the most frequent first."""
        scheme = spans.detect([sentence.tags for sentence in sentences])
        if scheme is None:
            _warn_of_spans({tag for sentence in sentences for tag in sentence.tags}, name)
        if scheme is None and wanted in get_args(Scheme):
            raise ConfigError(
                f"model.scheme is '{wanted}', and the tags of {name} are no scheme of spans; leave it out"
            )
        ways: dict[str, Scheme | None] = {"auto": "bioes", "keep": scheme, "bioes": "bioes", "iob2": "iob2"}
        bare = cls((), scheme, None if scheme is None else ways[wanted])
        counts = Counter(tag for sentence in sentences for tag in bare.as_learnt(sentence.tags))
        if len(counts) > MOST_TAGS:
            raise InputError(f"{name} has {len(counts):,} different tags; chainrule learns up to {MOST_TAGS:,}")
        return cls(tuple(sorted(counts, key=lambda tag: (-counts[tag], tag))), scheme, bare.learnt)

    @classmethod
    def from_json(cls, given: Any) -> Self:
        """Back from `to_json`; whatever could not have come from there is a ValueError or the like."""
        if not isinstance(given["names"], list) or len(given["names"]) > MOST_TAGS:
            raise ValueError(f"tags are a list of at most {MOST_TAGS} names")
        made = cls(tuple(given["names"]), given["scheme"], given["learnt"])
        if not made.names or len(set(made.names)) < len(made.names) or {type(n) for n in made.names} != {str}:
            raise ValueError("tags are names, each once")
        if {made.scheme, made.learnt} - {None, *get_args(Scheme)} or (made.scheme is None) != (made.learnt is None):
            raise ValueError(f"scheme {made.scheme!r}, learnt as {made.learnt!r}")
        try:
            _ = made.allowed
        except InputError as error:
            raise ValueError(str(error)) from error
        return made

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"names": list(self.names), "scheme": self.scheme, "learnt": self.learnt}

    @property
    def allowed(self) -> spans.Transitions | None:
        """Which tags may follow which; None: any."""
        return None if self.learnt is None else spans.allowed(self.names, self.learnt)

    def as_learnt(self, sentence: Sequence[str]) -> list[str]:
        """Tags of the training file as they are learnt, well-formed."""
        if self.scheme is None or self.learnt is None:
            return list(sentence)
        return spans.convert(sentence, self.scheme, self.learnt)

    def encode(self, sentences: Sequence[Tagged]) -> list[Ids]:
        """The ids of each sentence's tags, all of which are known."""
        places = {name: place for place, name in enumerate(self.names)}
        return [np.array([places[tag] for tag in self.as_learnt(s.tags)], dtype=np.int64) for s in sentences]

    def decode(self, ids: Ids) -> list[str]:
        """Tags as the training file writes them."""
        found = [self.names[i] for i in ids]
        if self.scheme is None or self.learnt is None:
            return found
        return spans.convert(found, self.learnt, self.scheme)

    def gold(self, sentences: Sequence[Tagged], name: str) -> list[Sequence[str]]:
        """The tags to measure by, in the scheme of the training file; unknown ones are named in a warning."""
        gold: list[Sequence[str]] = [sentence.tags for sentence in sentences]
        if self.scheme is None:
            unknown = {tag for sentence in gold for tag in sentence} - set(self.names)
        else:
            scheme = spans.detect(gold)
            if scheme is None:
                self._refuse_plain({tag for sentence in gold for tag in sentence} - {spans.OUTSIDE}, name)
            if scheme not in (None, self.scheme):
                gold = [spans.convert(sentence, scheme, self.scheme) for sentence in gold]
            unknown = _labels(gold, self.scheme) - _labels([self.names], self.learnt)
        if unknown:
            listed = ", ".join(sorted(unknown)[:5]) + (", …" if len(unknown) > 5 else "")
            message = f"{name}: the model never met {listed}; what is tagged so counts as an error"
            warnings.warn(message, ChainruleWarning, stacklevel=3)
        return gold

    def is_known(self, written: set[str]) -> bool:
        """Whether some of these tags are the model's; of spans their labels count, O alone says nothing against."""
        if self.scheme is None:
            return not written.isdisjoint(self.names)
        labels = _labels([self.names], self.learnt)
        return written <= {spans.OUTSIDE} or any(tag[2:] in labels for tag in filter(_SPAN.fullmatch, written))

    def _refuse_plain(self, names: set[str], name: str) -> None:
        """Tags that write no spans cannot be compared with spans."""
        plain = sorted(tag for tag in names if spans.detect([[tag]]) is None)
        if plain:
            raise InputError(
                f"{name}: a tag such as {plain[0]!r} writes no span, and the model learnt spans ({self.scheme}); "
                "name the column that holds them"
            )


def as_bioes(sentences: Sequence[Tagged]) -> Sequence[Tagged]:
    """The same sentences, where their tags are those of BILOU with L as E and U as S, which means the same."""
    names = {tag for sentence in sentences for tag in sentence.tags}
    if not all(map(_BILOU.fullmatch, names)) or not any(tag[0] in _TO_BIOES for tag in names):
        return sentences
    written = {tag: _TO_BIOES.get(tag[0], tag[0]) + tag[1:] for tag in names}
    return [Tagged(sentence.words, tuple(written[tag] for tag in sentence.tags)) for sentence in sentences]


def _warn_of_spans(names: set[str], name: str) -> None:
    """Tell of tags that seem to write spans, in no scheme that is known."""
    like = sorted(filter(_SPAN.fullmatch, names))
    if like and (spans.OUTSIDE in names or any(tag.startswith("B-") for tag in like)):
        odd = next(tag for tag in sorted(names - {spans.OUTSIDE}) if spans.detect([[tag]]) is None)
        message = (
            f"{name}: tags such as {like[0]!r} look like spans, but {odd!r} fits none of IOB1, IOB2, BIOES, BILOU"
        )
        warnings.warn(f"{message}; all are learnt as plain tags", ChainruleWarning, stacklevel=3)


def _labels(sentences: Iterable[Sequence[str]], scheme: Scheme | None) -> set[str]:
    assert scheme is not None
    # In whatever order: every tag but O is part of a span of its label.
    return {span.label for sentence in sentences for span in spans.read(sentence, scheme)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport:
    """How tags that were found compare with the right ones."""

    sentences: int
    words: int
    unknown_words: int  # not in the vocabulary
    accuracy: float
    unknown_accuracy: float  # of unknown words; 0 where there are none
    spans: SpanScores | None  # None: the tags say nothing of spans
    confusion: tags.Confusion
    seconds: float

    @property
    def error(self) -> float:
        """What a validation goes by: 1 − F1 of spans, or 1 − accuracy."""
        return 1 - (self.accuracy if self.spans is None else self.spans.f1)

    @property
    def words_per_second(self) -> float:
        """How fast they were found."""
        return self.words / max(self.seconds, 1e-9)

    @property
    def by_label(self) -> dict[str, SpanScores]:
        """Of each label the spans, or of each tag the words: there, found, and right."""
        if self.spans is not None:
            return self.spans.by_label
        c = self.confusion
        rows = zip(c.labels, c.gold.tolist(), c.found.tolist(), c.counts.diagonal().tolist(), strict=True)
        return {label: SpanScores(gold, found, correct) for label, gold, found, correct in rows}


def compare(
    gold: tags.Sentences, found: tags.Sentences, is_unknown: Sequence[Mask], scheme: Scheme | None, seconds: float
) -> TagReport:
    """The report on tags found in so many seconds; both sides in one scheme, `is_unknown` of each word."""
    strange = [
        (right[t], claimed[t])
        for right, claimed, row in zip(gold, found, is_unknown, strict=True)
        for t in np.flatnonzero(row).tolist()
    ]
    scores = None
    if scheme is not None:
        scores = spans.score([spans.read(t, scheme) for t in gold], [spans.read(t, scheme) for t in found])
    return TagReport(
        sentences=len(gold),
        words=sum(map(len, found)),
        unknown_words=len(strange),
        accuracy=tags.accuracy(gold, found),
        unknown_accuracy=tags.accuracy([[right for right, _ in strange]], [[claimed for _, claimed in strange]]),
        spans=scores,
        confusion=tags.confusion(gold, found),
        seconds=seconds,
    )
