"""Partitions of a corpus: their lines are those of the corpus, in order."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_other_formats_are_one_partition(tmp_path: Path) -> None:
    text = "one\ntwo\nthree\n"
    (tmp_path / "a.txt").write_bytes(gzip.compress(text.encode()))  # compressed, by its first bytes
    (tmp_path / "b.jsonl").write_text('{"text": "four\\nfive"}\n{"text": "six"}\n')
    corpus = Corpus.of(tmp_path)
    assert len(partition_corpus(corpus, 4)) == 2
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
