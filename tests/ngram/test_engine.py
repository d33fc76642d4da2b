"""Compiled n-gram counts and modified Kneser–Ney against the NumPy implementation, row by row."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import system
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.smoothing import Counts, estimate, kneser_ney_counts, modified_discounts
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.text.splits import default_text
from interpreter_lock import releases_lock
from ngram.reference import count

pytestmark = pytest.mark.native

ROUNDING = 1e-14
"""Absolute tolerance for log 1 = 0, where a tolerance in ulps is meaningless."""


def train_compiled(
    ids: Ids, order: int, vocabulary: Vocabulary, context: Context, threads: int = 1, cut_offs: tuple[int, ...] = ()
) -> tuple[list[dict[str, Any]], list[tuple[float, float, float]], list[str]]:
    """Per order: the arrays of the model; D1, D2, D3+; the reason for default discounts ('' if estimated)."""
    core: Any = system.load_extension()
    model, discounts, fell_back = core.NgramModel.train(
        ids=ids.astype(np.int32),
        order=order,
        vocabulary_size=vocabulary.size,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        unk=-1 if vocabulary.unk is None else vocabulary.unk,
        is_closed=vocabulary.closed,
        is_stream=context == "stream",
        cut_offs=list(cut_offs),
        threads=threads,
    )
    return model.tables(), discounts, fell_back


def count_compiled(
    ids: Ids, order: int, vocabulary: Vocabulary, context: Context, threads: int
) -> list[dict[str, Any]]:
    core: Any = system.load_extension()
    size, bos, eos = vocabulary.size, vocabulary.bos, vocabulary.eos
    levels: list[dict[str, Any]] = core.ngram_counts(
        ids.astype(np.int32), order, size, bos, eos, context == "line", threads
    )
    return levels


def train_reference(
    ids: Ids, order: int, vocabulary: Vocabulary, context: Context, prune: tuple[int, ...] = ()
) -> tuple[Counts, BackoffTables, list[str]]:
    """Counts, tables, and per order the warning about default discounts."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ChainruleWarning)
        counts = count(ids, order, vocabulary, context)
        tables = estimate(counts, Config(order=order, smoothing="modified-kneser-ney", prune=prune))
    messages = [""] * order
    for warning in warned:
        match = re.fullmatch(
            r"order (\d+): using default discounts 0\.5, 1, 1\.5: "
            r"discounts cannot be estimated from this text \((.*)\)",
            str(warning.message),
        )
        assert match is not None
        messages[int(match[1]) - 1] = match[2]
    return counts, tables, messages


def is_close(actual: Floats, expected: Floats) -> bool:
    """Whether all values are within one ulp; infinities must match."""
    finite = np.isfinite(expected)
    if actual.shape != expected.shape or not np.array_equal(actual[~finite], expected[~finite]):
        return False
    a, b = actual[finite].astype(np.float64), expected[finite]
    return bool(np.all(np.abs(a - b) <= np.maximum(np.spacing(np.abs(b)), ROUNDING)))


def check(ids: Ids, order: int, vocabulary: Vocabulary, context: Context, threads: int = 1) -> None:
    levels, discounts, fell_back = train_compiled(ids, order, vocabulary, context, threads)
    counts, tables, messages = train_reference(ids, order, vocabulary, context)
    assert fell_back == messages
    assert len(levels) == len(discounts) == order
    for k, (actual, table, counted_level) in enumerate(
        zip(levels, tables.levels, kneser_ney_counts(counts), strict=True), start=1
    ):
        check_level(actual, table, k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChainruleWarning)
            D = modified_discounts(counted_level.count, k)
        np.testing.assert_allclose(discounts[k - 1], [D.one, D.two, D.three], rtol=1e-14)
    again = count_compiled(ids, order, vocabulary, context, threads)
    for k, (of_order, level) in enumerate(zip(again, counts.levels, strict=True), start=1):
        for name in ("context", "word", "suffix", "count"):
            np.testing.assert_array_equal(of_order[name], getattr(level, name), err_msg=f"{name} of order {k}")
        np.testing.assert_array_equal(np.arange(*of_order["begins"]), np.flatnonzero(level.begins))


def check_level(actual: dict[str, Any], table: BackoffLevel, k: int) -> None:
    np.testing.assert_array_equal(actual["key"], table.key)
    for name in ("log_prob", "log_backoff"):
        assert actual[name].dtype == np.float32
        assert is_close(actual[name], getattr(table, name)), f"{name} of order {k}"


@st.composite
def texts(draw: st.DrawFn) -> tuple[Ids, Vocabulary, Context]:
    """Ids of small or large vocabularies with `<s>`, `</s>` and `<unk>` anywhere, sometimes with repeated lines."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    V = draw(st.integers(3, 40))
    bos, eos, unk = (int(i) for i in rng.permutation(V)[:3])
    context: Context = draw(st.sampled_from(["line", "stream"]))
    words = np.setdiff1d(np.arange(V), [bos])
    chance = 1 / rng.permutation(np.arange(1, V)) ** rng.uniform(0, 2)
    ids = rng.choice(words, draw(st.sampled_from([1, 2, 7, 60, 2000])), p=chance / chance.sum())
    if context == "line":
        ids[-1] = eos
    ids = np.tile(ids, draw(st.sampled_from([1, 1, 2, 5])))
    return ids, Vocabulary(V, bos, eos, unk, closed=draw(st.booleans())), context


@settings(max_examples=250, deadline=None)
@given(text=texts(), order=st.integers(1, 6), threads=st.integers(1, 3))
def test_compiled_training_equals_numpy_on_random_ids(
    text: tuple[Ids, Vocabulary, Context], order: int, threads: int
) -> None:
    ids, vocabulary, context = text
    check(ids, order, vocabulary, context, threads)


@settings(max_examples=150, deadline=None)
@given(text=texts(), prune=st.lists(st.integers(0, 4), max_size=5), threads=st.integers(1, 3))
def test_compiled_cut_offs_equal_numpy(
    text: tuple[Ids, Vocabulary, Context], prune: list[int], threads: int
) -> None:
    ids, vocabulary, context = text
    cut_offs = (0, *sorted(prune))
    levels, _, _ = train_compiled(ids, len(cut_offs), vocabulary, context, threads, cut_offs)
    _, tables, _ = train_reference(ids, len(cut_offs), vocabulary, context, cut_offs)
    for k, (actual, table) in enumerate(zip(levels, tables.levels, strict=True), start=1):
        check_level(actual, table, k)


SMALL = Vocabulary(size=4, bos=1, eos=2, unk=0)


@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize(
    "ids", [[], [2], [3, 2], [2, 2, 2], [3, 3, 3, 3, 3, 2], [3, 2] * 50, [0, 3, 2, 3, 0, 2, 2]], ids=str
)
def test_compiled_training_equals_numpy_on_small_texts(ids: list[int], order: int, context: Context) -> None:
    check(np.array(ids, dtype=np.int64), order, SMALL, context, threads=2)


@pytest.mark.parametrize("order", range(1, 7))
def test_compiled_training_of_a_one_token_stream(order: int) -> None:
    check(np.array([3]), order, SMALL, "stream")


def test_compiled_training_of_empty_lines() -> None:
    check(np.array([1, 1, 1]), 3, Vocabulary(size=2, bos=0, eos=1, unk=None), "line")


def embedded() -> tuple[Ids, Vocabulary]:
    """Part of the embedded text; ids in order of first appearance."""
    numbers = {"<unk>": 0, "<s>": 1, "</s>": 2}
    lines = default_text()[:400]
    ids = [numbers.setdefault(w, len(numbers)) for line in lines for w in [*line.split(), "</s>"] if w != "<s>"]
    return np.array(ids), Vocabulary(len(numbers), 1, 2, 0)


@pytest.mark.parametrize("context", ["line", "stream"])
def test_compiled_training_equals_numpy_on_the_embedded_text(context: Context) -> None:
    ids, vocabulary = embedded()
    assert len(ids) > 10_000
    check(ids, 5, vocabulary, context, threads=2)
    assert train_compiled(ids, 2, vocabulary, context)[2][1] == ""  # enough text to estimate its discounts


def test_thread_count_does_not_change_the_model() -> None:
    ids, vocabulary = embedded()
    single = train_compiled(ids, 4, vocabulary, "line", threads=1)
    for threads in (2, 3, 7):
        threaded = train_compiled(ids, 4, vocabulary, "line", threads=threads)
        assert threaded[1:] == single[1:]
        for a, b in zip(single[0], threaded[0], strict=True):
            assert all(a[name].tobytes() == b[name].tobytes() for name in a)


def test_returned_arrays_own_their_memory() -> None:
    levels = train_compiled(np.array([3, 3, 2]), 2, SMALL, "line")[0]
    keys = levels[1]["key"]
    del levels
    keys[0] = 99  # writable memory of its own
    assert keys.tolist() == [99, 14, 15]  # <s> 3, 3 </s>, 3 3: context · 4 + word; the first was 7


def test_compiled_calls_release_the_gil(tmp_path: Path) -> None:
    core: Any = system.load_extension()
    ids = np.random.default_rng(0).integers(2, 500, 20_000).astype(np.int32)
    ids[-1] = 2
    words = {"vocabulary_size": 500, "bos": 1, "eos": 2}
    model, _, _ = core.NgramModel.train(ids=ids, order=3, **words, names=[f"w{i}" for i in range(500)])
    tokens, path = ids[:8000].reshape(40, 200), tmp_path / "model.ngram"
    model.save(str(path))
    calls: dict[str, Callable[[], object]] = {
        "train": lambda: core.NgramModel.train(ids=ids, order=3, **words),
        "count": lambda: core.ngram_counts(ids=ids, order=3, **words, is_line=True, threads=1),
        "open": lambda: core.NgramModel.open(str(path)),
        "convert": lambda: model.convert("small", 8),
        "tables": model.tables,
        "score": lambda: model.score(tokens, np.ascontiguousarray(tokens[:, 2:])),
        "step": lambda: model.step(np.ascontiguousarray(tokens[:, :2])),
        "score_sentences": lambda: model.score_sentences(["w3 w4 w5"] * 100),
        "largest_deviation": lambda: model.largest_deviation(10),
    }
    assert {name: releases_lock(call) for name, call in calls.items()} == dict.fromkeys(calls, True)
    assert not releases_lock(lambda: model.name(3), may_release=False)  # too short to be worth it


GOOD: dict[str, Any] = {
    "ids": np.array([3, 2], dtype=np.int32),
    "order": 2,
    "vocabulary_size": 4,
    "bos": 1,
    "eos": 2,
    "unk": -1,
    "is_stream": False,
    "threads": 1,
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"order": -1}, "order is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"vocabulary_size": 0}, "vocabulary_size is 0"),
        ({"vocabulary_size": 3}, "contains the id 3"),
        ({"bos": 4}, "bos is 4"),
        ({"eos": -1}, "eos is -1"),
        ({"eos": 1}, "different ids"),
        ({"unk": 4}, "unk is 4"),
        ({"unk": 1}, "must differ from"),
        ({"ids": np.array([3, 2])}, "int32"),
        ({"ids": np.array([[3, 2]], dtype=np.int32)}, "2 axes"),
        ({"ids": np.array([3, 0, 2, 0], dtype=np.int32)[::2]}, "ascontiguousarray"),
        ({"ids": np.array([3], dtype=np.int32)}, "does not end with </s>"),
        ({"ids": np.array([1, 2], dtype=np.int32)}, "contains the id of <s>"),
        ({"ids": np.array([-1, 2], dtype=np.int32)}, "contains the id -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_train_rejects_invalid_arguments(changed: dict[str, Any], message: str) -> None:
    core: Any = system.load_extension()
    with pytest.raises(ChainruleError, match=re.escape(message)):
        core.NgramModel.train(**(GOOD | changed))
