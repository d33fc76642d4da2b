"""Counting on an engine: the words, counts and co-occurrences of one process, byte for byte."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.processes import SerialEngine
from chainrule.distributed.work_folder import WorkFolder, open_work_folder
from chainrule.embeddings import train
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import build_vocabulary, count_blocks, count_cooccurrences
from chainrule.embeddings.distributed_counts import EngineCounter
from chainrule.errors import InputError, UsageError
from chainrule.text.corpus import Corpus
from embeddings.small_texts import CORE, counted_of, zipf_lines

pytestmark = pytest.mark.native

WORDS = ["a", "B", "b,", "c.", "ä", "Σ", "中文", "d\te", "(f"]


@contextmanager
def serial_engine(corpus: Corpus, partition_bytes: int) -> Iterator[Engine]:
    with open_work_folder(EngineOptions(), corpus, {}, 1) as work:
        yield SerialEngine(EngineOptions(), WorkFolder(work.path, partition_bytes))


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def check_equal(text: Path, config: VectorConfig, partition_bytes: int, seed: int = 0) -> int:
    """Compare with counting in one process; return the number of partitions."""
    corpus = Corpus.of(text)
    file, splits = text.parent / "numbers", config.tokenizer == "word"
    counted = count_blocks(corpus.blocks(), file, config.lowercase, splits_punctuation=splits)
    expected = build_vocabulary(counted, config.min_count, config.vocab_size)
    with serial_engine(corpus, partition_bytes) as engine:
        counter = EngineCounter(engine, corpus, config, seed)
        actual = counter.count_words()
        assert actual.words == expected.words
        assert_array_equal(actual.counts, expected.counts)
        assert (actual.types, actual.total) == (counted.types, counted.total)
        assert actual.highest_count == counted.counts.max(initial=0)
        try:
            pairs = count_cooccurrences(counted, expected, config, text.parent, seed=seed)
        except InputError:
            with pytest.raises(InputError, match="no two words"):
                counter.count_cooccurrences(actual, text.parent)
            return len(engine.read_text(corpus))
        content = pairs.file.read_bytes()
        on_engine = counter.count_cooccurrences(actual, text.parent)
        assert on_engine.records == pairs.records
        assert on_engine.file.read_bytes() == content
        return len(engine.read_text(corpus))


@given(
    lines=st.lists(
        st.lists(st.sampled_from(["a", "B", "b,", "c.", "ä", "Σ", "中文", "d\te", "(f"]), max_size=12), max_size=12
    ),
    window=st.integers(1, 30),
    min_count=st.integers(1, 3),
    vocab_size=st.none() | st.integers(1, 4),
    lowercase=st.booleans(),
    tokenizer=st.sampled_from(["word", "whitespace"]),
    partition_bytes=st.integers(20, 300),
)
@settings(max_examples=30, deadline=None)
def test_counts_of_small_texts(
    lines: list[list[str]], partition_bytes: int, tmp_path_factory: pytest.TempPathFactory, **chosen: Any
) -> None:
    text = write(tmp_path_factory.mktemp("text") / "text.txt", [" ".join(line) for line in lines])
    check_equal(text, VectorConfig(**chosen), partition_bytes, seed=len(lines))


@pytest.mark.parametrize("partitions", [1, 2, 3, 4])
def test_counts_of_a_larger_text(partitions: int, tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", zipf_lines(3000, 2000, 6))
    config = VectorConfig(min_count=2, memory="1M")  # the pairs do not fit
    partition_bytes = text.stat().st_size // partitions + 100
    assert check_equal(text, config, partition_bytes, seed=7) == partitions


def test_sums_spill(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(3000, 2000, 8), tmp_path)

    def count(ranges: int, bytes: int) -> Any:
        pairs = CORE.Cooccurrence(
            str(counted.file),
            counted.numbers,
            chosen.number_of,
            len(chosen.words),
            str(tmp_path / f"pairs{ranges}"),
            window=5,
            bytes=bytes,
            threads=1,
            seed=2,
            ranges=ranges,
        )
        while pairs.run(0.01):
            pass
        return pairs

    count(0, 1 << 26)
    expected = np.fromfile(tmp_path / "pairs0", "<i4,<i4,<f4")
    parts = count(3, 4096).parts()
    assert {range_ for range_, _ in parts} == {0, 1, 2}
    doubled = b""
    with (tmp_path / "pairs3").open("rb") as file:
        payloads = [(range_, file.read(size)) for range_, size in parts]
        assert not file.read()
    for range_ in range(3):
        sums = CORE.CooccurrenceSum(str(tmp_path / "sum"), window=5, bytes=4096, seed=2)
        for number, payload in payloads * 2:
            if number == range_:
                sums.add(payload)
        sums.finish()
        del sums
        doubled += (tmp_path / "sum").read_bytes()
    actual = np.frombuffer(doubled, "<i4,<i4,<f4")
    assert_array_equal(actual["f0"], expected["f0"])
    assert_array_equal(actual["f1"], expected["f1"])
    assert_array_equal(actual["f2"], 2 * expected["f2"])
    assert sorted(os.listdir(tmp_path)) == ["numbers", "pairs0", "pairs3", "sum"]  # no run is left


def test_text_that_changes_is_an_error(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", ["a b", "c d"])
    corpus = Corpus.of(text)
    with serial_engine(corpus, 100) as engine:
        counter = EngineCounter(engine, corpus, VectorConfig(min_count=1), 0)
        counted = counter.count_words()
        write(text, ["a b", "c"])
        with pytest.raises(InputError, match="the text changed while it was read: 4 words, then 3"):
            counter.count_cooccurrences(counted, tmp_path)


def test_long_word_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus.of(write(tmp_path / "text.txt", ["a b", "c " + 70_000 * "d"]))
    with (
        serial_engine(corpus, 4) as engine,
        pytest.raises(InputError, match=r"text\.txt, part 2 of the text, line 1 has a word of more than 65,536"),
    ):
        EngineCounter(engine, corpus, VectorConfig(), 0).count_words()


def test_vectors_trained_on_processes(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", zipf_lines(1000, 200, 9))
    common: dict[str, Any] = {"method": "glove", "dimensions": 4, "threads": 1, "seed": 5, "min_count": 3}
    local = train.train(text, **common)
    work = tmp_path / "work"
    trained = train.train(text, **common, workers=2, work=work, partition="9000")
    assert trained.words == local.words
    assert_array_equal(trained.matrix, local.matrix)
    assert_array_equal(trained.counts, local.counts)
    assert trained.origin.text_sha256 == local.origin.text_sha256
    assert [trained.metrics[key] == local.metrics[key] for key in ("train_words", "train_types", "records", "cost")]
    before = (work / "cooccurrences" / "_SUCCESS").stat().st_mtime_ns
    again = train.train(text, **common | {"epochs": 2}, workers=1, work=work, resume=True)  # of the same counts
    assert (work / "cooccurrences" / "_SUCCESS").stat().st_mtime_ns == before
    assert_array_equal(again.matrix, train.train(text, **common | {"epochs": 2}).matrix)
    with pytest.raises(UsageError, match="other settings"):
        train.train(text, **common | {"window": 2}, workers=1, work=work, resume=True)


def test_errors_before_counting_pairs(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", ["a b", "b"])
    with pytest.raises(UsageError, match="train skipgram with --threads N"):
        train.train(text, workers=1)
    with pytest.raises(InputError, match="the most frequent word occurs 2 times"):
        train.train(text, method="glove", workers=1)
    with pytest.raises(InputError, match="contains no words"):
        train.train(write(tmp_path / "blank.txt", [" "]), method="glove", workers=1)
