"""Seeds, the paired bootstrap between adjacent rows, and extrapolated learning curves."""

import math
from typing import Any

import numpy as np
import pytest

from chainrule.comparison.measurement import Measured, combine_seeds
from chainrule.comparison.results import Difference, Row, add_differences, extrapolate, find_wins, group_rows
from chainrule.evaluation.significance import compare_adjacent, paired_bootstrap
from comparison.test_plan import row


def bits_row(name: str, bits: float, **options: Any) -> Row:
    return row(name, str(options.pop("family", "lstm")), bits, bits_per_byte=bits, **options)


def test_combine_seeds_gives_mean_and_deviation() -> None:
    rows = [
        bits_row("a", bits, valid_bits_per_byte=valid, perplexity=2**bits, perplexity_per_word=4**bits)
        for bits, valid in ((1.0, 3.0), (2.0, 1.0), (6.0, 2.0))
    ]
    combined = combine_seeds([Measured(one, np.full(2, one.bits_per_byte), None) for one in rows], [5, 6, 7])
    assert combined.row.bits_per_byte == 3
    assert combined.row.sd == pytest.approx(math.sqrt(((1 - 3) ** 2 + (2 - 3) ** 2 + (6 - 3) ** 2) / 2))
    assert combined.row.perplexity == pytest.approx(8)
    assert combined.row.perplexity_per_word == pytest.approx(64)
    assert combined.row.train_seconds == 3
    assert [(one["seed"], one["is_kept"]) for one in combined.row.seeds] == [(5, False), (6, True), (7, False)]
    assert combined.line_nats.tolist() == [2, 2]  # of the seed with the best validation figure
    alone = combine_seeds([Measured(rows[0], np.zeros(1), None)], [0])
    assert alone.row == rows[0]
    assert alone.row.sd is None


def test_compare_adjacent_equals_the_paired_bootstrap() -> None:
    rng = np.random.default_rng(1)
    nats, size = rng.gamma(2, size=(3, 40)), rng.integers(5, 50, 40).astype(float)
    comparisons = compare_adjacent(nats, size, samples=200, seed=4)
    for i in range(2):

        def ratio(ids: np.ndarray, i: int = i) -> float:
            return float(1 - (nats[i, ids].sum() / size[ids].sum()) / (nats[i + 1, ids].sum() / size[ids].sum()))

        slow = paired_bootstrap(ratio, lambda ids: 0.0, 40, samples=200, seed=4)
        fast = comparisons[i]
        assert fast is not None
        assert fast.difference == pytest.approx(slow.difference)
        assert (fast.low, fast.high) == pytest.approx((slow.low, slow.high))
        assert fast.p_value == slow.p_value


@pytest.mark.filterwarnings("error")
def test_compare_adjacent_with_zero_bits() -> None:
    """Two models without error do not differ; a ratio to zero bits on a resampled test set is undefined."""
    zeros, ones = np.zeros(3), np.ones(3)
    same, all_saved = compare_adjacent(np.stack([zeros, zeros, ones]), ones, samples=50)
    assert same is not None
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert all_saved is not None
    assert (all_saved.difference, all_saved.low, all_saved.high) == (1, 1, 1)
    one_line = np.array([0.0, 0.0, 1.0])  # a resampled test set without the third line has zero bits
    assert compare_adjacent(np.stack([ones / 10, one_line]), ones, samples=50) == [None]
    assert compare_adjacent(np.stack([ones, zeros]), ones, samples=50) == [None]


def test_undefined_difference_is_left_out() -> None:
    rows = [bits_row("a", 0.1), bits_row("b", 0.3)]
    nats = {"a": np.full(3, 0.1), "b": np.array([0.0, 0.0, 1.0])}
    assert [one.difference for one in add_differences(rows, nats, np.ones(3))] == [None, None]


def test_differences_are_between_shown_rows() -> None:
    size = np.full(50, 10.0)
    better, worse = np.full(50, 9.0), np.full(50, 10.0)
    noisy = worse + np.where(np.arange(50) % 2, 3.0, -2.9)
    nats = {"a": better, "b": worse, "c": noisy, "u": worse * 2, "v": worse * 2}
    rows = [
        bits_row("a", 0.9),
        bits_row("b", 1.0),
        bits_row("c", 1.01),
        bits_row("u", 2.0, family="ngram", facets={"order": 1}),
        bits_row("v", 2.0, family="ngram", facets={"order": 1}),
    ]
    a, b, c, u, v = add_differences(rows, nats, size)
    assert a.difference is not None
    assert a.difference.other == "b"
    assert a.difference.percent == pytest.approx(10)
    assert a.difference.margin == pytest.approx(0, abs=1e-9)
    assert not a.difference.is_tie
    assert b.difference is not None
    assert b.difference.is_tie
    assert c.difference is not None
    assert c.difference.other == "u"
    assert u.difference is v.difference is None
    assert add_differences(rows[:1], nats, size) == tuple(rows[:1])


def test_difference_description() -> None:
    tie = Difference(other="x", percent=0.42, margin=0.31, p_value=0.2)
    assert tie.describe() == "0.4 % ± 0.3 better than x, p = 0.2: a tie"
    clear = Difference(other="x", percent=4.2, margin=0.31, p_value=0.001)
    assert clear.describe() == "4.2 % ± 0.3 better than x, p < 0.01"


def test_power_law_curves_are_extrapolated() -> None:
    tokens = [1000, 2000, 4000, 8000, 16000]
    for a, b, c in ((1.2, 5.0, 0.3), (0.0, 9.0, 0.1), (2.0, 100.0, 0.8)):
        bits = [a + b * n**-c for n in tokens]
        assert extrapolate(tokens, bits) == pytest.approx(a + b * 32000**-c, abs=2e-3)
    assert extrapolate(tokens, [3, 2.5, 2.2, 2.1, 2.2]) is None  # it does not fall
    assert extrapolate(tokens[:2], [3, 2.5]) is None
    assert extrapolate(tokens, [math.inf, math.inf, math.inf, 2.1, 2.0]) is None


def test_nearly_equal_unigrams_are_grouped() -> None:
    unigram = {"family": "ngram", "facets": {"order": 1}}
    rows = [
        bits_row("w1", 2.0, tokenizer="word", **unigram),
        bits_row("w2", 2.009, tokenizer="word", **unigram),
        bits_row("w3", 2.011, tokenizer="word", **unigram),
        bits_row("c1", 2.005, tokenizer="char", **unigram),
        bits_row("n2", 2.001, family="ngram", facets={"order": 2}, tokenizer="word"),
    ]
    assert [[one.name for one in group] for group in group_rows(rows)] == [["w1", "w2"], ["n2"], ["c1"], ["w3"]]


def test_best_row_of_each_family_and_tokenizer() -> None:
    rows = [
        bits_row("a", 1.0, family="lstm", tokenizer="char"),
        bits_row("b", 1.1, family="lstm", tokenizer="word"),
        bits_row("c", 1.2, family="gru", tokenizer="char"),
        bits_row("d", 1.3, family="gru", tokenizer="word"),
    ]
    assert find_wins(rows) == {"a": ("lstm", "char"), "c": ("gru",), "b": ("word",)}
    assert find_wins(rows[:1]) == {}
