"""Files to be tagged: format detection, the column of the predicted tags, and errors."""

from pathlib import Path

import pytest

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.text.conll import read_tagged, read_tagging_inputs
from text.tagging_words import read_words
from text.test_conll import COLUMNS, CONLLU, WORDS, conllu_line, store

TAGS = [["A", "B"], ["C", "D"]]


@pytest.mark.parametrize(
    ("column", "lines"),
    [
        (None, ["EU NNP I-NP A", "rejects VBZ I-VP B", "# SYM I-NP C", "1 CD I-NP D"]),
        (
            "upos",
            ["EU NNP I-NP A", "rejects VBZ I-VP B", "# SYM I-NP C", "1 CD I-NP D"],
        ),  # names of CoNLL-U columns
        (2, ["EU A I-NP I-ORG", "rejects B I-VP O", "# C I-NP O", "1 D I-NP O"]),
        ("7", ["EU NNP I-NP I-ORG A", "rejects VBZ I-VP O B", "# SYM I-NP O C", "1 CD I-NP O D"]),
    ],
)
def test_with_tags_keeps_all_lines_of_the_input(tmp_path: Path, column: int | str | None, lines: list[str]) -> None:
    text = COLUMNS.replace("\n\n#", "\n\n\n-DOCSTART- -X- O O\n#") + "\n"
    (sheet,) = read_tagging_inputs(store(tmp_path, text), column=column)
    first, second = lines[:2], lines[2:]
    document = "-DOCSTART- -X- O O"
    assert sheet.with_tags(TAGS) == [document, "", *first, "", "", document, *second, ""]
    assert sheet.lines == text.splitlines()


def test_with_tags_writes_conllu_columns(tmp_path: Path) -> None:
    """Comments, ranges and empty nodes stay; probabilities are appended to MISC."""
    text = CONLLU.replace("\t_\t0\tdep\t_\t_", "\t_\t0\tdep\t_\tX=1", 1)
    file = store(tmp_path, text)
    tags = [["A", "B", "C", "D", "E"], ["F"]]
    for column, place in ((None, 3), ("xpos", 4)):
        (sheet,) = read_tagging_inputs(file, column=column)
        output = sheet.with_tags(tags, [[0.5] * 5, [0.25]])
        assert len(output) == len(text.splitlines())
        changed = [new for new, old in zip(output, text.splitlines(), strict=True) if new != old]
        assert [line.split("\t")[place] for line in changed] == ["A", "B", "C", "D", "E", "F"]
        assert [line.split("\t")[9] for line in changed[:2]] == ["X=1|Probability=0.5000", "Probability=0.5000"]
        assert all(len(line.split("\t")) == 10 for line in changed)


@pytest.mark.parametrize("text", ["a\nb\n\nc\nd\n", "a\tx\nb\tx\n\nc\tx\nd\tx\n"])
def test_with_tags_adds_a_second_column_to_words(tmp_path: Path, text: str) -> None:
    (sheet,) = read_tagging_inputs(store(tmp_path, text))
    sure = [[0.5, 1], [0.12346, 0]]
    assert sheet.with_tags(TAGS, sure) == ["a\tA\t0.5000", "b\tB\t1.0000", "", "c\tC\t0.1235", "d\tD\t0.0000"]


def test_with_tags_writes_plain_lines_as_columns(tmp_path: Path) -> None:
    """Every sentence but the last ends with a blank line, also an empty sentence."""
    (sheet,) = read_tagging_inputs(store(tmp_path, "\na b\n\n\nc d\n", "x.txt"), column=2)
    assert sheet.sentences == [(), ("a", "b"), (), (), ("c", "d")]
    tags = [[], TAGS[0], [], [], TAGS[1]]
    assert sheet.with_tags(tags) == ["", "a\tA", "b\tB", "", "", "", "c\tC", "d\tD"]


def test_conllu_in_a_txt_file_is_detected(tmp_path: Path) -> None:
    file = store(tmp_path, CONLLU, "x.txt")
    assert read_words(file) == WORDS
    assert read_words(file, plain=True)[2][:2] == ("1", "I")


@pytest.mark.parametrize("text", [COLUMNS, COLUMNS.replace("\n\n", "\n").replace(" ", "\t"), "a X\nb Y\n\nc X\n"])
def test_columns_in_a_plain_text_file_cause_a_warning(tmp_path: Path, text: str) -> None:
    file = store(tmp_path, text, "x.txt")
    with pytest.warns(ChainruleWarning, match=r"x\.txt looks like columns .*; --columns reads columns"):
        assert len(read_words(file)) == len(text.splitlines())
    read_words(file, plain=True)  # no warning when plain text was requested


@pytest.mark.parametrize("text", ["a b\nc d\n", "a b\n\nc d\n", "a\nb\n\nc\n", "a b\nc\n\nd e\n"])
def test_plain_lines_are_not_taken_for_columns(tmp_path: Path, text: str) -> None:
    assert len(read_words(store(tmp_path, text, "x.txt"))) == len(text.splitlines())


def test_with_tags_keeps_columns_that_are_not_tags(tmp_path: Path) -> None:
    tags = [["A", "B", "C", "D", "E"], ["F"]]
    with pytest.warns(ChainruleWarning, match=r"column 4 has none of the model's tags \(I-ORG\).* as column 5"):
        (sheet,) = read_tagging_inputs(store(tmp_path, COLUMNS), is_known=lambda values: "A" in values)
    assert sheet.with_tags(TAGS)[2:4] == ["EU NNP I-NP I-ORG A", "rejects VBZ I-VP O B"]
    file = store(tmp_path, CONLLU.replace("\t_\t_\n", "\t_\tX=1\n", 1))
    for column, original_tag in (("upos", "PRON"), ("xpos", "PRP")):
        with pytest.warns(ChainruleWarning, match="go to MISC"):
            (sheet,) = read_tagging_inputs(file, column=column, is_known=lambda values: "A" in values)
        cells = sheet.with_tags(tags, [[0.5] * 5, [0.5]])[2].split("\t")
        assert cells[9] == "X=1|Tag=A|Probability=0.5000"
        assert original_tag in cells


def test_with_tags_overwrites_placeholders_and_known_tags(tmp_path: Path) -> None:
    for text in ("a ?\nb _\n\nc -\nd ?\n", "a A\nb x\n\nc x\nd x\n"):
        (sheet,) = read_tagging_inputs(store(tmp_path, text), is_known=lambda values: "A" in values)
        assert sheet.with_tags(TAGS) == ["a A", "b B", "", "c C", "d D"]
    empty = store(tmp_path, conllu_line("1", "I", "_", "_") + "\n")
    (sheet,) = read_tagging_inputs(empty, is_known=lambda values: "PRON" in values)
    assert sheet.with_tags([["PRON"]]) == [conllu_line("1", "I", "PRON", "_")]
    with pytest.warns(
        ChainruleWarning, match="go to MISC"
    ):  # the model's tags are entity names, not parts of speech
        (sheet,) = read_tagging_inputs(empty, is_known=lambda values: "B-PER" in values)
    assert sheet.with_tags([["B-PER"]]) == [conllu_line("1", "I", "_", "_")[:-1] + "Tag=B-PER"]


def test_tags_cannot_replace_the_word_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3 has words in column 1"):
        read_tagging_inputs(store(tmp_path, COLUMNS), column=1)
    with pytest.raises(ConfigError, match="'pos'; choose upos or xpos"):
        read_tagging_inputs(store(tmp_path, COLUMNS), column="pos")
    with pytest.raises(InputError, match="there is no column 11"):
        read_tagging_inputs(store(tmp_path, CONLLU), column=11)
    with pytest.raises(InputError, match="has word ids in column 1"):
        read_tagging_inputs(store(tmp_path, CONLLU), column=1)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.NDJSON", "x.txt", "x"])
def test_read_words_from_json_lines(tmp_path: Path, name: str) -> None:
    file = store(tmp_path, '{"words": ["a", "b"]}\n\n{"id": 1, "words": []}\n{"words": ["c"]}\n', name)
    assert read_words(file) == [("a", "b"), (), ("c",)]
    with pytest.raises(InputError, match=r"x.* is JSON, but tagged text is read from columns"):
        read_tagged(file)
    assert read_words(file, plain=True) == read_words(file, plain=False) == read_words(file)


@pytest.mark.parametrize("line", ['{"text": "a b"}', '{"words": "a b"}', '{"words": ["a", ""]}', '["a"]', "a b"])
def test_json_records_without_word_list_are_rejected(tmp_path: Path, line: str) -> None:
    file = store(tmp_path, f'{{"words": ["a"]}}\n{line}\n', "x.jsonl")
    with pytest.raises(InputError, match=r"x\.jsonl, line 2 is not a JSON object with a list of words; write"):
        read_words(file)


def test_json_words_with_spaces_cause_a_warning(tmp_path: Path) -> None:
    file = store(tmp_path, '{"words": ["a"]}\n{"words": ["a b"]}\n{"words": ["10 000"]}\n', "x.jsonl")
    with pytest.warns(ChainruleWarning, match=r"x\.jsonl, line 2: the word 'a b' contains a blank") as caught:
        assert read_words(file) == [("a",), ("a b",), ("10 000",)]
    assert len(caught) == 1
    with pytest.raises(InputError, match=r"line 1: the word 'a\\tb' contains a tab"):
        read_words(store(tmp_path, '{"words": ["a\\tb"]}', "x.jsonl"))


def test_unsupported_formats_are_rejected_for_tagging(tmp_path: Path) -> None:
    """Messages name only options that the tagging commands have."""
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / "latin").write_bytes(b"caf\xe9 NN\n")
    for reader in (read_tagged, read_words):
        with pytest.raises(InputError, match=r"x\.parquet is Parquet, which is not supported for tagged text"):
            reader(tmp_path / "x.parquet")
        with pytest.raises(InputError, match=r"is not UTF-8 at byte 3 \(0xe9\); convert it to UTF-8$"):
            reader(tmp_path / "latin")
