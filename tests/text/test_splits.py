from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.text.splits import Fractions, split


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def numbers(lines: list[str]) -> list[int]:
    return [int(line.removeprefix("line ")) for line in lines]


@given(
    count=st.integers(3, 500),
    blocks=st.integers(3, 120),
    seed=st.integers(0, 2**64),
    fractions=st.sampled_from(
        [(0.8, 0.1, 0.1), (0.01, 0.495, 0.495), (1 / 3, 1 / 3, 1 / 3), (0.998, 0.001, 0.001)]
    ),
)
def test_split_parts_are_complete_disjoint_and_ordered(
    count: int, blocks: int, seed: int, fractions: Fractions
) -> None:
    lines = numbered(count)
    parts = split(lines, fractions=fractions, seed=seed, blocks=blocks)
    assert Counter([*parts.train, *parts.valid, *parts.test]) == Counter(lines)
    for part in (parts.train, parts.valid, parts.test):
        assert part
        assert numbers(part) == sorted(numbers(part))


@given(seed=st.integers(0, 1000))
def test_split_fractions_are_exact_for_equal_blocks(seed: int) -> None:
    parts = split(numbered(1000), seed=seed)
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (800, 100, 100)


def test_split_keeps_blocks_together() -> None:
    parts = split(numbered(1000), seed=3)  # 100 blocks of 10 lines
    for part in (parts.train, parts.valid, parts.test):
        held = Counter(number // 10 for number in numbers(part))
        assert set(held.values()) == {10}


def test_split_of_few_lines_assigns_single_lines() -> None:
    parts = split(numbered(10))
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (8, 1, 1)


def test_split_depends_only_on_the_seed() -> None:
    lines = numbered(200)
    assert split(lines, seed=1) == split(lines, seed=1)
    assert split(lines, seed=1) != split(lines, seed=2)


def test_split_keeps_duplicate_lines() -> None:
    parts = split(["same"] * 10)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == 10


@pytest.mark.parametrize("count", [0, 1, 2])
def test_split_of_too_few_lines_is_rejected(count: int) -> None:
    with pytest.raises(InputError, match=f"has {count} line{'' if count == 1 else 's'};.*--valid and --test"):
        split(numbered(count))


@pytest.mark.parametrize(
    "fractions",
    [(0.8, 0.1, 0.2), (0.9, 0.1, 0.0), (1.2, -0.1, -0.1), (float("nan"), 0.5, 0.5), (0.5, 0.5)],
)
def test_invalid_split_fractions_are_usage_errors(fractions: Fractions) -> None:
    with pytest.raises(UsageError, match="three above 0 that sum to 1"):
        split(numbered(10), fractions=fractions)


def test_too_few_blocks_or_negative_seed_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="blocks is 2"):
        split(numbered(10), blocks=2)
    with pytest.raises(UsageError, match="seed is -1"):
        split(numbered(10), seed=-1)
