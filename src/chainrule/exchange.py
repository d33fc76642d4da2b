"""Models to and from the formats of other software."""

import warnings
from pathlib import Path
from typing import BinaryIO, cast

from chainrule import artifact
from chainrule.errors import ChainruleWarning, ConfigError, NotFoundError
from chainrule.model import Model, Origin
from chainrule.ngram import arpa, arpa_reader
from chainrule.ngram.config import IMPORTED, Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.spelling import train_speller
from chainrule.progress import Progress, silent
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.train import from_words


def export_arpa(folder: Path, out: Path, progress: Progress = silent) -> None:
    """Write an n-gram model as an ARPA file; symbols of sub-word tokenizers as their own file names them."""
    arpa.write(*_ngram(folder), out, progress)


def write_arpa(folder: Path, out: BinaryIO) -> None:
    """The same, to an open file."""
    for piece in arpa.pieces(*_ngram(folder)):
        out.write(piece.encode())


def _ngram(folder: Path) -> tuple[NgramModel, list[str]]:
    """An n-gram model and the name of each of its ids."""
    model = artifact.load(folder)
    if model.family != "ngram":
        raise ConfigError(f"{folder} is a {model.family} model; only n-gram models can become ARPA")
    tokenizer = model.tokenizer
    if tokenizer.config.kind not in ("word", "char"):
        warnings.warn(
            f"the words of the file are {tokenizer.config.kind} symbols: it scores text that was cut as they are",
            ChainruleWarning,
            stacklevel=3,
        )
    names = [tokenizer.backend.id_to_token(i) or "" for i in range(tokenizer.vocab_size)]
    return cast(NgramModel, model.lm), names


def import_arpa(path: Path, command: str = "", progress: Progress = silent) -> Model:
    """A model of an ARPA file, with a word tokenizer of its words; without `<unk>` its vocabulary is closed.

    It learns to spell unknown words from its own, there being no text to learn from.
    """
    if not path.exists() and str(path) != "-":
        raise NotFoundError(f"there is no file {path}; give an ARPA file, or a model with --to arpa")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; say what to make of it with --to arpa")
    found = arpa_reader.read(path, progress)
    config = TokenizerConfig(unk=found.unk, closed=not found.has_unk)
    tokenizer = from_words(found.words, config)
    origin = Origin.now(text=f"imported from {path.name}", command=command)
    return Model(
        lm=NgramModel(found.tables, tokenizer.vocabulary),
        tokenizer=tokenizer,
        family="ngram",
        config=Config(order=found.tables.order, smoothing=IMPORTED),
        speller=train_speller(found.words, known=found.words) if found.has_unk else None,
        origin=origin,
    )
