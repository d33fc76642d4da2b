"""Models to and from the formats of other software."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from chainrule import artifact
from chainrule.errors import ChainruleWarning, ConfigError, NotFoundError, printable
from chainrule.model import Model, Origin
from chainrule.ngram import arpa, arpa_reader
from chainrule.ngram.config import IMPORTED, Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.spelling import train_speller
from chainrule.progress import Progress, as_progress, silent
from chainrule.tokenizers.config import JOINER, Kind, TokenizerConfig
from chainrule.tokenizers.punctuation import joins
from chainrule.tokenizers.train import from_words


def export_arpa(source: Path | Model, out: Path, progress: Progress | bool = silent) -> None:
    """Write an n-gram model as an ARPA file; symbols of sub-word tokenizers as their own file names them."""
    progress = as_progress(progress)
    arpa.write(*_ngram(source), out, progress)


def write_arpa(source: Path | Model, out: BinaryIO) -> None:
    """The same, to an open file."""
    arpa.write_to(*_ngram(source), out)


def _ngram(source: Path | Model) -> tuple[NgramModel, list[str]]:
    """An n-gram model and the name of each of its ids."""
    model = source if isinstance(source, Model) else artifact.load(source)
    if model.family != "ngram":
        raise ConfigError(f"{model.name} is a {model.family} model; only n-gram models can become ARPA")
    tokenizer = model.tokenizer
    if not tokenizer.config.is_names:
        warnings.warn(
            f"the words of the file are {tokenizer.config.kind} symbols: it scores text that was cut as they are",
            ChainruleWarning,
            stacklevel=3,
        )
    return cast(NgramModel, model.lm), tokenizer.names()


def _kind(words: Sequence[str]) -> Kind:
    """`word` for a file whose words have joiners, as chainrule writes it for a word tokenizer."""
    return "word" if any(any(joins(word)) for word in words if JOINER in word) else "whitespace"


def import_arpa(path: Path, command: str = "", progress: Progress | bool = silent) -> Model:
    """A model of an ARPA file, with a word tokenizer of its words; without `<unk>` its vocabulary is closed.

    It learns to spell unknown words from its own, there being no text to learn from.
    """
    progress = as_progress(progress)
    if not path.exists() and str(path) != "-":
        raise NotFoundError(
            f"there is no file {printable(str(path))}; give an ARPA file, or a model with --to arpa"
        )
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; say what to make of it with --to arpa")
    found = arpa_reader.read(path, progress, check_sums=True)
    config = TokenizerConfig(kind=_kind(found.words), unk=found.unk, closed=not found.has_unk)
    tokenizer = from_words(found.words, config)
    origin = Origin.now(text=f"imported from {path.name}", command=command)
    return Model(
        lm=NgramModel(found.engine, tokenizer.vocabulary, is_normalized=found.engine.is_normalized),
        tokenizer=tokenizer,
        family="ngram",
        config=Config(order=found.engine.order, smoothing=IMPORTED),
        speller=train_speller(found.words, known=found.words) if found.has_unk else None,
        origin=origin,
    )
