import itertools
import math
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.embeddings import glove
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import CountedCorpus, WordVocabulary
from chainrule.errors import ChainruleError, InputError
from embeddings import reference
from embeddings.small_texts import CORE, counted_of, zipf_lines

LINES = ["a b c a", "", "b a x", "c"]
Table = dict[tuple[str, str], float]


def table_of(found: glove.Cooccurrences, chosen: WordVocabulary) -> Table:
    records = found.read()
    assert len(records) == found.records
    table = {(chosen.words[i], chosen.words[j]): x for i, j, x in records.tolist()}
    assert len(table) == len(records)  # each pair once
    return table


def brute_force(lines: list[str], kept: set[str], window: int) -> dict[tuple[str, str], Fraction]:
    """The definition: every two places of a line, words without a vector taken out first."""
    table: dict[tuple[str, str], Fraction] = Counter()  # type: ignore[assignment]
    for line in lines:
        words = [word for word in line.split() if word in kept]
        for a, b in itertools.permutations(range(len(words)), 2):
            if abs(a - b) <= window:
                table[words[a], words[b]] += Fraction(1, abs(a - b))
    return table


def test_counting_by_hand(tmp_path: Path) -> None:
    # "a b c a" within 2 words: ab 1, bc 1, ca 1 next to each other; ac 1/2, ba 1/2 further; the a's are 3 apart.
    # "b a x": x comes once and is left out at min_count 2, so that ba 1 is all. "c" stands alone.
    counted, chosen = counted_of(LINES, tmp_path, 2)
    found = glove.count_cooccurrences(counted, chosen, VectorConfig(window=2), tmp_path)
    half = {("a", "b"): 1 + 0.5 + 1, ("b", "c"): 1.0, ("a", "c"): 1 + 0.5}
    assert table_of(found, chosen) == half | {(b, a): x for (a, b), x in half.items()}


def test_a_word_beside_itself_counts_both_ways(tmp_path: Path) -> None:
    # "a a": each a has the other at distance 1, so X_aa = 2. A word left out does not part its neighbours.
    counted, chosen = counted_of(["a x a"], tmp_path, 2)
    found = glove.count_cooccurrences(counted, chosen, VectorConfig(window=1), tmp_path)
    assert table_of(found, chosen) == {("a", "a"): 2.0}


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_counting_is_the_definition(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], window: int, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    counted, chosen = counted_of(lines, folder, 2)
    expected = brute_force(lines, set(chosen.words), window)
    if not expected:
        with pytest.raises(InputError, match="no two words"):
            glove.count_cooccurrences(counted, chosen, VectorConfig(window=window), folder)
        return
    found = glove.count_cooccurrences(counted, chosen, VectorConfig(window=window), folder, threads=threads)
    assert table_of(found, chosen) == {pair: float(np.float32(float(x))) for pair, x in expected.items()}


@pytest.mark.parametrize("window", [22, 23, 40])  # 23: the first at which 1/3 is rounded
def test_wide_windows(window: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(window)
    lines = [" ".join(rng.choice(list("abcde"), 60))]
    counted, chosen = counted_of(lines, tmp_path)
    table = table_of(glove.count_cooccurrences(counted, chosen, VectorConfig(window=window), tmp_path), chosen)
    expected = brute_force(lines, set("abcde"), window)
    assert table.keys() == expected.keys()
    assert_allclose(list(table.values()), [float(expected[pair]) for pair in table], rtol=1e-6)


def counted_by(
    counted: CountedCorpus,
    chosen: WordVocabulary,
    out: Path,
    *,
    bytes: int = 1 << 30,
    threads: int = 1,
    seed: int = 0,
    **more: Any,
) -> Any:
    made = CORE.Cooccurrence(
        str(counted.file),
        more.get("numbers", counted.numbers),
        more.get("number_of", chosen.number_of),
        len(chosen.words),
        str(out),
        window=5,
        bytes=bytes,
        threads=threads,
        seed=seed,
    )
    while made.run(0.01):
        pass
    return made


@pytest.mark.native
def test_memory_and_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(3000, 2000, 1), tmp_path)
    whole = counted_by(counted, chosen, tmp_path / "whole")
    expected = (tmp_path / "whole").read_bytes()
    assert whole.runs == 0
    assert len(expected) == 12 * whole.records
    for bytes, threads in [(0, 1), (4096, 1), (100_000, 3), (1 << 20, 2), (1 << 30, 7)]:
        made = counted_by(counted, chosen, tmp_path / "other", bytes=bytes, threads=threads)
        assert (made.runs > 0) == (bytes < 1 << 30)
        assert (tmp_path / "other").read_bytes() == expected
        del made
    assert sorted(os.listdir(tmp_path)) == ["numbers", "other", "whole"]  # no run is left


@pytest.mark.native
def test_counting_matches_the_reference_byte_for_byte(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(400, 300, 2), tmp_path, 2)
    for seed in (0, 7):
        counted_by(counted, chosen, tmp_path / "native", seed=seed)
        expected = reference.Cooccurrence(
            str(counted.file),
            counted.numbers,
            chosen.number_of,
            len(chosen.words),
            str(tmp_path / "reference"),
            window=5,
            bytes=0,
            threads=1,
            seed=seed,
        )
        assert not expected.run(0)
        assert (tmp_path / "native").read_bytes() == (tmp_path / "reference").read_bytes()


def test_the_order_is_shuffled_and_the_seeds_own(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(300, 300, 3), tmp_path)
    first = glove.count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    again = glove.count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    other = glove.count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=2).read()
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(first.tolist()) == set(other.tolist())
    # Among shuffled numbers each is below the one before it half the time, to 5 standard deviations of 1/√(12 n).
    upper = first["i"][first["i"] < first["j"]]
    falls, rises = (np.diff(upper) < 0).sum(), (np.diff(upper) > 0).sum()
    assert abs(falls / (falls + rises) - 0.5) < 5 / math.sqrt(12 * len(upper))
    # A frequent word is met in the first half as often as in the second.
    halves = np.array_split(first["i"] == 0, 2)
    assert abs(int(halves[0].sum()) - int(halves[1].sum())) < 5 * math.sqrt((first["i"] == 0).sum())


@pytest.mark.native
def test_files_are_removed_on_failure(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(2000, 2000, 4), tmp_path)
    with pytest.raises(ChainruleError, match="is shorter than it was"):
        counted_by(counted, chosen, tmp_path / "out", bytes=0, numbers=counted.numbers + 1)
    with pytest.raises(ChainruleError, match="numbers of no word"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of[:-5].copy())
    with pytest.raises(ChainruleError, match="must be an array of int32"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of.astype(np.int64))
    with pytest.raises(ChainruleError, match="has the number 3000 of"):
        counted_by(counted, chosen, tmp_path / "out", number_of=np.full(9, 3000, np.int32))
    with pytest.raises(ChainruleError, match="cannot be written"):
        counted_by(counted, chosen, tmp_path / "nowhere" / "out")
    assert os.listdir(tmp_path) == ["numbers"]
