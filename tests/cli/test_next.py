"""`chainrule next`: the distribution itself."""

from pathlib import Path

import pytest

from cli.command import done, refused, trained, write


def test_the_worked_example(closed: Path) -> None:
    found = done("next", closed, "i love", "--json").json()
    assert found.keys() == {"schema_version", "context", "next"}
    assert (found["schema_version"], found["context"]) == (1, "i love")
    # (i love, cats) and (i love, dogs) once in two: (1 + 1)/(2 + 7); the other five 1/9.
    tokens = [entry["token"] for entry in found["next"]]
    assert tokens[:2] == ["cats", "dogs"]
    assert set(tokens) == {"i", "love", "cats", "dogs", "chase", "mice", "</s>"}
    assert [entry["probability"] for entry in found["next"]] == pytest.approx([2 / 9] * 2 + [1 / 9] * 5, rel=1e-6)


@pytest.mark.parametrize("context", ["", "i love", "never seen", "<s>"])
def test_it_sums_to_one(model: Path, context: str) -> None:
    found = done("next", model, context, "--top", 1000, "--json").json()["next"]
    assert sum(entry["probability"] for entry in found) == pytest.approx(1, abs=1e-6)
    assert "<s>" not in [entry["token"] for entry in found]
    assert sorted(found, key=lambda entry: -entry["probability"]) == found


def test_the_literal_start_symbol_is_no_start(mle: Path) -> None:
    # After nothing: i 2/3, cats 1/3. After an unknown word, maximum likelihood falls to the unigrams.
    assert done("next", mle, "", "--json").json()["next"][0]["token"] == "i"
    assert len(done("next", mle, "<s>", "--json").json()["next"]) > 2


def test_as_text(closed: Path) -> None:
    assert done("next", closed, "i love", "--top", 1).out == "0.222222\tcats\n"


def test_wrong_usage(closed: Path, tmp_path: Path) -> None:
    assert "top is 0; choose a whole number of at least 1" in refused(2, "next", closed, "i", "--top", 0)
    refused(4, "next", tmp_path / "nowhere", "i")
    assert "not UTF-8" in refused(3, "next", closed, "a\udcff")


def test_an_unknown_word_is_shown_as_one(toy_text: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    done("train", "ngram", toy_text, "--order", 1, "--smoothing", "laplace", "--min-count", 2, "--out", model)
    # i, love and cats twice each, 3 words once, </s> three times: (3 + 1) / (12 + 5) for <unk>
    assert f"{4 / 17:.6f}\t<unk> (an unknown word)\n" in done("next", model, "i").out
    found = {entry["token"]: entry for entry in done("next", model, "i", "--json").json()["next"]}
    assert found["<unk>"] == {"token": "<unk>", "probability": pytest.approx(4 / 17), "is_unknown": True}
    assert found["cats"]["is_unknown"] is False


def test_punctuation_is_printed_without_joiners(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "she said, no\nhe said, no\n")
    model = trained(tmp_path / "model", text, "--order", 2, "--smoothing", "mle")
    assert done("next", model, "he said", "--top", 1).out == "1.000000\t,\n"
    assert done("next", model, "he said", "--top", 1, "--json").json()["next"][0]["token"] == "\uffed,"
