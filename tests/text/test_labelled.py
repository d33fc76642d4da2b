import gzip
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.text.labelled import LabelledTexts, check_texts, read_labelled, read_texts


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_first_tab_separates_label_from_text(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "\ufeffham\thello\tyou\r\n spam \t win now \t\t\nnot so\tfine\n")
    expected = ("hello\tyou", " win now ", "fine"), ("ham", "spam", "not so")
    examples = read_labelled(file)
    assert examples == LabelledTexts(*expected, str(file))
    assert len(examples) == 3


def test_json_labels_may_be_strings_numbers_or_booleans(tmp_path: Path) -> None:
    records = (
        '{"text": "a\\nb", "label": "x"}\n\n{"label": 1, "text": "b"}\n'
        '{"label": true, "text": "c"}\n{"label": -2.5, "text": "d"}\n'
    )
    file = tmp_path / "x.JSONL.gz"
    file.write_bytes(gzip.compress(records.encode()))
    assert read_labelled(file) == LabelledTexts(("a\nb", "b", "c", "d"), ("x", "1", "true", "-2.5"), str(file))


def test_column_and_label_options_select_json_fields(tmp_path: Path) -> None:
    file = write(tmp_path / "x.ndjson", '{"review": "good", "stars": 5, "text": "no"}\n')
    assert read_labelled(file, column="review", label="stars") == LabelledTexts(("good",), ("5",), str(file))
    assert read_texts(file, column="review") == ["good"]


@pytest.mark.parametrize(
    "text",
    [
        "1 a good one\n0 a bad one\n",  # numeric labels are accepted at once
        "-1 bad\n+1 good\n0 neither\n",
        "pos a good one\nneg a bad one\nneg a bad one\npos a good one\n",
        "".join(f"{kind} text {i}\n" for i in range(10) for kind in ("good", "bad", "neither")),
    ],
)
def test_space_separates_label_from_text_without_tabs(tmp_path: Path, text: str) -> None:
    examples = read_labelled(write(tmp_path / "x", text))
    assert list(examples.labels) == [line.split(" ")[0] for line in text.splitlines()]
    assert list(examples.texts) == [line.split(" ", 1)[1] for line in text.splitlines()]


@pytest.mark.parametrize(
    "text",
    [
        "the cat sat\na dog ran\n",  # two different first words, neither repeated
        "the cat sat\na dog ran\nthe bird sang\nmice ran\nthe end\na dog\n",
        "".join(f"w{i % 21} text\n" for i in range(1000)),  # 21 labels are too many
        "".join(f"{i} text\n" for i in range(21)),
        " the cat sat\n a dog ran\n",  # as in the Penn Treebank
        "\n\n",
    ],
)
def test_plain_text_is_not_read_as_labels(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        InputError, match=r"x: labels cannot be distinguished from text.*label<TAB>text, JSON Lines.*<SPACE>"
    ):
        read_labelled(write(tmp_path / "x", text))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("ham\ta\nno tab here\n", "line 2 has no label"),
        ("ham\ta\n\n", "line 2 has no label"),
        ("ham\ta\n \ttext\n", "line 2 has an empty label"),
        ("ham\ta\nspam\t \t\n", "line 2 has the label 'spam' but no text"),
        ("1 a\n0\n", "line 2 has the label '0' but no text"),
        ("1 a\n text\n", "line 2 has an empty label"),
        ("1 a\n\n", "line 2 has an empty label"),
        ("", "contains no examples"),
    ],
)
def test_invalid_labelled_line_is_rejected_with_line_number(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"x\.txt,? {message}"):
        read_labelled(write(tmp_path / "x.txt", lines))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": "a", "lable": 1}', "no column 'label'; did you mean 'lable'?"),
        ('{"text": "a", "stars": 1}', "no column 'label'; choose one of these: text, stars"),
        ("{}", r"no column 'text'; choose one of these: \(none\)"),
        ('{"text": 5, "label": 1}', "'text' is 5, not a text"),
        ('{"text": " ", "label": 1}', "'text' is an empty text"),
        ('{"text": "a", "label": " "}', "'label' is an empty label"),
        ('{"text": "a", "label": null}', "'label' is null, not a label"),
        ('{"text": "a", "label": NaN}', "'label' is NaN, not a label"),
        ('{"text": "a", "label": ["b"]}', "not a label"),
        ('{"text": "a", "label": "\\ud800"}', "lone surrogate"),
        ('{"text": "a"', "not JSON"),
        ("[1]", "not a JSON object"),
    ],
)
def test_invalid_labelled_record_is_rejected_with_line_number(tmp_path: Path, record: str, message: str) -> None:
    file = write(tmp_path / "x.jsonl", f'{{"text": "fine", "label": 1}}\n\n{record}\n')
    with pytest.raises(InputError, match=rf"x\.jsonl, line 3.*{message}"):
        read_labelled(file)


def test_empty_json_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no examples"):
        read_labelled(write(tmp_path / "x.jsonl", "\n"))


def test_labelled_data_from_several_files_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "a", "1 a\n")
    write(tmp_path / "b", "0 b\n")
    with pytest.raises(UsageError, match="refers to 2 files"):
        read_labelled(tmp_path)


def test_read_texts_reads_lines_or_a_column(tmp_path: Path) -> None:
    assert read_texts(write(tmp_path / "x", "ham\ta\n\n1 b\n")) == ["ham\ta", "", "1 b"]
    assert read_texts(write(tmp_path / "x.jsonl", '{"text": "a\\nb"}\n{"text": ""}\n')) == ["a\nb", ""]
    with pytest.raises(InputError, match=r"line 1 has no column 'text'; did you mean 'texts'"):
        read_texts(write(tmp_path / "y.jsonl", '{"texts": "a"}\n'))


RECORDS = '\n {"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'


@pytest.mark.parametrize(
    ("name", "is_warned"), [("x", True), ("x.txt", True), ("x.json", False), ("x.jsonl", False)]
)
def test_json_lines_are_detected_by_name_or_first_line(tmp_path: Path, name: str, is_warned: bool) -> None:
    file = write(tmp_path / name, RECORDS)
    assert read_labelled(file) == LabelledTexts(("a", "b"), ("x", "y"), str(file))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_texts(file) == ["a", "b"]
    assert ["is read as JSON Lines" in str(warning.message) for warning in caught] == [True] * is_warned


@pytest.mark.parametrize("first", ["{", "{x}", '{"a": 1} and more', "[1]"])
def test_lines_that_are_not_json_objects_are_texts(tmp_path: Path, first: str) -> None:
    assert read_texts(write(tmp_path / "x", f"{first}\nb\n")) == [first, "b"]
    with pytest.raises(InputError, match=r"x\.json, line 1 is not"):
        read_texts(write(tmp_path / "x.json", f"{first}\nb\n"))


@pytest.mark.parametrize(
    ("header", "is_header"),
    [
        ("Label\tText", True),
        ("Sentiment\treview_body", True),
        ("v1\tv2\t\t", True),
        ("id\tlabel\treview", True),
        ("label\ta text of several words", False),
        ("other\thello", False),  # neither is a column name
    ],
)
def test_header_of_labelled_data_causes_a_warning(tmp_path: Path, header: str, is_header: bool) -> None:
    file = write(tmp_path / "x.tsv", f"{header}\nham\tsee you\nspam\twin now\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(read_labelled(file)) == 3
    assert ["x.tsv, line 1 looks like a header" in str(warning.message) for warning in caught] == [True] * is_header
    write(file, f"{header}\nham\tsee you\n{header}\n")  # a repeated first column is a label, not a header
    assert len(read_labelled(file)) == 3


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ("ham\ta\tb\t\n\nspam\tc\n", "first"),
        ("a\tb\tham\n\nc\tspam\n", "last"),
        ("label\ttext\nham\ta\tb\n\nspam\tc\n", "first column.*the header left out"),
        ("text\tlabel\na\tb\tham\n\nc\tspam\n", "last column.*the header left out"),
    ],
)
def test_read_texts_strips_known_labels_with_a_warning(tmp_path: Path, table: str, where: str) -> None:
    file = write(tmp_path / "x", table)
    with pytest.warns(ChainruleWarning, match=f"x has labels in its {where}"):
        assert read_texts(file, labels=("ham", "spam")) == ["a\tb", "", "c"]
    assert read_texts(file) == [line.rstrip("\n") for line in table.splitlines()]


@pytest.mark.parametrize(("strange", "is_labelled"), [(1, True), (2, False)])
def test_read_texts_strips_labels_if_nine_in_ten_are_known(tmp_path: Path, strange: int, is_labelled: bool) -> None:
    lines = ["ham\ta"] * (10 - strange) + ["odd\tb"] * strange
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = read_texts(write(tmp_path / "x", "\n".join(lines)), labels=("ham", "spam"))
    assert texts == (["a"] * 9 + ["b"] if is_labelled else lines)


@pytest.mark.parametrize("text", ["ham a\nspam b\n", "ham\ta\nspam\n", "ham\t\nspam\t\n", "\n\n"])
def test_read_texts_keeps_lines_without_known_labels(tmp_path: Path, text: str) -> None:
    assert read_texts(write(tmp_path / "x", text), labels=("ham", "spam")) == text.split("\n")[:-1]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b"], ["x"], "there are 2 texts but 1 labels; give one label per text"),
        ("ab", ["x", "y"], "'ab' is not a list of texts"),
        (["a"], 5, "5 is not a list of labels"),
        (["a", 5], ["x", "y"], "text 2 is 5, not a str"),
        (["a", "b"], [0, 1], "label 1 is 0, not a str"),
    ],
)
def test_labelled_texts_rejects_invalid_examples(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"the texts given: {message}"):
        LabelledTexts(texts, labels)


def test_labelled_texts_accepts_any_iterable() -> None:
    assert check_texts(text for text in "ab") == ("a", "b")
    assert LabelledTexts(np.array(["a", "b"]), ["x", "y"]) == LabelledTexts(("a", "b"), ("x", "y"))  # type: ignore[arg-type]


@pytest.mark.data
def test_labelled_datasets_have_the_published_counts(data_folder: Path) -> None:
    sms = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection")
    assert Counter(sms.labels) == {"ham": 4827, "spam": 747}  # counts given by its authors
    assert sms.texts[1] == "Ok lar... Joking wif u oni..."  # without the three empty columns
    sst = read_labelled(data_folder / "sst2" / "stsa.binary.train")
    assert Counter(sst.labels) == {"0": 3310, "1": 3610}
    assert sst.texts[1] == "apparently reassembled from the cutting-room floor of any given daytime soap ."
    with pytest.raises(InputError, match="labels cannot be distinguished"):
        read_labelled(data_folder / "ptb" / "ptb.valid.txt")


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("label\ttext\nham\ta\tb\nspam\tc\n", {}),
        ("id\ttext\tlabel\n1\ta\tham\n2\tc\tspam\t\n", {}),
        ("stars\tid\treview\nham\t1\ta\nspam\t2\tc\n", {"column": "review", "label": "stars"}),
    ],
)
def test_header_with_both_names_selects_the_columns(tmp_path: Path, table: str, names: dict[str, str]) -> None:
    examples = read_labelled(write(tmp_path / "x.tsv", table), **names)
    assert (examples.labels, [text[0] for text in examples.texts]) == (("ham", "spam"), ["a", "c"])
    assert examples.texts[0] == (
        "a" if names or "id" in table else "a\tb"
    )  # the last column takes the rest of the line


def test_column_names_without_a_header_are_rejected(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "ham\ta\nspam\tb\n")
    with pytest.raises(UsageError, match=r"x\.tsv: its first line does not name the columns 'stars' and 'text'"):
        read_labelled(file, label="stars")
    with pytest.raises(UsageError, match=r"x\.tsv: its first line does not name a column 'review'"):
        read_texts(file, column="review")
    write(file, "review\tstars\ngood film\t5\nbad\t1\n")
    assert read_texts(file, column="review") == ["good film", "bad"]
    for row, words in (
        ("a\tb\tc", "line 2 has 3 columns but the header has 2"),
        ("a", "nothing in the column 'sta"),
    ):
        with pytest.raises(InputError, match=words):
            read_labelled(write(file, f"review\tstars\n{row}\n"), column="review", label="stars")


def test_invalid_utf8_in_labelled_data_names_no_unsupported_option(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"ham\t\xff\n")
    for read in (read_labelled, read_texts):
        with pytest.raises(InputError, match=r"x\.tsv is not UTF-8 at byte 4 \(0xff\); convert it to UTF-8$"):
            read(tmp_path / "x.tsv")
