import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.text.labelled import Labelled, read_labelled, read_texts, split


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_the_first_tab_parts_label_and_text(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "\ufeffham\thello\tyou\r\n spam \t win now \t\t\nnot so\tfine\n")
    expected = ("hello\tyou", " win now ", "fine"), ("ham", "spam", "not so")
    found = read_labelled(file)
    assert found == Labelled(*expected, str(file))
    assert len(found) == 3


def test_json_lines_give_labels_of_every_kind(tmp_path: Path) -> None:
    records = (
        '{"text": "a\\nb", "label": "x"}\n\n{"label": 1, "text": "b"}\n'
        '{"label": true, "text": "c"}\n{"label": -2.5, "text": "d"}\n'
    )
    file = tmp_path / "x.JSONL.gz"
    file.write_bytes(gzip.compress(records.encode()))
    assert read_labelled(file) == Labelled(("a\nb", "b", "c", "d"), ("x", "1", "true", "-2.5"), str(file))


def test_columns_go_by_the_names_given(tmp_path: Path) -> None:
    file = write(tmp_path / "x.ndjson", '{"review": "good", "stars": 5, "text": "no"}\n')
    assert read_labelled(file, text="review", label="stars") == Labelled(("good",), ("5",), str(file))
    assert read_texts(file, text="review") == ["good"]


@pytest.mark.parametrize(
    "text",
    [
        "1 a good one\n0 a bad one\n",  # numbers are believed at once
        "-1 bad\n+1 good\n0 neither\n",
        "pos a good one\nneg a bad one\nneg a bad one\npos a good one\n",
        "".join(f"{kind} text {i}\n" for i in range(10) for kind in ("good", "bad", "neither")),
    ],
)
def test_a_blank_parts_label_and_text_where_there_is_no_tab(tmp_path: Path, text: str) -> None:
    found = read_labelled(write(tmp_path / "x", text))
    assert list(found.labels) == [line.split(" ")[0] for line in text.splitlines()]
    assert list(found.texts) == [line.split(" ", 1)[1] for line in text.splitlines()]


@pytest.mark.parametrize(
    "text",
    [
        "the cat sat\na dog ran\n",  # two first words, none of them twice
        "the cat sat\na dog ran\nthe bird sang\nmice ran\nthe end\na dog\n",
        "".join(f"w{i % 21} text\n" for i in range(1000)),  # 21 labels are too many
        "".join(f"{i} text\n" for i in range(21)),
        " the cat sat\n a dog ran\n",  # as in the Penn Treebank
        "\n\n",
    ],
)
def test_plain_text_is_not_taken_for_labels(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"x has no labels that can be told.*label<TAB>text, JSON Lines.*<SPACE>"):
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
        ("", "holds no examples"),
    ],
)
def test_a_line_that_is_no_example_is_refused_by_number(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"x\.txt,? {message}"):
        read_labelled(write(tmp_path / "x.txt", lines))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": "a", "lable": 1}', "no column 'label'; did you mean 'lable'?"),
        ('{"text": "a", "stars": 1}', "no column 'label'; name one of these: text, stars"),
        ("{}", r"no column 'text'; name one of these: \(none\)"),
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
def test_a_record_that_is_no_example_is_refused_by_number(tmp_path: Path, record: str, message: str) -> None:
    file = write(tmp_path / "x.jsonl", f'{{"text": "fine", "label": 1}}\n\n{record}\n')
    with pytest.raises(InputError, match=rf"x\.jsonl, line 3.*{message}"):
        read_labelled(file)


def test_an_empty_json_file_holds_no_examples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no examples"):
        read_labelled(write(tmp_path / "x.jsonl", "\n"))


def test_several_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", "1 a\n")
    write(tmp_path / "b", "0 b\n")
    with pytest.raises(UsageError, match="stands for 2 files"):
        read_labelled(tmp_path)


def test_texts_without_labels_are_lines_or_a_column(tmp_path: Path) -> None:
    assert read_texts(write(tmp_path / "x", "ham\ta\n\n1 b\n")) == ["ham\ta", "", "1 b"]
    assert read_texts(write(tmp_path / "x.jsonl", '{"text": "a\\nb"}\n{"text": ""}\n')) == ["a\nb", ""]
    with pytest.raises(InputError, match=r"line 1 has no column 'text'; did you mean 'texts'"):
        read_texts(write(tmp_path / "y.jsonl", '{"texts": "a"}\n'))


def numbered(labels: list[str]) -> Labelled:
    return Labelled(tuple(f"text {i}" for i in range(len(labels))), tuple(labels), "some.tsv")


def test_every_part_has_the_labels_in_proportion() -> None:
    # 80 of a and 20 of b, cut at 0.8 and 0.9 of the row: 64 8 8 and 16 2 2.
    train, valid, test = split(numbered(["a"] * 80 + ["b"] * 20), (0.8, 0.1, 0.1), seed=3)
    assert [Counter(part.labels) for part in (train, valid, test)] == [
        {"a": 64, "b": 16},
        {"a": 8, "b": 2},
        {"a": 8, "b": 2},
    ]
    assert train.name == "some.tsv"


def test_a_single_size_leaves_the_rest_to_a_second_part() -> None:
    examples = numbered(["a", "b"] * 10)
    assert [len(part) for part in split(examples, 0.75)] == [15, 5]
    assert [len(part) for part in split(examples, 4)] == [4, 16]
    assert [len(part) for part in split(examples, (4, 6))] == [4, 6]  # ten are left over


def test_a_label_with_one_example_goes_where_the_middle_is() -> None:
    train, test = split(numbered(["a"] * 9 + ["rare"]), (0.8, 0.2))
    assert "rare" in train.labels
    assert "rare" not in test.labels


def test_the_seed_alone_decides() -> None:
    examples = numbered(["a", "b"] * 50)
    assert split(examples, (0.5, 0.5), 1) == split(examples, (0.5, 0.5), 1)
    assert split(examples, (0.5, 0.5), 1) != split(examples, (0.5, 0.5), 2)


@given(
    st.lists(st.sampled_from("aaaaabbc"), min_size=3, max_size=80),
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_parts_are_disjoint_ordered_and_stratified(labels: list[str], counts: list[int], seed: int) -> None:
    examples, N = numbered(labels), len(labels)
    if sum(counts) > N:
        with pytest.raises(UsageError, match=f"{N} examples cannot be parted"):
            split(examples, counts, seed)
        return
    parts = split(examples, counts, seed)
    assert [len(part) for part in parts] == counts
    at = [[int(text.split()[1]) for text in part.texts] for part in parts]
    assert len({i for part in at for i in part}) == sum(counts)
    assert all(part == sorted(part) for part in at)
    assert all(part.labels == tuple(labels[i] for i in rows) for part, rows in zip(parts, at, strict=True))
    # Up to a cut at place t stand n t ± 1/2 of a label with n examples, and so N t ± K/2 in all: t is within K / 2N
    # of where s / N would be. A part has two cuts.
    sizes = Counter(labels)
    for part, s in zip(parts, counts, strict=True):
        for label, n in sizes.items():
            assert abs(part.labels.count(label) - n * s / N) <= 1 + n * len(sizes) / N + 1e-9


@pytest.mark.parametrize("sizes", [(0.5, 0.4), (1.5, -0.5), 1.0, (), (0, 3), (2, 2), 3])
def test_sizes_that_make_no_sense_are_refused(sizes: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"sizes are|cannot be parted"):
        split(numbered(["a", "b", "a"]), sizes)


def test_too_few_examples_for_a_fraction_are_refused() -> None:
    with pytest.raises(InputError, match=r"some\.tsv has 3 examples, too few"):
        split(numbered(["a", "b", "a"]), (0.8, 0.1, 0.1))
    with pytest.raises(UsageError, match="seed is -1"):
        split(numbered(["a", "b", "a"]), 0.5, -1)


@pytest.mark.data
def test_real_data_is_read(data_folder: Path) -> None:
    sms = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection")
    assert Counter(sms.labels) == {"ham": 4827, "spam": 747}  # as its authors count
    assert sms.texts[1] == "Ok lar... Joking wif u oni..."  # without the three empty columns
    sst = read_labelled(data_folder / "sst2" / "stsa.binary.train")
    assert Counter(sst.labels) == {"0": 3310, "1": 3610}
    assert sst.texts[1] == "apparently reassembled from the cutting-room floor of any given daytime soap ."
    with pytest.raises(InputError, match="no labels that can be told"):
        read_labelled(data_folder / "ptb" / "ptb.valid.txt")


@pytest.mark.data
def test_real_data_is_split_in_proportion(data_folder: Path) -> None:
    sms = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection")
    for part, share in zip(split(sms, (0.8, 0.1, 0.1), 1), (0.8, 0.1, 0.1), strict=True):
        assert abs(part.labels.count("spam") - 747 * share) <= 1.5
