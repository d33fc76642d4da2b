"""`chainrule info`: description of a model."""

import hashlib
from pathlib import Path

import pytest

from cli.command import TOY, digests, run_error, run_ok, write

TINY = ("--hidden", 4, "--epochs", 1, "--clip", 0, "--device", "cpu")
TAGGED = "John I-PER\nlives O\nin O\nNew I-LOC\nYork I-LOC\n. O\n\nthe O\ndog O\nbarks O\n\n" * 4


def test_info_json(laplace: Path, toy_text: Path) -> None:
    document = run_ok("info", laplace, "--json").json()
    assert document["schema_version"] == 1
    assert (document["model"], document["family"], document["context"]) == (str(laplace), "ngram", "line")
    assert document["vocab_size"] == 9  # six words, <unk>, <s>, </s>
    assert document["config"]["order"] == 3
    assert document["tokenizer"]["kind"] == "word"
    assert document["training_text"] == str(toy_text)
    assert document["training_text_sha256"] == hashlib.sha256(TOY.encode()).hexdigest()
    assert document["command"].startswith("chainrule train ngram ")
    assert document["seed"] == 0
    assert document["metrics"]["train_tokens"] == 12
    assert {name: entry["sha256"] for name, entry in document["files"].items()} == digests(laplace)
    for name, entry in document["files"].items():
        assert hashlib.sha256((laplace / name).read_bytes()).hexdigest() == entry["sha256"]
        assert (laplace / name).stat().st_size == entry["size"]
    assert document["size_bytes"] == sum(entry["size"] for entry in document["files"].values())


def test_info_text(laplace: Path) -> None:
    output = run_ok("info", laplace).out
    assert digests(laplace)["model.ngram"] in output
    assert "laplace" in output
    assert "{" not in output


def facts(model: Path) -> dict[str, str]:
    """Names and values; all values begin in the column set by the longest name."""
    lines = run_ok("info", model).out.splitlines()
    lines = lines[: lines.index("files")]
    width = next(line.index(str(model)) for line in lines)
    assert all(line[width - 2 : width].isspace() and not line[width].isspace() for line in lines if line[width:])
    return {line[:width].rstrip(): line[width:] for line in lines}


def test_info_of_a_classifier(tmp_path: Path) -> None:
    names = [f"l{i}" for i in range(9)]
    table = write(tmp_path / "t.tsv", "".join(f"{name}\ttext of {name}\n" * 2 for name in names))
    run_ok("classify", "train", "ngram", table, "--valid", table, "--out", tmp_path / "m")
    document = run_ok("info", tmp_path / "m", "--json").json()
    assert document["labels"] == dict.fromkeys(names, 2)
    assert 0.5 <= document["temperature"] <= 20
    assert document["vocab_size"] == 11 + 3  # text, of and nine names; <unk>, <s> and </s>
    printed_facts = facts(tmp_path / "m")  # valid_calibration_error_before is longer than a fixed column
    assert printed_facts["labels"] == f"9: {', '.join(f'{name} (2)' for name in names[:8])}, …"
    assert float(printed_facts["temperature"]) == document["temperature"]
    assert (
        float(printed_facts["  valid_calibration_error_before"])
        == document["metrics"]["valid_calibration_error_before"]
    )


def test_info_of_a_tagger(tmp_path: Path) -> None:
    run_ok("tag", "train", "lstm", write(tmp_path / "t", TAGGED), "--out", tmp_path / "m", "--characters", 0, *TINY)
    document = run_ok("info", tmp_path / "m", "--json").json()
    assert sorted(document["tags"]) == ["B-LOC", "E-LOC", "O", "S-PER"]
    assert (document["scheme"], document["learnt_scheme"]) == ("iob1", "bioes")
    printed_facts = facts(tmp_path / "m")
    assert printed_facts["tags"] == "4: O, B-LOC, E-LOC, S-PER"  # most frequent first, ties by name
    assert (printed_facts["scheme"], printed_facts["learnt_scheme"]) == ("iob1", "bioes")


@pytest.mark.parametrize("is_separate", [False, True])
def test_info_of_a_translator(tmp_path: Path, is_separate: bool) -> None:
    pairs = write(tmp_path / "p.tsv", "ein mann\ta man walks\nein hund\ta dog\n" * 4)
    more = ("--separate",) if is_separate else ()
    arguments = ("--tokenizer", "word", "--out", tmp_path / "m", *TINY)
    run_ok("translate", "train", "gru", pairs, *arguments, *more)
    document = run_ok("info", tmp_path / "m", "--json").json()
    sizes = {name: value for name, value in document.items() if name.endswith("vocab_size")}
    # ein, mann, hund; a, man, walks, dog; <unk>, <s> and </s> in each vocabulary
    assert sizes == ({"source_vocab_size": 6, "target_vocab_size": 7} if is_separate else {"vocab_size": 10})
    kinds = {name: value["kind"] for name, value in document.items() if name.endswith("tokenizer")}
    assert kinds == {name.replace("vocab_size", "tokenizer"): "word" for name in sizes}
    assert facts(tmp_path / "m")["task"] == "translate"


def test_info_without_a_model(tmp_path: Path, toy_text: Path) -> None:
    run_error(4, "info", tmp_path / "nowhere")
    run_error(3, "info", tmp_path)
    run_error(3, "info", toy_text)
    run_ok("tokenizer", "train", toy_text, "--tokenizer", "word", "--out", tmp_path / "t")
    assert "contains a tokenizer, not a model" in run_error(3, "info", tmp_path / "t")
