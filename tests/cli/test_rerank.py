"""`chainrule rerank`: what is written, said and refused."""

from pathlib import Path

import pytest

from cli.command import QUIET, done, refused, trained, write

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


def test_the_chosen_are_a_table(model: Path, files: tuple[Path, Path]) -> None:
    found = done("rerank", model, files[0], "--weights", "acoustic=1,toy=1")
    rows = [line.split("\t") for line in found.out.splitlines()]
    assert rows[0] == ["utt", "hypothesis", "rank", "score"]
    # rice, docks and lave are unknown, which costs more than the one nat that they sound better by
    assert [row[:3] for row in rows[1:]] == [
        ["a", "cats chase mice", "2"],
        ["b", "i love dogs", "2"],
        ["c", "i love cats", "1"],
    ]
    assert "acoustic=1,toy=1,words=0" in found.err
    by_sound = done("rerank", model, "-", "--weights", "acoustic=1", stdin=NBEST)
    assert [line.split("\t")[2] for line in by_sound.out.splitlines()[1:]] == ["1", "1", "1"]


def test_without_weights_all_scores_count_alike(model: Path, files: tuple[Path, Path]) -> None:
    found = done("rerank", model, files[0])
    assert "weight 1" in found.err
    assert "acoustic=1,toy=1,words=0" in found.err


def test_json_has_the_rates_and_the_interval(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "chosen.tsv"
    words = ("--weights", "acoustic=1,toy=1", "--reference", files[1], "--bootstrap", 50, "--out", out, "--json")
    found = done("rerank", model, files[0], *words).json()
    assert found["schema_version"] == 1
    assert (found["utterances"], found["hypotheses"], found["words"]) == (3, 6, 9)
    assert found["weights"] == {"acoustic": 1, "toy": 1, "words": 0}
    # the first of the lists: rice and docks wrong, 2 of 9 words
    assert found["word_error_rate"] == {"first": pytest.approx(200 / 9), "reranked": 0, "oracle": 0}
    assert found["difference"]["reranked_minus_first"] == pytest.approx(-200 / 9)
    assert found["difference"]["low"] <= -200 / 9 <= found["difference"]["high"] <= 0
    assert found["difference"]["samples"] == 50
    assert [(row["utterance"], row["rank"], row["errors"]) for row in found["chosen"]] == [
        ("a", 2, 0),
        ("b", 2, 0),
        ("c", 1, 0),
    ]
    assert out.read_text().splitlines()[1].startswith("a\tcats chase mice\t2\t")


@pytest.mark.parametrize("tuning", ["expected", "exact"])
def test_weights_are_tuned_on_another_list(
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
    found = done("rerank", model, files[0], *words, "--reference", files[1], "--out", tmp_path / "chosen.tsv")
    assert "reranked             0.00 %" in found.out
    assert "first of the list   22.22 %" in found.out
    assert "warning" not in found.err
    assert "3 utterances of" in done("rerank", model, files[0], "--tune", files[0], "--reference", files[1]).err


def test_cross_validation_gives_weights_for_each_part(model: Path, files: tuple[Path, Path]) -> None:
    words = ("--cross-validate", 3, "--reference", files[1], "--json")
    found = done("rerank", model, files[0], *words).json()
    assert len(found["cross_validation"]) == 3
    assert done("rerank", model, files[0], *words).json() == found
    assert found["weights"].keys() == {"acoustic", "toy", "words"}


def test_two_models_have_two_names(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    text = write(tmp_path / "other.txt", "cats chase rice\n")
    other = trained(tmp_path / "other", text, "--order", 1, *QUIET)
    found = done("rerank", model, files[0], "--model", other, "--weights", "other=1", "--lengths", "").out
    assert found.splitlines()[1].split("\t")[1] == "cats chase rice"
    assert "given twice" in refused(2, "rerank", model, files[0], "--model", model)


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [
        (2, ["--weights", "acoustic=1", "--cross-validate", "2"], "one place"),
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
def test_what_cannot_be_done_is_said(
    status: int, words: list[str], message: str, model: Path, files: tuple[Path, Path]
) -> None:
    assert message in refused(status, "rerank", model, files[0], *words)


def test_standard_output_holds_one_thing(model: Path, files: tuple[Path, Path]) -> None:
    words = ("rerank", model, files[0], "--weights", "acoustic=1")
    assert done(*words, "--out", "-", "--json").json()["utterances"] == 3
    assert done(*words, "--out", "-").out == done(*words).out


def test_bad_lists_name_file_and_line(model: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    broken = write(tmp_path / "broken.tsv", NBEST + "c\t-12\n")
    assert "broken.tsv, line 8 has 2 cells" in refused(3, "rerank", model, broken)
    assert "line 1 names no column" in refused(3, "rerank", model, files[0], "--reference", files[0])
    fewer = write(tmp_path / "fewer.tsv", "utt\treference\na\tcats\n")
    assert "2 of 3 utterances" in refused(3, "rerank", model, files[0], "--reference", fewer)
    mistyped = write(tmp_path / "mistyped.tsv", NBEST.replace("b\t-11", "b\tn/a"))
    assert "mistyped.tsv, line 5: acoustic is 'n/a'" in refused(3, "rerank", model, mistyped)
    assert done("rerank", model, mistyped, "--scores", "").out.count("\n") == 4
