"""Compiled queries against the NumPy tables."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ChainruleError
from chainrule.lm import Batch, Floats, Ids, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.config import Config
from chainrule.ngram.tables import BackoffTables
from ngram.query_pairs import SMALL, WORDS, Pair, level, pair_of, pairs, tables_of

pytestmark = pytest.mark.native

CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def check_views(pair: Pair, batch: Batch) -> None:
    """Score and step from the same start, and again from the resulting state."""
    compiled_state, reference_state = pair.compiled.start(len(batch.inputs)), pair.readable.start(len(batch.inputs))
    for _ in range(2):
        actual, compiled_state = pair.compiled.score(batch, compiled_state)
        expected, reference_state = pair.readable.score(batch, reference_state)
        assert_allclose(actual[batch.mask], expected[batch.mask], **CLOSE)
    words = pair.rng.integers(0, pair.vocabulary.size, len(batch.inputs))
    distribution, compiled_state = pair.compiled.step(compiled_state, words)
    specified, reference_state = pair.readable.step(reference_state, words)
    assert_allclose(distribution, specified, **CLOSE)
    rows = pair.rng.integers(0, len(words), 3)
    assert_allclose(
        pair.compiled.step(compiled_state.select(rows), words[rows])[0],
        pair.readable.step(reference_state.select(rows), words[rows])[0],
        **CLOSE,
    )


@settings(max_examples=120, deadline=None)
@given(pair=pairs(), rows=st.integers(1, 40), columns=st.sampled_from([1, 2, 9, 300]))
def test_compiled_score_and_step_equal_numpy(pair: Pair, rows: int, columns: int) -> None:
    """Seen and unseen words, rows of unequal length, `<s>` and `</s>` anywhere."""
    targets = pair.rows(rows, columns)
    inputs = np.concatenate([pair.rows(rows, 1), targets[:, :-1]], axis=1)
    is_other = pair.rng.random(inputs.shape) < pair.rng.choice([0.0, 0.1])
    inputs[is_other] = pair.rng.integers(
        0, pair.vocabulary.size, is_other.sum()
    )  # differs from the previous target
    mask = np.arange(columns)[None, :] < pair.rng.integers(1, columns + 1, (rows, 1))
    check_views(pair, Batch(inputs, targets, mask))


@settings(max_examples=40, deadline=None)
@given(pair=pairs(), threads=st.integers(2, 5))
def test_compiled_scores_do_not_depend_on_threads_or_other_rows(pair: Pair, threads: int) -> None:
    n = pair.compiled.order
    tokens, targets = (pair.rows(17, m).astype(np.int32) for m in (n - 1 + 40, 40))
    together = pair.compiled.engine.score(tokens, targets, 1)
    assert_array_equal(pair.compiled.engine.score(tokens, targets, threads), together)
    for i in (0, 16):
        assert_array_equal(pair.compiled.engine.score(tokens[i : i + 1], targets[i : i + 1]), together[i : i + 1])
    windows = np.ascontiguousarray(tokens[:, : n - 1])
    assert_array_equal(pair.compiled.engine.step(windows, threads), pair.compiled.engine.step(windows, 1))


def reference_distribution(pair: Pair, tokens: Ids) -> Floats:
    """(V,) log p after the last n−1 of these tokens, by the NumPy model."""
    state = pair.readable.start(1)
    log_p: Floats = pair.readable.tables.levels[0].log_prob[None].astype(np.float64)  # the whole model at order 1
    for token in tokens:
        log_p, state = pair.readable.step(state, np.array([token]))
    return np.asarray(log_p[0])


@settings(max_examples=60, deadline=None)
@given(pair=pairs(), k=st.sampled_from([0, 1, 3, 1000]))
def test_compiled_top_k_equals_numpy(pair: Pair, k: int) -> None:
    window = pair.rows(1, pair.compiled.order - 1)
    log_p = reference_distribution(pair, window[0])
    ids, log_probs = pair.compiled.engine.top(window.astype(np.int32), k)
    assert len(ids) == len(log_probs) == min(k, pair.vocabulary.size)
    assert len(set(ids.tolist())) == len(ids)
    assert_allclose(log_probs, np.sort(log_p)[::-1][:k], **CLOSE)
    assert_allclose(log_probs, log_p[ids], **CLOSE)
    is_tie = log_probs[1:] == log_probs[:-1]
    assert np.all(ids[1:][is_tie] > ids[:-1][is_tie])  # ties: lowest id first


@settings(max_examples=60, deadline=None)
@given(pair=pairs())
def test_compiled_sampling_follows_the_distribution(pair: Pair) -> None:
    """Equidistant numbers in [0, 1) hit each word in proportion to its probability, up to rounding at its ends."""
    K = 3000
    window = np.repeat(pair.rows(1, pair.compiled.order - 1), K, axis=0)
    p = np.exp(reference_distribution(pair, window[0]))
    if p.sum() == 0:
        return
    drawn = pair.compiled.engine.sample(window.astype(np.int32), (np.arange(K) + 0.5) / K)
    times = np.bincount(drawn, minlength=pair.vocabulary.size)
    assert np.abs(times - K * p / p.sum()).max() <= 1 + 1e-6
    assert np.all(p[drawn] > 0)


def test_compiled_sampling_at_the_upper_end() -> None:
    pair = pair_of(SMALL, WORDS, "line", "fast")
    drawn = pair.compiled.engine.sample(np.array([[0, 2]], dtype=np.int32), np.array([np.nextafter(1.0, 0.0)]))
    assert drawn.tolist() == [2]  # b, stored after a, comes first; then </s> and a


def test_compiled_scores_worked_by_hand() -> None:
    pair = pair_of(SMALL, WORDS, "line", "fast")
    tokens = np.array([[0, 0, 0, 2, 3, 2]], dtype=np.int32)
    log_probs = pair.compiled.engine.score(tokens, np.array([[2, 3, 2, 2]], dtype=np.int32))
    # a: unigram −1.25, weight of <s> −0.5. b: "a b" −0.75, "<s> a" missing −4. a: "a b a". a: unigram −1.25, weight
    # of a −0.25, "b a" missing −4.
    assert log_probs.tolist() == [[-1.75, -4.75, -0.0625, -5.5]]


def test_layouts_store_the_same_rows() -> None:
    rng = np.random.default_rng(1)
    ids = np.append(rng.integers(0, 50, 5000), 51)
    tables = tables_of(ids, Config(order=4), Vocabulary(52, 50, 51, None), "line")
    fast = engines.from_tables(tables, Vocabulary(52, 50, 51, None))
    small = fast.convert("small", 0, 2)
    assert (fast.layout, small.layout) == ("fast", "small")
    assert small.bytes < fast.bytes
    for engine in (fast, small, small.convert("fast")):
        stored = engines.to_tables(engine)
        for one, other in zip(stored.levels, tables.levels, strict=True):
            assert_array_equal(one.key, other.key)
            assert_array_equal(one.log_prob, np.minimum(other.log_prob, 0))
            assert_array_equal(one.log_backoff, other.log_backoff)


GOOD: dict[str, Any] = {"tokens": np.zeros((2, 5), np.int32), "targets": np.zeros((2, 3), np.int32)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": np.zeros((2, 4), np.int32)}, "rows of 4 words, not 5"),
        ({"tokens": np.zeros((3, 5), np.int32)}, "different rows"),
        ({"tokens": np.zeros((2, 5))}, "int32"),
        ({"tokens": np.full((2, 5), 4, np.int32)}, "contains the id 4; the ids of the model are 0 to 3"),
        ({"targets": np.full((2, 3), -1, np.int32)}, "contains the id -1"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_score_rejects_invalid_arrays(changed: dict[str, Any], message: str) -> None:
    engine = engines.from_tables(SMALL, WORDS)
    assert engine.score(**GOOD).shape == (2, 3)
    with pytest.raises(ChainruleError, match=message):
        engine.score(**(GOOD | changed))


@pytest.mark.parametrize(
    "key", [[3, 2], [2, 2], [-1, 2], [2, 16]], ids=["falling", "twice", "negative", "beyond the contexts"]
)
def test_from_tables_rejects_unsound_keys(key: list[int]) -> None:
    tables = BackoffTables((SMALL.levels[0], level(key, [-1.0, -1.0], [0.0, 0.0])))
    with pytest.raises(ChainruleError, match="order 2 is not sound"):
        engines.from_tables(tables, WORDS)
