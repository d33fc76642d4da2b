"""`chainrule identify`: labels of lines, and accuracy."""

from pathlib import Path

import pytest

from cli.command import QUIET, run_error, run_ok, trained, write
from cli.pipes import dialogue

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def languages(shelf: Path) -> tuple[Path, Path]:
    english = write(shelf / "en.txt", "the cat sees the dog\nthe dog is in the house\nwhere is the cat\n" * 3)
    german = write(shelf / "de.txt", "die katze sieht den hund\nder hund ist im haus\nwo ist die katze\n" * 3)
    options = ("--tokenizer", "char", "--order", 4, *QUIET)
    return trained(shelf / "en", english, *options), trained(shelf / "de", german, *options)


def test_identify_lines(languages: tuple[Path, Path], tmp_path: Path) -> None:
    text = write(tmp_path / "lines.txt", "where is the house\nwo ist das haus\n")
    rows = [line.split("\t") for line in run_ok("identify", *languages, text).out.splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("en", "where is the house"), ("de", "wo ist das haus")]
    assert all(0.5 < float(row[1]) <= 1 for row in rows)
    en, de = languages
    named = run_ok("identify", f"english={en}", f"german={de}", "--json", stdin="wo ist das haus\n\n").json_lines()
    assert [item["text"] for item in named] == ["wo ist das haus", ""]
    assert named[0]["label"] == "german"
    assert named[0].keys() == {"schema_version", "text", "label", "probabilities"}
    for item in named:
        assert list(item["probabilities"]) == ["english", "german"]
        assert sum(item["probabilities"].values()) == pytest.approx(1)
    assert run_ok("identify", *languages, "--prior", "1e-300,1", stdin="where is the house\n").out.startswith("de")


def test_identify_figures_worked_by_hand(languages: tuple[Path, Path], tmp_path: Path) -> None:
    rows = "en\tthe cat\nen\two ist\nde\tder hund\nde\tdie katze\nde\tim haus\n"  # the second is mislabelled
    text = write(tmp_path / "labelled.tsv", rows)
    document = run_ok("identify", *languages, text, "--labels", "--json").json()
    assert document["confusion"] == {"en": {"en": 1, "de": 1}, "de": {"en": 0, "de": 3}}
    assert (document["lines"], document["accuracy"]) == (5, 0.8)
    # F1: en 2·1/(1+2) = 2/3, de 2·3/(4+3) = 6/7.
    assert document["macro_f1"] == pytest.approx((2 / 3 + 6 / 7) / 2)
    output = run_ok("identify", *languages, text, "--labels").out
    assert "accuracy  0.8000" in output
    assert output.splitlines()[-2:] == ["  en    1    1", "  de    0    3"]


def test_identify_wrong_usage(languages: tuple[Path, Path], tmp_path: Path) -> None:
    en, de = languages
    assert "two or more" in run_error(2, "identify", en, stdin="a\n")
    assert "two models are called 'en'" in run_error(2, "identify", en, en, stdin="a\n")
    assert "not a number" in run_error(2, "identify", en, de, "--prior", "a,b", stdin="a\n")
    assert "not above 0" in run_error(2, "identify", en, de, "--prior", "0,1", stdin="a\n")
    run_error(4, "identify", en, de, tmp_path / "nowhere")
    run_error(4, "identify", en, f"de={tmp_path / 'nowhere'}", stdin="a\n")
    wrong = write(tmp_path / "wrong.tsv", "fr\tle chat\n")
    assert "'fr' is not one of the labels en, de" in run_error(3, "identify", en, de, wrong, "--labels")


def test_identify_answers_line_by_line(languages: tuple[Path, Path]) -> None:
    lines = ["the cat is in the house", "", "der hund sieht die katze"]
    expected = run_ok("identify", *languages, "-", stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("identify", *languages, "-") as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == expected
