"""Tagging: learn from sentences whose words have tags.

Lives here: what a run begins with, and the run. Not here: the tagger that comes of it (tagger.py), its network
(neural/tagger.py), files of columns (text/columns.py), how tags are learnt and measured (tagset.py).
"""

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import config as settings
from chainrule.api import split_settings
from chainrule.data.spellings import Spellings
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.lm import Floats
from chainrule.neural import tagger
from chainrule.neural.learning import Plan, learn
from chainrule.neural.pretraining import adopt
from chainrule.neural.tagger import Collate, TagConfig, TagNetwork
from chainrule.tasks import pretrain
from chainrule.tasks.running import Running, make_tokenizer
from chainrule.tasks.tagger import Sentences, Tagger, as_one, build, encode, load, read
from chainrule.tasks.tagset import TagReport, TagSet
from chainrule.text.columns import Tagged
from chainrule.text.vectors import initial, read_vectors
from chainrule.tokenizers.config import KINDS
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import Examples

__all__ = ["Config", "TagReport", "Tagger", "load", "train"]

Config = TagConfig
"""What can be set, by the name that every task has for it."""


def train(
    family: str,
    tagged: Sentences,
    *,
    valid: Sentences | None = None,
    column: str | int | None = None,
    tokenizer: str | Path | None = None,
    pretrained: str | Path | None = None,
    vectors: str | Path | None = None,
    running: Running | None = None,
    **chosen: Any,
) -> Tagger:
    """Learn from tagged sentences; `chosen` are settings of the word table and of the model.

    Words are looked up lower-cased, unless told otherwise; their spellings are read as they stand. The encoder may
    start from a folder of `pretrain`, or the word vectors from a file.
    """
    running = running or Running()
    (data, name), (held_out, held_name) = read(tagged, column), read(valid or (), column)
    first = _first(family, chosen, data, tokenizer, pretrained, vectors, running)
    data, held_out = _short_enough(data, first.config, name), _short_enough(held_out, first.config, held_name)
    known = TagSet.of(data, first.config.scheme, name)
    spellings = Spellings.build(word for s in data for word in s.words) if first.config.characters else None
    lesson = _Lesson(first, known, spellings, data, held_out, known.gold(held_out, held_name), running.seed)
    texts = [_lines(data), _lines(held_out)]
    job = running.job("tag", first.config, texts, {"text": first.tokenizer})
    start = time.perf_counter()
    network, log = learn(
        job, first.config, lambda: build(first.config, first.tokenizer, known, spellings), lesson.plan
    )
    metrics = {"train_sentences": len(data), "train_words": sum(len(s.words) for s in data), **first.metrics}
    metrics["train_seconds"] = round(time.perf_counter() - start, 3)
    origin = running.origin("tag", name, texts[:1])
    return lesson.model(network, origin=origin, metrics=metrics | lesson.figures(network), log=log)


@dataclass(frozen=True, slots=True)
class _First:
    """What a run begins with."""

    config: TagConfig
    tokenizer: Tokenizer
    reader: Any = None  # of a pre-trained folder
    vectors: Floats | None = None  # (V, E) first word vectors
    metrics: dict[str, Any] = field(default_factory=dict)

    def give(self, network: TagNetwork) -> None:
        """Put what was learnt elsewhere in place of the first weights."""
        if self.reader is not None:
            adopt(network.reader, self.reader)
        if self.vectors is not None:
            tagger.start_from(network, self.vectors)


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What is learnt from, and what is watched."""

    first: _First
    known: TagSet
    spellings: Spellings | None
    data: Sequence[Tagged]
    held_out: Sequence[Tagged]
    gold: Sequence[Sequence[str]]  # of the held-out ones
    seed: int

    def plan(self, network: TagNetwork, device: Any) -> Plan:
        """Batches of the sentences; validation by the error of the tags that are found."""
        self.first.give(network)
        vocabulary = self.first.tokenizer.vocabulary
        ids = [encode(self.first.tokenizer, sentence.words, i) for i, sentence in enumerate(self.data, start=1)]
        collate = Collate(
            ids=ids,
            words=[sentence.words for sentence in self.data],
            tags=self.known.encode(self.data),
            spellings=self.spellings,
            vocabulary=vocabulary,
            device=device,
            is_rare=np.bincount(np.concatenate(ids), minlength=vocabulary.size) == 1,
        )
        source = Examples(np.array([len(row) for row in ids]), collate, self.first.config, self.seed)
        watched = self.model(network)
        validate = (lambda: watched.measure(self.held_out, self.gold).error) if self.held_out else None
        return Plan(source=source, objective=tagger.tag_loss, validate=validate, measure="error")

    def model(self, network: TagNetwork, **more: Any) -> Tagger:
        """The tagger as the network stands."""
        config, tokenizer = self.first.config, self.first.tokenizer
        return Tagger(
            network=network, config=config, tokenizer=tokenizer, tags=self.known, spellings=self.spellings, **more
        )

    def figures(self, network: TagNetwork) -> dict[str, Any]:
        """What the held-out sentences say."""
        if not self.held_out:
            return {}
        found = self.model(network).measure(self.held_out, self.gold)
        return {"valid_accuracy": found.accuracy} | ({} if found.spans is None else {"valid_f1": found.spans.f1})


def _first(
    family: str,
    chosen: Mapping[str, Any],
    data: Sequence[Tagged],
    tokenizer: str | Path | None,
    pretrained: str | Path | None,
    vectors: str | Path | None,
    running: Running,
) -> _First:
    wanted, own = split_settings({"family": family, **chosen})
    if pretrained is not None:
        if wanted or (tokenizer, vectors) != (None, None):
            which = "leave out --vectors, --tokenizer and its settings"
            raise ConfigError(f"{pretrained} has words and vectors of its own; {which}")
        return _with_pretrained(own, pretrained)
    config = settings.make(TagConfig, own, "model")
    kind = "word" if tokenizer is None else tokenizer
    default = {"lowercase": True} if kind in KINDS else {}
    lines = [" ".join(map(as_one, sentence.words)) for sentence in data]
    first = _First(config, _check_kind(make_tokenizer(lines, kind, default | wanted, running.progress)))
    return first if vectors is None else _with_vectors(first, vectors, "embedding" in own, running.seed)


def _with_pretrained(own: dict[str, object], folder: str | Path) -> _First:
    """Words, shape and weights of a pre-trained encoder."""
    given = pretrain.load(folder)
    if own["family"] != given.shape["family"]:
        raise ConfigError(
            f"the family is '{own['family']}' but '{given.shape['family']}' in {folder}; take that one"
        )
    config = settings.make(TagConfig, {**given.shape, **own}, "model")
    for name, value in given.shape.items():
        if (here := getattr(config, name)) != value:
            raise ConfigError(f"model.{name} is {here!r} but {value!r} in {folder}; set it so, or leave it out")
    return _First(config, _check_kind(given.tokenizer), reader=given.reader)


def _with_vectors(first: _First, file: str | Path, is_width_given: bool, seed: int) -> _First:
    """The same with the vectors of a file for the words it holds."""
    config, names = first.config, first.tokenizer.tokens(range(first.tokenizer.vocab_size))
    found = read_vectors(file, {*names, *(name.lower() for name in names)})
    width = found.matrix.shape[1]
    if is_width_given and config.embedding_width != width:
        raise ConfigError(
            f"model.embedding is {config.embedding_width} but {file} has vectors of {width}; leave it out"
        )
    matrix, coverage = initial(found, names, np.random.default_rng(seed))
    config = dataclasses.replace(config, embedding=width)
    return dataclasses.replace(first, config=config, vectors=matrix, metrics={"vectors_coverage": coverage})


def _check_kind(tokenizer: Tokenizer) -> Tokenizer:
    kind = tokenizer.config.kind
    if kind != "word":
        raise ConfigError(f"tokenizer is '{kind}', and tags belong to words; choose word, or the folder of one")
    return tokenizer


def _short_enough(sentences: Sequence[Tagged], config: TagConfig, name: str) -> list[Tagged]:
    """Those a network can learn from; those too long for a Transformer are counted in a warning."""
    longest = config.longest if config.family == "transformer" else None
    kept = [s for s in sentences if s.words and (longest is None or len(s.words) <= longest)]
    too_long = sum(len(s.words) > (longest or len(s.words)) for s in sentences)
    if too_long:
        message = f"{name}: {too_long} sentences have more than {longest} words and are left out"
        warnings.warn(f"{message}; set longest higher to keep them", ChainruleWarning, stacklevel=3)
    if not kept and sentences:
        raise InputError(f"{name}: no sentence is left to learn from; set longest higher")
    return kept


def _lines(sentences: Sequence[Tagged]) -> list[str]:
    """One a word and one between sentences, for digests."""
    return [line for s in sentences for line in (*map("\t".join, zip(s.words, s.tags, strict=True)), "")]
