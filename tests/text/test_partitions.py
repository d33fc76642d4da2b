"""Partitions of a corpus: their lines are those of the corpus, in order."""

import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.text.partitions import partition_corpus
from chainrule.text.readers import TextFile


def lines_of(corpus: Corpus, size: int, characters: int) -> list[str]:
    lines: list[str] = []
    for partition in partition_corpus(corpus, size):
        before = len(lines)
        for count, block in partition.blocks(characters):
            assert count == len(lines) - before
            assert block.endswith(b"\n")
            lines += block.decode()[:-1].split("\n")
    return lines


@settings(max_examples=60)
@given(
    text=st.text(alphabet="ab é\n\r\ufeff", max_size=60),
    size=st.integers(1, 30),
    characters=st.integers(1, 20),
    drops_blank_lines=st.booleans(),
)
def test_byte_ranges_of_a_plain_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int, characters: int, drops_blank_lines: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges.txt"
    path.write_bytes(text.encode())
    file = TextFile(path, path.name, path.stat().st_size)
    corpus = replace(Corpus(files=(file,)), drop_blank_lines=drops_blank_lines)
    assert lines_of(corpus, size, characters) == list(corpus)


def test_partitions_of_other_formats(tmp_path: Path) -> None:
    text = "one\ntwo\nthree\n"
    (tmp_path / "a.txt").write_bytes(gzip.compress(text.encode()))  # compressed, by its first bytes
    (tmp_path / "b.jsonl").write_text('{"text": "four\\nfive"}\n{"text": "six"}\n')
    corpus = Corpus.of(tmp_path)
    assert len(partition_corpus(corpus, 4)) == 1 + 2
    assert lines_of(corpus, 4, 1) == ["one", "two", "three", "four", "five", "six"]
    in_memory = Corpus.from_lines(["a\nb", "c", "d"])
    assert len(partition_corpus(in_memory, 4)) == 2
    assert lines_of(in_memory, 4, 1) == ["a", "b", "c", "d"]


def test_invalid_utf8_in_a_later_range_is_located(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthr\xffee\n")
    partitions = partition_corpus(Corpus.of(path), 6)
    assert len(partitions) == 2
    with pytest.raises(InputError, match="not UTF-8 at byte 11"):
        list(partitions[1].blocks())


def test_parquet_is_divided_by_row_groups(tmp_path: Path) -> None:
    texts = [f"row {row}\nof the table" for row in range(10)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "t.parquet", row_group_size=3)
    corpus = Corpus.of(tmp_path / "t.parquet")
    groups = [partition.corpus.files[0].row_groups for partition in partition_corpus(corpus, 1)]
    assert groups == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert lines_of(corpus, 1, 1) == [line for text in texts for line in text.split("\n")]
    assert len(partition_corpus(corpus, corpus.files[0].size)) == 1


def test_fault_in_a_later_range_is_located(tmp_path: Path) -> None:
    records = ['{"text": "a"}'] * 5 + ['{"text": 5}']
    (tmp_path / "t.jsonl").write_text("\n".join(records))
    partitions = partition_corpus(Corpus.of(tmp_path / "t.jsonl"), 20)
    assert len(partitions) == 3
    with pytest.raises(InputError, match=r"t\.jsonl, line 6: 'text' is 5, not a text"):
        list(partitions[2].blocks())
    with pytest.raises(InputError, match=r"t\.jsonl, line 6: 'text' is 5, not a text"):
        list(partitions[2].corpus)
    column = pyarrow.array([b"a", b"b", b"c\xff"], pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "t.parquet", row_group_size=2)
    last = partition_corpus(Corpus.of(tmp_path / "t.parquet"), 1)[1]
    with pytest.raises(InputError, match=r"t\.parquet, row 3 is not UTF-8 at byte 1 "):
        list(last.blocks())
    with pytest.raises(InputError, match=r"t\.parquet, row 3 is not UTF-8 at byte 1 "):
        list(last.corpus)
