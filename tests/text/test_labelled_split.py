"""Stratified splits of labelled examples."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.text.labelled import LabelledTexts, read_labelled, split


def numbered(labels: list[str]) -> LabelledTexts:
    return LabelledTexts(tuple(f"text {i}" for i in range(len(labels))), tuple(labels), "some.tsv")


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
        with pytest.raises(UsageError, match=f"{N} examples cannot be split"):
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
    with pytest.raises(UsageError, match=r"sizes are|cannot be split"):
        split(numbered(["a", "b", "a"]), sizes)


def test_too_few_examples_for_a_fraction_are_refused() -> None:
    with pytest.raises(InputError, match=r"some\.tsv has 3 examples, too few"):
        split(numbered(["a", "b", "a"]), (0.8, 0.1, 0.1))
    with pytest.raises(UsageError, match="seed is -1"):
        split(numbered(["a", "b", "a"]), 0.5, -1)


@pytest.mark.data
def test_real_data_is_split_in_proportion(data_folder: Path) -> None:
    sms = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection")
    for part, share in zip(split(sms, (0.8, 0.1, 0.1), 1), (0.8, 0.1, 0.1), strict=True):
        assert abs(part.labels.count("spam") - 747 * share) <= 1.5
