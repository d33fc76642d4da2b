"""Prepare a training corpus for any family: tokenizer, token ids, speller and fingerprint."""

import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule.data.encoded import EncodedText, id_blocks
from chainrule.data.id_shards import find_shards, open_shards
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.lm import Ids, Mask
from chainrule.ngram.engine import memory_in_use
from chainrule.ngram.oov_speller import Speller, train_speller
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import CountingLimit, encode_with_fingerprint, sample_text
from chainrule.tokenizers.punctuation import resolve_kind
from chainrule.tokenizers.tokenizer import Tokenizer, VocabularyWords, WordTokenizer, load_tokenizer, split_words

MOST_UNKNOWN: Final = 0.1
"""Share of unknown tokens above which a warning is issued."""
LONGEST_MEAN: Final = 15.0
"""Mean characters per token above which words are presumably not separated by blanks, as in Thai."""
LEAST_TOKENS: Final = 1000
"""Shorter texts are not used to judge the tokenizer."""
LEAST_COUNTING: Final = 8 << 20
MOST_COUNTING: Final = 256 << 20
"""Bounds of the memory for counting words."""
SMALLEST_GROWTH: Final = 0.9
"""For each doubling from the sample to the text, the part of the estimated vocabulary that is taken as certain."""
FEW: Final = 0.1
"""Share of the vocabulary below which there are too few types to train the speller on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """Memory limit of a training run, whose ids and counts are kept in files of `folder`."""

    limit: int  # bytes of the process
    folder: Path
    minimum: Callable[[int, int, bool], int]
    """Lowest limit for a number of tokens and words, and whether the process holds the words already."""
    temporary: Callable[[int, int], int] = lambda tokens, words: 0
    """Bytes of the temporary files for a number of tokens and words."""
    announce: Callable[[str], None] = lambda line: None

    @property
    def ids_file(self) -> Path:
        """File of the token ids."""
        return self.folder / "ids"

    @property
    def counting(self) -> CountingLimit:
        """Limit of counting words: a part of the memory that is free now."""
        free = max(self.limit - memory_in_use(), 0)
        return CountingLimit(
            min(max(free // 4, LEAST_COUNTING), MOST_COUNTING),
            str(self.folder),
            lambda words: self.check(None, words, has_words=False),
        )

    def check(self, tokens: int | None, words: int, *, has_words: bool, about: str = "") -> None:
        """Raise ConfigError if the limit is too low for a text; `tokens` is None if it is not known yet."""
        needed = self.minimum(words if tokens is None else tokens, words, has_words)
        if needed > self.limit:
            size = "" if tokens is None else f"{about}{tokens:,} tokens, "
            raise ConfigError(
                f"memory is {_mebibytes(self.limit)}, but training on this text ({size}{about}{words:,} different "
                f"words) needs {about}{_mebibytes(needed)}; give at least that, or keep fewer words (--min-count, "
                "--vocab-size)"
            )

    def check_disk(self, tokens: int, words: int) -> None:
        """Announce the size of the temporary files; raise if the disk has no room for them."""
        size = self.temporary(tokens, words)
        if not size:
            return
        free = shutil.disk_usage(self.folder).free
        place = self.folder.parent
        if size > free:
            raise ChainruleError(
                f"{place} has {_gigabytes(free)} free, but training within {_mebibytes(self.limit)} needs "
                f"{_gigabytes(size)} for temporary files; make room, or set TMPDIR to a folder on another disk"
            )
        self.announce(f"temporary files: up to {_gigabytes(size)} in {place} ({_gigabytes(free)} free)")


def _mebibytes(size: int) -> str:
    return f"{-(-size >> 20)}M"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


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
    memory: MemoryLimit | None = None,
    *,
    maps_shards: bool = False,
) -> PreparedCorpus:
    """Train or load the tokenizer, encode the texts and train the speller; the vocabulary uses only `corpus`.

    With `memory`, the ids of the training text are written to a file and memory-mapped. `corpus` may be a folder of
    id shards, which has a tokenizer; with `maps_shards` the ids stay in its files.
    """
    if (shards := find_shards(corpus)) is not None:
        return _read_shards(shards, corpus, tokenizer, valid, progress, memory, maps_shards)
    scan = None
    is_checked = False
    if memory is not None:  # the text is read again to be encoded
        is_checked = _check_size(corpus, tokenizer, memory)
    if isinstance(tokenizer, Path):
        trained = load_tokenizer(tokenizer)
    elif memory is not None:
        trained = tokenizer_training.train(corpus, tokenizer, progress, memory.counting)
    else:
        trained, scan = tokenizer_training.train_and_scan(corpus, tokenizer, progress)
    if memory is None:
        train, digest = encode_with_fingerprint(corpus, trained, progress, scan=scan)
    else:
        train, digest = encode_with_fingerprint(corpus, trained, progress, memory.ids_file, limit=memory.counting)
        memory.check(train.tokens, trained.vocab_size, has_words=True)
        if not is_checked:
            memory.check_disk(train.tokens, trained.vocab_size)
    if not train.words:
        raise InputError("the training text contains no words, only blank lines or nothing; give a text with words")
    if trained.config.closed and train.oov:
        raise ConfigError(
            f"--closed, but the tokenizer does not know '{_unknown_word(train, trained)}' of the training text"
        )
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
    memory: MemoryLimit | None,
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
    train = shards.map() if maps_shards else shards.read(None if memory is None else memory.ids_file)
    encoded, digest = (None, None) if valid is None else encode_with_fingerprint(valid, trained, progress)
    if memory is not None:
        memory.check(train.tokens, trained.vocab_size, has_words=True)
        memory.check_disk(train.tokens, trained.vocab_size)
    _warn_of_unsuited(trained, train, encoded)
    return PreparedCorpus(
        tokenizer=trained,
        train=train,
        valid=encoded,
        speller=_speller(corpus, trained, train, progress),
        fingerprint=shards.fingerprint,
        valid_fingerprint=digest,
    )


def _check_size(corpus: Corpus, tokenizer: TokenizerConfig | Path, memory: MemoryLimit) -> bool:
    """Check memory and disk for a text from a small part of it; return whether that was possible."""
    if isinstance(tokenizer, Path) or tokenizer.vocab is not None:
        return False
    size = corpus.size_hint()
    if not size:
        return False
    config = resolve_kind(corpus, tokenizer_training.lower_unk(tokenizer))
    samples = sample_text(corpus, config)
    if samples is None or not samples[-1][2]:
        return False
    n_bytes, n_tokens, types, frequent = samples[-1]
    tokens = round(n_tokens * max(size / n_bytes, 1))
    words = estimate_types([(sample[1], sample[2]) for sample in samples], tokens) * frequent / types
    if config.top_percent is not None:
        words *= config.top_percent / 100
    words = round(min(words, config.vocab_size or words))
    certain = round(words * SMALLEST_GROWTH ** float(np.log2(max(tokens / n_tokens, 1))))
    memory.check(tokens, certain, has_words=False, about="about ")
    memory.check_disk(tokens, words)
    return True


def estimate_types(samples: Sequence[tuple[int, int]], tokens: int) -> float:
    """Extrapolate the number of types to a text of `tokens` tokens by Heaps' law, types ∝ tokensᵝ.

    `samples` are the tokens and types of a quarter, half and all of a sample. β changes from doubling to doubling
    of the text by as much as between the samples, and does not grow.

    >>> round(estimate_types([(100, 20), (200, 40), (400, 80)], 1600))
    320
    """
    x, y = np.log2(np.array(samples, dtype=np.float64).T)
    slopes = np.diff(y) / np.diff(x)
    change = min(float(slopes[1] - slopes[0]), 0.0)
    slope, log_types, left = float(slopes[1]), float(y[2]), float(np.log2(tokens)) - float(x[2])
    while left > 0 and slope > 0:
        slope = max(slope + change, 0.0)
        log_types += slope * min(left, 1.0)
        left -= 1
    return float(2**log_types)


def _unknown_word(text: EncodedText, tokenizer: Tokenizer) -> str:
    """Return an unknown word of a text that has one: the first, or the most frequent if they were only counted."""
    if text.spelled is None:
        return text.spellings[0]
    return str(text.spelled.select(1, [], [])[0]) if text.spelled.types else tokenizer.config.unk


def _warn_of_unsuited(tokenizer: Tokenizer, train: EncodedText, valid: EncodedText | None) -> None:
    """Warn if a word tokenizer does not suit the text: many unknown words, or no blanks between words."""
    warn_of_long_tokens(tokenizer.config, train.tokens, train.characters)
    for name, text in (("training", train), ("validation", valid)):
        if text is not None:
            if text.spelled is None:
                unknown = sum(spelling != tokenizer.config.unk for spelling in text.spellings)
            else:
                unknown = text.spelled.occurrences
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
    unknown = train.spellings if train.spelled is None else train.spelled
    if isinstance(tokenizer, WordTokenizer):
        return fit_speller(
            tokenizer, unknown, lambda: VocabularyWords(tokenizer.table, _is_rare(_type_counts(tokenizer, train)))
        )
    return fit_speller(tokenizer, unknown, lambda: rare_types(_counts_by_name(corpus, tokenizer, train)))


def fit_speller(
    tokenizer: Tokenizer, unknown: Any, rare: Callable[[], "Sequence[str] | VocabularyWords"]
) -> Speller:
    """Train the speller on the out-of-vocabulary words, and on rare vocabulary words if those are too few.

    `unknown` is the spelling of each unknown word of the training text, or their `CountedWords`; `rare` returns the
    rare words (or characters) of the vocabulary.
    """
    placeholder, is_single = tokenizer.config.unk, tokenizer.config.kind == "char"
    few = 0 if is_single else FEW * tokenizer.vocab_size
    types = len(set(unknown) - {placeholder}) if isinstance(unknown, list) else unknown.types
    rare_words = [] if types > few else rare()
    return train_speller(unknown, tokenizer.vocabulary_words(), is_single, rare=rare_words, placeholder=placeholder)


def rare_types(counts: Mapping[str, int]) -> list[str]:
    """Return the types with count 1, or the rarer half of all types if those are too few."""
    is_rare = _is_rare(np.fromiter(counts.values(), dtype=np.int64, count=len(counts)))
    return [name for name, is_included in zip(counts, is_rare.tolist(), strict=True) if is_included]


def _counts_by_name(corpus: Corpus, tokenizer: Tokenizer, train: EncodedText) -> dict[str, int]:
    """Count the types (words or characters) that occur in the training text and are not unknown."""
    if tokenizer.config.kind == "wordpiece":  # its ids are not words
        words = Counter(word for line in corpus for word in split_words(tokenizer.canonicalize(line)))
        del words[tokenizer.config.unk]
        return words
    counts = _type_counts(tokenizer, train)
    ids = np.flatnonzero(counts)
    return dict(zip(tokenizer.tokens(ids.tolist()), counts[ids].tolist(), strict=True))


def _type_counts(tokenizer: Tokenizer, train: EncodedText) -> Ids:
    """Return the count of each id (V,) in the training text, 0 for `<unk>` and control symbols."""
    if train.type_counts is not None:
        counts = train.type_counts.astype(np.int64)
    else:
        counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        for block in id_blocks(train.ids):
            counts += np.bincount(block, minlength=tokenizer.vocab_size)
    counts[[tokenizer.bos, tokenizer.eos]] = 0
    counts[tokenizer.unk] = 0
    return counts


def _is_rare(counts: Ids) -> Mask:
    """Return the mask of the types with count 1, or of the rarer half of all types if those are too few."""
    is_single: Mask = counts == 1
    occurring = counts[counts > 0]
    if is_single.sum() > FEW * len(occurring) or not len(occurring):
        return is_single
    middle = len(occurring) // 2
    median = np.partition(occurring, middle)[middle]
    return np.asarray((counts > 0) & (counts <= median))
