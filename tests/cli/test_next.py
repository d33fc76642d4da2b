"""`chainrule next`: the next-token distribution."""

from pathlib import Path

import pytest

from cli.command import run_error, run_ok, trained, write


def test_next_worked_example(closed: Path) -> None:
    document = run_ok("next", closed, "i love", "--json").json()
    assert document.keys() == {"schema_version", "context", "next"}
    assert (document["schema_version"], document["context"]) == (1, "i love")
    # (i love, cats) and (i love, dogs) once each of two: (1 + 1)/(2 + 7); the other five 1/9.
    tokens = [entry["token"] for entry in document["next"]]
    assert tokens[:2] == ["cats", "dogs"]
    assert set(tokens) == {"i", "love", "cats", "dogs", "chase", "mice", "</s>"}
    assert [entry["probability"] for entry in document["next"]] == pytest.approx(
        [2 / 9] * 2 + [1 / 9] * 5, rel=1e-6
    )


@pytest.mark.parametrize("context", ["", "i love", "never seen", "<s>"])
def test_next_sums_to_one(model: Path, context: str) -> None:
    entries = run_ok("next", model, context, "--top", 1000, "--json").json()["next"]
    assert sum(entry["probability"] for entry in entries) == pytest.approx(1, abs=1e-6)
    assert "<s>" not in [entry["token"] for entry in entries]
    assert sorted(entries, key=lambda entry: -entry["probability"]) == entries


def test_literal_start_symbol_is_a_word(mle: Path) -> None:
    # At the start: i 2/3, cats 1/3. After an unknown word, maximum likelihood falls back to the unigrams.
    assert run_ok("next", mle, "", "--json").json()["next"][0]["token"] == "i"
    assert len(run_ok("next", mle, "<s>", "--json").json()["next"]) > 2


def test_next_prints_text(closed: Path) -> None:
    assert run_ok("next", closed, "i love", "--top", 1).out == "0.222222\tcats\n"


def test_next_wrong_usage(closed: Path, tmp_path: Path) -> None:
    assert "top is 0; choose a whole number of at least 1" in run_error(2, "next", closed, "i", "--top", 0)
    run_error(4, "next", tmp_path / "nowhere", "i")
    assert "not UTF-8" in run_error(3, "next", closed, "a\udcff")


def test_next_shows_unknown_words(toy_text: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    run_ok("train", "ngram", toy_text, "--order", 1, "--smoothing", "laplace", "--min-count", 2, "--out", model)
    # i, love and cats twice each, 3 words once, </s> three times: (3 + 1) / (12 + 5) for <unk>
    assert f"{4 / 17:.6f}\t<unk> (an unknown word)\n" in run_ok("next", model, "i").out
    entries = {entry["token"]: entry for entry in run_ok("next", model, "i", "--json").json()["next"]}
    assert entries["<unk>"] == {"token": "<unk>", "probability": pytest.approx(4 / 17), "is_unknown": True}
    assert entries["cats"]["is_unknown"] is False


def test_next_prints_punctuation_without_joiners(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "she said, no\nhe said, no\n")
    model = trained(tmp_path / "model", text, "--order", 2, "--smoothing", "mle")
    assert run_ok("next", model, "he said", "--top", 1).out == "1.000000\t,\n"
    assert run_ok("next", model, "he said", "--top", 1, "--json").json()["next"][0]["token"] == "\uffed,"
