"""Count words and co-occurrences on an engine: the vocabulary and the file of `corpus`, byte for byte.

The stages, each a folder of the work folder:

    words          text -> counts of its words with their first positions, by hash of the word
    vocabulary     counts of each word, added up, without the words below the minimum count
    pairs          text -> co-occurrences within its lines, by range of the pair's key
    cooccurrences  counts of each pair, added up: a part of the file

The keys of pairs (cpp/vectors/cooccurrence.hpp) are pseudo-random, so that the ranges are of equal size however
frequent a word is, and their order is that of the records in the file.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.distributed.engine import Engine
from chainrule.distributed.records import Record, Records
from chainrule.embeddings.config import MIN_MEMORY, VectorConfig
from chainrule.embeddings.corpus import (
    LONG_WORD_REMEDY,
    NO_PAIRS_MESSAGE,
    POLL_SECONDS,
    RECORD,
    Cooccurrences,
    feed_words,
)
from chainrule.errors import InputError
from chainrule.storage.temp_dir import scratch_folder
from chainrule.text.corpus import Corpus, WordLengthCheck

MOST_PARTS: Final = 256
"""Largest number of parts of the vocabulary and of the file of co-occurrences."""
BYTES_PER_RECORD: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class CountedWords:
    """Words that get a vector, with figures of the whole text."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]  # (V,)
    types: int  # different words of the text
    total: int  # words of the text
    highest_count: int


@dataclass(frozen=True, slots=True)
class WordSplitting:
    """How the lines of a text are divided into words."""

    name: str  # of the text, for messages
    lowercase: bool
    splits_punctuation: bool

    @classmethod
    def of(cls, corpus: Corpus, config: VectorConfig) -> "WordSplitting":
        """Return the splitting that the settings name."""
        return cls(corpus.name, config.lowercase, config.tokenizer == "word")

    def count(self, partition: int, records: Iterator[Record], ids: str) -> Any:
        """Count the words of a partition of the text and write their numbers to the file `ids`."""
        counter = system.load_extension().WordCounter(ids)
        blocks = self._check(partition, records)
        feed_words(counter, blocks, self.lowercase, splits_punctuation=self.splits_punctuation)
        return counter

    def _check(self, partition: int, records: Iterator[Record]) -> Iterator[str]:
        """Yield the blocks of text; raise on an excessively long word."""
        part = Corpus(title=f"{self.name}, part {partition + 1} of the text")
        words = WordLengthCheck(part.blocks(), LONG_WORD_REMEDY)
        for _, block in records:
            text = bytes(block).decode()
            words.check(text)
            yield text


@dataclass(frozen=True, slots=True)
class CountWords:
    """Task of the stage `words`: count the words of a partition of the text."""

    splitting: WordSplitting
    parts: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return counts by part."""
        counter = self.splitting.count(partition, records, os.devnull)
        yield from enumerate(counter.records(self.parts, partition))


@dataclass(frozen=True, slots=True)
class SumWords:
    """Task of the stage `vocabulary`: add up the counts of one part."""

    min_count: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return one record."""
        sums = system.load_extension().WordSums()
        for _, payload in records:
            sums.add(bytes(payload))
        yield 0, sums.record(self.min_count)


@dataclass(frozen=True, slots=True)
class CountPairs:
    """Task of the stage `pairs`: count the co-occurrences within the lines of a partition of the text."""

    splitting: WordSplitting
    vocabulary: Path
    ranges: int
    window: int
    memory: int
    seed: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return counts by range; beyond the last range, the number of words that were read."""
        index = _read_index(self.vocabulary)
        with scratch_folder() as scratch:
            ids, out = scratch / "numbers", scratch / "pairs"
            counter = self.splitting.count(partition, records, str(ids))
            pairs = system.load_extension().Cooccurrence(
                str(ids),
                counter.numbers,
                index.ids_of(counter),
                len(index),
                str(out),
                window=self.window,
                bytes=self.memory,
                threads=1,
                seed=self.seed,
                ranges=self.ranges,
            )
            while pairs.run(POLL_SECONDS):
                pass
            with out.open("rb") as file:
                for range_, size in pairs.parts():
                    yield range_, file.read(size)
        yield self.ranges, counter.words.to_bytes(8, "little")


@lru_cache(maxsize=1)
def _read_index(vocabulary: Path) -> Any:
    """Read the vocabulary, once for all tasks of a worker."""
    return system.load_extension().WordIndex(vocabulary.read_bytes())


@dataclass(frozen=True, slots=True)
class SumPairs:
    """Task of the stage `cooccurrences`: add up the counts of one range."""

    ranges: int
    window: int
    memory: int
    seed: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return a part of the file of co-occurrences."""
        if partition == self.ranges:
            return
        with scratch_folder() as scratch:
            out = scratch / "cooccurrences"
            sums = system.load_extension().CooccurrenceSum(
                str(out),
                window=self.window,
                bytes=self.memory,
                seed=self.seed,
            )
            for _, payload in records:
                sums.add(bytes(payload))
            sums.finish()
            with out.open("rb") as file:
                while block := file.read(BYTES_PER_RECORD):
                    yield 0, block


class EngineCounter:
    """Counts the words and the co-occurrences of a text on an engine."""

    def __init__(self, engine: Engine, corpus: Corpus, config: VectorConfig, seed: int) -> None:
        self._engine, self._config, self._seed = engine, config, seed
        self._splitting = WordSplitting.of(corpus, config)
        self._text: Records = engine.read_text(corpus)
        self._parts = max(1, min(len(self._text), MOST_PARTS))
        share = engine.parallelism if engine.options.is_local else 1
        self._memory = max(MIN_MEMORY, config.memory_bytes // share)

    def count_words(self) -> CountedWords:
        """Run the stages `words` and `vocabulary`; the words are ordered by count, then first appearance."""
        parts, min_count = self._parts, self._config.min_count
        counted = self._engine.run("words", self._text, CountWords(self._splitting, parts), partitions=parts)
        sums = system.load_extension().WordSums()
        for _, payload in self._engine.iterate(self._engine.run("vocabulary", counted, SumWords(min_count))):
            sums.add(bytes(payload))
        words, counts = sums.ranked(self._config.vocab_size or sums.types)
        return CountedWords(tuple(words), counts, sums.types, sums.words, sums.highest_count)

    def count_cooccurrences(self, counted: CountedWords, folder: Path) -> Cooccurrences:
        """Run the stages `pairs` and `cooccurrences`, and write the file of co-occurrences to `folder`."""
        engine, config = self._engine, self._config
        vocabulary = engine.share_file("vocabulary", "".join(f"{word}\n" for word in counted.words).encode())
        shared = {"ranges": self._parts, "window": config.window, "memory": self._memory, "seed": self._seed}
        count = CountPairs(splitting=self._splitting, vocabulary=vocabulary, **shared)
        pairs = engine.run("pairs", self._text, count, partitions=self._parts + 1)
        words = sum(int.from_bytes(payload, "little") for _, payload in pairs[self._parts])
        if words != counted.total:
            raise InputError(
                f"the text changed while it was read: {counted.total:,} words, then {words:,}; train again"
            )
        parts = engine.run("cooccurrences", pairs, SumPairs(**shared))
        if engine.options.work is None:
            shutil.rmtree(engine.work.path / "pairs")  # no longer needed
        file = folder / "cooccurrences"
        with file.open("wb") as out:
            for _, payload in engine.iterate(parts):
                out.write(payload)
        records = file.stat().st_size // RECORD.itemsize
        if not records:
            raise InputError(NO_PAIRS_MESSAGE)
        return Cooccurrences(file, records)
