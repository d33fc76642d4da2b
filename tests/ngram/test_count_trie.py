"""Serialised count tries: a hand-worked example and round trips."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import system
from chainrule.lm import Vocabulary
from chainrule.ngram import oov_speller
from chainrule.ngram.config import Config
from chainrule.ngram.smoothing import Counts, estimate
from chainrule.storage import tensors
from ngram.reference import count, counts_to_arrays, encode_spellings

WORDS = Vocabulary(size=6, bos=4, eos=5, unk=0)


def test_count_trie_arrays_worked_by_hand() -> None:
    # i=1 love=2 cats=3, two lines: i love cats / i love
    arrays = counts_to_arrays(count(np.array([1, 2, 3, 5, 1, 2, 5]), 3, WORDS))
    assert {name: array.tolist() for name, array in arrays.items() if array.size} == {
        "1.children": [0, 1, 2, 1, 1],  # <unk>, i, love, cats, <s>
        "1.count": [2],  # </s>
        "2.word": [2, 3, 5, 5, 1],  # i love, love cats, love </s>, cats </s>, <s> i
        "2.children": [2, 1, 1],  # i love, love cats, <s> i
        "2.count": [1, 1],
        "3.word": [3, 5, 5, 2],  # i love cats, i love </s>, love cats </s>, <s> i love
        "3.count": [1, 1, 1, 2],
    }
    assert {array.dtype.name for name, array in arrays.items() if not name.endswith("large")} == {"uint8"}


def check_round_trip(counts: Counts) -> None:
    arrays = counts_to_arrays(counts)
    tensors.check_specs(arrays, oov_speller.expected_specs(arrays, counts.vocabulary), "file")
    rebuilt = oov_speller.counts_from_arrays(arrays, counts.vocabulary, "file")
    assert rebuilt.order == counts.order
    for level, expected in zip(rebuilt.levels, counts.levels, strict=True):
        for field in ("context", "word", "suffix", "count", "begins"):
            np.testing.assert_array_equal(getattr(level, field), getattr(expected, field), field)


@given(
    lines=st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=8),
    order=st.integers(1, 4),
    times=st.sampled_from([1, 254, 255, 256, 1000]),
)
def test_count_trie_round_trips(lines: list[list[int]], order: int, times: int) -> None:
    ids = [i for line in lines * times for i in (*line, WORDS.eos)]
    check_round_trip(count(np.array(ids, dtype=np.int64), order, WORDS))


@pytest.mark.parametrize(("size", "dtype"), [(256, "uint8"), (257, "uint16"), (70_000, "uint32")])
def test_count_trie_uses_the_smallest_integer_type(size: int, dtype: str) -> None:
    """The first id is followed by all others: more children than fit into one byte."""
    vocabulary = Vocabulary(size=size, bos=size - 2, eos=size - 1, unk=size - 3)
    lines = [(0, last, size - 1) for last in range(0, size - 3, 1 + size // 1000)]
    counts = count(np.array(lines).ravel(), 3, vocabulary)
    assert counts_to_arrays(counts)["2.word"].dtype.name == dtype
    check_round_trip(counts)


WORD_LISTS = st.lists(st.text(st.sampled_from("abc日😀\u0301"), min_size=1, max_size=9), min_size=1, max_size=30)


@pytest.mark.native
@given(words=WORD_LISTS, order=st.integers(1, 6), windows=st.sampled_from([1, 2, 7, 1 << 20]))
def test_native_trie_and_its_estimates_equal_numpy(words: list[str], order: int, windows: int) -> None:
    core: Any = system.load_extension()
    trie = core.CharacterTrie(words, order=order, windows=windows)
    alphabet = "".join(sorted(set("".join(words))))
    assert "".join(map(chr, trie.alphabet.tolist())) == alphabet
    vocabulary = oov_speller._vocabulary(len(alphabet))
    counts = count(encode_spellings(words, alphabet)[0], order, vocabulary)
    expected = counts_to_arrays(counts)
    actual = oov_speller.trie_to_arrays(trie, vocabulary)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, name, strict=True)
    tables = estimate(counts, Config(order=order, smoothing="witten-bell"))
    for source in (trie, oov_speller.trie_from_arrays(expected, alphabet)):
        for level, (log_prob, log_backoff) in zip(
            tables.levels, oov_speller._estimate_logs(source, vocabulary), strict=True
        ):
            np.testing.assert_array_equal(log_prob, level.log_prob, strict=True)
            np.testing.assert_array_equal(log_backoff, level.log_backoff, strict=True)


@pytest.mark.native
@given(words=WORD_LISTS, times=st.integers(1, 3))
def test_trie_counts_lists_counted_words_and_marked_words_alike(words: list[str], times: int) -> None:
    core: Any = system.load_extension()
    counter = core.VocabularyCounter()
    for _ in range(times):
        counter.add(" ".join(words))
    names = sorted(set(words))
    marked = core.CharacterTrie(
        counted=counter.finish([]),
        vocabulary=core.WordVocabulary([*names, "<s>", "</s>"]),
        is_marked=np.array([True] * len(names) + [False] * 2),
        order=6,
    )
    listed = core.CharacterTrie(words * times + names, order=6)
    for n in range(1, 7):
        np.testing.assert_array_equal(marked.word(n), listed.word(n))
        np.testing.assert_array_equal(marked.count(n), listed.count(n))
