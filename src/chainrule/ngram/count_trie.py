"""Compact serialisation of n-gram counts as a trie.

A row of a level is an n-gram. The rows of level n + 1 are grouped by their context, a row of level n, in the order
of level n; ids are sorted within a group. Rows of the highest order and rows that end in `</s>` are leaves. The
arrays of order n:

    {n}.word      last id of each row; not stored at order 1, where the row number is the id
    {n}.children  number of rows of level n + 1 that extend each non-leaf row of level n
    {n}.count     count of each leaf row of level n

The count of a non-leaf row is the sum of the counts of its children. `<s>` has children but count 0, because it is
never predicted. `word` has the smallest unsigned type that holds all ids. The other two are uint8, where 255 means
that the value is the next one in `{n}.children.large` or `{n}.count.large` (int64).

For up to 256 ids an n-gram takes 2 bytes, compared with 16 for key, log-probability and back-off weight.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ModelFileError
from chainrule.lm import Ids, Mask, Vocabulary
from chainrule.ngram.counts import Counts, Level
from chainrule.ngram.storage import Arrays
from chainrule.ngram.tables import find_ngrams
from chainrule.tensors import TensorSpec

LARGE: Final = 255
MAX_TOTAL_COUNT: Final = 2**53
"""Largest total count; sums up to this value are exact in float64."""


def to_arrays(counts: Counts) -> Arrays:
    """Return the arrays of the trie; `counts` must be counted per line, so that nothing follows `</s>`."""
    arrays: Arrays = {}
    for n, level in enumerate(counts.levels, start=1):
        is_leaf = _is_leaf(level.word, n == counts.order, counts.vocabulary)
        if n > 1:
            arrays[f"{n}.word"] = level.word.astype(_id_type(counts.vocabulary))
        if n < counts.order:
            children = np.bincount(counts.levels[n].context, minlength=len(level))
            _pack(arrays, f"{n}.children", children[~is_leaf])
        _pack(arrays, f"{n}.count", level.count[is_leaf])
    return arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary, name: str) -> Counts:
    """Rebuild the counts from arrays that match `expected_specs`.

    Raise ModelFileError, with a message that starts with `name`, if the values do not form a valid trie.
    """
    order = infer_order(arrays)
    words = [np.arange(vocabulary.size), *(arrays[f"{n}.word"].astype(np.int64) for n in range(2, order + 1))]
    levels = [_unigrams(vocabulary)]
    for n in range(2, order + 1):
        children = np.zeros(len(levels[-1]), dtype=np.int64)
        children[~_is_leaf(levels[-1].word, False, vocabulary)] = _unpack(arrays, f"{n - 1}.children", name)
        levels.append(_extend(levels, children, words[n - 1], vocabulary, f"{name}: {n}"))
    for n in range(order, 0, -1):
        level = levels[n - 1]
        is_leaf = _is_leaf(level.word, n == order, vocabulary)
        if n < order:
            level.count[:] = np.bincount(levels[n].context, levels[n].count, len(level))
        level.count[is_leaf] = _unpack(arrays, f"{n}.count", name)
        if n == 1:
            level.count[vocabulary.bos] = 0
        elif len(level) and level.count.min() < 1:
            raise ModelFileError(f"{name}: {n}.count holds an n-gram that never occurs; train it again")
        if level.count.sum(dtype=np.float64) > MAX_TOTAL_COUNT:
            raise ModelFileError(f"{name}: {n}.count sums to more than {MAX_TOTAL_COUNT}; train it again")
    return Counts(tuple(levels), vocabulary)


def infer_order(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the n-gram order implied by the array names."""
    return 1 + sum(array.endswith(".word") for array in arrays)


def expected_specs(arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary) -> dict[str, TensorSpec]:
    """Return the dtypes and shapes that the arrays of a trie must have, given its `word` arrays."""
    order = infer_order(arrays)
    words = [np.arange(vocabulary.size), *(arrays.get(f"{n}.word", np.zeros(0)) for n in range(2, order + 1))]
    expected: dict[str, TensorSpec] = {}
    for n, word in enumerate(words, start=1):
        leaves = int(_is_leaf(word, n == order, vocabulary).sum())
        if n > 1:
            expected[f"{n}.word"] = TensorSpec(_id_type(vocabulary).name, (None,))
        if n < order:
            expected[f"{n}.children"] = TensorSpec("uint8", (word.size - leaves,))
            expected[f"{n}.children.large"] = TensorSpec("int64", (None,))
        expected[f"{n}.count"] = TensorSpec("uint8", (leaves,))
        expected[f"{n}.count.large"] = TensorSpec("int64", (None,))
    return expected


def _id_type(vocabulary: Vocabulary) -> np.dtype[Any]:
    return np.min_scalar_type(vocabulary.size - 1)


def _is_leaf(word: Ids, is_highest: bool, vocabulary: Vocabulary) -> Mask:
    """Return the mask (M,) of rows without children."""
    return np.full(word.shape, True) if is_highest else word == vocabulary.eos


def _unigrams(vocabulary: Vocabulary) -> Level:
    ids = np.arange(vocabulary.size)
    zeros = np.zeros(vocabulary.size, dtype=np.int64)
    return Level(zeros, ids, zeros, zeros.copy(), ids == vocabulary.bos)


def _extend(levels: list[Level], children: Ids, word: Ids, vocabulary: Vocabulary, name: str) -> Level:
    """Return the level above `levels` with all counts 0."""
    below, V = levels[-1], vocabulary.size
    if children.sum(dtype=np.float64) != len(word):  # checked before `repeat` allocates memory
        raise ModelFileError(
            f"{name}.word has {len(word)} n-grams, and their contexts count others; train it again"
        )
    context = np.repeat(np.arange(len(below)), children)
    key = context * V + word
    is_sorted = bool((key[1:] > key[:-1]).all())
    if len(word) and (not is_sorted or word.max() >= V or (word == vocabulary.bos).any()):
        raise ModelFileError(f"{name}.word is not sorted or holds an id that is never predicted; train it again")
    if len(levels) == 1:
        suffix = word
    else:
        suffix = find_ngrams(below.context * V + below.word, below.suffix[context], word, V)
        if len(suffix) and suffix.min() < 0:
            raise ModelFileError(f"{name}.word holds an n-gram whose last words occur nowhere; train it again")
    return Level(context, word, suffix, np.zeros(len(word), dtype=np.int64), below.begins[context])


def _pack(arrays: Arrays, name: str, values: Ids) -> None:
    arrays[name] = np.minimum(values, LARGE).astype(np.uint8)
    arrays[f"{name}.large"] = values[values >= LARGE].astype(np.int64)


def _unpack(arrays: Mapping[str, NDArray[Any]], name: str, source: str) -> Ids:
    values, large = arrays[name].astype(np.int64), arrays[f"{name}.large"]
    is_large = values == LARGE
    if int(is_large.sum()) != len(large):
        raise ModelFileError(f"{source}: {name}.large has {len(large)} values and should have {is_large.sum()}")
    if len(large) and not (large.min() >= LARGE and large.max() <= MAX_TOTAL_COUNT):
        raise ModelFileError(f"{source}: {name}.large holds a value below {LARGE} or above {MAX_TOTAL_COUNT}")
    values[is_large] = large
    return values
