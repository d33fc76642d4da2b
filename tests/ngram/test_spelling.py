"""The one scale: that the speller makes word models distributions over strings."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import native, train
from chainrule.errors import ChainruleError
from chainrule.model import Model
from chainrule.ngram.spelling import SCALARS, Speller, train_speller
from chainrule.text.corpus import Corpus

ALPHABET = "ab"
LINES = ["a b a", "ab a", "b", "a a b", "ba b a", "aab b"] * 20


def test_a_known_word_is_never_spelled() -> None:
    speller = train_speller(["abc", "abd", "xbc"], known=["abc", "q"])
    free = train_speller(["abc", "abd", "xbc"], known=[])
    # Renormalised: the others share what abc and q had.
    inside = np.exp(free.log_probs(["abc", "q"])).sum()
    assert np.exp(speller.log_outside) == pytest.approx(np.exp(free.log_outside) * (1 - inside), rel=1e-6)
    assert speller.log_probs(["abd"])[0] > free.log_probs(["abd"])[0]


def test_all_spellings_sum_to_one() -> None:
    """Over strings of the alphabet and of one stranger, which stands for all others and counts for them all."""
    speller = train_speller(["ab", "ba", "a", "abb"], known=["b", "ab"])
    others = SCALARS - len(set(speller.alphabet) | set(" \t\r\n"))
    total = 0.0
    sums = []
    for length in range(1, 9):
        strings = ["".join(s) for s in product("ab\u2603", repeat=length)]
        weights = np.array([float(others) ** s.count("\u2603") for s in strings])
        is_word = np.array([s not in ("b", "ab") for s in strings])
        total += float((np.exp(speller.log_probs(strings)) * weights)[is_word].sum())
        sums.append(total)
    assert all(value <= 1 + 1e-6 for value in sums)
    assert sums[-1] > 0.9
    # What is left is in longer strings: it shrinks with every letter.
    rest = [1 - value for value in sums]
    assert all(later < 0.9 * earlier for earlier, later in pairwise(rest[2:]))


def test_single_characters_sum_to_one() -> None:
    speller = train_speller(["x", "y", "x"], known=["a", "b"], is_single=True)
    others = SCALARS - len("xy") - len("\r\n") - len("ab")
    p = np.exp(speller.log_probs(["x", "y", "z"]))
    assert p[0] > p[1] > p[2]
    assert p[0] + p[1] + others * p[2] == pytest.approx(1, abs=1e-6)


def test_any_string_can_be_spelled_and_saved() -> None:
    speller = train_speller(["hello", "world"], known=[])
    again = Speller.from_bytes(speller.to_bytes(), "speller.safetensors")
    words = ["hello", "\U0001f600", "x" * 5000, "日本"]
    assert np.isfinite(speller.log_probs(words)).all()
    assert again.log_probs(words).tolist() == speller.log_probs(words).tolist()
    assert speller.log_probs([]).tolist() == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abcé", min_size=1), min_size=1), st.lists(st.text("abz\u2603", min_size=1)))
def test_batches_do_not_matter(unknown: list[str], spellings: list[str]) -> None:
    speller = train_speller(unknown, known=["a"])
    alone = [speller.log_probs([s])[0] for s in spellings]
    np.testing.assert_allclose(speller.log_probs(spellings), alone, rtol=1e-9)


LETTERS = st.text("abcé\u2603\U0001f600", min_size=1)


@pytest.mark.native
@settings(max_examples=60, deadline=None)
@given(st.lists(LETTERS, min_size=1), st.lists(LETTERS | st.text(min_size=1)), st.booleans())
def test_the_core_spells_as_it_is_specified(unknown: list[str], spellings: list[str], is_single: bool) -> None:
    """Letters of one to four bytes, strangers among them, words longer than those that are remembered."""
    if is_single:
        unknown, spellings = [s[0] for s in unknown], [s[0] for s in spellings]
    speller = train_speller(unknown, known=["z"], is_single=is_single)
    asked = [*spellings, *unknown, *spellings, *([] if is_single else ["", "abc" * 9])]
    np.testing.assert_allclose(speller.compiled().log_probs(asked), speller.specified(asked), rtol=1e-12)


@pytest.mark.native
def test_tables_that_are_none_are_refused_by_the_core() -> None:
    speller = train_speller(["abc", "abd"], known=[])
    arrays: list[list[Any]] = [
        [level.key.astype(np.int64), level.log_prob.astype(np.float32), level.log_backoff.astype(np.float32)]
        for level in speller.lm.tables.levels
    ]
    core = native.load()
    assert core is not None
    alphabet = np.array([ord(c) for c in speller.alphabet], dtype=np.uint32)
    core.Speller(alphabet, arrays, 0.0, 0.0, False)
    broken: list[tuple[Any, Any]] = [
        (alphabet[::-1].copy(), arrays),
        (alphabet, []),
        (alphabet[:-1].copy(), arrays),
        (alphabet, [arrays[0], [arrays[1][0][::-1].copy(), *arrays[1][1:]], *arrays[2:]]),
        (alphabet, [arrays[0], [arrays[1][0] + 10**6, *arrays[1][1:]], *arrays[2:]]),
        (alphabet, [arrays[0], [arrays[1][0], arrays[1][1][1:].copy(), arrays[1][2]], *arrays[2:]]),
        (alphabet, [arrays[0], arrays[1][:2], *arrays[2:]]),
        (alphabet, [[x.astype(np.float64) for x in arrays[0]], *arrays[1:]]),
        (alphabet, [*arrays, *arrays[-1:] * 40]),
    ]
    for letters, levels in broken:
        with pytest.raises(ChainruleError):
            core.Speller(letters, levels, 0.0, 0.0, False)


def mass(model: Model, length: int) -> float:
    """The probability of all texts of one line over the alphabet and the blank, up to a length."""
    symbols = ALPHABET + " "
    lines = {model.tokenizer.see("".join(s)) for n in range(length + 1) for s in product(symbols, repeat=n)}
    scores = list(model.scores(sorted(lines)))
    return float(sum(np.exp(s.log_prob + s.log_prob_of_spellings) for s in scores))


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@pytest.mark.parametrize(
    ("tokenizer", "settings_"),
    [
        ("word", {}),
        ("word", {"vocab_size": 1}),
        ("word", {"min_count": 2}),
        ("char", {}),
        ("char", {"vocab_size": 1}),
        ("byte", {}),
    ],
)
def test_texts_sum_towards_one_and_never_above(tokenizer: str, settings_: dict[str, Any]) -> None:
    model = train(
        "ngram", Corpus.from_lines(LINES), tokenizer=tokenizer, order=2, smoothing="witten-bell", **settings_
    )
    sums = [mass(model, length) for length in (1, 3, 5, 7)]
    assert sums[-1] <= 1 + 1e-6
    # What is left is in longer texts: it shrinks geometrically with the length.
    rest = [1 - value for value in sums]
    assert all(later < 0.85 * earlier for earlier, later in pairwise(rest))
    assert rest[-1] < 0.2
