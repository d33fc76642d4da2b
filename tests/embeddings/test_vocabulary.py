"""Vocabulary of word vectors."""

from pathlib import Path

import numpy as np

from chainrule.embeddings.corpus import CountedCorpus, build_vocabulary

COUNTED = CountedCorpus(
    np.array([2, 7, 2, 1, 7, 3], np.uint64), Path("none"), 0, 22, lambda numbers: ["abcdef"[i] for i in numbers]
)


def test_vocabulary_is_sorted_by_count_then_first_appearance() -> None:
    chosen = build_vocabulary(COUNTED, 2)
    assert chosen.words == tuple("befac")
    assert chosen.counts.tolist() == [7, 7, 3, 2, 2]
    assert chosen.counts.dtype == np.uint64
    assert chosen.number_of.tolist() == [3, 0, 4, -1, 1, 2]
    assert chosen.number_of.dtype == np.int32
    assert len(chosen) == 5


def test_vocab_size_limits_the_vocabulary() -> None:
    assert build_vocabulary(COUNTED, 1, 3).words == tuple("bef")
    assert build_vocabulary(COUNTED, 1, 100).words == tuple("befacd")


def test_vocabulary_without_frequent_words_is_empty() -> None:
    chosen = build_vocabulary(COUNTED, 8)
    assert chosen.words == ()
    assert chosen.number_of.tolist() == [-1] * 6


def test_vocabulary_of_an_empty_text() -> None:
    nothing = CountedCorpus(np.zeros(0, np.uint64), Path("none"), 0, 0, lambda numbers: [])
    assert len(build_vocabulary(nothing)) == 0
