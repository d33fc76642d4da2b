"""`chainrule info`: what a model says of itself is so."""

import hashlib
from pathlib import Path

from cli.command import TOY, digests, done, refused


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


def test_no_model(tmp_path: Path, toy_text: Path) -> None:
    refused(4, "info", tmp_path / "nowhere")
    refused(3, "info", tmp_path)
    refused(3, "info", toy_text)
    done("tokenizer", "train", toy_text, "--tokenizer", "word", "--out", tmp_path / "t")
    assert "holds a tokenizer, not a model" in refused(3, "info", tmp_path / "t")
