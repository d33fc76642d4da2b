"""Filters: hand-worked on p = (.5, .3, .2), properties on random rows."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chainrule.decoding import filters
from chainrule.errors import ConfigError
from chainrule.lm import Floats
from decoding.toy import log

P = (0.5, 0.3, 0.2)


def histories(*texts: Sequence[int], n: int | None = None) -> list[filters.TokenHistory]:
    return [filters.TokenHistory(ids, n) for ids in texts]


FILTERS: dict[str, Callable[[Floats], Floats]] = {
    "temperature": lambda log_p: filters.temperature(log_p, 0.7),
    "temperature 0": lambda log_p: filters.temperature(log_p, 0),
    "temperature tiny": lambda log_p: filters.temperature(log_p, 1e-300),
    "temperature huge": lambda log_p: filters.temperature(log_p, 1e300),
    "top_k": lambda log_p: filters.top_k(log_p, 2),
    "top_p": lambda log_p: filters.top_p(log_p, 0.6),
    "min_p": lambda log_p: filters.min_p(log_p, 0.3),
    "repetition_penalty": lambda log_p: filters.repetition_penalty(log_p, histories([0, 1]) * len(log_p), 1.5),
    "no_repeat_ngram": lambda log_p: filters.no_repeat_ngram(log_p, histories([0, 1, 0], n=2) * len(log_p), 2),
}
IDEMPOTENT = [
    "top_k",
    "min_p",
    "no_repeat_ngram",
    "temperature 0",
]  # not top_p: its mass is relative to the remaining tokens
KEEP_THE_BEST = [name for name in FILTERS if name not in ("repetition_penalty", "no_repeat_ngram")]


@st.composite
def distributions(draw: st.DrawFn) -> Floats:
    """(K, V) normalised rows of small integer weights, so that ties and zeros are common."""
    V = draw(st.integers(2, 9))
    row = st.lists(st.integers(0, 4), min_size=V, max_size=V).filter(any)
    weights = draw(st.lists(row, min_size=1, max_size=3))
    return filters.normalize(log(weights))


def possible_ids(log_p: Floats) -> list[list[int]]:
    """The ids still possible in each row."""
    return [np.flatnonzero(row > -np.inf).tolist() for row in log_p]


@pytest.mark.parametrize("name", FILTERS)
@given(log_p=distributions())
def test_result_is_a_distribution_within_the_support(name: str, log_p: Floats) -> None:
    before = log_p.copy()
    out = FILTERS[name](log_p)
    assert_allclose(np.exp(filters.normalize(out)).sum(axis=-1), 1, rtol=1e-12)
    assert not np.any((out > -np.inf) & (log_p == -np.inf))
    assert np.array_equal(log_p, before)  # the input is unchanged


@pytest.mark.parametrize("name", KEEP_THE_BEST)
@given(log_p=distributions())
def test_filters_keep_the_most_probable_token_first(name: str, log_p: Floats) -> None:
    best = np.argmax(log_p, axis=-1)[:, None]
    out = FILTERS[name](log_p)
    assert np.array_equal(np.take_along_axis(out, best, axis=-1), out.max(axis=-1, keepdims=True))


@pytest.mark.parametrize("name", IDEMPOTENT)
@given(log_p=distributions())
def test_truncation_is_idempotent(name: str, log_p: Floats) -> None:
    once = FILTERS[name](log_p)
    assert np.array_equal(FILTERS[name](once), once)


@given(log_p=distributions(), k=st.integers(1, 9))
def test_top_k_equals_a_stable_sort(log_p: Floats, k: int) -> None:
    order = np.argsort(-log_p, axis=-1, kind="stable")[:, :k]
    expected = [sorted(i for i in row if p[i] > -np.inf) for row, p in zip(order.tolist(), log_p, strict=True)]
    assert possible_ids(filters.top_k(log_p, k)) == expected


@given(log_p=distributions(), p=st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.9, 1.0]))
def test_top_p_is_the_smallest_set(log_p: Floats, p: float) -> None:
    for row, ids in zip(np.exp(log_p), possible_ids(filters.top_p(log_p, p)), strict=True):
        mass = row[ids].sum()
        assert mass >= p - 1e-8
        if p < 1:  # without its least probable member the set falls short
            assert mass - row[ids].min() < p


def test_temperature_two_takes_square_roots() -> None:
    # sqrt(.5, .3, .2) = (.70711, .54772, .44721), sum 1.70204
    out = np.exp(filters.temperature(log(P), 2))
    assert_allclose(out, [[0.41545, 0.32180, 0.26275]], atol=1e-5)


def test_temperature_one_half_squares() -> None:
    # (.25, .09, .04) / .38
    assert_allclose(np.exp(filters.temperature(log(P), 0.5)), [[25 / 38, 9 / 38, 4 / 38]])


def test_temperature_zero_breaks_ties_by_lowest_id() -> None:
    assert np.exp(filters.temperature(log((0.2, 0.4, 0.4)), 0)).tolist() == [[0, 1, 0]]


def test_extreme_temperatures_reach_their_limits() -> None:
    p = (0.4, 0.4, 0.2, 0.0)
    assert_allclose(np.exp(filters.temperature(log(p), 1e-300)), [[0.5, 0.5, 0, 0]])
    assert_allclose(np.exp(filters.temperature(log(p), 1e300)), [[1 / 3, 1 / 3, 1 / 3, 0]])
    single = log(p).astype(np.float32)  # 1e-300 is 0 and 1e300 infinite in float32
    assert_allclose(np.exp(filters.temperature(single, 1e-300)), [[0.5, 0.5, 0, 0]])
    assert_allclose(np.exp(filters.temperature(single, 1e300)), [[1 / 3, 1 / 3, 1 / 3, 0]])


@pytest.mark.parametrize(("p", "expected"), [(0.5, [0]), (0.51, [0, 1]), (0.7, [0, 1]), (0.8, [0, 1])])
def test_top_p_at_its_boundaries(p: float, expected: list[int]) -> None:
    assert possible_ids(filters.top_p(log(P), p)) == [expected]


def test_top_p_just_beyond_a_boundary_takes_one_more() -> None:
    assert possible_ids(filters.top_p(log(P), 0.8001)) == [[0, 1, 2]]
    assert possible_ids(filters.top_p(log((0.25, 0.25, 0.25, 0.25)), 0.5)) == [[0, 1]]  # ties: the lowest ids
    assert possible_ids(filters.top_p(log((1e-12, 1 - 1e-12)), 1.0)) == [[0, 1]]  # p = 1 keeps everything


def test_top_p_is_relative_to_the_remaining_mass() -> None:
    # after top-k 2 the shares are .625 and .375, so .6 is reached by the first alone
    assert possible_ids(filters.top_p(filters.top_k(log(P), 2), 0.6)) == [[0]]


def test_truncation_does_not_renormalise() -> None:
    assert_allclose(np.exp(filters.top_k(log(P), 2)), [[0.5, 0.3, 0]])
    assert_allclose(np.exp(filters.top_p(log(P), 0.7)), [[0.5, 0.3, 0]])
    assert_allclose(np.exp(filters.min_p(log(P), 0.5)), [[0.5, 0.3, 0]])


@pytest.mark.parametrize(("fraction", "expected"), [(0, [0, 1, 2]), (0.4, [0, 1, 2]), (0.5, [0, 1]), (1, [0])])
def test_min_p_is_relative_to_the_best(fraction: float, expected: list[int]) -> None:
    assert possible_ids(filters.min_p(log(P), fraction)) == [expected]  # .4 · .5 = .2 is reached exactly


def test_repetition_penalty_raises_seen_tokens_to_a_power() -> None:
    # the second row has seen 0 (twice: it counts once): (.5², .3, .2) = (.25, .3, .2), sum .75
    out = np.exp(filters.repetition_penalty(log([P, P]), histories([], [0, 0]), 2))
    assert_allclose(out, [P, (0.25 / 0.75, 0.3 / 0.75, 0.2 / 0.75)])


def test_repetition_penalty_normalises_first() -> None:
    # the shares of (5, 3, 2) are (.5, .3, .2); log 5 > 0 would have grown
    out = np.exp(filters.repetition_penalty(log((5, 3, 2)), histories([0]), 2))
    assert_allclose(out, [(0.25 / 0.75, 0.3 / 0.75, 0.2 / 0.75)])


def test_repetition_penalty_with_overflowing_powers() -> None:
    # log .5 · 1e308 is finite and the greatest; log(1/8) · 1e308 overflows, and such a row is left unchanged
    assert np.exp(filters.repetition_penalty(log(P), histories([0, 1, 2]), 1e308)).tolist() == [[1, 0, 0]]
    assert_allclose(np.exp(filters.repetition_penalty(log([1 / 8] * 8), histories(range(8)), 1e308)), [[1 / 8] * 8])


def test_no_repeat_bigrams() -> None:
    # after 0 1 0 2 0: 0 was followed by 1 and 2, so only 0 remains; after 2 0 1: nothing repeats
    out = filters.no_repeat_ngram(log([P, P]), histories([0, 1, 0, 2, 0], [2, 0, 1], n=2), 2)
    assert possible_ids(out) == [[0], [0, 1, 2]]


def test_no_repeat_ngrams_of_other_orders() -> None:
    assert possible_ids(filters.no_repeat_ngram(log(P), histories([0, 2], n=1), 1)) == [[1]]
    assert possible_ids(filters.no_repeat_ngram(log(P), histories([0, 1, 2, 0, 1], n=3), 3)) == [
        [0, 1]
    ]  # 0 1 -> 2 is known
    assert possible_ids(filters.no_repeat_ngram(log(P), histories([0, 1], n=3), 3)) == [
        [0, 1, 2]
    ]  # too short to repeat
    assert possible_ids(filters.no_repeat_ngram(log(P), histories([0, 1, 2], n=1), 1)) == [
        [0, 1, 2]
    ]  # waived: nothing would be left


def test_impossible_and_nan_rows_are_rejected() -> None:
    for row in ([0.0, 0.0], [math.nan, 1.0]):
        with pytest.raises(ConfigError, match="every token has probability 0"):
            filters.normalize(log(row))


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, -1e-300])
def test_invalid_temperatures_are_rejected(bad: float) -> None:
    with pytest.raises(ConfigError, match=r"temperature is .*at least 0"):
        filters.temperature(log(P), bad)


@pytest.mark.parametrize("bad", [0, 2, -0.1, math.nan])
def test_invalid_top_p_is_rejected(bad: float) -> None:
    with pytest.raises(ConfigError, match=r"top_p is .*in \(0, 1\]"):
        filters.top_p(log(P), bad)


@given(
    texts=st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=3),
    first=st.integers(0, 5),
    n=st.integers(1, 5),
)
def test_forked_token_history_equals_a_search_of_the_ids(texts: list[list[int]], first: int, n: int) -> None:
    for ids in texts:
        history = filters.TokenHistory(ids[:first], n).fork()
        for id_ in ids[first:]:
            history.append(id_)
        assert sorted(history.distinct) == sorted(set(ids))
        last = ids[len(ids) - n + 1 :]
        followers = [ids[i + n - 1] for i in range(len(ids) - n + 1) if ids[i : i + n - 1] == last]
        assert history.completions(n).tolist() == followers


def test_token_history_indexes_a_single_order() -> None:
    with pytest.raises(ValueError, match="order 2 are indexed, not those of order 3"):
        filters.TokenHistory([1, 2], 2).completions(3)
    long = filters.TokenHistory(range(100), 10**12)
    assert long.completions(10**12).tolist() == []
    many = filters.TokenHistory(range(100))
    assert many.distinct.tolist() == list(range(100))
