from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule.embeddings import corpus, one_hot
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import InputError

CONFIG = VectorConfig(method="one-hot", min_count=1)


def test_one_hot_vectors_are_orthogonal(tmp_path: Path) -> None:
    counted = corpus.count(["b a", "b c"], tmp_path / "numbers")
    chosen = corpus.build_vocabulary(counted)
    trained = one_hot.train(counted, chosen, CONFIG)
    assert trained.matrix.shape == (3, 0)
    assert trained.matrix.nbytes == 0  # not V×V
    vectors = WordVectors(words=chosen.words, matrix=trained.matrix, config=CONFIG)
    assert_array_equal([vectors.vector(word) for word in "bac"], np.eye(3))
    assert [vectors.similarity("a", word) for word in "abc"] == [1.0, 0.0, 0.0]
    assert vectors.neighbors("a") == []
    assert vectors.analogy("a", "b", "c") == []


def test_one_hot_without_words_is_rejected(tmp_path: Path) -> None:
    counted = corpus.count(["a"], tmp_path / "numbers")
    with pytest.raises(InputError, match="lower min_count"):
        one_hot.train(counted, corpus.build_vocabulary(counted, 2), CONFIG)
