"""The corpus of word vectors: word numbers in a file, counts, vocabulary, co-occurrences, and the trained vectors.

A text is counted and numbered in one pass, in constant memory. Words are numbered in order of first appearance.
The file contains one int32 per word, and SENTENCE_BREAK after every non-empty line. Words are separated by
blanks and tabs; punctuation is optionally split from them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.embeddings.config import VectorConfig
from chainrule.errors import InputError
from chainrule.progress import Progress, silent
from chainrule.tokenizers.punctuation import split_without_joiners

Matrix = NDArray[np.float32]

SENTENCE_BREAK: Final = -1
CHUNK_CHARACTERS: Final = 1 << 20
"""Approximate number of characters counted at a time."""
POLL_SECONDS: Final = 0.2
"""Interval at which compiled training returns to Python to report progress and handle Ctrl-C."""
BLOCK_IDS: Final = 1 << 16
"""Word numbers read at a time."""
RECORD: Final = np.dtype([("i", "<i4"), ("j", "<i4"), ("x", "<f4")])
"""Record of a file of co-occurrences: X_ij."""
LONG_WORD_REMEDY: Final = "word vectors need text with blanks between words"
NO_PAIRS_MESSAGE: Final = "no two words with a vector stand in one line; give lines of text, or lower min_count"


@dataclass(frozen=True, slots=True)
class CountedCorpus:
    """Text as word numbers, with the count of each distinct word."""

    counts: NDArray[np.uint64]  # (types,)  indexed by word number
    file: Path  # int32 word numbers
    numbers: int  # entries of the file, including sentence breaks
    total: int  # words of the text
    words_of: Callable[[NDArray[np.int64]], list[str]]  # word numbers -> words

    @property
    def types(self) -> int:
        """Number of distinct words."""
        return len(self.counts)

    @property
    def words(self) -> tuple[str, ...]:
        """All distinct words, rebuilt at each access."""
        return tuple(self.words_of(np.arange(self.types)))

    def without_words(self) -> "CountedCorpus":
        """Return a copy that does not keep the words in memory; `words` and `words_of` raise."""
        return replace(self, words_of=_words_released)


def _words_released(numbers: NDArray[np.int64]) -> list[str]:
    raise AssertionError("the words of this corpus have been released")


class Digest(Protocol):
    """Hash object, as in hashlib."""

    def update(self, content: bytes, /) -> None:
        """Hash more content."""
        ...


def count_blocks(
    blocks: Iterable[str],
    file: Path,
    lowercase: bool = False,
    progress: Progress = silent,
    digest: Digest | None = None,
    *,
    splits_punctuation: bool = False,
) -> CountedCorpus:
    """Count the words of a text and write their numbers to `file`; blocks may be split at any character.

    `digest` is updated with the UTF-8 text. With `splits_punctuation`, words are those of the word tokenizer,
    without joiner marks.
    """
    counter = system.load_extension().WordCounter(str(file))
    feed_words(counter, blocks, lowercase, progress, digest, splits_punctuation=splits_punctuation)
    return CountedCorpus(counter.counts(), file, counter.numbers, counter.words, counter.words_of)


def feed_words(
    counter: Any,
    blocks: Iterable[str],
    lowercase: bool = False,
    progress: Progress = silent,
    digest: Digest | None = None,
    *,
    splits_punctuation: bool = False,
) -> None:
    """Count the words of a text with a WordCounter; see `count_blocks`."""
    done = 0
    progress("counting words", 0, None)
    for piece in split_chunks(blocks, is_between_words=lowercase or splits_punctuation):
        try:
            text = piece.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"the text contains a lone surrogate, which UTF-8 cannot encode: {error}") from error
        if digest:
            digest.update(text)
        words = piece.lower() if lowercase else piece
        if splits_punctuation:
            counter.feed(split_without_joiners(words))
        else:
            counter.feed(words.encode("utf-8") if lowercase else text)
        done += len(text)
        progress(f"counting words, {counter.words:,}", done, None)
    counter.finish()
    progress(f"counting words, {counter.words:,}", done, done)


def split_chunks(blocks: Iterable[str], is_between_words: bool, size: int = CHUNK_CHARACTERS) -> Iterator[str]:
    """Yield the text in chunks of about `size` characters, split between words if `is_between_words`.

    Lower-casing and punctuation splitting need whole words; for example, a final Σ has a different lower case.
    """
    held: list[str] = []
    length = 0
    for block in blocks:
        for part in [block] if len(block) <= size else (block[i : i + size] for i in range(0, len(block), size)):
            end = 0  # characters of `part` that complete the current chunk
            if length + len(part) >= size:
                end = 1 + max(map(part.rfind, " \t\n")) if is_between_words else len(part)
            if end:
                yield "".join([*held, part[:end]])
                held, length = [], 0
            held.append(part[end:])
            length += len(part) - end
    if length:
        yield "".join(held)


@dataclass(frozen=True, slots=True)
class WordVocabulary:
    """Words that get a vector; the index is the id."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]  # (V,)
    number_of: NDArray[np.int32]  # (types,)  id of each word number of the corpus, −1 if not in the vocabulary

    def __len__(self) -> int:
        return len(self.words)


def build_vocabulary(counted: CountedCorpus, min_count: int = 1, vocab_size: int | None = None) -> WordVocabulary:
    """Return the words with at least `min_count` occurrences, at most `vocab_size`, by count, then appearance."""
    frequent = np.flatnonzero(counted.counts >= np.uint64(min_count))
    # Negate the counts instead of reversing the order: a stable sort keeps equal words in order of appearance.
    numbers = frequent[np.argsort(np.uint64(2**64 - 1) - counted.counts[frequent], kind="stable")][:vocab_size]
    number_of = np.full(counted.types, -1, np.int32)
    number_of[numbers] = np.arange(len(numbers), dtype=np.int32)
    return WordVocabulary(tuple(counted.words_of(numbers)), counted.counts[numbers], number_of)


@dataclass(frozen=True, slots=True)
class TrainedVectors:
    """Result of a training method."""

    matrix: Matrix  # (V, D)  word vectors; with character n-grams, the mean of the word's row and its n-grams
    buckets: Matrix | None  # (B, D)  vectors of character n-gram buckets
    metrics: dict[str, Any]


def check_pairs(counted: CountedCorpus, vocabulary: WordVocabulary) -> None:
    """Raise InputError if no two vocabulary words occur in one line; stops reading at the first pair."""
    is_before = False  # a vocabulary word precedes in the same line
    for first in range(0, counted.numbers, BLOCK_IDS):
        block = np.fromfile(counted.file, np.int32, min(BLOCK_IDS, counted.numbers - first), offset=4 * first)
        is_break = block == SENTENCE_BREAK
        is_known = ~is_break & (vocabulary.number_of[np.where(is_break, 0, block)] >= 0)
        is_word = np.concatenate(
            [[is_before], is_known[is_break | is_known]]
        )  # words and breaks, without OOV words
        if (is_word[1:] & is_word[:-1]).any():
            return
        is_before = bool(is_word[-1])
    raise InputError(NO_PAIRS_MESSAGE)


@dataclass(frozen=True, slots=True)
class Cooccurrences:
    """File of records (i, j, X_ij), both directions of every pair, in shuffled order."""

    file: Path
    records: int

    def read(self) -> NDArray[np.void]:
        """Return all records, a structured array (records,) with the fields i, j and x."""
        return np.fromfile(self.file, RECORD, self.records)


def count_cooccurrences(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    folder: Path,
    progress: Progress = silent,
    *,
    threads: int = 1,
    seed: int = 0,
) -> Cooccurrences:
    """Count X_ij = Σ 1/distance over all occurrences of i and j within `window` words of one sentence.

    Words outside the vocabulary are removed first. The file, in `folder`, does not depend on the memory limit or
    the number of threads; `seed` determines the order of its records. Counting uses about `config.memory` bytes.
    Raise InputError if no two words of the vocabulary occur in one sentence.
    """
    file = folder / "cooccurrences"
    counter = system.load_extension().Cooccurrence(
        str(counted.file),
        counted.numbers,
        vocabulary.number_of,
        len(vocabulary.words),
        str(file),
        window=config.window,
        bytes=config.memory_bytes,
        threads=threads,
        seed=seed,
    )
    is_more = True
    while is_more:
        is_more = counter.run(POLL_SECONDS)
        is_merging, done, total = counter.counted()
        progress("merging co-occurrences" if is_merging else "counting co-occurrences", done, total)
    if not counter.records:
        raise InputError(NO_PAIRS_MESSAGE)
    return Cooccurrences(file, counter.records)
