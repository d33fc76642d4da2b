"""`chainrule rerank`: output, messages and errors."""

from pathlib import Path

import pytest

from cli.command import QUIET, run_error, run_ok, trained, write

NBEST = """\
utt\tacoustic\thypothesis
a\t-10\tcats chase rice
a\t-11\tcats chase mice
b\t-10\ti love docks
b\t-11\ti love dogs
c\t-10\ti love cats
c\t-11\ti lave cats
"""
REFERENCES = "utt\treference\na\tcats chase mice\nb\ti love dogs\nc\ti love cats\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rerank")
    text = write(folder / "toy.txt", "i love cats\ni love dogs\ncats chase mice\n")
    return trained(folder / "toy", text, "--order", 2, *QUIET)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "nbest.tsv", NBEST), write(tmp_path / "ref.tsv", REFERENCES)


def test_rerank_prints_a_table(model: Path, files: tuple[Path, Path]) -> None:
    result = run_ok("rerank", model, files[0], "--weights", "acoustic=1,toy=1")
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert rows[0] == ["utt", "hypothesis", "rank", "score"]
    # rice, docks and lave are unknown, which costs more than the one nat by which they sound better
    assert [row[:3] for row in rows[1:]] == [
        ["a", "cats chase mice", "2"],
        ["b", "i love dogs", "2"],
        ["c", "i love cats", "1"],
    ]
    assert "acoustic=1,toy=1,words=0" in result.err
    by_sound = run_ok("rerank", model, "-", "--weights", "acoustic=1", stdin=NBEST)
    assert [line.split("\t")[2] for line in by_sound.out.splitlines()[1:]] == ["1", "1", "1"]


def test_rerank_default_weights_are_one(model: Path, files: tuple[Path, Path]) -> None:
    result = run_ok("rerank", model, files[0])
    assert "weight 1" in result.err
    assert "acoustic=1,toy=1,words=0" in result.err


def test_rerank_json_has_error_rates_and_interval(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "chosen.tsv"
    words = ("--weights", "acoustic=1,toy=1", "--reference", files[1], "--bootstrap", 50, "--out", out, "--json")
    document = run_ok("rerank", model, files[0], *words).json()
    assert document["schema_version"] == 1
    assert (document["utterances"], document["hypotheses"], document["words"]) == (3, 6, 9)
    assert document["weights"] == {"acoustic": 1, "toy": 1, "words": 0}
    # the first of the lists: rice and docks are wrong, 2 of 9 words
    assert document["word_error_rate"] == {"first": pytest.approx(200 / 9), "reranked": 0, "oracle": 0}
    assert document["difference"]["reranked_minus_first"] == pytest.approx(-200 / 9)
    assert document["difference"]["low"] <= -200 / 9 <= document["difference"]["high"] <= 0
    assert document["difference"]["samples"] == 50
    assert [(row["utterance"], row["rank"], row["errors"]) for row in document["chosen"]] == [
        ("a", 2, 0),
        ("b", 2, 0),
        ("c", 1, 0),
    ]
    assert out.read_text().splitlines()[1].startswith("a\tcats chase mice\t2\t")


@pytest.mark.parametrize("tuning", ["expected", "exact"])
def test_rerank_tunes_weights_on_another_list(
    tuning: str, model: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    other = write(
        tmp_path / "dev.tsv", "".join(f"dev-{line}" if "\t-1" in line else line for line in NBEST.splitlines(True))
    )
    spoken = write(
        tmp_path / "dev-ref.tsv",
        REFERENCES.replace("\na", "\ndev-a").replace("\nb", "\ndev-b").replace("\nc", "\ndev-c"),
    )
    words = ("--tune", other, "--tune-reference", spoken, "--tuning", tuning)
    result = run_ok("rerank", model, files[0], *words, "--reference", files[1], "--out", tmp_path / "chosen.tsv")
    assert "reranked             0.00 %" in result.out
    assert "first of the list   22.22 %" in result.out
    assert "warning" not in result.err
    assert "3 utterances of" in run_ok("rerank", model, files[0], "--tune", files[0], "--reference", files[1]).err


def test_rerank_cross_validation_has_weights_per_fold(model: Path, files: tuple[Path, Path]) -> None:
    words = ("--cross-validate", 3, "--reference", files[1], "--json")
    document = run_ok("rerank", model, files[0], *words).json()
    assert len(document["cross_validation"]) == 3
    assert run_ok("rerank", model, files[0], *words).json() == document
    assert document["weights"].keys() == {"acoustic", "toy", "words"}


def test_rerank_with_two_models(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    text = write(tmp_path / "other.txt", "cats chase rice\n")
    other = trained(tmp_path / "other", text, "--order", 1, *QUIET)
    result = run_ok("rerank", model, files[0], "--model", other, "--weights", "other=1", "--lengths", "").out
    assert result.splitlines()[1].split("\t")[1] == "cats chase rice"
    assert "given twice" in run_error(2, "rerank", model, files[0], "--model", model)


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [
        (2, ["--weights", "acoustic=1", "--cross-validate", "2"], "exclude each other"),
        (2, ["--cross-validate", "2"], "--reference"),
        (2, ["--tune", "dev.tsv"], "--tune-reference"),
        (2, ["--tune-reference", "ref.tsv"], "for --tune"),
        (2, ["--tuning", "best"], "choose one of expected, exact"),
        (2, ["--weights", "acoustic"], "NAME=NUMBER"),
        (2, ["--weights", "acoustic=nan"], "NAME=NUMBER"),
        (2, ["--weights", "sound=1"], "no score named 'sound'"),
        (2, ["--scores", "sound"], "no column of the name 'sound'"),
        (2, ["--text", "tokens"], "no column 'tokens'"),
        (4, ["--reference", "nowhere.tsv"], "nowhere.tsv"),
    ],
)
def test_rerank_rejects_invalid_arguments(
    status: int, words: list[str], message: str, model: Path, files: tuple[Path, Path]
) -> None:
    assert message in run_error(status, "rerank", model, files[0], *words)


def test_rerank_prints_either_table_or_json(model: Path, files: tuple[Path, Path]) -> None:
    words = ("rerank", model, files[0], "--weights", "acoustic=1")
    assert run_ok(*words, "--out", "-", "--json").json()["utterances"] == 3
    assert run_ok(*words, "--out", "-").out == run_ok(*words).out


def test_rerank_names_file_and_line_of_invalid_lists(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    broken = write(tmp_path / "broken.tsv", NBEST + "c\t-12\n")
    assert "broken.tsv, line 8 has 2 cells" in run_error(3, "rerank", model, broken)
    assert "line 1: no column" in run_error(3, "rerank", model, files[0], "--reference", files[0])
    fewer = write(tmp_path / "fewer.tsv", "utt\treference\na\tcats\n")
    assert "2 of 3 utterances" in run_error(3, "rerank", model, files[0], "--reference", fewer)
    mistyped = write(tmp_path / "mistyped.tsv", NBEST.replace("b\t-11", "b\tn/a"))
    assert "mistyped.tsv, line 5: acoustic is 'n/a'" in run_error(3, "rerank", model, mistyped)
    assert run_ok("rerank", model, mistyped, "--scores", "").out.count("\n") == 4
