"""Tag inventory of a tagger, conversion between span schemes, and the evaluation report."""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, get_args

import numpy as np

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation import tagging
from chainrule.evaluation.tagging import Scheme, SpanScores
from chainrule.lm import Ids, Mask
from chainrule.text.conll import TaggedSentence

_BILOU: Final = re.compile(r"[BILU]-.+|O", re.DOTALL)
_SPAN: Final = re.compile(r"[A-Z]-.+", re.DOTALL)  # any prefix letter
MAX_TAGS: Final = 1 << 13  # transition tables are quadratic in it
_TO_BIOES: Final = {"L": "E", "U": "S"}


@dataclass(frozen=True, slots=True)
class TagSet:
    """Tags of a model and the schemes of its spans."""

    names: tuple[str, ...]  # in the scheme of the model; index = tag id
    scheme: Scheme | None  # span scheme of the training file; None: plain tags
    model_scheme: Scheme | None  # span scheme of the model

    @classmethod
    def of(cls, sentences: Sequence[TaggedSentence], requested: str, name: str) -> Self:
        """Collect the tags of sentences, most frequent first."""
        scheme = tagging.detect_scheme([sentence.tags for sentence in sentences])
        if scheme is None:
            _warn_of_spans({tag for sentence in sentences for tag in sentence.tags}, name)
        if scheme is None and requested in get_args(Scheme):
            raise ConfigError(
                f"model.scheme is '{requested}', but the tags of {name} follow no span scheme; leave it out"
            )
        targets: dict[str, Scheme | None] = {"auto": "bioes", "keep": scheme, "bioes": "bioes", "iob2": "iob2"}
        converter = cls((), scheme, None if scheme is None else targets[requested])
        counts = Counter(tag for sentence in sentences for tag in converter.to_model_scheme(sentence.tags))
        if len(counts) > MAX_TAGS:
            raise InputError(f"{name} has {len(counts):,} different tags; the maximum is {MAX_TAGS:,}")
        return cls(tuple(sorted(counts, key=lambda tag: (-counts[tag], tag))), scheme, converter.model_scheme)

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Parse the output of `to_json`; raise ValueError, KeyError or TypeError if it is invalid."""
        if not isinstance(document["names"], list) or len(document["names"]) > MAX_TAGS:
            raise ValueError(f"tags are a list of at most {MAX_TAGS} names")
        tag_set = cls(tuple(document["names"]), document["scheme"], document["learnt"])
        if (
            not tag_set.names
            or len(set(tag_set.names)) < len(tag_set.names)
            or {type(n) for n in tag_set.names} != {str}
        ):
            raise ValueError("tags are names, each once")
        if {tag_set.scheme, tag_set.model_scheme} - {None, *get_args(Scheme)} or (tag_set.scheme is None) != (
            tag_set.model_scheme is None
        ):
            raise ValueError(f"scheme {tag_set.scheme!r}, learnt as {tag_set.model_scheme!r}")
        try:
            _ = tag_set.allowed
        except InputError as error:
            raise ValueError(str(error)) from error
        return tag_set

    def to_json(self) -> dict[str, Any]:
        """JSON-serialisable form."""
        return {"names": list(self.names), "scheme": self.scheme, "learnt": self.model_scheme}

    @property
    def allowed(self) -> tagging.Transitions | None:
        """Allowed tag transitions; None: all."""
        return None if self.model_scheme is None else tagging.allowed_transitions(self.names, self.model_scheme)

    def to_model_scheme(self, sentence: Sequence[str]) -> list[str]:
        """Convert tags from the scheme of the training file to that of the model."""
        if self.scheme is None or self.model_scheme is None:
            return list(sentence)
        return tagging.convert_tags(sentence, self.scheme, self.model_scheme)

    def encode(self, sentences: Sequence[TaggedSentence]) -> list[Ids]:
        """Tag ids of each sentence; all tags must be known."""
        ids = {name: i for i, name in enumerate(self.names)}
        return [np.array([ids[tag] for tag in self.to_model_scheme(s.tags)], dtype=np.int64) for s in sentences]

    def decode(self, ids: Ids) -> list[str]:
        """Convert tag ids to tags in the scheme of the training file."""
        tags_ = [self.names[i] for i in ids]
        if self.scheme is None or self.model_scheme is None:
            return tags_
        return tagging.convert_tags(tags_, self.model_scheme, self.scheme)

    def gold(self, sentences: Sequence[TaggedSentence], name: str) -> list[Sequence[str]]:
        """Gold tags in the scheme of the training file; unknown tags are listed in a warning."""
        gold: list[Sequence[str]] = [sentence.tags for sentence in sentences]
        if self.scheme is None:
            unknown = {tag for sentence in gold for tag in sentence} - set(self.names)
        else:
            scheme = tagging.detect_scheme(gold)
            if scheme is None:
                self._refuse_plain({tag for sentence in gold for tag in sentence} - {tagging.OUTSIDE}, name)
            if scheme not in (None, self.scheme):
                gold = [tagging.convert_tags(sentence, scheme, self.scheme) for sentence in gold]
            unknown = _labels(gold, self.scheme) - _labels([self.names], self.model_scheme)
        if unknown:
            listed = ", ".join(sorted(unknown)[:5]) + (", …" if len(unknown) > 5 else "")
            message = f"{name}: not in the training data: {listed}; such tags count as errors"
            warnings.warn(message, ChainruleWarning, stacklevel=3)
        return gold

    def is_known(self, tags_: set[str]) -> bool:
        """Whether any of these tags (for spans: any label) is known; O alone counts as known."""
        if self.scheme is None:
            return not tags_.isdisjoint(self.names)
        labels = _labels([self.names], self.model_scheme)
        return tags_ <= {tagging.OUTSIDE} or any(tag[2:] in labels for tag in filter(_SPAN.fullmatch, tags_))

    def _refuse_plain(self, names: set[str], name: str) -> None:
        """Raise if plain tags are to be compared with spans."""
        plain = sorted(tag for tag in names if tagging.detect_scheme([[tag]]) is None)
        if plain:
            raise InputError(
                f"{name}: a tag such as {plain[0]!r} is not a span tag, but the model predicts "
                f"spans ({self.scheme}); "
                "name the column that holds them"
            )


def bilou_to_bioes(sentences: Sequence[TaggedSentence]) -> Sequence[TaggedSentence]:
    """Convert BILOU tags to the equivalent BIOES tags (L to E, U to S); other schemes are unchanged."""
    names = {tag for sentence in sentences for tag in sentence.tags}
    if not all(map(_BILOU.fullmatch, names)) or not any(tag[0] in _TO_BIOES for tag in names):
        return sentences
    converted = {tag: _TO_BIOES.get(tag[0], tag[0]) + tag[1:] for tag in names}
    return [
        TaggedSentence(sentence.words, tuple(converted[tag] for tag in sentence.tags)) for sentence in sentences
    ]


def _warn_of_spans(names: set[str], name: str) -> None:
    """Warn about tags that look like spans but fit no known scheme."""
    span_like = sorted(filter(_SPAN.fullmatch, names))
    if span_like and (tagging.OUTSIDE in names or any(tag.startswith("B-") for tag in span_like)):
        misfit = next(tag for tag in sorted(names - {tagging.OUTSIDE}) if tagging.detect_scheme([[tag]]) is None)
        message = (
            f"{name}: tags such as {span_like[0]!r} look like spans, "
            f"but {misfit!r} fits none of IOB1, IOB2, BIOES, BILOU"
        )
        warnings.warn(f"{message}; all are learnt as plain tags", ChainruleWarning, stacklevel=3)


def _labels(sentences: Iterable[Sequence[str]], scheme: Scheme | None) -> set[str]:
    assert scheme is not None
    # The order does not matter: every tag but O belongs to a span of its label.
    return {span.label for sentence in sentences for span in tagging.tags_to_spans(sentence, scheme)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport:
    """Evaluation of predicted tags against gold tags."""

    sentences: int
    words: int
    unknown_words: int  # not in the vocabulary
    accuracy: float
    unknown_accuracy: float  # on unknown words; 0 without any
    spans: SpanScores | None  # None: plain tags
    confusion: tagging.Confusion
    seconds: float

    @property
    def error(self) -> float:
        """Validation error: 1 − span F1, or 1 − accuracy for plain tags."""
        return 1 - (self.accuracy if self.spans is None else self.spans.f1)

    @property
    def words_per_second(self) -> float:
        """Tagging speed."""
        return self.words / max(self.seconds, 1e-9)

    @property
    def by_label(self) -> dict[str, SpanScores]:
        """Gold, predicted and correct counts per span label, or per tag for plain tags."""
        if self.spans is not None:
            return self.spans.by_label
        c = self.confusion
        rows = zip(c.labels, c.gold.tolist(), c.predicted.tolist(), c.counts.diagonal().tolist(), strict=True)
        return {label: SpanScores(gold, predicted, correct) for label, gold, predicted, correct in rows}


def evaluate_tags(
    gold: tagging.Sentences,
    predicted: tagging.Sentences,
    is_unknown: Sequence[Mask],
    scheme: Scheme | None,
    seconds: float,
) -> TagReport:
    """Compare predicted with gold tags, both in `scheme`; `is_unknown` marks out-of-vocabulary words."""
    unknown_pairs = [
        (gold_tags[t], predicted_tags[t])
        for gold_tags, predicted_tags, row in zip(gold, predicted, is_unknown, strict=True)
        for t in np.flatnonzero(row).tolist()
    ]
    scores = None
    if scheme is not None:
        scores = tagging.score_spans(
            [tagging.tags_to_spans(t, scheme) for t in gold], [tagging.tags_to_spans(t, scheme) for t in predicted]
        )
    return TagReport(
        sentences=len(gold),
        words=sum(map(len, predicted)),
        unknown_words=len(unknown_pairs),
        accuracy=tagging.accuracy(gold, predicted),
        unknown_accuracy=tagging.accuracy([[tag for tag, _ in unknown_pairs]], [[tag for _, tag in unknown_pairs]]),
        spans=scores,
        confusion=tagging.confusion(gold, predicted),
        seconds=seconds,
    )
