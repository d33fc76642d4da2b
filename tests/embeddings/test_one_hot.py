import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule.embeddings.train import train
from chainrule.errors import InputError
from chainrule.text.corpus import Corpus


def test_one_hot_vectors_are_orthogonal() -> None:
    vectors = train(Corpus.from_lines(["b a", "b c"]), method="one-hot", min_count=1)
    assert vectors.matrix.shape == (3, 0)
    assert vectors.matrix.nbytes == 0  # not V×V
    assert_array_equal([vectors.vector(word) for word in "bac"], np.eye(3))
    assert [vectors.similarity("a", word) for word in "abc"] == [1.0, 0.0, 0.0]
    assert vectors.neighbors("a") == []
    assert vectors.analogy("a", "b", "c") == []


def test_one_hot_without_words_is_rejected() -> None:
    with pytest.raises(InputError, match="lower min_count"):
        train(Corpus.from_lines(["a"]), method="one-hot", min_count=2)
