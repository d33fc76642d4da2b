"""Rank correlation by hand and by brute force; file formats of word pairs."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError
from chainrule.evaluation.word_vectors import (
    Pairs,
    confidence_interval,
    evaluate_similarity,
    rarest_third,
    read_pairs,
    read_questions,
    spearman,
)
from chainrule.lm import Floats


def test_spearman_with_ties() -> None:
    """Ranks 1, 2½, 2½, 4 against 1, 2, 3½, 3½: deviations −1½, 0, 0, 1½ and −1½, −½, 1, 1; 3¾ / √(4½ · 4½)."""
    a, b = np.array([1.0, 2.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0, 30.0])
    assert spearman(a, b) == pytest.approx(3.75 / 4.5, rel=1e-12)
    assert spearman(a, -b) == pytest.approx(-3.75 / 4.5, rel=1e-12)


def test_spearman_without_ties() -> None:
    """1 − 6 Σd²/(n(n² − 1)), the ranks differing by 1, 1, 0, 1 and 1."""
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, 5, 4])
    assert spearman(a, b) == pytest.approx(1 - 6 * 4 / (5 * 24), rel=1e-12)
    assert spearman(a, np.exp(a)) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_spearman_by_brute_force(pairs: list[tuple[int, int]]) -> None:
    """The rank of a value: one more than those below it, and half of the others that equal it."""

    def ranks(values: list[int]) -> list[float]:
        return [1 + sum(o < v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]

    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    result = spearman(np.array(first, float), np.array(second, float))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert math.isnan(result)
    else:
        assert result == pytest.approx(float(np.corrcoef(ranks(first), ranks(second))[0, 1]), abs=1e-9)


def test_interval() -> None:
    """r = ½, n = 103: atanh ½ = 0.549306, s.e. √(1.125/100) = 0.106066, times 1.959964 = 0.207886."""
    low, high = confidence_interval(0.5, 103)
    assert math.atanh(low) == pytest.approx(0.549306 - 0.207886, abs=2e-6)
    assert math.atanh(high) == pytest.approx(0.549306 + 0.207886, abs=2e-6)
    assert all(
        map(
            math.isnan, (*confidence_interval(0.3, 3), *confidence_interval(1.0, 3), *confidence_interval(1.0, 100))
        )
    )
    for undefined in (1.0, -1.0, math.nan):
        assert all(map(math.isnan, confidence_interval(undefined, 100)))


def test_interval_covers_the_true_value_in_95_percent() -> None:
    """ρ of a bivariate normal with r is (6/π) asin(r/2)."""
    rng = np.random.default_rng(0)
    r, trials = 0.6, 400
    truth = 6 / math.pi * math.asin(r / 2)
    holds = 0
    for _ in range(trials):
        x, y = rng.multivariate_normal([0, 0], [[1, r], [r, 1]], size=60).T
        low, high = confidence_interval(spearman(x, y), 60)
        holds += low <= truth <= high
    assert 0.92 <= holds / trials <= 0.98  # 0.95 ± 0.011


PLANE = {"a": (1.0, 0.0), "b": (1.0, 1.0), "c": (0.0, 2.0), "d": (-1.0, 0.0)}


def lookup(word: str) -> Floats | None:
    return np.array(PLANE[word], np.float32) if word in PLANE else None


def pairs_of(*rows: tuple[str, str, float]) -> Pairs:
    firsts, seconds, scores = zip(*rows, strict=True)
    return Pairs("pairs", firsts, seconds, np.array(scores, float))


def test_evaluate_similarity() -> None:
    """Cosines 0.71, 0 and −1 for a–b, a–c and a–d, judged 9, 5 and 7: ranks 3, 2, 1 against 3, 1, 2."""
    result = evaluate_similarity(lookup, pairs_of(("a", "b", 9), ("a", "zebra", 1), ("a", "c", 5), ("a", "d", 7)))
    assert result.rho == pytest.approx(0.5)
    assert (result.covered, result.total, result.coverage) == (3, 4, 0.75)
    assert math.isnan(result.low)  # of three pairs
    assert math.isnan(result.high)
    nothing = evaluate_similarity(lookup, pairs_of(("x", "y", 1)))
    assert math.isnan(nothing.rho)
    assert nothing.coverage == 0


def test_vectors_without_numbers() -> None:
    """One-hot: a word is like itself alone; of other pairs nothing can be said."""
    result = evaluate_similarity(
        lambda word: np.zeros(0, np.float32), pairs_of(("a", "a", 9), ("a", "b", 5), ("c", "d", 1))
    )
    assert result.rho == pytest.approx(math.sqrt(3) / 2)  # ranks 3, 1½, 1½ against 3, 2, 1: 1½ / √(1½ · 2)
    assert math.isnan(evaluate_similarity(lambda word: np.zeros(0), pairs_of(("a", "b", 5), ("c", "d", 1))).rho)


def test_the_rarest_third() -> None:
    """Rarer words come 1, 50, 2, 7 and 3 times, and one pair has a word that was never counted: 2 of 5."""
    counts = {"a": 100, "b": 1, "c": 50, "d": 2, "e": 7, "f": 3}
    pairs = pairs_of(*(("a", word, i) for i, word in enumerate("bcdzef")))
    result = rarest_third(pairs, counts.get)
    assert result.seconds == ("b", "d")
    assert result.scores.tolist() == [0, 2]


@pytest.mark.parametrize(
    "text",
    [
        "cat\ttiger\t7.35\nlove\tsex\t6.77\n",
        "# a remark\n# Word 1\tWord 2\tHuman (mean)\n\ncat\ttiger\t7.35\nlove\tsex\t6.77\n",
        "Word 1,Word 2,Human (mean)\ncat,tiger,7.35\nlove,sex,6.77\n",
        "cat tiger 7.35\nlove   sex 6.77\r\n",
        "word1\tword2\tPOS\tSimLex999\tconc(w1)\ncat\ttiger\tN\t7.35\t1\nlove\tsex\tN\t6.77\t2.0\n",
        "\ufeffcat;tiger;7.35\nlove; sex; 6.77",
        "Word 1,Word 2,Human (mean),1,2\ncat,tiger,7.35,9,7\nlove,sex,6.77,9,6\n",
        "cat\ttiger\tN\t7.35\t1\nlove\tsex\tN\t6.77\t2\n",
        '"Word, first","Word 2","Human"\n"cat","tiger","7.35"\n"love", "sex", 6.77\n',
    ],
    ids=["tabs", "remarks", "commas", "blanks", "simlex", "semicolons", "numbers", "no-header", "quotes"],
)
def test_files_of_pairs(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").write_bytes(text.encode())
    result = read_pairs(tmp_path / "p")
    assert (result.firsts, result.seconds) == (("cat", "love"), ("tiger", "sex"))
    assert result.scores.tolist() == [7.35, 6.77]
    assert len(result) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\tb\t1\na\tb\n", "p, line 2: 2 columns"),
        ("a\tb\t1\na\tb\thigh\n", "p, line 2: 'high' is not a number"),
        ("#\na\tb\tscore\na\tb\thigh\n", "p, line 3: 'high' is not a number"),
        ("a\tb\tnan\n", "p, line 1: nan is not finite"),
        ("\n\t b\t1\n", "p, line 2: "),
        ("a b\n", "p, line 1: 2 columns"),
        ("a\tb\tscore\n", "p contains no pairs"),
        ("", "p contains no pairs"),
        ("id,w1,w2,score\n1,cat,tiger,7.35\n", "p, line 2: the line begins with the number 1"),
        ("a\tb\t1\na\tb\tN\t2\n", "p, line 2: 'N' is not a number"),
        (",b,1\n", "p, line 1: a word is empty"),
        ("a,b," + "c" * 200_000 + "\n", "p, line 1 is not a valid table row"),
    ],
)
def test_invalid_files(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_pairs(tmp_path / "p")


@pytest.mark.data
def test_the_collections(data_folder: Path) -> None:
    folder = data_folder / "embeddings_eval"
    wordsim, simlex = read_pairs(folder / "wordsim353.tsv"), read_pairs(folder / "simlex999.txt")
    assert (len(wordsim), len(simlex)) == (353, 999)
    assert (wordsim.firsts[2], wordsim.seconds[2], wordsim.scores[2]) == ("tiger", "tiger", 10.0)
    assert (simlex.firsts[0], simlex.seconds[0], simlex.scores[0]) == ("old", "new", 1.58)
    for pairs in (wordsim, simlex):
        assert 0 <= pairs.scores.min() < pairs.scores.max() <= 10


def test_messages_do_not_advise_missing_options(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"caf\xe9\tb\t1\n")
    with pytest.raises(InputError, match=r"not UTF-8 at byte 3 \(0xe9\); convert it to UTF-8$"):
        read_pairs(tmp_path / "p")
    with pytest.raises(InputError, match=r"convert it to UTF-8$"):
        read_questions(tmp_path / "p")
