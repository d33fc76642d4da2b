"""Prepare a training corpus for any family: tokenizer, token ids, speller and fingerprint."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.data.encoded import EncodedText, id_blocks
from chainrule.data.id_shards import find_shards, open_shards
from chainrule.errors import ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.ngram.oov_speller import Speller, train_speller
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode_with_fingerprint
from chainrule.tokenizers.tokenizer import Tokenizer, load_tokenizer, split_words

MOST_UNKNOWN: Final = 0.1
"""Share of unknown tokens above which a warning is issued."""
LONGEST_MEAN: Final = 15.0
"""Mean characters per token above which words are presumably not separated by blanks, as in Thai."""
LEAST_TOKENS: Final = 1000
"""Shorter texts are not used to judge the tokenizer."""
FEW: Final = 0.1
"""Share of the vocabulary below which there are too few types to train the speller on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCorpus:
    """A tokenized training corpus, shared by all models trained on it."""

    tokenizer: Tokenizer
    train: EncodedText
    valid: EncodedText | None
    speller: Speller | None
    fingerprint: Fingerprint
    valid_fingerprint: Fingerprint | None = None


def prepare_corpus(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None = None,
    progress: Progress = silent,
    ids_file: Path | None = None,
    *,
    maps_shards: bool = False,
) -> PreparedCorpus:
    """Train or load the tokenizer, encode the texts and train the speller; the vocabulary uses only `corpus`.

    With `ids_file`, the ids of the training text are written there and memory-mapped. `corpus` may be a folder of
    id shards, which has a tokenizer; with `maps_shards` the ids stay in its files.
    """
    if (shards := find_shards(corpus)) is not None:
        return _read_shards(shards, corpus, tokenizer, valid, progress, ids_file, maps_shards)
    scan = None
    if isinstance(tokenizer, Path):
        trained = load_tokenizer(tokenizer)
    elif ids_file is not None:  # in bounded memory: the text is read again to be encoded
        trained = tokenizer_training.train(corpus, tokenizer, progress)
    else:
        trained, scan = tokenizer_training.train_and_scan(corpus, tokenizer, progress)
    train, digest = encode_with_fingerprint(corpus, trained, progress, ids_file, scan)
    if not train.words:
        raise InputError("the training text contains no words, only blank lines or nothing; give a text with words")
    if trained.config.closed and train.spellings:
        raise ConfigError(f"--closed, but the tokenizer does not know '{train.spellings[0]}' of the training text")
    if digest.lines != train.lines:
        raise InputError(
            f"the text changed while it was read: {train.lines} lines, then {digest.lines}; train again"
        )
    if train.replaced:
        message = f"{train.replaced} sequences of the training text are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    held_out, valid_fingerprint = (
        (None, None) if valid is None else encode_with_fingerprint(valid, trained, progress)
    )
    _warn_of_unsuited(trained, train, held_out)
    return PreparedCorpus(
        tokenizer=trained,
        train=train,
        valid=held_out,
        speller=_speller(corpus, trained, train, progress),
        fingerprint=digest,
        valid_fingerprint=valid_fingerprint,
    )


def _read_shards(
    folder: Path,
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None,
    progress: Progress,
    ids_file: Path | None,
    maps_shards: bool,
) -> PreparedCorpus:
    """Prepare a training text that was encoded as id shards."""
    trained = load_tokenizer(folder)
    if tokenizer not in (TokenizerConfig(), folder):
        raise UsageError(f"{folder} was encoded with a tokenizer; leave out --tokenizer and its options")
    if trained.config.kind == "wordpiece":
        raise UsageError(
            f"{folder} was encoded with a wordpiece tokenizer, whose speller needs the text; train on the text "
            f"with --tokenizer {folder}"
        )
    progress("reading ids", 0, None)
    shards = open_shards(folder, trained.vocabulary)
    train = shards.map() if maps_shards else shards.read(ids_file)
    encoded, digest = (None, None) if valid is None else encode_with_fingerprint(valid, trained, progress)
    _warn_of_unsuited(trained, train, encoded)
    return PreparedCorpus(
        tokenizer=trained,
        train=train,
        valid=encoded,
        speller=_speller(corpus, trained, train, progress),
        fingerprint=shards.fingerprint,
        valid_fingerprint=digest,
    )


def _warn_of_unsuited(tokenizer: Tokenizer, train: EncodedText, valid: EncodedText | None) -> None:
    """Warn if a word tokenizer does not suit the text: many unknown words, or no blanks between words."""
    warn_of_long_tokens(tokenizer.config, train.tokens, train.characters)
    for name, text in (("training", train), ("validation", valid)):
        if text is not None:
            unknown = sum(spelling != tokenizer.config.unk for spelling in text.spellings)
            warn_of_unknown(tokenizer.config, name, text.tokens, unknown)


def warn_of_long_tokens(config: TokenizerConfig, tokens: int, characters: int) -> None:
    """Warn if the words of a training text are long: it has few blanks between them."""
    if config.is_word_level and tokens >= LEAST_TOKENS and characters > LONGEST_MEAN * tokens:
        others = "word, char or bpe" if config.kind == "whitespace" else "char or bpe"
        message = f"the tokens of the training text have {characters / tokens:.0f} characters on average"
        warnings.warn(
            f"{message}: it has few blanks between words; choose --tokenizer {others}",
            ChainruleWarning,
            stacklevel=4,
        )


def warn_of_unknown(config: TokenizerConfig, name: str, tokens: int, unknown: int) -> None:
    """Warn if many tokens of a text are unknown words, without those written as the unknown word."""
    if config.is_word_level and tokens >= LEAST_TOKENS and unknown > MOST_UNKNOWN * tokens:
        is_cut = config.min_count > 1 or config.vocab_size is not None or config.top_percent is not None
        remedy = "keep more words (--min-count, --vocab-size)" if is_cut else "train on more text"
        message = f"{unknown / tokens:.0%} of the {name} text's tokens are unknown words"
        warnings.warn(f"{message}; choose --tokenizer bpe or char, or {remedy}", ChainruleWarning, stacklevel=4)


def _speller(corpus: Corpus, tokenizer: Tokenizer, train: EncodedText, progress: Progress) -> Speller | None:
    """Train the speller of a tokenizer that has unknown words."""
    if tokenizer.unk is None or tokenizer.config.closed:
        return None
    progress("training the speller", 0, None)
    return fit_speller(tokenizer, train.spellings, lambda: _type_counts(corpus, tokenizer, train))


def fit_speller(
    tokenizer: Tokenizer, spellings: Sequence[str], type_counts: Callable[[], Mapping[str, int]]
) -> Speller:
    """Train the speller on the out-of-vocabulary words, and on rare vocabulary words if those are too few.

    `type_counts` returns the counts of the vocabulary types (words or characters) in the training text.
    """
    placeholder, is_single = tokenizer.config.unk, tokenizer.config.kind == "char"
    few = 0 if is_single else FEW * tokenizer.vocab_size
    is_enough = len(set(spellings) - {placeholder}) > few
    rare = [] if is_enough else _rare(type_counts())
    return train_speller(spellings, tokenizer.vocabulary_words(), is_single, rare=rare, placeholder=placeholder)


def _type_counts(corpus: Corpus, tokenizer: Tokenizer, train: EncodedText) -> dict[str, int]:
    """Count the vocabulary types (words or characters) that occur in the training text."""
    if tokenizer.config.kind == "wordpiece":  # its ids are not words
        words = Counter(word for line in corpus for word in split_words(tokenizer.canonicalize(line)))
        del words[tokenizer.config.unk]
        return words
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for block in id_blocks(train.ids):
        counts += np.bincount(block, minlength=tokenizer.vocab_size)
    control = (tokenizer.bos, tokenizer.eos, tokenizer.unk)
    ids = np.array([i for i in np.flatnonzero(counts).tolist() if i not in control], dtype=np.int64)
    return dict(zip(tokenizer.tokens(ids.tolist()), counts[ids].tolist(), strict=True))


def _rare(counts: Mapping[str, int]) -> list[str]:
    """Return the types with count 1, or the rarer half of all types if those are too few."""
    singletons = [name for name, count in counts.items() if count == 1]
    if len(singletons) > FEW * len(counts) or not counts:
        return singletons
    median = sorted(counts.values())[len(counts) // 2]
    return [name for name, count in counts.items() if count <= median]
