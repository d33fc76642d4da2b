import itertools
import math
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import native
from chainrule.embeddings import counting, glove, glove_twin, vocabulary
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleError, ChainruleWarning, InputError

LINES = ["a b c a", "", "b a x", "c"]
CORE: Any = native.load()
needs_core = pytest.mark.skipif(CORE is None, reason="the extension is not built")
BOTH = ["twin", pytest.param("native", marks=[pytest.mark.native, needs_core])]

Table = dict[tuple[str, str], float]


def counted_of(lines: list[str], folder: Path, min_count: int = 1) -> tuple[Counted, Chosen]:
    counted = counting.count(lines, folder / "numbers")
    return counted, vocabulary.choose(counted, min_count)


def table_of(found: glove.Cooccurrences, chosen: Chosen) -> Table:
    records = found.read()
    assert len(records) == found.records
    table = {(chosen.words[i], chosen.words[j]): x for i, j, x in records.tolist()}
    assert len(table) == len(records)  # each pair once
    return table


def brute_force(lines: list[str], kept: set[str], window: int) -> dict[tuple[str, str], Fraction]:
    """The definition: every two places of a line, words without a vector taken out first."""
    table: dict[tuple[str, str], Fraction] = Counter()  # type: ignore[assignment]
    for line in lines:
        words = [word for word in line.split() if word in kept]
        for a, b in itertools.permutations(range(len(words)), 2):
            if abs(a - b) <= window:
                table[words[a], words[b]] += Fraction(1, abs(a - b))
    return table


@pytest.fixture(params=BOTH)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "twin":
        monkeypatch.setattr(native, "load", lambda: None)
    return name


def test_counting_by_hand(way: str, tmp_path: Path) -> None:
    # "a b c a" within 2 words: ab 1, bc 1, ca 1 next to each other; ac 1/2, ba 1/2 further; the a's are 3 apart.
    # "b a x": x comes once and is left out at min_count 2, so that ba 1 is all. "c" stands alone.
    counted, chosen = counted_of(LINES, tmp_path, 2)
    found = glove.cooccurrences(counted, chosen, VectorConfig(window=2), tmp_path)
    half = {("a", "b"): 1 + 0.5 + 1, ("b", "c"): 1.0, ("a", "c"): 1 + 0.5}
    assert table_of(found, chosen) == half | {(b, a): x for (a, b), x in half.items()}


def test_a_word_beside_itself_counts_both_ways(way: str, tmp_path: Path) -> None:
    # "a a": each a has the other at distance 1, so X_aa = 2. A word left out does not part its neighbours.
    counted, chosen = counted_of(["a x a"], tmp_path, 2)
    found = glove.cooccurrences(counted, chosen, VectorConfig(window=1), tmp_path)
    assert table_of(found, chosen) == {("a", "a"): 2.0}


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_counting_is_the_definition(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], window: int, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    counted, chosen = counted_of(lines, folder, 2)
    expected = brute_force(lines, set(chosen.words), window)
    if not expected:
        with pytest.raises(InputError, match="no two words"):
            glove.cooccurrences(counted, chosen, VectorConfig(window=window), folder)
        return
    found = glove.cooccurrences(counted, chosen, VectorConfig(window=window), folder, threads=threads)
    assert table_of(found, chosen) == {pair: float(np.float32(float(x))) for pair, x in expected.items()}


@pytest.mark.parametrize("window", [22, 23, 40])  # 23: the first at which 1/3 is rounded
def test_wide_windows(way: str, window: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(window)
    lines = [" ".join(rng.choice(list("abcde"), 60))]
    counted, chosen = counted_of(lines, tmp_path)
    table = table_of(glove.cooccurrences(counted, chosen, VectorConfig(window=window), tmp_path), chosen)
    expected = brute_force(lines, set("abcde"), window)
    assert table.keys() == expected.keys()
    assert_allclose(list(table.values()), [float(expected[pair]) for pair in table], rtol=1e-6)


def zipf_lines(lines: int, words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(f"w{min(n, words)}" for n in rng.zipf(1.3, rng.integers(0, 30)).tolist()) for _ in range(lines)
    ]


def counted_by(
    counted: Counted,
    chosen: Chosen,
    out: Path,
    *,
    bytes: int = 1 << 30,
    threads: int = 1,
    seed: int = 0,
    **more: Any,
) -> Any:
    made = CORE.Cooccurrence(
        str(counted.file),
        more.get("numbers", counted.numbers),
        more.get("number_of", chosen.number_of),
        len(chosen.words),
        str(out),
        window=5,
        bytes=bytes,
        threads=threads,
        seed=seed,
    )
    while made.run(0.01):
        pass
    return made


@pytest.mark.native
@needs_core
def test_memory_and_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(3000, 2000, 1), tmp_path)
    whole = counted_by(counted, chosen, tmp_path / "whole")
    expected = (tmp_path / "whole").read_bytes()
    assert whole.runs == 0
    assert len(expected) == 12 * whole.records
    for bytes, threads in [(0, 1), (4096, 1), (100_000, 3), (1 << 20, 2), (1 << 30, 7)]:
        made = counted_by(counted, chosen, tmp_path / "other", bytes=bytes, threads=threads)
        assert (made.runs > 0) == (bytes < 1 << 30)
        assert (tmp_path / "other").read_bytes() == expected
        del made
    assert sorted(os.listdir(tmp_path)) == ["numbers", "other", "whole"]  # no run is left


@pytest.mark.native
@needs_core
def test_counting_native_is_the_twin_byte_for_byte(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(400, 300, 2), tmp_path, 2)
    for seed in (0, 7):
        counted_by(counted, chosen, tmp_path / "native", seed=seed)
        twin = glove_twin.Cooccurrence(
            str(counted.file),
            counted.numbers,
            chosen.number_of,
            len(chosen.words),
            str(tmp_path / "twin"),
            window=5,
            bytes=0,
            threads=1,
            seed=seed,
        )
        assert not twin.run(0)
        assert (tmp_path / "native").read_bytes() == (tmp_path / "twin").read_bytes()


def test_the_order_is_shuffled_and_the_seeds_own(way: str, tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(300, 300, 3), tmp_path)
    first = glove.cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    again = glove.cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    other = glove.cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=2).read()
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(first.tolist()) == set(other.tolist())
    # Among shuffled numbers each is below the one before it half the time, to 5 standard deviations of 1/√(12 n).
    upper = first["i"][first["i"] < first["j"]]
    falls, rises = (np.diff(upper) < 0).sum(), (np.diff(upper) > 0).sum()
    assert abs(falls / (falls + rises) - 0.5) < 5 / math.sqrt(12 * len(upper))
    # A frequent word is met in the first half as often as in the second.
    halves = np.array_split(first["i"] == 0, 2)
    assert abs(int(halves[0].sum()) - int(halves[1].sum())) < 5 * math.sqrt((first["i"] == 0).sum())


@pytest.mark.native
@needs_core
def test_files_are_removed_on_failure(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(2000, 2000, 4), tmp_path)
    with pytest.raises(ChainruleError, match="is shorter than it was"):
        counted_by(counted, chosen, tmp_path / "out", bytes=0, numbers=counted.numbers + 1)
    with pytest.raises(ChainruleError, match="numbers of no word"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of[:-5].copy())
    with pytest.raises(ChainruleError, match="must be an array of int32"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of.astype(np.int64))
    with pytest.raises(ChainruleError, match="has the number 3000 of"):
        counted_by(counted, chosen, tmp_path / "out", number_of=np.full(9, 3000, np.int32))
    with pytest.raises(ChainruleError, match="cannot be written"):
        counted_by(counted, chosen, tmp_path / "nowhere" / "out")
    assert os.listdir(tmp_path) == ["numbers"]


def cluster_lines(lines: int, seed: int) -> list[str]:
    """Lines of words of one kind, into which one word in twenty of the other kind falls."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, (lines, 1)) ^ (rng.random((lines, 6)) < 0.05)
    places = rng.integers(0, 8, (lines, 6))
    return [
        " ".join(f"{'ab'[k]}{n}" for k, n in zip(*line, strict=True)) for line in zip(kinds, places, strict=True)
    ]


def cosines(matrix: np.ndarray[Any, Any], words: tuple[str, ...]) -> tuple[float, float]:
    """The mean cosine within the clusters and across."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    a, b = (unit[[word[0] == kind for word in words]] for kind in "ab")
    within = [(x @ x.T)[np.triu_indices(len(x), 1)].mean() for x in (a, b)]
    return float(np.mean(within)), float((a @ b.T).mean())


@pytest.mark.native
@needs_core
@pytest.mark.parametrize("threads", [1, 2, 40])
def test_the_cost_falls_and_clusters_part(threads: int, tmp_path: Path) -> None:
    counted, chosen = counted_of(cluster_lines(3000, 1), tmp_path)
    config = VectorConfig(method="glove", dimensions=10, epochs=1)
    before = glove.train(counted, chosen, config, threads=threads)
    told: list[tuple[str, int, int | None]] = []
    config = VectorConfig(method="glove", dimensions=10, epochs=60)
    after = glove.train(counted, chosen, config, threads=threads, progress=lambda *now: told.append(now))
    assert after.metrics["cost"] < before.metrics["cost"] / 4
    assert after.metrics["pairs"] == 60 * after.metrics["records"] == told[-1][1] == told[-1][2]
    within, across = cosines(after.matrix, chosen.words)
    assert within > across + 0.5
    assert os.listdir(tmp_path) == ["numbers"]


@pytest.mark.native
@needs_core
@pytest.mark.parametrize("dimensions", [1, 15, 16, 33])
def test_learning_native_is_the_twin(dimensions: int, tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(60, 60, 5), tmp_path)
    found = glove.cooccurrences(counted, chosen, VectorConfig(), tmp_path)
    settings: dict[str, Any] = {"dimensions": dimensions, "epochs": 3, "rate": 0.05, "x_max": 10.0, "alpha": 0.75}
    settings |= {"threads": 1, "seed": 3}
    size = len(chosen.words)
    twin = glove_twin.Glove(str(found.file), found.records, size, simd="none", **settings)
    assert math.isnan(twin.learnt()[2])
    assert_allclose(np.abs(twin.result()).max(), 1 / (dimensions + 1), rtol=0.3)  # two numbers within ±1/2(D + 1)
    while twin.run(0.01):
        pass
    for simd in CORE.kernel_names():
        learner = CORE.Glove(str(found.file), found.records, size, simd=simd, **settings)
        assert learner.simd == simd
        assert math.isnan(learner.learnt()[2])
        while learner.run(0.001):
            pass
        pairs, of, cost = learner.learnt()
        assert pairs == of == 3 * found.records == twin.learnt()[0]
        assert_allclose(cost, twin.learnt()[2], rtol=1e-5)
        assert_allclose(learner.result(), twin.result(), atol=1e-4)
        assert not learner.run(0.001)


def test_one_pair_by_hand(way: str, tmp_path: Path) -> None:
    # Two words met once at distance 1: X = 1, log X = 0, f = (1/10)^0.75. The first numbers are within
    # ±1/2(D + 1) = ±1/4, so each difference is at most 2·1/4 + 1/16 and the cost at most f · (9/16)² / 2.
    counted, chosen = counted_of(["a b"], tmp_path)
    config = VectorConfig(method="glove", dimensions=1, epochs=1)
    if way == "twin":
        with pytest.warns(ChainruleWarning, match="learnt in Python"):
            made = glove.train(counted, chosen, config)
    else:
        made = glove.train(counted, chosen, config)
    assert made.metrics["records"] == 2
    assert 0 < made.metrics["cost"] < 10**-0.75 * (9 / 16) ** 2 / 2
    assert made.matrix.shape == (2, 1)


@pytest.mark.native
@needs_core
def test_one_thread_is_bit_reproducible(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(300, 300, 6), tmp_path)
    config = VectorConfig(method="glove", dimensions=20, epochs=3)
    first, again = (glove.train(counted, chosen, config, seed=5).matrix for _ in range(2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, glove.train(counted, chosen, config, seed=6).matrix)


@pytest.mark.native
@needs_core
def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dimensions": 3, "epochs": 1, "rate": 0.05, "x_max": 10.0, "alpha": 0.75}
    settings |= {"threads": 1, "seed": 0, "simd": "auto"}
    np.array([(0, 5, 1.0)], glove_twin.RECORD).tofile(tmp_path / "records")
    with pytest.raises(ChainruleError, match="no file of co-occurrences of these words"):
        CORE.Glove(str(tmp_path / "records"), 1, 5, **settings).run(1)
    with pytest.raises(ChainruleError, match="is shorter than it was"):
        CORE.Glove(str(tmp_path / "records"), 2, 6, **settings).run(1)
    with pytest.raises(ChainruleError, match="cannot be read"):
        CORE.Glove(str(tmp_path / "none"), 1, 6, **settings)
    assert not CORE.Glove(str(tmp_path / "records"), 0, 0, **settings).run(1)


def test_a_rate_too_high_is_said(way: str, tmp_path: Path) -> None:
    if way == "twin":
        pytest.skip("the compiled learning alone is quick enough to overflow")
    counted, chosen = counted_of(zipf_lines(100, 50, 7), tmp_path)
    config = VectorConfig(method="glove", dimensions=4, epochs=30, learning_rate=1e30)
    with pytest.raises(ChainruleError, match="grew without bound"):
        glove.train(counted, chosen, config)
