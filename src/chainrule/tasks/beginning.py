"""What a run that reads whole texts begins with: settings, a tokenizer, and perhaps what was learnt elsewhere.

Lives here: taking these from a folder of pretrain, a file of word vectors or the text alone, and putting them into
a task's reader. Not here: how one reader adopts another (neural/pretraining.py), the files (text/vectors.py).
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

from chainrule import config as settings
from chainrule.api import split_settings
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.lm import Floats
from chainrule.neural import pretraining, weights
from chainrule.neural.encoder import EncoderConfig, Reader, shape
from chainrule.tasks import pretrain
from chainrule.tasks.running import Running, make_tokenizer
from chainrule.text.vectors import initial, read_vectors
from chainrule.tokenizers.config import KINDS
from chainrule.tokenizers.tokenizer import Tokenizer, split_words

BREAKS = re.compile(r"[\r\n]+")  # within a text of several lines
C = TypeVar("C", bound=EncoderConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person gives a run to begin with."""

    tokenizer: str | Path | None = None  # a kind, or a folder; None: that of `pretrained`, or words
    pretrained: str | Path | None = None  # a folder of chainrule pretrain
    vectors: str | Path | None = None  # a file of word vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning(Generic[C]):
    """The same, read, with the settings of the model."""

    config: C
    tokenizer: Tokenizer
    reader: Reader | None = None  # of the pre-trained folder
    vectors: Floats | None = None  # (V, E) first word vectors
    metrics: dict[str, Any] = field(default_factory=dict)

    def give(self, reader: Reader) -> None:
        """Put what was learnt elsewhere in place of the first weights."""
        if self.reader is not None:
            pretraining.adopt(reader, self.reader)
        if self.vectors is not None:
            reader.take_vectors(self.vectors)

    @property
    def digest(self) -> str:
        """SHA-256 of what was learnt elsewhere; empty where that is nothing."""
        parts = [] if self.reader is None else [weights.to_bytes(self.reader)]
        parts += [] if self.vectors is None else [self.vectors.tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest() if parts else ""


def begin(
    kind: type[C],
    family: str,
    chosen: Mapping[str, object],
    lines: Sequence[str],
    given: Given,
    running: Running,
    usual: Mapping[str, object],
) -> Beginning[C]:
    """What a run on these lines begins with.

    Args:
        kind: The class of the model's settings.
        family: One of its families.
        chosen: Settings of the tokenizer and of the model, by name.
        lines: The text that a tokenizer is made of where none is given.
        given: What there is already.
        running: Its seed draws the vectors that a file does not have.
        usual: Settings of such a tokenizer unless chosen otherwise.

    """
    wanted, own = split_settings(chosen)
    own["family"] = family
    if given.pretrained is not None:
        _check_alone(given, wanted)
        return _with_pretrained(kind, own, given.pretrained, lines, running)
    config = settings.make(kind, own, "model", family)  # a wrong name is answered before any work
    tokenizer = "word" if given.tokenizer is None else given.tokenizer
    if tokenizer in KINDS:
        wanted = {**usual, **wanted}
    first = Beginning(config=config, tokenizer=make_tokenizer(lines, tokenizer, wanted, running.progress))
    if given.vectors is None:
        if config.frozen_vectors:
            raise ConfigError("model.frozen_vectors is true, and no vectors were learnt before; leave it out")
        return first
    return _with_vectors(first, given.vectors, "embedding" in own, running)


def _check_alone(given: Given, wanted: Mapping[str, object]) -> None:
    """Refuse what a pre-trained folder decides."""
    others = [name for name in ("tokenizer", "vectors") if getattr(given, name) is not None]
    if others or wanted:
        which = ", ".join([*others, *wanted])
        raise ConfigError(f"{given.pretrained} has words and vectors of its own; leave out {which}")


def _with_pretrained(
    kind: type[C], own: Mapping[str, object], folder: str | Path, lines: Sequence[str], running: Running
) -> Beginning[C]:
    """Tokenizer, shape and weights of a pre-trained encoder; how much of the text it knows is said."""
    found = pretrain.load(folder)
    config = with_shape(kind, own, found.shape, folder)
    share = known_share(found.tokenizer, lines)
    said = f"the encoder of {folder} knows {share:.1%} of the running words"
    running.say(said)
    if share < 0.5:
        message = f"{said}: the others are all one to it; pre-train on text with the words of this task"
        warnings.warn(message, ChainruleWarning, stacklevel=5)
    metrics = {"pretrained_coverage": share}
    return Beginning(config=config, tokenizer=found.tokenizer, reader=found.reader, metrics=metrics)


def known_share(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The part of the running words that are written without `<unk>`; 1 where there are no words."""
    counts = Counter(word for line in lines for word in split_words(BREAKS.sub(" ", line)))
    known = sum(count for word, count in counts.items() if tokenizer.unk not in tokenizer.encode(word).tolist())
    return known / counts.total() if counts else 1.0


def with_shape(kind: type[C], own: Mapping[str, object], decided: Mapping[str, object], folder: str | Path) -> C:
    """Settings of a model whose encoder is that of a folder, of this shape; a choice that differs is refused."""
    family = decided["family"]
    if own["family"] != family:
        raise ConfigError(f"the family is '{own['family']}' but '{family}' in {folder}; take that one")
    config = settings.make(kind, {**decided, **own}, "model", str(family))
    here = shape(config)
    for name, value in decided.items():
        if here[name] != value:
            raise ConfigError(
                f"model.{name} is {here[name]!r} but {value!r} in {folder}; set it so, or leave it out"
            )
    return config


def _with_vectors(first: Beginning[C], file: str | Path, is_width_given: bool, running: Running) -> Beginning[C]:
    """The same with the vectors of a file for the words it holds; how many that are is said."""
    config, names = first.config, first.tokenizer.texts(range(first.tokenizer.vocab_size))
    found = read_vectors(file, {*names, *(name.lower() for name in names)})
    width = found.matrix.shape[1]
    if is_width_given and config.embedding_width != width:
        raise ConfigError(
            f"model.embedding is {config.embedding_width} but {file} has vectors of {width}; leave it out"
        )
    matrix, coverage = initial(found, names, np.random.default_rng(running.seed))
    held, known = set(found.words), first.tokenizer.known
    words = first.tokenizer.texts(sorted(i for i in known.values() if i != first.tokenizer.unk))
    number = sum(word in held or word.lower() in held for word in words)
    running.say(f"{file} has vectors for {number:,} of the {len(words):,} words of the vocabulary")
    config = dataclasses.replace(config, embedding=width)
    return dataclasses.replace(first, config=config, vectors=matrix, metrics={"vectors_coverage": coverage})
