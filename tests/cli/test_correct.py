"""`chainrule correct`: text, lines, candidates, channel file, errors."""

import json
from pathlib import Path

import pytest

from chainrule.applications.spelling.candidates import Candidates
from cli.command import QUIET, run_error, run_ok, trained, write
from cli.pipes import dialogue

LINES = "i read the letter from my friend\nmy friend read the letters\nthe letter is red\n" * 3
WRITTEN = "i read teh  letter\nmy freind is red\n\nthe letter is red\n"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("correct")
    return trained(folder / "model", write(folder / "text.txt", LINES), "--order", 3, *QUIET)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.tsv", "teh\tthe\nfreind\tfriend\nfeild\tfield\n")


def test_correct_prints_text(words: Path) -> None:
    out = run_ok("correct", words, stdin=WRITTEN).out
    assert out == "i read the  letter\nmy friend is red\n\nthe letter is red\n"


def test_correct_prints_changed_lines(words: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "written.txt", WRITTEN)
    out = run_ok("correct", words, file, "--lines").out
    assert out == "1\ti read teh  letter\ti read the  letter\n2\tmy freind is red\tmy friend is red\n"


def test_correct_prints_json(words: Path) -> None:
    first, second, empty, last = run_ok("correct", words, "--json", stdin=WRITTEN).json_lines()
    assert first.keys() == {"schema_version", "line", "text", "corrected", "score", "words"}
    assert (first["schema_version"], first["line"], first["corrected"]) == (1, 1, "i read the  letter")
    (word,) = second["words"]
    assert word == {"start": 3, "end": 9, "written": "freind", "corrected": "friend", "candidates": []}
    assert (empty["corrected"], empty["words"], last["words"]) == ("", [], [])


def test_correct_prints_candidates(words: Path) -> None:
    document = run_ok("correct", words, "--json", "--candidates", 3, stdin="i read teh letter\n").json()
    word = next(word for word in document["words"] if word["written"] == "teh")
    assert word["candidates"][0]["text"] == "the"
    assert len(word["candidates"]) <= 3
    assert 0.5 < word["candidates"][0]["probability"] <= 1
    output = run_ok("correct", words, "--candidates", 2, stdin="i read teh letter\n").out.splitlines()
    assert output[0] == "i read the letter"
    assert output[1].startswith("  teh -> the:  the ")


def test_correct_saves_and_loads_its_channel(words: Path, pairs: Path, tmp_path: Path) -> None:
    channel = tmp_path / "channel.json"
    learnt = run_ok("correct", words, "--pairs", pairs, "--channel", channel, "--json", stdin=WRITTEN)
    assert "3 pairs learned" in learnt.err
    assert json.loads(channel.read_text())["format"] == "chainrule channel"
    again = run_ok("correct", words, "--channel", channel, "--json", stdin=WRITTEN)
    assert again.out == learnt.out
    assert again.out != run_ok("correct", words, "--json", stdin=WRITTEN).out  # the scores differ


def test_correct_can_leave_known_words_alone(words: Path) -> None:
    written = "i red the letter\n"
    rate = ("--error-rate", 0.1)
    assert run_ok("correct", words, *rate, stdin=written).out == "i read the letter\n"
    assert run_ok("correct", words, *rate, "--no-real-words", stdin=written).out == written


def test_correct_rejects_invalid_arguments(words: Path, tmp_path: Path) -> None:
    assert "error-rate is 2.0" in run_error(2, "correct", words, "--error-rate", 2)
    assert "beam is 0" in run_error(2, "correct", words, "--beam", 0)
    assert "--pairs cannot be read from stdin" in run_error(2, "correct", words, "--pairs", "-")
    assert "does not exist" in run_error(4, "correct", words, "--channel", tmp_path / "none.json")
    bad = write(tmp_path / "bad.json", "{}")
    assert "is not a channel file" in run_error(3, "correct", words, "--channel", bad)
    lonely = write(tmp_path / "bad.tsv", "word\n")
    assert "line 1" in run_error(3, "correct", words, "--pairs", lonely)
    run_error(4, "correct", tmp_path / "nowhere")
    letters = tmp_path / "letters"
    trained(letters, write(tmp_path / "text.txt", LINES), "--tokenizer", "char", *QUIET)
    assert "needs a model of whole words" in run_error(2, "correct", letters)


def test_correct_answers_line_by_line(words: Path) -> None:
    with dialogue("correct", words) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in WRITTEN.splitlines()]
    assert answers == run_ok("correct", words, stdin=WRITTEN).out.splitlines()


def test_correct_leaves_a_huge_word_unchanged(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    far = Candidates._split_or_rewritten_words

    def recorded_distant_words(self: Candidates, word: str) -> list[str]:
        looked_up.append(len(word))
        return far(self, word)

    monkeypatch.setattr(Candidates, "_split_or_rewritten_words", recorded_distant_words)
    line = "teh " + "x" * 200_000 + " letter"
    assert run_ok("correct", words, stdin=line + "\n").out == line.replace("teh", "the") + "\n"
    assert looked_up == [3]
