import gzip
import warnings
from pathlib import Path

import pytest

from chainrule.errors import ChainruleWarning, InputError, NotFoundError, UsageError
from chainrule.text.parallel import SentencePairs, read_aligned_lines, read_pairs, read_sources


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_two_files_are_read_line_by_line(tmp_path: Path) -> None:
    source, target = (
        write(tmp_path / "a.en", "a cat\r\ntwo\tdogs\n"),
        write(tmp_path / "a.de", "eine Katze\nzwei Hunde"),
    )
    pairs = read_pairs([source, str(target)])
    expected = ("a cat", "two\tdogs"), ("eine Katze", "zwei Hunde")  # a tab in two files is text
    assert pairs == SentencePairs(*expected, f"{source}, {target}", (1, 2))
    assert len(pairs) == 2


def test_a_table_has_one_tab_a_line(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv.gz"
    file.write_bytes(gzip.compress("\ufeffa cat\teine Katze\n two \tzwei\n".encode()))
    pairs = read_pairs([file])
    assert pairs == SentencePairs(("a cat", " two "), ("eine Katze", "zwei"), str(file), (1, 2))
    assert read_pairs(str(file)) == pairs


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("one\ttwo\tthree", 2), ("", 0)])
def test_a_line_with_another_number_of_tabs_is_refused(tmp_path: Path, line: str, tabs: int) -> None:
    file = write(tmp_path / "x.tsv", f"a\tb\n{line}\nc\td\n")
    with pytest.raises(InputError, match=rf"x\.tsv, line 2 has {tabs} tabs"):
        read_pairs([file])


def test_files_of_different_length_are_refused_with_both_numbers(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\nb\nc\n"), write(tmp_path / "a.de", "a\nb\n")]
    with pytest.raises(InputError, match=r"a\.en has 3 lines but .*a\.de has 2"):
        read_pairs(files)


@pytest.mark.parametrize("number", [0, 3])
def test_pairs_come_from_one_file_or_two(tmp_path: Path, number: int) -> None:
    file = write(tmp_path / "x", "a\n")
    with pytest.raises(UsageError, match=f"{number} files were given"):
        read_pairs([file] * number)


def test_a_folder_of_several_files_has_no_line_numbers(tmp_path: Path) -> None:
    write(tmp_path / "a", "a\tb\n")
    write(tmp_path / "b", "a\tb\n")
    with pytest.raises(UsageError, match="names 2 files"):
        read_pairs([tmp_path])


def test_pairs_with_an_empty_side_are_left_out_and_counted_once(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\n\nc\nd\n \n"), write(tmp_path / "a.de", "A\nB\nC\n\t\n\n")]
    with pytest.warns(ChainruleWarning, match=r"3 of 5 pairs have an empty side, the first in line 2") as caught:
        pairs = read_pairs(files)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (pairs.sources, pairs.targets, pairs.numbers) == (("a", "c"), ("A", "C"), (1, 3))
    assert pairs.left_out == 3
    whole = read_pairs(files, keeps_empty=True)
    assert whole.sources == ("a", "", "c", "d", " ")
    assert (whole.targets, whole.numbers) == (("A", "B", "C", "\t", ""), (1, 2, 3, 4, 5))
    assert whole.left_out == 0


@pytest.mark.parametrize("text", ["", "a\t\n\tb\n"])
def test_no_pair_at_all_is_refused(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "x.tsv", text)
    with pytest.raises(InputError, match=rf"x\.tsv: none of {text.count(chr(10))} lines is a pair"):
        read_pairs([file])


def test_what_is_wrong_with_a_file_is_said_as_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    with pytest.raises(NotFoundError, match=r"x\.tsv"):
        read_pairs([file])
    file.write_bytes(b"a\tb\xff\n")
    with pytest.raises(InputError, match=r"x\.tsv is not UTF-8 at byte 3"):
        read_pairs([file])


def test_sources_keep_their_empty_lines(tmp_path: Path) -> None:
    assert read_sources(write(tmp_path / "x", "a b\n\nc\td\n")) == ["a b", "", "c\td"]


@pytest.mark.data
def test_multi30k_is_read(data_folder: Path) -> None:
    folder = data_folder / "multi30k"
    pairs = read_pairs([folder / "val.en", folder / "val.de"])
    assert len(pairs) == 1014  # as its authors count
    assert pairs.numbers == tuple(range(1, 1015))
    assert pairs.sources[0] == "A group of men are loading cotton onto a truck"
    assert pairs.targets[0] == "Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen"


@pytest.mark.parametrize(
    ("header", "is_one"),
    [("source\ttarget", True), ("de\ten", True), ("English\tGerman", True), ("ein\ta", False), ("de\tde", False)],
)
def test_a_header_of_a_table_is_warned_of(tmp_path: Path, header: str, is_one: bool) -> None:
    file = write(tmp_path / "x.tsv", f"{header}\nein Mann\ta man\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(read_pairs(file)) == 2
    assert ["x.tsv, line 1 looks like a header" in str(one.message) for one in caught] == [True] * is_one


def test_bytes_that_are_no_text_are_not_answered_with_an_option_of_other_commands(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"ein\t\xff\n")
    for read in (read_pairs, read_sources):
        with pytest.raises(InputError, match=r"x\.tsv is not UTF-8 at byte 4 \(0xff\); convert it to UTF-8$"):
            read(tmp_path / "x.tsv")


def test_lines_beside_pairs_are_as_many(tmp_path: Path) -> None:
    pairs = SentencePairs(["a", "b", "c"], ["A", "B", "C"], "x.tsv", (1, 2, 4), left_out=1)
    for number in (3, 4):
        assert len(read_aligned_lines(write(tmp_path / "y", "a\n" * number), pairs)) == number
    with pytest.raises(InputError, match=r"y has 2 lines, but 4 are needed: one for every line of x\.tsv"):
        read_aligned_lines(write(tmp_path / "y", "a\n" * 2), pairs)


def test_pairs_of_ones_own() -> None:
    pairs = SentencePairs(["a", "b"], ["A", "B"])
    assert (pairs.sources, pairs.targets, pairs.numbers) == (("a", "b"), ("A", "B"), (1, 2))
    with pytest.raises(InputError, match="there are 2 sources but 1 targets"):
        SentencePairs(["a", "b"], ["A"])
    with pytest.raises(InputError, match="targets is one text"):
        SentencePairs(["a"], "A")
