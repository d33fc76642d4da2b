"""Train a sequence tagger on sentences with one tag per word."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.spellings import CharVocabulary
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.neural import tagger
from chainrule.neural.learning import TrainingPlan, fit
from chainrule.neural.tagger import TagCollator, TagConfig, TagNetwork
from chainrule.tasks.beginning import Initialization, PretrainedSources, initialize
from chainrule.tasks.running import RunOptions, digest_texts
from chainrule.tasks.tagger import Sentences, Tagger, build, encode, load, max_words, read_sentences, replace_blanks
from chainrule.tasks.tagset import TagReport, TagSet
from chainrule.text.columns import TaggedSentence
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import ExampleBatches

__all__ = ["Config", "TagReport", "Tagger", "load", "train"]

Config = TagConfig
"""Config class, under the name shared by all tasks."""


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
    options = RunOptions.merge(options, chosen)
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
    job = options.job("tag", config, texts, {"text": initialization.tokenizer}, initialization.digest)
    origin = options.origin("tag", name, digest_texts(texts[0]))
    start = time.perf_counter()
    network, log = fit(
        job, config, lambda: build(config, initialization.tokenizer, tag_set, spellings), training.plan
    )
    metrics = {
        "train_sentences": len(data),
        "train_words": sum(len(s.words) for s in data),
        **initialization.metrics,
    }
    metrics |= {"train_seconds": round(time.perf_counter() - start, 3), **job.summary}
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
