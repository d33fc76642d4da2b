"""Word counts as a job of two stages, for the tests of the engines."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

from chainrule.distributed.engine import Engine
from chainrule.distributed.records import Record
from chainrule.text.corpus import Corpus


def count_words(partition: int, records: Iterator[Record], partitions: int) -> Iterator[Record]:
    """Count the words of a partition and deal them by hash."""
    counts = Counter(word for _, block in records for word in block.decode().split())
    for word, count in sorted(counts.items()):
        yield crc32(word.encode()) % partitions, f"{word} {count}".encode()


def add_counts(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    """Add the counts of each word."""
    counts: Counter[str] = Counter()
    for key, payload in records:
        assert key == partition
        word, count = payload.decode().split()
        counts[word] += int(count)
    for word, total in sorted(counts.items()):
        yield total, word.encode()


def word_counts(engine: Engine, corpus: Corpus) -> dict[str, int]:
    dealt = engine.run("words", engine.read_text(corpus), partial(count_words, partitions=3), partitions=3)
    counted = engine.run("counts", dealt, add_counts)
    assert len(dealt) == len(counted) == 3
    return {word.decode(): count for count, word in engine.collect(counted)}


def write_texts(folder: Path) -> Corpus:
    """Write a plain file and a file of records."""
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"w{i % 7} w{i % 5}\n" for i in range(100)))
    (folder / "b.jsonl").write_text('{"text": "w1 x"}\n{"text": "y"}\n')
    return Corpus.of(folder)


def count_in_memory(corpus: Corpus) -> dict[str, int]:
    return Counter(word for line in corpus for word in line.split())
