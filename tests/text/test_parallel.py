import gzip
import warnings
from pathlib import Path

import pytest

from chainrule.errors import ChainruleWarning, InputError, NotFoundError, UsageError
from chainrule.text.parallel import SentencePairs, read_aligned_lines, read_pairs, read_sources


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_read_pairs_from_two_files(tmp_path: Path) -> None:
    source, target = (
        write(tmp_path / "a.en", "a cat\r\ntwo\tdogs\n"),
        write(tmp_path / "a.de", "eine Katze\nzwei Hunde"),
    )
    pairs = read_pairs([source, str(target)])
    expected = ("a cat", "two\tdogs"), ("eine Katze", "zwei Hunde")  # with two files a tab is text
    assert pairs == SentencePairs(*expected, f"{source}, {target}", (1, 2))
    assert len(pairs) == 2


def test_read_pairs_from_a_tab_separated_table(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv.gz"
    file.write_bytes(gzip.compress("\ufeffa cat\teine Katze\n two \tzwei\n".encode()))
    pairs = read_pairs([file])
    assert pairs == SentencePairs(("a cat", " two "), ("eine Katze", "zwei"), str(file), (1, 2))
    assert read_pairs(str(file)) == pairs


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("one\ttwo\tthree", 2), ("", 0)])
def test_pair_line_without_exactly_one_tab_is_rejected(tmp_path: Path, line: str, tabs: int) -> None:
    file = write(tmp_path / "x.tsv", f"a\tb\n{line}\nc\td\n")
    with pytest.raises(InputError, match=rf"x\.tsv, line 2 has {tabs} tabs"):
        read_pairs([file])


def test_parallel_files_of_different_length_are_rejected(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\nb\nc\n"), write(tmp_path / "a.de", "a\nb\n")]
    with pytest.raises(InputError, match=r"a\.en has 3 lines but .*a\.de has 2"):
        read_pairs(files)


@pytest.mark.parametrize("number", [0, 3])
def test_read_pairs_requires_one_or_two_files(tmp_path: Path, number: int) -> None:
    file = write(tmp_path / "x", "a\n")
    with pytest.raises(UsageError, match=f"{number} files were given"):
        read_pairs([file] * number)


def test_read_pairs_rejects_a_folder_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a", "a\tb\n")
    write(tmp_path / "b", "a\tb\n")
    with pytest.raises(UsageError, match="refers to 2 files"):
        read_pairs([tmp_path])


def test_pairs_with_an_empty_side_are_skipped_with_one_warning(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\n\nc\nd\n \n"), write(tmp_path / "a.de", "A\nB\nC\n\t\n\n")]
    with pytest.warns(ChainruleWarning, match=r"3 of 5 pairs have an empty side, the first in line 2") as caught:
        pairs = read_pairs(files)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (pairs.sources, pairs.targets, pairs.numbers) == (("a", "c"), ("A", "C"), (1, 3))
    assert pairs.left_out == 3
    with_empty = read_pairs(files, keeps_empty=True)
    assert with_empty.sources == ("a", "", "c", "d", " ")
    assert (with_empty.targets, with_empty.numbers) == (("A", "B", "C", "\t", ""), (1, 2, 3, 4, 5))
    assert with_empty.left_out == 0


@pytest.mark.parametrize("text", ["", "a\t\n\tb\n"])
def test_file_without_pairs_is_rejected(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "x.tsv", text)
    with pytest.raises(InputError, match=rf"x\.tsv: none of {text.count(chr(10))} lines is a pair"):
        read_pairs([file])


def test_unreadable_pair_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    with pytest.raises(NotFoundError, match=r"x\.tsv"):
        read_pairs([file])
    file.write_bytes(b"a\tb\xff\n")
    with pytest.raises(InputError, match=r"x\.tsv is not UTF-8 at byte 3"):
        read_pairs([file])


def test_read_sources_keeps_empty_lines(tmp_path: Path) -> None:
    assert read_sources(write(tmp_path / "x", "a b\n\nc\td\n")) == ["a b", "", "c\td"]


@pytest.mark.data
def test_multi30k_has_the_published_count(data_folder: Path) -> None:
    folder = data_folder / "multi30k"
    pairs = read_pairs([folder / "val.en", folder / "val.de"])
    assert len(pairs) == 1014  # count given by its authors
    assert pairs.numbers == tuple(range(1, 1015))
    assert pairs.sources[0] == "A group of men are loading cotton onto a truck"
    assert pairs.targets[0] == "Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen"


@pytest.mark.parametrize(
    ("header", "is_header"),
    [("source\ttarget", True), ("de\ten", True), ("English\tGerman", True), ("ein\ta", False), ("de\tde", False)],
)
def test_header_of_a_pair_table_causes_a_warning(tmp_path: Path, header: str, is_header: bool) -> None:
    file = write(tmp_path / "x.tsv", f"{header}\nein Mann\ta man\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(read_pairs(file)) == 2
    assert ["x.tsv, line 1 looks like a header" in str(warning.message) for warning in caught] == [True] * is_header


def test_invalid_utf8_in_pairs_names_no_unsupported_option(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"ein\t\xff\n")
    for read in (read_pairs, read_sources):
        with pytest.raises(InputError, match=r"x\.tsv is not UTF-8 at byte 4 \(0xff\); convert it to UTF-8$"):
            read(tmp_path / "x.tsv")


def test_aligned_lines_must_match_the_pairs_in_number(tmp_path: Path) -> None:
    pairs = SentencePairs(["a", "b", "c"], ["A", "B", "C"], "x.tsv", (1, 2, 4), left_out=1)
    for number in (3, 4):
        assert len(read_aligned_lines(write(tmp_path / "y", "a\n" * number), pairs)) == number
    with pytest.raises(InputError, match=r"y has 2 lines, but 4 are needed: one for every line of x\.tsv"):
        read_aligned_lines(write(tmp_path / "y", "a\n" * 2), pairs)


def test_sentence_pairs_from_lists() -> None:
    pairs = SentencePairs(["a", "b"], ["A", "B"])
    assert (pairs.sources, pairs.targets, pairs.numbers) == (("a", "b"), ("A", "B"), (1, 2))
    with pytest.raises(InputError, match="there are 2 sources but 1 targets"):
        SentencePairs(["a", "b"], ["A"])
    with pytest.raises(InputError, match="targets is one text"):
        SentencePairs(["a"], "A")
