"""Initialize a task model: settings, tokenizer and optional pretrained weights or word vectors.

The starting point is a folder written by `chainrule pretrain`, a file of word vectors, or the training text alone.
"""

import dataclasses
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from chainrule import api
from chainrule import config as settings
from chainrule.data.training_data import RunOptions
from chainrule.embeddings.formats import initial_embeddings, read_vectors
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.lm import Floats
from chainrule.neural import weights
from chainrule.neural.encoders import pretraining
from chainrule.neural.encoders.encoder import EncoderConfig, TextEncoder, architecture
from chainrule.tasks.pretrain import Pretrained
from chainrule.tasks.run_setup import make_tokenizer
from chainrule.tokenizers.config import KINDS
from chainrule.tokenizers.tokenizer import Tokenizer, split_words

LINE_BREAKS = re.compile(r"\r\n?|\n")  # read as one space
C = TypeVar("C", bound=EncoderConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedSources:
    """User-supplied starting points of a run."""

    tokenizer: str | Path | None = None  # a kind or a folder; None: the tokenizer of `pretrained`, else words
    pretrained: str | Path | None = None  # folder written by `chainrule pretrain`
    vectors: str | Path | None = None  # file of word vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialization(Generic[C]):
    """Model settings, tokenizer and initial weights, loaded."""

    config: C
    tokenizer: Tokenizer
    reader: TextEncoder | None = None  # pretrained encoder
    vectors: Floats | None = None  # (V, E) initial word vectors
    metrics: dict[str, Any] = field(default_factory=dict)

    def apply(self, reader: TextEncoder) -> None:
        """Copy the pretrained weights or vectors into `reader`."""
        if self.reader is not None:
            pretraining.copy_encoder_weights(reader, self.reader)
        if self.vectors is not None:
            reader.load_word_vectors(self.vectors)

    @property
    def digest(self) -> str:
        """SHA-256 of the pretrained weights and vectors; empty if there are none."""
        parts = [] if self.reader is None else [weights.serialize(self.reader)]
        parts += [] if self.vectors is None else [self.vectors.tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest() if parts else ""


def initialize(
    kind: type[C],
    family: str,
    chosen: Mapping[str, object],
    lines: Sequence[str],
    sources: PretrainedSources,
    options: RunOptions,
    tokenizer_defaults: Mapping[str, object],
) -> Initialization[C]:
    """Resolve settings, tokenizer and initial weights for training on `lines`.

    Args:
        kind: Config class of the model.
        family: Model family.
        chosen: Tokenizer and model settings by name.
        lines: Training text for a new tokenizer.
        sources: Existing tokenizer, pretrained encoder or word vectors.
        options: Run options; the seed initializes vectors of words missing from the file.
        tokenizer_defaults: Default settings of a new tokenizer.

    """
    tokenizer_settings, model_settings = api.split_settings(chosen)
    model_settings["family"] = family
    if sources.pretrained is not None:
        _check_conflicts(sources, tokenizer_settings)
        return _with_pretrained(kind, model_settings, sources.pretrained, lines, options)
    config = settings.build_config(kind, model_settings, "model", family)  # reject unknown settings before any work
    tokenizer_choice = "word" if sources.tokenizer is None else sources.tokenizer
    if tokenizer_choice in KINDS:
        tokenizer_settings = {**tokenizer_defaults, **tokenizer_settings}
    initialization = Initialization(
        config=config, tokenizer=make_tokenizer(lines, tokenizer_choice, tokenizer_settings, options.progress)
    )
    if sources.vectors is None:
        if config.frozen_vectors:
            raise ConfigError(
                "model.frozen_vectors is true, but there are no pretrained vectors to freeze; leave it out"
            )
        return initialization
    return _with_vectors(initialization, sources.vectors, "embedding" in model_settings, options)


def _check_conflicts(sources: PretrainedSources, tokenizer_settings: Mapping[str, object]) -> None:
    """Raise if options conflict with the tokenizer and vectors of the pretrained folder."""
    conflicts = [name for name in ("tokenizer", "vectors") if getattr(sources, name) is not None]
    if conflicts or tokenizer_settings:
        names = ", ".join([*conflicts, *tokenizer_settings])
        raise ConfigError(f"{sources.pretrained} already has a tokenizer and word vectors; leave out {names}")


def _with_pretrained(
    kind: type[C],
    model_settings: Mapping[str, object],
    folder: str | Path,
    lines: Sequence[str],
    options: RunOptions,
) -> Initialization[C]:
    """Start from a pretrained encoder; report its coverage of the training text."""
    encoder: Pretrained = api.load(folder, kind="pretrain", device="cpu")
    config = build_config_with_shape(kind, model_settings, encoder.shape, folder)
    share = known_word_share(encoder.tokenizer, lines)
    coverage = f"the encoder of {folder} covers {share:.1%} of the running words"
    options.announce(coverage)
    if share < 0.5:
        message = f"{coverage}: all others become the unknown word; pre-train on text with the words of this task"
        warnings.warn(message, ChainruleWarning, stacklevel=5)
    metrics = {"pretrained_coverage": share}
    return Initialization(config=config, tokenizer=encoder.tokenizer, reader=encoder.reader, metrics=metrics)


def known_word_share(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """Fraction of running words encoded without `<unk>`; 1 for an empty text."""
    counts = Counter(word for line in lines for word in split_words(LINE_BREAKS.sub(" ", line)))
    known = sum(count for word, count in counts.items() if tokenizer.unk not in tokenizer.encode(word).tolist())
    return known / counts.total() if counts else 1.0


def build_config_with_shape(
    kind: type[C], model_settings: Mapping[str, object], encoder_shape: Mapping[str, object], folder: str | Path
) -> C:
    """Build the config of a model that adopts a pretrained encoder; raise if a setting contradicts its shape."""
    family = encoder_shape["family"]
    if model_settings["family"] != family:
        raise ConfigError(f"the family is '{model_settings['family']}' but '{family}' in {folder}; use that family")
    config = settings.build_config(kind, {**encoder_shape, **model_settings}, "model", str(family))
    model_shape = architecture(config)
    for name, value in encoder_shape.items():
        if model_shape[name] != value:
            raise ConfigError(
                f"model.{name} is {model_shape[name]!r} but {folder} has {value!r}; "
                f"use {value!r}, or omit the setting"
            )
    return config


def _with_vectors(
    initialization: Initialization[C], file: str | Path, is_width_set: bool, options: RunOptions
) -> Initialization[C]:
    """Add initial word vectors from a file; report its coverage of the vocabulary."""
    config, names = (
        initialization.config,
        initialization.tokenizer.display_texts(range(initialization.tokenizer.vocab_size)),
    )
    vectors = read_vectors(file, {*names, *(name.lower() for name in names)})
    width = vectors.matrix.shape[1]
    if is_width_set and config.embedding_width != width:
        raise ConfigError(
            f"model.embedding is {config.embedding_width} but {file} has vectors of width {width}; leave it out"
        )
    matrix, coverage = initial_embeddings(vectors, names, np.random.default_rng(options.seed))
    words_in_file, known = set(vectors.words), initialization.tokenizer.vocab
    words = initialization.tokenizer.display_texts(
        sorted(i for i in known.values() if i != initialization.tokenizer.unk)
    )
    covered = sum(word in words_in_file or word.lower() in words_in_file for word in words)
    options.announce(f"{file} has vectors for {covered:,} of the {len(words):,} words of the vocabulary")
    config = dataclasses.replace(config, embedding=width)
    return dataclasses.replace(
        initialization, config=config, vectors=matrix, metrics={"vectors_coverage": coverage}
    )
