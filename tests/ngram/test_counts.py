from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainrule.lm import Context, Vocabulary
from chainrule.ngram.engine import count
from chainrule.ngram.smoothing import Counts, insert_bos

WORDS = Vocabulary(size=6, bos=4, eos=5, unk=0)


def ngram_counts(counts: Counts) -> dict[tuple[int, ...], int]:
    """Every counted n-gram as a tuple of words, following the context rows."""
    totals: dict[tuple[int, ...], int] = {}
    names: list[tuple[int, ...]] = [()]
    for k, level in enumerate(counts.levels):
        names = [(*names[c], int(w)) for c, w in zip(level.context, level.word, strict=True)]
        totals |= {n: int(c) for n, c in zip(names, level.count, strict=True) if k or c}
    return totals


def test_count_worked_by_hand() -> None:
    # i=1 love=2 cats=3, two lines: i love cats / i love
    counts = count(np.array([1, 2, 3, 5, 1, 2, 5]), 3, WORDS)
    assert ngram_counts(counts) == {
        (1,): 2,
        (2,): 2,
        (3,): 1,
        (5,): 2,
        (4, 1): 2,
        (1, 2): 2,
        (2, 3): 1,
        (3, 5): 1,
        (2, 5): 1,
        (4, 1, 2): 2,
        (1, 2, 3): 1,
        (2, 3, 5): 1,
        (1, 2, 5): 1,
    }


@given(
    lines=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=8),
    order=st.integers(1, 4),
    context=st.sampled_from(["line", "stream"]),
)
def test_count_equals_a_naive_count(lines: list[list[int]], order: int, context: Context) -> None:
    texts = [[4, *line, 5] for line in lines]
    if context == "stream":
        texts = [[4] + [w for text in texts for w in text[1:]]]
    expected: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        for end in range(1, len(text)):
            for k in range(1, order + 1):
                if end - k + 1 >= 0:
                    expected[tuple(text[end - k + 1 : end + 1])] += 1
    ids = np.array([w for line in lines for w in [*line, 5]])
    counts = count(ids, order, WORDS, context)
    assert ngram_counts(counts) == expected
    assert ngram_counts(counts.up_to(1)) == {g: c for g, c in expected.items() if len(g) == 1}
    for level in counts.levels:
        key = level.context * WORDS.size + level.word
        assert np.all(key[1:] > key[:-1])


@given(
    lines=st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=8),
)
def test_suffix_links_drop_the_first_word(lines: list[list[int]]) -> None:
    counts = count(np.array([w for line in lines for w in [*line, 5]]), 3, WORDS)
    names: list[list[tuple[int, ...]]] = [[()]]
    for level in counts.levels:
        names.append([(*names[-1][c], int(w)) for c, w in zip(level.context, level.word, strict=True)])
    for k, level in enumerate(counts.levels[1:], start=2):
        for row, name in enumerate(names[k]):
            assert names[k - 1][level.suffix[row]] == name[1:]
            assert level.begins[row] == (name[0] == WORDS.bos)


def test_insert_bos_per_line_or_once() -> None:
    ids = np.array([1, 5, 5, 2, 5])
    assert insert_bos(ids, WORDS, "line").tolist() == [4, 1, 5, 4, 5, 4, 2, 5]
    assert insert_bos(ids, WORDS, "stream").tolist() == [4, 1, 5, 5, 2, 5]
