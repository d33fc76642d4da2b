import builtins
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.embeddings import corpus, ppmi
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import RECORD, Cooccurrences, CountedCorpus, WordVocabulary
from chainrule.errors import MissingExtra
from embeddings.small_texts import count

sparse = pytest.importorskip("scipy.sparse")

# X of three words; the rows sum to 10, 9 and 5.
X = np.array([[2.0, 6.0, 2.0], [6.0, 0.0, 3.0], [2.0, 3.0, 0.0]])


def records_of(table: np.ndarray[Any, Any], folder: Path) -> Cooccurrences:
    records = [(i, j, table[i, j]) for i, j in zip(*np.nonzero(table), strict=True)]
    np.array(records, RECORD).tofile(folder / "records")
    return Cooccurrences(folder / "records", len(records))


def test_ppmi_worked_by_hand(tmp_path: Path) -> None:
    # At power 1 the sum is 24: (0,0) log(2·24 / 10·10) < 0; (0,1) log(6·24 / 10·9) = log 1.6;
    # (0,2) log(2·24 / 10·5) < 0; (1,2) log(3·24 / 9·5) = log 1.6.
    i, j, values = ppmi.compute_ppmi(records_of(X, tmp_path), 3, 1.0)
    cells = dict(zip(zip(i.tolist(), j.tolist(), strict=True), values.tolist(), strict=True))
    assert cells.keys() == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert_allclose(list(cells.values()), math.log(1.6), rtol=1e-12)


def test_ppmi_with_smoothed_contexts_worked_by_hand(tmp_path: Path) -> None:
    # At power 1/2 the sum is √10 + 3 + √5 = 8.398…: (0,1) log(6·8.398 / 10·3), but (1,0) log(6·8.398 / 9·√10).
    total = math.sqrt(10) + 3 + math.sqrt(5)
    expected = {
        (0, 1): math.log(6 * total / (10 * 3)),
        (1, 0): math.log(6 * total / (9 * math.sqrt(10))),
        (1, 2): math.log(3 * total / (9 * math.sqrt(5))),
        (2, 0): math.log(2 * total / (5 * math.sqrt(10))),
        (2, 1): math.log(3 * total / (5 * 3)),
    }
    i, j, values = ppmi.compute_ppmi(records_of(X, tmp_path), 3, 0.5)
    cells = dict(zip(zip(i.tolist(), j.tolist(), strict=True), values.tolist(), strict=True))
    assert cells == pytest.approx(expected)


def test_truncated_and_full_svd_agree() -> None:
    rng = np.random.default_rng(0)
    dense = np.maximum(0, rng.standard_normal((60, 60)))
    U, S, _ = np.linalg.svd(dense)
    for dimensions in (5, 40, 70):  # truncated, full, more than the rank
        vectors = ppmi.decompose(sparse.csr_array(dense), dimensions, 0)
        n = min(dimensions, 60)
        assert vectors.shape == (60, dimensions)
        assert_allclose(np.abs(vectors[:, :n]), np.abs(U[:, :n] * np.sqrt(S[:n])), atol=1e-5)
        assert not vectors[:, n:].any()
        assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(dimensions)] >= 0).all()


def test_ppmi_of_independent_words_is_zero() -> None:
    assert not ppmi.decompose(sparse.csr_array((500, 500)), 3, 0).any()


def text(folder: Path, lines: int = 200) -> tuple[CountedCorpus, WordVocabulary]:
    rng = np.random.default_rng(1)
    lines_ = [" ".join(rng.choice([f"{kind}{n}" for n in range(30)], 8)) for kind in "ab" for _ in range(lines)]
    counted = count(lines_, folder / "numbers")
    return counted, corpus.build_vocabulary(counted)


def test_ppmi_separates_clusters_for_any_seed(tmp_path: Path) -> None:
    counted, chosen = text(tmp_path)
    config = VectorConfig(method="ppmi", dimensions=2)
    trained = ppmi.train(counted, chosen, config, seed=1)
    assert_array_equal(trained.matrix, ppmi.train(counted, chosen, config, seed=1).matrix)
    assert_allclose(trained.matrix, ppmi.train(counted, chosen, config, seed=2).matrix, atol=1e-4)
    unit = trained.matrix / np.linalg.norm(trained.matrix, axis=1, keepdims=True)
    is_a = np.array([word[0] == "a" for word in chosen.words])
    assert (unit[is_a] @ unit[is_a].T).mean() > 0.9
    assert (unit[~is_a] @ unit[~is_a].T).mean() > 0.9
    assert abs((unit[is_a] @ unit[~is_a].T).mean()) < 0.1
    assert trained.buckets is None
    assert trained.metrics["positive"] <= trained.metrics["records"]
    assert [file.name for file in tmp_path.iterdir()] == ["numbers"]


def test_missing_scipy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def import_without_scipy(name: str, *rest: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest)

    counted, chosen = text(tmp_path, 1)
    monkeypatch.setattr(builtins, "__import__", import_without_scipy)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[vectors\]'"):
        ppmi.train(counted, chosen, VectorConfig(method="ppmi"))
