"""Sequence tagging: tag set, span schemes, training on sentences with one tag per word, evaluation, saving."""

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, get_args

import numpy as np

from chainrule.data.encoded import batches_by_length
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation import tagging
from chainrule.evaluation.tagging import Scheme, SpanScores
from chainrule.lm import Ids, Mask
from chainrule.neural import weights
from chainrule.neural.encoders import tagger
from chainrule.neural.encoders.tagger import TagBatch, TagCollator, TagConfig, TagNetwork
from chainrule.neural.family import fit
from chainrule.neural.layers.char_cnn import CharVocabulary
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.provenance import translate_config_errors
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.tasks import model
from chainrule.tasks.initialization import Initialization, PretrainedSources, initialize
from chainrule.tasks.run_setup import digest_texts, identify, make_origin
from chainrule.text.conll import TaggedSentence, read_tagged
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.batches import ExampleBatches
from chainrule.training.device import device_of, select_device
from chainrule.training.trainer import TrainingPlan

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
            raise ValueError(f"scheme {tag_set.scheme!r}, learned as {tag_set.model_scheme!r}")
        try:
            _ = tag_set.allowed
        except InputError as error:
            raise ValueError(str(error)) from error
        return tag_set

    def to_json(self) -> dict[str, Any]:
        """JSON-serializable form."""
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
                "specify the column that contains them"
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
        warnings.warn(f"{message}; all are learned as plain tags", ChainruleWarning, stacklevel=3)


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
    unknown_accuracy: float  # on unknown words; 0 if there are none
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


__all__ = ["Config", "TagReport", "Tagger", "load", "train"]

Config = TagConfig
BATCH_SIZE: Final = 64  # sentences per batch
OVERLAP: Final = 4  # consecutive windows overlap by 1/OVERLAP of their length
Sentences = str | Path | Sequence[TaggedSentence]
"""A CoNLL-style file or the sentences read from one."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tagger(model.NetworkModel):
    """A trained tagger p(tags | words)."""

    task = "tag"
    noun = "tagger"
    network: TagNetwork
    config: TagConfig
    tokenizer: Tokenizer
    tags: TagSet
    spellings: CharVocabulary | None
    column: str | int | None = None  # tag column of the training file; None: the default column

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizer, as "text"."""
        return {"text": self.tokenizer}

    @property
    def extra(self) -> dict[str, Any]:
        """Tags, character vocabulary and tag column."""
        characters = None if self.spellings is None else self.spellings.to_json()
        return {"tags": self.tags.to_json(), "characters": characters, "column": self.column}

    def tag(self, words: Sequence[str]) -> list[str]:
        """Tag one sentence."""
        return self.tag_all([words])[0]

    def tag_all(self, sentences: Sequence[Sequence[str]], progress: Progress | bool = silent) -> list[list[str]]:
        """Tag every sentence, in the tag scheme of the training file."""
        paths = self._apply(sentences, tagger.best_tags, "tagging", progress)
        return [self.tags.decode(np.array(path, dtype=np.int64)) for path in paths]

    def confidences(
        self, sentences: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> list[list[float]]:
        """p(tag | words) of the tags predicted by `tag_all`, in the scheme of the model (S-PER, not I-PER)."""
        return self._apply(sentences, tagger.confidences, "weighing", progress)

    def marginals(self, words: Sequence[str], most: int = 5) -> list[dict[str, float]]:
        """The `most` probable tags of each word with p(tag | words), in the scheme of the model."""
        if not words:
            return []
        probabilities = np.array(self._apply([words], tagger.marginals, "weighing", silent)[0])  # (n, K)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :most]
        return [
            {self.tags.names[k]: float(row[k]) for k in ks} for row, ks in zip(probabilities, order, strict=True)
        ]

    def evaluate(
        self, tagged: Sentences, *, column: str | int | None = None, progress: Progress | bool = silent
    ) -> TagReport:
        """Tag sentences and compare with their gold tags.

        Tags absent from the training data count as errors and are listed in a warning. `column` defaults to the
        tag column of the training file.
        """
        sentences, name = read_sentences(tagged, self.column if column is None else column)
        return self.measure(sentences, self.tags.gold(sentences, name), progress)

    def measure(
        self, sentences: Sequence[TaggedSentence], gold: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> TagReport:
        """Tag sentences and compare with `gold`, in the scheme of the training file."""
        start = time.perf_counter()
        predicted = self.tag_all([sentence.words for sentence in sentences], progress)
        seconds = time.perf_counter() - start
        ids = [encode(self.tokenizer, sentence.words, i) for i, sentence in enumerate(sentences, start=1)]
        return evaluate_tags(gold, predicted, [row == self.tokenizer.unk for row in ids], self.tags.scheme, seconds)

    def _apply(
        self,
        sentences: Sequence[Sequence[str]],
        function: Callable[[TagNetwork, TagBatch], Sequence[np.ndarray]],
        label: str,
        progress: Progress | bool,
    ) -> list[list[Any]]:
        """Apply `function` to every word; sentences too long for the network are split into overlapping windows."""
        if isinstance(sentences, str):
            raise InputError(f"the sentences are one text, {sentences[:40]!r}; give a list of lists of words")
        ids = [encode(self.tokenizer, words, i) for i, words in enumerate(sentences, start=1)]
        limit = max_words(self.config)
        lengths = [len(row) for row in ids]
        windows = [(i, window) for i, n in enumerate(lengths) for window in split_windows(n, limit or n)]
        too_long = sum(n > (limit or n) for n in lengths)
        if too_long:
            message = f"{too_long} of {len(ids)} sentences have more than {limit} words and are read in pieces"
            remedy = f"a model trained with longest={max(lengths) + 2} reads them whole"
            warnings.warn(f"{message}; {remedy}", ChainruleWarning, stacklevel=3)
        data = TagCollator(
            ids=[ids[i][window.span] for i, window in windows],
            words=[sentences[i][window.span] for i, window in windows],
            tags=None,
            spellings=self.spellings,
            vocabulary=self.tokenizer.vocabulary,
            device=device_of(self.network),
        )
        outputs: dict[int, np.ndarray] = {}
        for rows in report_progress(batch_by_length(data), label, as_progress(progress)):
            outputs |= zip(rows.tolist(), function(self.network, data(rows)), strict=True)
        results: list[list[Any]] = [[] for _ in sentences]
        for k, (i, window) in enumerate(windows):
            results[i] += outputs[k][window.core].tolist()
        return results


def load(folder: VerifiedDir, device: str = "auto") -> Tagger:
    """Load a tagger from an open folder."""
    fields, tokenizers, extra = model.read(folder, "tag", TagConfig)
    config, tokenizer = fields["config"], tokenizers["text"]
    with translate_config_errors(folder):
        tag_set = TagSet.from_json(extra["tags"])
        spellings = CharVocabulary.from_json(extra["characters"]) if config.characters else None
        network = weights.load_network(folder, lambda: build(config, tokenizer, tag_set, spellings), config.layers)
        column = extra.get("column")  # absent in older folders
        if not isinstance(column, str | int | None):
            raise ValueError(f"column {column!r}")
    return Tagger(
        network=network.to(select_device(device)).eval(),
        tokenizer=tokenizer,
        tags=tag_set,
        spellings=spellings,
        column=column,
        **fields,
    )


def build(config: TagConfig, tokenizer: Tokenizer, tag_set: TagSet, spellings: CharVocabulary | None) -> TagNetwork:
    """Create an untrained network."""
    characters = 0 if spellings is None else spellings.size
    return TagNetwork(config, tokenizer.vocabulary, characters, len(tag_set.names), tag_set.allowed)


def train(
    family: str,
    tagged: Sentences,
    *,
    valid: Sentences | None = None,
    column: str | int | None = None,
    tokenizer: str | Path | None = None,
    pretrained: str | Path | None = None,
    vectors: str | Path | None = None,
    options: RunOptions | None = None,
    **chosen: Any,
) -> Tagger:
    """Train a tagger; `chosen` contains tokenizer and model settings.

    Words are lower-cased by default; the character encoder reads their original spelling. The encoder may start
    from a `pretrain` folder or from a file of word vectors.
    """
    options = RunOptions.merge(options, chosen).check_output()
    data, name = read_sentences(tagged, column)
    valid_data, valid_name = read_sentences(valid, column) if valid else ((), "")
    if tokenizer == "word" or (tokenizer is None and pretrained is None):
        tokenizer = "whitespace"  # the input is split into words already
    sources = PretrainedSources(tokenizer=tokenizer, pretrained=pretrained, vectors=vectors)
    lines = [" ".join(map(replace_blanks, sentence.words)) for sentence in data]
    initialization = initialize(TagConfig, family, chosen, lines, sources, options, {"lowercase": True})
    _check_tokenizer(initialization.tokenizer)
    config = initialization.config
    data, valid_data = _drop_long(data, config, name), _drop_long(valid_data, config, valid_name)
    tag_set = TagSet.of(data, config.scheme, name)
    spellings = CharVocabulary.build(word for s in data for word in s.words) if config.characters else None
    gold = tag_set.gold(valid_data, valid_name)
    training = _TaggerTraining(initialization, tag_set, spellings, data, valid_data, gold, column, options.seed)
    texts = [_digest_lines(data), _digest_lines(valid_data)]
    options = identify(options, "tag", config, texts, [initialization.tokenizer], initialization.digest)
    origin = make_origin(options, "tag", name, digest_texts(texts[0]))
    start = time.perf_counter()
    network, log, summary = fit(
        options, config.training, lambda: build(config, initialization.tokenizer, tag_set, spellings), training.plan
    )
    metrics = {
        "train_sentences": len(data),
        "train_words": sum(len(s.words) for s in data),
        **initialization.metrics,
    }
    metrics |= {"train_seconds": round(time.perf_counter() - start, 3), **summary}
    metrics |= training.figures(network)
    if metrics.get("valid_f1") == 0:
        _warn_no_spans(config, metrics)
    return training.model(network, origin=origin, metrics=metrics, log=log)


def _warn_no_spans(config: TagConfig, metrics: Mapping[str, Any]) -> None:
    """Warn that no validation span was predicted correctly, with remedies."""
    steps = metrics.get("train_steps", 0)
    training = config.training
    warnings.warn(
        f"no span of the validation sentences is found (F1 0.0) after {steps:,} steps: the model is undertrained; "
        f"raise --epochs (now {training.epochs}) or --learning-rate (now {training.learning_rate:g}), "
        f"lower --batch-size (now {training.batch_size}) for more steps, or give more sentences",
        ChainruleWarning,
        stacklevel=3,
    )


@dataclass(frozen=True, slots=True)
class _TaggerTraining:
    """Training and validation data of a tagger."""

    initialization: Initialization[TagConfig]
    tag_set: TagSet
    spellings: CharVocabulary | None
    data: Sequence[TaggedSentence]
    held_out: Sequence[TaggedSentence]
    gold: Sequence[Sequence[str]]  # tags of `held_out`
    column: str | int | None
    seed: int

    def plan(self, network: TagNetwork, device: Any) -> TrainingPlan:
        """Training plan: batches of sentences, validated by tagging error."""
        self.initialization.apply(network.reader)
        vocabulary = self.initialization.tokenizer.vocabulary
        ids = [
            encode(self.initialization.tokenizer, sentence.words, i)
            for i, sentence in enumerate(self.data, start=1)
        ]
        collate = TagCollator(
            ids=ids,
            words=[sentence.words for sentence in self.data],
            tags=self.tag_set.encode(self.data),
            spellings=self.spellings,
            vocabulary=vocabulary,
            device=device,
            is_rare=np.bincount(np.concatenate(ids), minlength=vocabulary.size) == 1,
        )
        source = ExampleBatches(
            np.array([len(row) for row in ids]), collate, self.initialization.config.training, self.seed
        )
        model = self.model(network)
        validate = (lambda: model.measure(self.held_out, self.gold).error) if self.held_out else None
        return TrainingPlan(source=source, objective=tagger.tag_loss, validate=validate, measure="error")

    def model(self, network: TagNetwork, **more: Any) -> Tagger:
        """Wrap the current network in a `Tagger`."""
        return Tagger(
            network=network,
            config=self.initialization.config,
            tokenizer=self.initialization.tokenizer,
            tags=self.tag_set,
            spellings=self.spellings,
            column=self.column,
            **more,
        )

    def figures(self, network: TagNetwork) -> dict[str, Any]:
        """Validation metrics; empty without validation data."""
        if not self.held_out:
            return {}
        report = self.model(network).measure(self.held_out, self.gold)
        return {"valid_accuracy": report.accuracy} | ({} if report.spans is None else {"valid_f1": report.spans.f1})


def _check_tokenizer(tokenizer: Tokenizer) -> None:
    kind = tokenizer.config.kind
    if not tokenizer.config.is_word_level:
        raise ConfigError(
            f"tokenizer is '{kind}', but tags belong to words; choose whitespace, or the folder of a word tokenizer"
        )


def _drop_long(sentences: Sequence[TaggedSentence], config: TagConfig, name: str) -> list[TaggedSentence]:
    """Drop empty sentences and, with a warning, those too long for a Transformer."""
    limit = max_words(config)
    usable = [s for s in sentences if s.words and (limit is None or len(s.words) <= limit)]
    too_long = [len(s.words) for s in sentences if len(s.words) > (limit or len(s.words))]
    remedy = f"set longest to {max(too_long) + 2} (words, <s> and </s>)" if too_long else "give one that has words"
    if too_long:
        message = f"{name}: {len(too_long)} sentences have more than {limit} words and are left out"
        warnings.warn(f"{message}; {remedy} to keep them", ChainruleWarning, stacklevel=3)
    if not usable and sentences:
        raise InputError(f"{name}: no sentence is left to learn from; {remedy}")
    return usable


def _digest_lines(sentences: Sequence[TaggedSentence]) -> list[str]:
    """One line per word and an empty line after each sentence, for the digest."""
    return [line for s in sentences for line in (*map("\t".join, zip(s.words, s.tags, strict=True)), "")]


def read_sentences(tagged: Sentences, column: str | int | None) -> tuple[Sequence[TaggedSentence], str]:
    """Read sentences, convert BILOU tags to BIOES, and return them with a name for messages."""
    if isinstance(tagged, str | Path):
        name = "standard input" if str(tagged) == "-" else str(tagged)
        return bilou_to_bioes(read_tagged(tagged, column=column)), name
    sentences = list(tagged) if isinstance(tagged, Iterable) else []
    if not sentences:
        raise InputError("there are no sentences; give a file, or a list of TaggedSentence(words, tags)")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, TaggedSentence):
            raise InputError(
                f"sentence {number} is {sentence!r:.60}; give TaggedSentence(words, tags) with a tag for each word"
            )
    return bilou_to_bioes(sentences), "sentences in memory"


def encode(tokenizer: Tokenizer, words: Sequence[str], number: int) -> Ids:
    """(n,) one id per word; `number` identifies the sentence in messages."""
    if isinstance(words, str):
        raise InputError(
            f"sentence {number} is one text, {words[:40]!r}; give a list of words, as text.split() does"
        )
    if tokenizer.config.splits_punctuation:  # each word stays one token
        ids = np.array([tokenizer.word_id(replace_blanks(word)) for word in words if word], dtype=np.int64)
    else:
        ids = tokenizer.encode(" ".join(map(replace_blanks, words))).astype(np.int64)
    if len(ids) != len(words):
        raise InputError(f"sentence {number} has {len(words)} words, some of them empty; leave these out")
    return ids


def max_words(config: TagConfig) -> int | None:
    """Maximum sentence length: `longest` minus `<s>` and `</s>` for a Transformer, else None."""
    return config.longest - 2 if config.family == "transformer" else None


class Window(NamedTuple):
    """Window of a long sentence."""

    span: slice  # words of the sentence
    core: slice  # words of the window that lie further from its edge than in the neighbouring windows


def split_windows(n: int, most: int) -> list[Window]:
    """Split n words into windows of at most `most`; neighbours overlap by a quarter or more.

    >>> [(window.span, window.core) for window in split_windows(6, 4)]
    [(slice(0, 4, None), slice(0, 3, None)), (slice(2, 6, None), slice(1, 4, None))]
    """
    if n <= most:
        return [Window(slice(0, n), slice(0, n))] if n else []
    starts = [*range(0, n - most, most - most // OVERLAP), n - most]
    # Word t of an overlap is t − right from the start of the later window and left + most − 1 − t from the end
    # of the earlier one.
    ends = [*((left + right + most + 1) // 2 for left, right in pairwise(starts)), n]
    return [
        Window(slice(start, start + most), slice(first - start, end - start))
        for start, first, end in zip(starts, [0, *ends], ends, strict=False)
    ]


def batch_by_length(data: TagCollator) -> list[Ids]:
    """Batches of row numbers sorted by length, without empty sentences."""
    lengths = np.array([len(row) for row in data.ids], dtype=np.int64)
    rows = np.flatnonzero(lengths)
    return [rows[batch] for batch in batches_by_length(lengths[rows], BATCH_SIZE)]


def replace_blanks(word: str) -> str:
    """Replace white space inside a word with underscores."""
    return re.sub(r"[ \t\r\n]", "_", word)


def report_progress(row_batches: Sequence[Ids], label: str, progress: Progress) -> Iterator[Ids]:
    """Iterate over batches and report progress."""
    done, total = 0, sum(map(len, row_batches))
    for rows in row_batches:
        progress(label, done, total)
        yield rows
        done += len(rows)
    progress(label, done, total)
