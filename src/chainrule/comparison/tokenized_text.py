"""The text encoded by each tokenizer, with the same bytes for all of them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from chainrule.api import resolve_tokenizer
from chainrule.comparison.settings import Settings, tokenizer_label
from chainrule.data.encoded import EncodedText
from chainrule.errors import InputError
from chainrule.prepared_corpus import PreparedCorpus, prepare_corpus
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.splits import CorpusSplit
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.punctuation import describe_choice
from chainrule.tokenizers.tokenizer import load_tokenizer, split_words


@dataclasses.dataclass(frozen=True, slots=True)
class Tokenized:
    """Training, validation and test text encoded by one tokenizer."""

    name: str  # kind or folder, as given
    prepared: PreparedCorpus
    test: EncodedText
    title: str  # display name in the table

    @property
    def label(self) -> str:
        """Tokenizer part of model names."""
        return tokenizer_label(self.name)

    @property
    def kind(self) -> str:
        """Kind of the trained tokenizer; `word` may have become `whitespace`."""
        return self.prepared.tokenizer.config.kind

    @property
    def choice(self) -> str:
        """Whether `word` splits punctuation or the text is pre-tokenized; empty for other tokenizers."""
        return describe_choice(self.name, self.kind)


def collapse_blanks(texts: CorpusSplit, settings: Settings) -> CorpusSplit:
    """Collapse runs of blanks for all tokenizers if several are compared and one of them does so.

    Bits per byte are comparable only if every model predicts the same bytes.
    """
    names = settings.tokenizer_names
    if len(names) == 1 or not any(_collapses_blanks(name) for name in names):
        return texts
    train, valid, test = (
        [" ".join(split_words(line)) for line in part] for part in (texts.train, texts.valid, texts.test)
    )
    return dataclasses.replace(texts, train=train, valid=valid, test=test)


def tokenize(texts: CorpusSplit, name: str, settings: Settings, progress: Progress = silent) -> Tokenized:
    """Train the tokenizer on the training text and encode all three parts."""
    choice = resolve_tokenizer(name, settings.settings_of(name))
    prepared = prepare_corpus(Corpus.from_lines(texts.train), choice, Corpus.from_lines(texts.valid), progress)
    test = encode(Corpus.from_lines(texts.test), prepared.tokenizer, progress)
    if not test.tokens:
        raise InputError("the test text is empty; give one with at least one line")
    return Tokenized(name, prepared, test, prepared.tokenizer.config.kind)


def tokenize_all(texts: CorpusSplit, settings: Settings, progress: Progress) -> list[Tokenized]:
    """Encode the text with every tokenizer; tokenizers of the same kind are displayed by label."""
    tokenized = [tokenize(texts, name, settings, progress) for name in settings.tokenizer_names]
    check_bytes(tokenized)
    if len({text.kind for text in tokenized}) < len(tokenized):
        return [dataclasses.replace(text, title=text.label) for text in tokenized]
    return tokenized


def check_bytes(tokenized: Sequence[Tokenized]) -> None:
    """Raise if tokenizers normalize the text differently, e.g. only one lower-cases."""
    first = tokenized[0]
    for other in tokenized[1:]:
        if other.test.bytes != first.test.bytes:
            raise InputError(
                f"tokenizer {other.label} sees {other.test.bytes:,} bytes of the test text and {first.label} "
                f"{first.test.bytes:,}: bits per byte cannot be compared; compare them one at a time"
            )


def _collapses_blanks(name: str) -> bool:
    config = TokenizerConfig(kind=name) if name in KINDS else load_tokenizer(Path(name)).config
    return config.collapses_blanks
