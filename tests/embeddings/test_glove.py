import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.embeddings import corpus, glove
from chainrule.embeddings.config import VectorConfig
from chainrule.errors import ChainruleError
from embeddings import reference
from embeddings.small_texts import CORE, counted_of, zipf_lines


def cluster_lines(lines: int, seed: int) -> list[str]:
    """Lines of words of one cluster, with one word in twenty from the other."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, (lines, 1)) ^ (rng.random((lines, 6)) < 0.05)
    places = rng.integers(0, 8, (lines, 6))
    return [
        " ".join(f"{'ab'[k]}{n}" for k, n in zip(*line, strict=True)) for line in zip(kinds, places, strict=True)
    ]


def cosines(matrix: np.ndarray[Any, Any], words: tuple[str, ...]) -> tuple[float, float]:
    """Mean cosine within the clusters and across."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    a, b = (unit[[word[0] == kind for word in words]] for kind in "ab")
    within = [(x @ x.T)[np.triu_indices(len(x), 1)].mean() for x in (a, b)]
    return float(np.mean(within)), float((a @ b.T).mean())


@pytest.mark.native
@pytest.mark.parametrize("threads", [1, 2, 40])
def test_glove_cost_falls_and_clusters_separate(threads: int, tmp_path: Path) -> None:
    counted, chosen = counted_of(cluster_lines(3000, 1), tmp_path)
    config = VectorConfig(method="glove", dimensions=10, epochs=1)
    before = glove.train(counted, chosen, config, threads=threads)
    calls: list[tuple[str, int, int | None]] = []
    config = VectorConfig(method="glove", dimensions=10, epochs=60)
    after = glove.train(counted, chosen, config, threads=threads, progress=lambda *now: calls.append(now))
    assert after.metrics["cost"] < before.metrics["cost"] / 4
    assert after.metrics["pairs"] == 60 * after.metrics["records"] == calls[-1][1] == calls[-1][2]
    within, across = cosines(after.matrix, chosen.words)
    assert within > across + 0.5
    assert os.listdir(tmp_path) == ["numbers"]


@pytest.mark.native
@pytest.mark.parametrize("dimensions", [1, 15, 16, 33])
def test_compiled_glove_equals_the_reference(dimensions: int, tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(60, 60, 5), tmp_path)
    cooccurrences = corpus.count_cooccurrences(counted, chosen, VectorConfig(), tmp_path)
    settings: dict[str, Any] = {"dimensions": dimensions, "epochs": 3, "rate": 0.05, "x_max": 10.0, "alpha": 0.75}
    settings |= {"threads": 1, "seed": 3}
    size = len(chosen.words)
    expected = reference.Glove(str(cooccurrences.file), cooccurrences.records, size, simd="none", **settings)
    assert math.isnan(expected.learnt()[2])
    assert_allclose(
        np.abs(expected.result()).max(), 1 / (dimensions + 1), rtol=0.3
    )  # two numbers within ±1/2(D + 1)
    while expected.run(0.01):
        pass
    for simd in CORE.kernel_names():
        learner = CORE.Glove(str(cooccurrences.file), cooccurrences.records, size, simd=simd, **settings)
        assert learner.simd == simd
        assert math.isnan(learner.learnt()[2])
        while learner.run(0):  # at least one step
            pass
        pairs, of, cost = learner.learnt()
        assert pairs == of == 3 * cooccurrences.records == expected.learnt()[0]
        assert_allclose(cost, expected.learnt()[2], rtol=1e-5)
        assert_allclose(learner.result(), expected.result(), atol=1e-4)
        assert not learner.run(0.001)


def test_glove_cost_of_one_pair_worked_by_hand(tmp_path: Path) -> None:
    # Two words once at distance 1: X = 1, log X = 0, f = (1/10)^0.75. Initial values are within ±1/2(D + 1) = ±1/4,
    # so each difference is at most 2·1/4 + 1/16 and the cost at most f · (9/16)² / 2.
    counted, chosen = counted_of(["a b"], tmp_path)
    config = VectorConfig(method="glove", dimensions=1, epochs=1)
    trained = glove.train(counted, chosen, config)
    assert trained.metrics["records"] == 2
    assert 0 < trained.metrics["cost"] < 10**-0.75 * (9 / 16) ** 2 / 2
    assert trained.matrix.shape == (2, 1)


@pytest.mark.native
def test_glove_on_one_thread_is_bit_reproducible(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(300, 300, 6), tmp_path)
    config = VectorConfig(method="glove", dimensions=20, epochs=3)
    first, again = (glove.train(counted, chosen, config, seed=5).matrix for _ in range(2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, glove.train(counted, chosen, config, seed=6).matrix)


@pytest.mark.native
def test_glove_rejects_an_invalid_cooccurrence_file(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"dimensions": 3, "epochs": 1, "rate": 0.05, "x_max": 10.0, "alpha": 0.75}
    settings |= {"threads": 1, "seed": 0, "simd": "auto"}
    np.array([(0, 5, 1.0)], corpus.RECORD).tofile(tmp_path / "records")
    with pytest.raises(ChainruleError, match="does not contain the co-occurrence counts of this vocabulary"):
        CORE.Glove(str(tmp_path / "records"), 1, 5, **settings).run(1)
    with pytest.raises(ChainruleError, match="was truncated while it was being read"):
        CORE.Glove(str(tmp_path / "records"), 2, 6, **settings).run(1)
    with pytest.raises(ChainruleError, match="cannot be read"):
        CORE.Glove(str(tmp_path / "none"), 1, 6, **settings)
    assert not CORE.Glove(str(tmp_path / "records"), 0, 0, **settings).run(1)


@pytest.mark.native
def test_glove_reports_a_learning_rate_that_is_too_high(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(100, 50, 7), tmp_path)
    config = VectorConfig(method="glove", dimensions=4, epochs=30, learning_rate=1e30)
    with pytest.raises(ChainruleError, match="grew without bound"):
        glove.train(counted, chosen, config)
