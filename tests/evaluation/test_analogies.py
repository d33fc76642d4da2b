"""Batched analogy answers equal the answers to single questions."""

import math
import tracemalloc
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.embeddings.vectors import EPSILON
from chainrule.errors import InputError, UsageError
from chainrule.evaluation import word_vectors
from chainrule.evaluation.word_vectors import Section, read_questions, solve, summarize
from chainrule.lm import Floats

COURT = {"man": (1, 0, 0), "woman": (0, 1, 0), "king": (1, 0, 1), "queen": (0, 1, 1), "apple": (0, -1, 0)}


def unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


UNIT = unit(np.array(list(COURT.values()), float))
ROW_OF = {word: row for row, word in enumerate(COURT)}


def section(*questions: str, name: str = "family") -> Section:
    return Section(name, tuple((w[0], w[1], w[2], w[3]) for w in map(str.split, questions)))


def test_by_hand() -> None:
    """king − man + woman is nearest to queen, as the worked example of the vectors has it, and so the other way
    round; a question with an unknown word is not asked.
    """
    queries = [
        section("man king woman queen", "man woman king queen", "man king woman apple", "man king dog queen")
    ]
    for method in ("add", "mul"):
        (result,) = solve(ROW_OF.get, UNIT, queries, method)
        assert (result.correct, result.attempted, result.total) == (2, 3, 4)
        assert result.accuracy == 2 / 3


def test_lookup_decides_the_spelling() -> None:
    queries = [section("Man King Woman Queen")]
    assert solve(lambda word: ROW_OF.get(word.lower()), UNIT, queries)[0].correct == 1
    assert solve(ROW_OF.get, UNIT, queries)[0].attempted == 0


@pytest.mark.parametrize("method", ["add", "mul"])
def test_memory_is_bounded(method: Literal["add", "mul"], monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 questions of 1,000 words have 8 MB of scores; 1 MB is to do."""
    rng = np.random.default_rng(0)
    U = unit(rng.normal(size=(1000, 50)))
    words = rng.integers(1000, size=(2000, 4)).astype(str)
    queries = [Section("s", tuple((a, b, c, d) for a, b, c, d in words.tolist()))]
    monkeypatch.setattr(word_vectors, "MAX_BATCH_BYTES", 1 << 20)
    solve(int, U, [section("1 2 3 4")], method)
    tracemalloc.start()
    (result,) = solve(int, U, queries, method)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.attempted == 2000
    assert peak < (1 << 20) + 2000 * 400  # and what is kept of each question: a list of four rows


@given(st.integers(0, 1000), st.sampled_from(["add", "mul"]), st.sampled_from([1, 100, 1 << 20]))
def test_batched_answers_equal_single_answers(seed: int, method: Literal["add", "mul"], size: int) -> None:
    rng = np.random.default_rng(seed)
    V = 12
    U = unit(rng.normal(size=(V, 2)))
    words = [f"w{i}" for i in range(V)]
    rows = rng.integers(V, size=(30, 4))
    right = 0
    for a, b, c, d in rows.tolist():
        best, winner = -math.inf, -1
        for x in range(V):
            cos = [float(U[x].astype(float) @ U[y].astype(float)) for y in (a, b, c)]
            shifted = [(value + 1) / 2 for value in cos]
            by_mul = shifted[1] * shifted[2] / (shifted[0] + EPSILON)
            score = cos[1] - cos[0] + cos[2] if method == "add" else by_mul
            if x not in (a, b, c) and score > best:
                best, winner = score, x
        right += winner == d
    queries = [Section("s", tuple((words[a], words[b], words[c], words[d]) for a, b, c, d in rows))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_vectors, "MAX_BATCH_BYTES", size)
        (result,) = solve(words.index, U, queries, method)
    assert (result.correct, result.attempted) == (right, 30)


def test_one_hot_vectors_answer_nothing() -> None:
    queries = [section("man king woman queen", "man woman king queen")]
    for method in ("add", "mul"):
        (result,) = solve(ROW_OF.get, np.zeros((6, 0), np.float32), queries, method)
        assert (result.correct, result.attempted) == (0, 2)


def test_sums() -> None:
    sections = [
        section("man king woman queen"),
        section("man woman king queen", "man woman king apple", name="gram1-made-up"),
        section("a b c d", name="gram2"),
    ]
    solved = solve(ROW_OF.get, UNIT, sections)
    outcome = summarize(sections, solved)
    shown = {name: (part.correct, part.attempted, part.total) for name, part in outcome.items()}
    assert shown == {"semantic": (1, 1, 1), "syntactic": (1, 2, 3), "all": (2, 3, 4)}
    assert math.isnan(solved[2].accuracy)


def test_reading(tmp_path: Path) -> None:
    (tmp_path / "q").write_text(": family\nman king woman queen\n\n:gram1\na  b\tc d\r\ne f g h\n: empty\n")
    outcome = read_questions(tmp_path / "q")
    assert [(s.name, len(s.questions), s.is_syntactic) for s in outcome] == [
        ("family", 1, False),
        ("gram1", 2, True),
    ]
    assert outcome[1].questions[0] == ("a", "b", "c", "d")
    (tmp_path / "q").write_text("a b c d\n")
    assert [s.name for s in read_questions(tmp_path / "q")] == ["questions"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (": s\na b c d\na b c\n", "q, line 3: 3 words"),
        (": s\n", "q contains no questions"),
        ("", "q contains no questions"),
    ],
)
def test_invalid_files(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "q").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_questions(tmp_path / "q")


def test_unknown_method_is_rejected() -> None:
    with pytest.raises(UsageError, match="choose add or mul"):
        solve(ROW_OF.get, UNIT, [section("man king woman queen")], "sub")  # type: ignore[arg-type]


@pytest.mark.data
def test_the_questions_of_google(data_folder: Path) -> None:
    outcome = read_questions(data_folder / "embeddings_eval" / "questions-words.txt")
    assert len(outcome) == 14
    assert sum(len(each.questions) for each in outcome) == 19_544
    assert [each.name for each in outcome if not each.is_syntactic] == [
        *("capital-common-countries", "capital-world", "currency", "city-in-state", "family")
    ]
    assert (
        sum(len(each.questions) for each in outcome if each.is_syntactic) == 10_675
    )  # as Mikolov et al. count them
