"""A training text made ready for any family: tokenizer, ids, speller, fingerprint. Nothing here is a model."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chainrule import artifact
from chainrule.data.encoded import Encoded
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.ngram.spelling import Speller, train_speller
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint, fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer, split_words

IDS_AT_ONCE: Final = 1 << 20
MOST_UNKNOWN: Final = 0.1
"""Part of the tokens above which unknown words are worth a warning."""
LONGEST_MEAN: Final = 15.0
"""Characters a token above which words are not separated by blanks, as in Thai."""
LEAST_TOKENS: Final = 1000
"""A shorter text says nothing about the tokenizer."""
FEW: Final = 0.1
"""Part of the vocabulary's types that is too few to learn spelling from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What every model of one text shares."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded | None
    speller: Speller | None
    fingerprint: Fingerprint
    valid_fingerprint: Fingerprint | None = None


def prepare(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None = None,
    progress: Progress = silent,
    ids_file: Path | None = None,
) -> Prepared:
    """Train or load the tokenizer, encode, learn to spell; the vocabulary sees `corpus` alone.

    With `ids_file` the training text's ids are written there and mapped, not kept in memory.
    """
    if isinstance(tokenizer, Path):
        made = artifact.load_tokenizer(tokenizer)
    else:
        made = tokenizer_training.train(corpus, tokenizer, progress)
    train = encode(corpus, made, progress, ids_file)
    if not train.words:
        raise InputError("the training text holds no words, only blank lines or nothing; give a text with words")
    if made.config.closed and train.spellings:
        raise ConfigError(f"--closed, but the tokenizer does not know '{train.spellings[0]}' of the training text")
    mark = fingerprint(corpus)
    if mark.lines != train.lines:
        raise InputError(f"the text changed while it was read: {train.lines} lines, then {mark.lines}; train again")
    if train.replaced:
        message = f"{train.replaced} sequences of the training text are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    held_out = None if valid is None else encode(valid, made, progress)
    _warn_of_unsuited(made, train, held_out)
    return Prepared(
        tokenizer=made,
        train=train,
        valid=held_out,
        speller=_speller(corpus, made, train, progress),
        fingerprint=mark,
        valid_fingerprint=None if valid is None else fingerprint(valid),
    )


def _warn_of_unsuited(tokenizer: Tokenizer, train: Encoded, valid: Encoded | None) -> None:
    """Warn where words are no tokens for this text: many are unknown, or no blanks separate them."""
    config = tokenizer.config
    if not config.is_words:
        return
    if train.tokens >= LEAST_TOKENS and train.characters > LONGEST_MEAN * train.tokens:
        others = "word, char or bpe" if config.kind == "whitespace" else "char or bpe"
        message = (
            f"the tokens of the training text have {train.characters / train.tokens:.0f} characters on average"
        )
        warnings.warn(
            f"{message}: it has few blanks between words; choose --tokenizer {others}",
            ChainruleWarning,
            stacklevel=3,
        )
    for name, text in (("training", train), ("validation", valid)):
        if text is None or text.tokens < LEAST_TOKENS:
            continue
        share = sum(spelling != config.unk for spelling in text.spellings) / text.tokens
        if share > MOST_UNKNOWN:
            is_cut = config.min_count > 1 or config.vocab_size is not None or config.top_percent is not None
            remedy = "keep more words (--min-count, --vocab-size)" if is_cut else "train on more text"
            message = f"{share:.0%} of the {name} text's tokens are unknown words"
            warnings.warn(f"{message}; choose --tokenizer bpe or char, or {remedy}", ChainruleWarning, stacklevel=3)


def _speller(corpus: Corpus, tokenizer: Tokenizer, train: Encoded, progress: Progress) -> Speller | None:
    """Learn to spell from the words outside the vocabulary, and from its rare words where those are few."""
    if tokenizer.unk is None or tokenizer.config.closed:
        return None
    progress("learning to spell", 0, None)
    placeholder, is_single = tokenizer.config.unk, tokenizer.config.kind == "char"
    few = 0 if is_single else FEW * tokenizer.vocab_size
    is_enough = len(set(train.spellings) - {placeholder}) > few
    rare = [] if is_enough else _rare(_type_counts(corpus, tokenizer, train))
    return train_speller(
        train.spellings, tokenizer.spellings_known(), is_single, rare=rare, placeholder=placeholder
    )


def _type_counts(corpus: Corpus, tokenizer: Tokenizer, train: Encoded) -> dict[str, int]:
    """How often each word of the vocabulary, or each character, stands in the training text; none that does not."""
    if tokenizer.config.kind == "wordpiece":  # whose ids are not words
        words = Counter(word for line in corpus for word in split_words(tokenizer.see(line)))
        del words[tokenizer.config.unk]
        return words
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for part in range(0, len(train.ids), IDS_AT_ONCE):  # each part is copied as int64
        counts += np.bincount(train.ids[part : part + IDS_AT_ONCE], minlength=tokenizer.vocab_size)
    control = (tokenizer.bos, tokenizer.eos, tokenizer.unk)
    ids = np.array([i for i in np.flatnonzero(counts).tolist() if i not in control], dtype=np.int64)
    return dict(zip(tokenizer.tokens(ids.tolist()), counts[ids].tolist(), strict=True))


def _rare(counts: Mapping[str, int]) -> list[str]:
    """The types seen once; the half that is seen least where those are few, as in a text cut to frequent words."""
    once = [name for name, times in counts.items() if times == 1]
    if len(once) > FEW * len(counts) or not counts:
        return once
    median = sorted(counts.values())[len(counts) // 2]
    return [name for name, times in counts.items() if times <= median]
