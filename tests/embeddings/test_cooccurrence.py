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

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import Cooccurrences, CountedCorpus, WordVocabulary, count_cooccurrences
from chainrule.errors import ChainruleError, InputError
from embeddings import reference
from embeddings.small_texts import CORE, counted_of, zipf_lines

LINES = ["a b c a", "", "b a x", "c"]
Table = dict[tuple[str, str], float]


def table_of(cooccurrences: Cooccurrences, chosen: WordVocabulary) -> Table:
    records = cooccurrences.read()
    assert len(records) == cooccurrences.records
    table = {(chosen.words[i], chosen.words[j]): x for i, j, x in records.tolist()}
    assert len(table) == len(records)  # each pair once
    return table


def brute_force(lines: list[str], vocabulary: set[str], window: int) -> dict[tuple[str, str], Fraction]:
    """By definition: every two positions of a line, after removing words without a vector."""
    table: dict[tuple[str, str], Fraction] = Counter()  # type: ignore[assignment]
    for line in lines:
        words = [word for word in line.split() if word in vocabulary]
        for a, b in itertools.permutations(range(len(words)), 2):
            if abs(a - b) <= window:
                table[words[a], words[b]] += Fraction(1, abs(a - b))
    return table


def test_cooccurrences_worked_by_hand(tmp_path: Path) -> None:
    # "a b c a" with window 2: ab 1, bc 1, ca 1 adjacent; ac 1/2, ba 1/2 further apart; the two a are 3 apart. "b a
    # x": x occurs once and is dropped at min_count 2, so only ba 1. "c" is alone.
    counted, chosen = counted_of(LINES, tmp_path, 2)
    cooccurrences = count_cooccurrences(counted, chosen, VectorConfig(window=2), tmp_path)
    half = {("a", "b"): 1 + 0.5 + 1, ("b", "c"): 1.0, ("a", "c"): 1 + 0.5}
    assert table_of(cooccurrences, chosen) == half | {(b, a): x for (a, b), x in half.items()}


def test_word_next_to_itself_counts_twice(tmp_path: Path) -> None:
    # "a a": each a has the other at distance 1, so X_aa = 2. A dropped word does not separate its neighbours.
    counted, chosen = counted_of(["a x a"], tmp_path, 2)
    cooccurrences = count_cooccurrences(counted, chosen, VectorConfig(window=1), tmp_path)
    assert table_of(cooccurrences, chosen) == {("a", "a"): 2.0}


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_cooccurrences_equal_their_definition(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], window: int, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    counted, chosen = counted_of(lines, folder, 2)
    expected = brute_force(lines, set(chosen.words), window)
    if not expected:
        with pytest.raises(InputError, match="no two words"):
            count_cooccurrences(counted, chosen, VectorConfig(window=window), folder)
        return
    cooccurrences = count_cooccurrences(counted, chosen, VectorConfig(window=window), folder, threads=threads)
    assert table_of(cooccurrences, chosen) == {pair: float(np.float32(float(x))) for pair, x in expected.items()}


@pytest.mark.parametrize("window", [22, 23, 40])  # 23: the first width at which 1/3 is rounded
def test_cooccurrences_of_wide_windows(window: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(window)
    lines = [" ".join(rng.choice(list("abcde"), 60))]
    counted, chosen = counted_of(lines, tmp_path)
    table = table_of(count_cooccurrences(counted, chosen, VectorConfig(window=window), tmp_path), chosen)
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
    cooccurrence = CORE.Cooccurrence(
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
    while cooccurrence.run(0.01):
        pass
    return cooccurrence


@pytest.mark.native
def test_memory_and_threads_do_not_change_cooccurrences(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(3000, 2000, 1), tmp_path)
    in_memory = counted_by(counted, chosen, tmp_path / "whole")
    expected = (tmp_path / "whole").read_bytes()
    assert in_memory.runs == 0
    assert len(expected) == 12 * in_memory.records
    for bytes, threads in [(0, 1), (4096, 1), (100_000, 3), (1 << 20, 2), (1 << 30, 7)]:
        result = counted_by(counted, chosen, tmp_path / "other", bytes=bytes, threads=threads)
        assert (result.runs > 0) == (bytes < 1 << 30)
        assert (tmp_path / "other").read_bytes() == expected
        del result
    assert sorted(os.listdir(tmp_path)) == ["numbers", "other", "whole"]  # no temporary run is left


@pytest.mark.native
def test_compiled_cooccurrences_equal_the_reference(tmp_path: Path) -> None:
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


def test_cooccurrences_are_shuffled_by_seed(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(300, 300, 3), tmp_path)
    first = count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    again = count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=1).read()
    other_seed = count_cooccurrences(counted, chosen, VectorConfig(), tmp_path, seed=2).read()
    assert_array_equal(first, again)
    assert not np.array_equal(first, other_seed)
    assert set(first.tolist()) == set(other_seed.tolist())
    # In a random order each number is below its predecessor half the time, to 5 standard deviations of 1/√(12 n).
    upper = first["i"][first["i"] < first["j"]]
    falls, rises = (np.diff(upper) < 0).sum(), (np.diff(upper) > 0).sum()
    assert abs(falls / (falls + rises) - 0.5) < 5 / math.sqrt(12 * len(upper))
    # A frequent word occurs as often in the first half as in the second.
    halves = np.array_split(first["i"] == 0, 2)
    assert abs(int(halves[0].sum()) - int(halves[1].sum())) < 5 * math.sqrt((first["i"] == 0).sum())


@pytest.mark.native
def test_cooccurrence_files_are_removed_on_failure(tmp_path: Path) -> None:
    counted, chosen = counted_of(zipf_lines(2000, 2000, 4), tmp_path)
    with pytest.raises(ChainruleError, match="was truncated while it was being read"):
        counted_by(counted, chosen, tmp_path / "out", bytes=0, numbers=counted.numbers + 1)
    with pytest.raises(ChainruleError, match="a word id that is out of range"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of[:-5].copy())
    with pytest.raises(ChainruleError, match="must be an array of int32"):
        counted_by(counted, chosen, tmp_path / "out", number_of=chosen.number_of.astype(np.int64))
    with pytest.raises(ChainruleError, match="has the id 3000"):
        counted_by(counted, chosen, tmp_path / "out", number_of=np.full(9, 3000, np.int32))
    with pytest.raises(ChainruleError, match="cannot be written"):
        counted_by(counted, chosen, tmp_path / "nowhere" / "out")
    assert os.listdir(tmp_path) == ["numbers"]
