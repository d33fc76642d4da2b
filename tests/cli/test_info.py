"""`chainrule info`: what a model says of itself is so."""

import hashlib
from pathlib import Path

import pytest

from cli.command import TOY, digests, done, refused, write

TINY = ("--hidden", 4, "--epochs", 1, "--clip", 0, "--device", "cpu")
TAGGED = "John I-PER\nlives O\nin O\nNew I-LOC\nYork I-LOC\n. O\n\nthe O\ndog O\nbarks O\n\n" * 4


def test_json(laplace: Path, toy_text: Path) -> None:
    found = done("info", laplace, "--json").json()
    assert found["schema_version"] == 1
    assert (found["model"], found["family"], found["context"]) == (str(laplace), "ngram", "line")
    assert found["vocab_size"] == 9  # six words, <unk>, <s>, </s>
    assert found["config"]["order"] == 3
    assert found["tokenizer"]["kind"] == "word"
    assert found["training_text"] == str(toy_text)
    assert found["training_text_sha256"] == hashlib.sha256(TOY.encode()).hexdigest()
    assert found["command"].startswith("chainrule train ngram ")
    assert found["seed"] == 0
    assert found["metrics"]["train_tokens"] == 12
    assert {name: entry["sha256"] for name, entry in found["files"].items()} == digests(laplace)
    for name, entry in found["files"].items():
        assert hashlib.sha256((laplace / name).read_bytes()).hexdigest() == entry["sha256"]
        assert (laplace / name).stat().st_size == entry["size"]
    assert found["size_bytes"] == sum(entry["size"] for entry in found["files"].values())


def test_as_text(laplace: Path) -> None:
    shown = done("info", laplace).out
    assert digests(laplace)["model.ngram"] in shown
    assert "laplace" in shown
    assert "{" not in shown


def facts(model: Path) -> dict[str, str]:
    """Names and values; the longest name decides where all the values begin."""
    lines = done("info", model).out.splitlines()
    lines = lines[: lines.index("files")]
    width = next(line.index(str(model)) for line in lines)
    assert all(line[width - 2 : width].isspace() and not line[width].isspace() for line in lines if line[width:])
    return {line[:width].rstrip(): line[width:] for line in lines}


def test_a_classifier(tmp_path: Path) -> None:
    names = [f"l{i}" for i in range(9)]
    table = write(tmp_path / "t.tsv", "".join(f"{name}\ttext of {name}\n" * 2 for name in names))
    done("classify", "train", "ngram", table, "--valid", table, "--out", tmp_path / "m")
    found = done("info", tmp_path / "m", "--json").json()
    assert found["labels"] == dict.fromkeys(names, 2)
    assert 0.5 <= found["temperature"] <= 20
    assert found["vocab_size"] == 11 + 3  # text, of and nine names; <unk>, <s> and </s>
    shown = facts(tmp_path / "m")  # valid_calibration_error_before is longer than the column used to be
    assert shown["labels"] == f"9: {', '.join(f'{name} (2)' for name in names[:8])}, …"
    assert float(shown["temperature"]) == found["temperature"]
    assert float(shown["  valid_calibration_error_before"]) == found["metrics"]["valid_calibration_error_before"]


def test_a_tagger(tmp_path: Path) -> None:
    done("tag", "train", "lstm", write(tmp_path / "t", TAGGED), "--out", tmp_path / "m", "--characters", 0, *TINY)
    found = done("info", tmp_path / "m", "--json").json()
    assert sorted(found["tags"]) == ["B-LOC", "E-LOC", "O", "S-PER"]
    assert (found["scheme"], found["learnt_scheme"]) == ("iob1", "bioes")
    shown = facts(tmp_path / "m")
    assert shown["tags"] == "4: O, B-LOC, E-LOC, S-PER"  # the most frequent first, by name among equals
    assert (shown["scheme"], shown["learnt_scheme"]) == ("iob1", "bioes")


@pytest.mark.parametrize("is_separate", [False, True])
def test_a_translator(tmp_path: Path, is_separate: bool) -> None:
    pairs = write(tmp_path / "p.tsv", "ein mann\ta man walks\nein hund\ta dog\n" * 4)
    more = ("--separate",) if is_separate else ()
    given = ("--tokenizer", "word", "--out", tmp_path / "m", *TINY)
    done("translate", "train", "gru", pairs, *given, *more)
    found = done("info", tmp_path / "m", "--json").json()
    sizes = {name: value for name, value in found.items() if name.endswith("vocab_size")}
    # ein, mann, hund; a, man, walks, dog; <unk>, <s> and </s> with each table
    assert sizes == ({"source_vocab_size": 6, "target_vocab_size": 7} if is_separate else {"vocab_size": 10})
    kinds = {name: value["kind"] for name, value in found.items() if name.endswith("tokenizer")}
    assert kinds == {name.replace("vocab_size", "tokenizer"): "word" for name in sizes}
    assert facts(tmp_path / "m")["task"] == "translate"


def test_no_model(tmp_path: Path, toy_text: Path) -> None:
    refused(4, "info", tmp_path / "nowhere")
    refused(3, "info", tmp_path)
    refused(3, "info", toy_text)
    done("tokenizer", "train", toy_text, "--tokenizer", "word", "--out", tmp_path / "t")
    assert "holds a tokenizer, not a model" in refused(3, "info", tmp_path / "t")
