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


def test_stratified_split_keeps_label_proportions() -> None:
    # 80 of a and 20 of b, cut at 0.8 and 0.9: 64 8 8 and 16 2 2.
    train, valid, test = split(numbered(["a"] * 80 + ["b"] * 20), (0.8, 0.1, 0.1), seed=3)
    assert [Counter(part.labels) for part in (train, valid, test)] == [
        {"a": 64, "b": 16},
        {"a": 8, "b": 2},
        {"a": 8, "b": 2},
    ]
    assert train.name == "some.tsv"


def test_single_size_puts_the_rest_in_a_second_part() -> None:
    examples = numbered(["a", "b"] * 10)
    assert [len(part) for part in split(examples, 0.75)] == [15, 5]
    assert [len(part) for part in split(examples, 4)] == [4, 16]
    assert [len(part) for part in split(examples, (4, 6))] == [4, 6]  # ten remain unused


def test_single_example_of_a_label_goes_to_the_largest_part() -> None:
    train, test = split(numbered(["a"] * 9 + ["rare"]), (0.8, 0.2))
    assert "rare" in train.labels
    assert "rare" not in test.labels


def test_stratified_split_depends_only_on_the_seed() -> None:
    examples = numbered(["a", "b"] * 50)
    assert split(examples, (0.5, 0.5), 1) == split(examples, (0.5, 0.5), 1)
    assert split(examples, (0.5, 0.5), 1) != split(examples, (0.5, 0.5), 2)


@given(
    st.lists(st.sampled_from("aaaaabbc"), min_size=3, max_size=80),
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_stratified_split_is_disjoint_ordered_and_proportional(
    labels: list[str], counts: list[int], seed: int
) -> None:
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
def test_invalid_split_sizes_are_rejected(sizes: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"sizes are|cannot be split"):
        split(numbered(["a", "b", "a"]), sizes)


def test_split_with_too_few_examples_is_rejected() -> None:
    with pytest.raises(InputError, match=r"some\.tsv has 3 examples, too few"):
        split(numbered(["a", "b", "a"]), (0.8, 0.1, 0.1))
    with pytest.raises(UsageError, match="seed is -1"):
        split(numbered(["a", "b", "a"]), 0.5, -1)


@pytest.mark.data
def test_stratified_split_of_sms_spam(data_folder: Path) -> None:
    sms = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection")
    for part, share in zip(split(sms, (0.8, 0.1, 0.1), 1), (0.8, 0.1, 0.1), strict=True):
        assert abs(part.labels.count("spam") - 747 * share) <= 1.5
