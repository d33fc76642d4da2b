"""Tagging: learn from sentences whose words have tags.

Lives here: the run. Not here: what it begins with (beginning.py), the tagger that comes of it (tagger.py), its
network (neural/tagger.py), files of columns (text/columns.py), how tags are learnt and measured (tagset.py).
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.spellings import Spellings
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.neural import tagger
from chainrule.neural.learning import Plan, learn
from chainrule.neural.tagger import Collate, TagConfig, TagNetwork
from chainrule.tasks.beginning import Beginning, Given, begin
from chainrule.tasks.running import Running, digest
from chainrule.tasks.tagger import Sentences, Tagger, as_one, build, encode, load, most_words, read
from chainrule.tasks.tagset import TagReport, TagSet
from chainrule.text.columns import Tagged
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
    running = Running.of(running, chosen)
    data, name = read(tagged, column)
    held_out, held_name = read(valid, column) if valid else ((), "")
    if tokenizer == "word" or (tokenizer is None and pretrained is None):
        tokenizer = "whitespace"  # the words are given: each is one token
    given = Given(tokenizer=tokenizer, pretrained=pretrained, vectors=vectors)
    lines = [" ".join(map(as_one, sentence.words)) for sentence in data]
    begun = begin(TagConfig, family, chosen, lines, given, running, {"lowercase": True})
    _check_kind(begun.tokenizer)
    config = begun.config
    data, held_out = _short_enough(data, config, name), _short_enough(held_out, config, held_name)
    known = TagSet.of(data, config.scheme, name)
    spellings = Spellings.build(word for s in data for word in s.words) if config.characters else None
    gold = known.gold(held_out, held_name)
    lesson = _Lesson(begun, known, spellings, data, held_out, gold, column, running.seed)
    texts = [_lines(data), _lines(held_out)]
    job = running.job("tag", config, texts, {"text": begun.tokenizer}, begun.digest)
    origin = running.origin("tag", name, digest(texts[0]))
    start = time.perf_counter()
    network, log = learn(job, config, lambda: build(config, begun.tokenizer, known, spellings), lesson.plan)
    metrics = {"train_sentences": len(data), "train_words": sum(len(s.words) for s in data), **begun.metrics}
    metrics |= {"train_seconds": round(time.perf_counter() - start, 3), **job.summary}
    metrics |= lesson.figures(network)
    if metrics.get("valid_f1") == 0:
        _warn_of_no_spans(config, metrics)
    return lesson.model(network, origin=origin, metrics=metrics, log=log)


def _warn_of_no_spans(config: TagConfig, metrics: Mapping[str, Any]) -> None:
    """Say what to change where not one span of the validation sentences was found."""
    steps = metrics.get("train_steps", 0)
    warnings.warn(
        f"no span of the validation sentences is found (F1 0.0) after {steps:,} steps: too little was learnt; "
        f"raise --epochs (now {config.epochs}) or --learning-rate (now {config.learning_rate:g}), "
        f"lower --batch-size (now {config.batch_size}) for more steps, or give more sentences",
        ChainruleWarning,
        stacklevel=3,
    )


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What is learnt from, and what is watched."""

    begun: Beginning[TagConfig]
    known: TagSet
    spellings: Spellings | None
    data: Sequence[Tagged]
    held_out: Sequence[Tagged]
    gold: Sequence[Sequence[str]]  # of the held-out ones
    column: str | int | None
    seed: int

    def plan(self, network: TagNetwork, device: Any) -> Plan:
        """Batches of the sentences; validation by the error of the tags that are found."""
        self.begun.give(network.reader)
        vocabulary = self.begun.tokenizer.vocabulary
        ids = [encode(self.begun.tokenizer, sentence.words, i) for i, sentence in enumerate(self.data, start=1)]
        collate = Collate(
            ids=ids,
            words=[sentence.words for sentence in self.data],
            tags=self.known.encode(self.data),
            spellings=self.spellings,
            vocabulary=vocabulary,
            device=device,
            is_rare=np.bincount(np.concatenate(ids), minlength=vocabulary.size) == 1,
        )
        source = Examples(np.array([len(row) for row in ids]), collate, self.begun.config, self.seed)
        watched = self.model(network)
        validate = (lambda: watched.measure(self.held_out, self.gold).error) if self.held_out else None
        return Plan(source=source, objective=tagger.tag_loss, validate=validate, measure="error")

    def model(self, network: TagNetwork, **more: Any) -> Tagger:
        """The tagger as the network stands."""
        return Tagger(
            network=network,
            config=self.begun.config,
            tokenizer=self.begun.tokenizer,
            tags=self.known,
            spellings=self.spellings,
            column=self.column,
            **more,
        )

    def figures(self, network: TagNetwork) -> dict[str, Any]:
        """What the held-out sentences say."""
        if not self.held_out:
            return {}
        found = self.model(network).measure(self.held_out, self.gold)
        return {"valid_accuracy": found.accuracy} | ({} if found.spans is None else {"valid_f1": found.spans.f1})


def _check_kind(tokenizer: Tokenizer) -> None:
    kind = tokenizer.config.kind
    if not tokenizer.config.is_words:
        raise ConfigError(
            f"tokenizer is '{kind}', and tags belong to words; choose whitespace, or the folder of one"
        )


def _short_enough(sentences: Sequence[Tagged], config: TagConfig, name: str) -> list[Tagged]:
    """Those a network can learn from; those too long for a Transformer are counted in a warning."""
    most = most_words(config)
    kept = [s for s in sentences if s.words and (most is None or len(s.words) <= most)]
    too_long = [len(s.words) for s in sentences if len(s.words) > (most or len(s.words))]
    remedy = f"set longest to {max(too_long) + 2} (words, <s> and </s>)" if too_long else "give one that has words"
    if too_long:
        message = f"{name}: {len(too_long)} sentences have more than {most} words and are left out"
        warnings.warn(f"{message}; {remedy} to keep them", ChainruleWarning, stacklevel=3)
    if not kept and sentences:
        raise InputError(f"{name}: no sentence is left to learn from; {remedy}")
    return kept


def _lines(sentences: Sequence[Tagged]) -> list[str]:
    """One a word and one between sentences, for digests."""
    return [line for s in sentences for line in (*map("\t".join, zip(s.words, s.tags, strict=True)), "")]
