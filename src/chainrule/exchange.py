"""Export models to ARPA files and import them."""

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
from chainrule.tokenizers.punctuation import joined_sides
from chainrule.tokenizers.train import from_words


def export_arpa(source: Path | Model, out: Path, progress: Progress | bool = silent) -> None:
    """Write an n-gram model as an ARPA file; sub-word symbols are written as in `tokenizer.json`."""
    progress = as_progress(progress)
    arpa.write(*_ngram_and_tokens(source), out, progress)


def write_arpa(source: Path | Model, out: BinaryIO) -> None:
    """Write an n-gram model in ARPA format to an open file."""
    arpa.write_to(*_ngram_and_tokens(source), out)


def _ngram_and_tokens(source: Path | Model) -> tuple[NgramModel, list[str]]:
    """Return the n-gram model and its tokens by id."""
    model = source if isinstance(source, Model) else artifact.load(source)
    if model.family != "ngram":
        raise ConfigError(f"{model.name} is a {model.family} model; only n-gram models can become ARPA")
    tokenizer = model.tokenizer
    if not tokenizer.config.tokens_are_text:
        warnings.warn(
            f"the words of the file are {tokenizer.config.kind} symbols: it scores text that was cut as they are",
            ChainruleWarning,
            stacklevel=3,
        )
    return cast(NgramModel, model.lm), tokenizer.names()


def _tokenizer_kind(words: Sequence[str]) -> Kind:
    """Return `word` if the words contain the joiners written by the word tokenizer, else `whitespace`."""
    return "word" if any(any(joined_sides(word)) for word in words if JOINER in word) else "whitespace"


def import_arpa(path: Path, command: str = "", progress: Progress | bool = silent) -> Model:
    """Import an ARPA file with a word tokenizer over its vocabulary, which is closed if the file lacks `<unk>`.

    The speller for unknown words is trained on the vocabulary, since there is no training text.
    """
    progress = as_progress(progress)
    if not path.exists() and str(path) != "-":
        raise NotFoundError(
            f"there is no file {printable(str(path))}; give an ARPA file, or a model with --to arpa"
        )
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; say what to make of it with --to arpa")
    contents = arpa_reader.read(path, progress, check_sums=True)
    config = TokenizerConfig(kind=_tokenizer_kind(contents.words), unk=contents.unk, closed=not contents.has_unk)
    tokenizer = from_words(contents.words, config)
    origin = Origin.now(text=f"imported from {path.name}", command=command)
    return Model(
        lm=NgramModel(contents.engine, tokenizer.vocabulary, is_normalized=contents.engine.is_normalized),
        tokenizer=tokenizer,
        family="ngram",
        config=Config(order=contents.engine.order, smoothing=IMPORTED),
        speller=train_speller(contents.words, known=contents.words) if contents.has_unk else None,
        origin=origin,
    )
