"""Batched line scores compared with the scores of the model."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule.applications import line_scoring as module
from chainrule.applications.line_scoring import LineScorer, LineScores, read_batches_for
from chainrule.errors import InputError, UsageError
from chainrule.model import Model
from chainrule.text.corpus import Corpus, read_batches
from cli.command import english
from ngram.reference import spelling_log_probs

pytestmark = pytest.mark.native
LINES = [
    "the cat sees a dog today",
    "",
    "   ",
    "a zebra  sees\tone zebra ",
    "<s> the cat </s>",
    "das Über\u00a0wort 日本 .",
    "now " * 200,
    "<unk> now",
]


def train(tmp_path: Path, **settings: object) -> Model:
    path = tmp_path / "text.txt"
    path.write_text(english())
    chosen = {"order": 3, "smoothing": "witten-bell"} | settings
    return chainrule.train("ngram", path, **chosen)  # type: ignore[arg-type]


def score_lines(model: Model, lines: list[str]) -> LineScores:
    return LineScorer(model).score(lines)


MARKS = [
    "(a) cat, the dog.",
    '"The U.S.," he said...',
    "日本 don't John's <unk> ,",
    "the cat sees, a dog",
    "cat\t(the",
]


@pytest.mark.parametrize("settings", [{"min_count": 2}, {"closed": True}, {"min_count": 2, "lowercase": True}])
def test_punctuation_is_split_by_the_engine(tmp_path: Path, settings: dict[str, object]) -> None:
    path = tmp_path / "marks.txt"
    path.write_text("\n".join(MARKS[:2] * 2 + ["the cat, a dog.", "(a cat) the"]))
    model = chainrule.train("ngram", path, order=3, smoothing="witten-bell", **settings)  # type: ignore[arg-type]
    assert model.tokenizer.config.kind == "word"
    lines = [*MARKS, "", " ", "the cat"]
    if settings.get("closed"):
        lines = [line for line in lines if not model.score(line).oov]
    scorer = LineScorer(model)
    scores = scorer.score(lines)
    expected = list(model.scores(lines))
    assert_allclose(scores.log_probs, [score.log_prob for score in expected], rtol=1e-5)
    assert_allclose(scores.log_probs_with_spelling, [score.log_prob_with_spelling for score in expected], rtol=1e-5)
    assert scores.tokens.tolist() == [len(score.tokens) for score in expected]
    sizes = [len(model.tokenizer.canonicalize(line).encode()) + 1 for line in lines]
    assert scorer.count_bytes(lines, scores).tolist() == sizes


def test_a_spelling_is_the_same_when_it_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's threads remember spellings; however many there are, each word has its own."""
    model = train(tmp_path, min_count=10)
    letters = random.Random(5)
    words = ["".join(letters.choices("abcdefgh", k=letters.randint(3, 20))) for _ in range(60_000)]
    lines = [" ".join(words[i : i + 6]) for i in range(0, len(words), 6)] * 2
    assert model.speller is not None
    expected = spelling_log_probs(model.speller, words).reshape(-1, 6).sum(axis=1)
    for number in (1, 2, 5):
        monkeypatch.setattr(module, "thread_count", lambda number=number: number)
        assert_allclose(score_lines(model, lines).spellings, np.tile(expected, 2), rtol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"min_count": 10},
        {"closed": True},
        {"min_count": 10, "lowercase": True},
        {"min_count": 10, "context": "stream"},
        {"tokenizer": "char", "min_count": 30},
        {"tokenizer": "bpe", "vocab_size": 300},
    ],
    ids=str,
)
def test_scores_are_those_of_the_model(tmp_path: Path, settings: dict[str, object]) -> None:
    model = train(tmp_path, **settings)
    result = score_lines(model, LINES)
    expected = list(model.scores(LINES))
    assert_allclose(result.log_probs, [each.log_prob for each in expected], rtol=1e-6)
    assert_allclose(result.spellings, [each.log_prob_of_spellings for each in expected], rtol=1e-9)
    assert result.tokens.tolist() == [len(each.tokens) for each in expected]
    assert_allclose(result.log_probs_with_spelling, [each.log_prob_with_spelling for each in expected], rtol=1e-6)


def test_words_that_the_tokenizer_cuts_are_scored_as_it_cuts_them(tmp_path: Path) -> None:
    model = train(tmp_path, min_count=10)
    lines = ["a" * 65_536, "the " + "é" * 65_537, "now"]
    result, expected = score_lines(model, lines), list(model.scores(lines))
    assert result.tokens.tolist() == [len(each.tokens) for each in expected]
    assert_allclose(result.spellings, [each.log_prob_of_spellings for each in expected], rtol=1e-9)


def test_bytes_of_texts_with_line_breaks(tmp_path: Path) -> None:
    scorer = LineScorer(train(tmp_path, min_count=10))
    texts = ["a  b\nc", "a\r\nb\r", "é", ""]
    assert scorer.count_bytes(texts, scorer.score(texts)).tolist() == [6, 4, 3, 1]


def test_invalid_texts_are_rejected(tmp_path: Path) -> None:
    scorer = LineScorer(train(tmp_path, min_count=10))
    with pytest.raises(UsageError, match="one text"):
        scorer.score("the cat")
    with pytest.raises(InputError, match="lone surrogate"):
        scorer.score(["the cat", "\ud800"])


def test_both_ways_of_reading_words_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train(tmp_path, min_count=10)
    plain = [line for line in LINES if "s>" not in line] * 300
    engine = score_lines(model, plain)
    monkeypatch.setattr(module, "MAX_ENGINE_LINE", 0)  # every line too long for the engine
    encoded = score_lines(model, plain)
    assert_allclose(engine.log_probs, encoded.log_probs, rtol=1e-6)
    assert_allclose(engine.spellings, encoded.spellings, rtol=1e-9)
    assert (engine.tokens == encoded.tokens).all()
    assert (engine.spellings < 0).any()


def test_a_text_of_several_lines_is_their_sum(tmp_path: Path) -> None:
    model = train(tmp_path, min_count=10)
    apart = score_lines(model, ["the cat", "", "a zebra", "now"])
    together = score_lines(model, ["the cat\r\n\na zebra", "now"])
    assert_allclose(together.log_probs, [apart.log_probs[:3].sum(), apart.log_probs[3]], rtol=1e-12)
    assert together.tokens.tolist() == [apart.tokens[:3].sum(), apart.tokens[3]]
    assert len(score_lines(model, []).log_probs) == 0


def test_bytes_are_those_of_evaluate(tmp_path: Path) -> None:
    for kind in ("word", "char"):
        model = train(tmp_path, tokenizer=kind, min_count=2)
        result = LineScorer(model).count_bytes(LINES, score_lines(model, LINES))
        assert result.tolist() == [model.evaluate(Corpus.from_lines([line])).bytes for line in LINES]


@pytest.mark.parametrize("characters", [1, 7, 40, 1 << 20])
def test_batches_are_the_lines(tmp_path: Path, characters: int) -> None:
    rng = random.Random(characters)
    kinds = ["", " ", "word", "é日", "x" * 50]
    expected = [rng.choice(kinds) for _ in range(500)]
    path = tmp_path / "text.txt"
    for end, last in (("\n", "\n"), ("\r\n", ""), ("\r", "\r")):
        path.write_bytes((end.join([*expected, "end"]) + last).encode())
        batches = list(read_batches(Corpus.of(path), characters))
        assert [line for batch in batches for line in batch] == [*expected, "end"]
        assert all(batches)
    path.write_bytes(b"")
    assert list(read_batches(Corpus.of(path))) == []


def test_a_long_line_is_read_in_time_that_grows_with_it(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab " * 1_000_000 + "\nend\n")
    assert [len(line) for batch in read_batches(Corpus.of(path), 10) for line in batch] == [3_000_000, 3]


def test_a_stream_is_read_in_one_piece(tmp_path: Path) -> None:
    corpus = Corpus.from_lines(["one", "two"])
    line, stream = train(tmp_path), train(tmp_path, context="stream")
    assert list(read_batches_for([line, stream], corpus)) == [["one", "two"]]
    assert list(read_batches_for([stream], Corpus.from_lines([]))) == []
    first, second = english().splitlines()[:2]
    together, alone = score_lines(stream, [first, second]).log_probs[1], score_lines(stream, [second]).log_probs[0]
    assert together > alone  # the second goes on from the first, as in the training text
    assert np.ptp(score_lines(line, ["the cat", "the cat"]).log_probs) == 0
