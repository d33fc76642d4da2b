"""Sequence tagging: train on sentences with one tag per word, tag, evaluate, save and load."""

import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.data.char_vocabulary import CharVocabulary
from chainrule.data.encoded import batches_by_length
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.lm import Ids
from chainrule.neural import weights
from chainrule.neural.device import device_of, select_device
from chainrule.neural.encoders import tagger
from chainrule.neural.encoders.tagger import TagBatch, TagCollator, TagConfig, TagNetwork
from chainrule.neural.family import fit
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.provenance import translate_config_errors
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.tasks import model
from chainrule.tasks.initialization import Initialization, PretrainedSources, initialize
from chainrule.tasks.run_setup import digest_texts, identify, make_origin
from chainrule.tasks.tagset import TagReport, TagSet, bilou_to_bioes, evaluate_tags
from chainrule.text.conll import TaggedSentence, read_tagged
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.batches import ExampleBatches
from chainrule.training.trainer import TrainingPlan

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
        progress = as_progress(progress)
        paths = self._apply(sentences, tagger.best_tags, "tagging", progress)
        return [self.tags.decode(np.array(path, dtype=np.int64)) for path in paths]

    def confidences(
        self, sentences: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> list[list[float]]:
        """p(tag | words) of the tags predicted by `tag_all`, in the scheme of the model (S-PER, not I-PER)."""
        progress = as_progress(progress)
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
        progress = as_progress(progress)
        sentences, name = read_sentences(tagged, self.column if column is None else column)
        return self.measure(sentences, self.tags.gold(sentences, name), progress)

    def measure(
        self, sentences: Sequence[TaggedSentence], gold: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> TagReport:
        """Tag sentences and compare with `gold`, in the scheme of the training file."""
        progress = as_progress(progress)
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
        progress: Progress,
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
        data = self._collate(
            [ids[i][window.span] for i, window in windows], [sentences[i][window.span] for i, window in windows]
        )
        outputs: dict[int, np.ndarray] = {}
        for rows in report_progress(batch_by_length(data), label, progress):
            outputs |= zip(rows.tolist(), function(self.network, data(rows)), strict=True)
        results: list[list[Any]] = [[] for _ in sentences]
        for k, (i, window) in enumerate(windows):
            results[i] += outputs[k][window.core].tolist()
        return results

    def _collate(self, ids: Sequence[Ids], words: Sequence[Sequence[str]]) -> TagCollator:
        return TagCollator(
            ids=ids,
            words=words,
            tags=None,
            spellings=self.spellings,
            vocabulary=self.tokenizer.vocabulary,
            device=device_of(self.network),
        )


def load(folder: VerifiedDir, device: str = "auto") -> Tagger:
    """Load a tagger from an open folder."""
    parts = model.read(folder, "tag", TagConfig)
    config, tokenizer = parts.config, parts.tokenizers["text"]
    with translate_config_errors(folder):
        tag_set = TagSet.from_json(parts.extra["tags"])
        spellings = CharVocabulary.from_json(parts.extra["characters"]) if config.characters else None
        network = weights.load_network(folder, lambda: build(config, tokenizer, tag_set, spellings), config.layers)
        column = parts.extra.get("column")  # absent in older folders
        if not isinstance(column, str | int | None):
            raise ValueError(f"column {column!r}")
    return Tagger(
        network=network.to(select_device(device)).eval(),
        tokenizer=tokenizer,
        tags=tag_set,
        spellings=spellings,
        column=column,
        **model.saved_fields(parts),
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
    """Train a tagger; `chosen` holds tokenizer and model settings.

    Words are lower-cased by default; the character encoder sees their original spelling. The encoder may start from
    a `pretrain` folder or from a file of word vectors.
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
        options, config, lambda: build(config, initialization.tokenizer, tag_set, spellings), training.plan
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
    warnings.warn(
        f"no span of the validation sentences is found (F1 0.0) after {steps:,} steps: the model is undertrained; "
        f"raise --epochs (now {config.epochs}) or --learning-rate (now {config.learning_rate:g}), "
        f"lower --batch-size (now {config.batch_size}) for more steps, or give more sentences",
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
        source = ExampleBatches(np.array([len(row) for row in ids]), collate, self.initialization.config, self.seed)
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
        raise InputError("there are no sentences; give a file, or a list of Tagged(words, tags)")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, TaggedSentence):
            raise InputError(
                f"sentence {number} is {sentence!r:.60}; give Tagged(words, tags), each word with a tag"
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
    """Replace white space inside a word by underscores."""
    return re.sub(r"[ \t\r\n]", "_", word)


def report_progress(row_batches: Sequence[Ids], label: str, progress: Progress) -> Iterator[Ids]:
    """Iterate over batches and report progress."""
    done, total = 0, sum(map(len, row_batches))
    for rows in row_batches:
        progress(label, done, total)
        yield rows
        done += len(rows)
    progress(label, done, total)
