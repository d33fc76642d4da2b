"""`chainrule encode`: shards of token ids, and training on them."""

from pathlib import Path

import numpy as np
import pytest

from cli.command import QUIET, digests, run_error, run_ok

pytestmark = pytest.mark.native


def test_encode_and_train(english_text: Path, tmp_path: Path) -> None:
    outcome = run_ok("encode", english_text, "--tokenizer", "word", "--out", tmp_path / "shards")
    tokens = len(english_text.read_text().split()) + 60
    assert outcome.err.startswith(f"saved {tmp_path / 'shards'}: {tokens} tokens of 60 lines in 1 files\n")
    options = ("--order", 3, *QUIET)
    trained = run_ok("train", "ngram", tmp_path / "shards", *options, "--out", tmp_path / "a")
    assert "tokenizer: word" in trained.err
    run_ok("train", "ngram", english_text, "--tokenizer", tmp_path / "shards", *options, "--out", tmp_path / "b")
    names = ("model.ngram", "speller.safetensors", "tokenizer.json", "config.json")
    assert [digests(tmp_path / "a")[name] for name in names] == [digests(tmp_path / "b")[name] for name in names]


def test_workers_and_shard_size(english_text: Path, tmp_path: Path) -> None:
    options = ("--tokenizer", "char", "--tokens-per-shard", 500)
    run_ok("encode", english_text, *options, "--out", tmp_path / "one")
    outcome = run_ok("encode", english_text, *options, "--workers", 2, "--json", "--out", tmp_path / "two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    document = outcome.json()
    files = sorted((tmp_path / "two").glob("ids-*.bin"))
    assert document["files"] == len(files) > 2
    assert sum(np.fromfile(file, "<u2").size for file in files) == document["tokens"]


def test_wrong_usage(english_text: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    assert "tokenizer is 'sylable'" in run_error(2, "encode", english_text, "--tokenizer", "sylable", "--out", out)
    run_ok("encode", english_text, "--tokenizer", "char", "--out", out)
    assert "--force" in run_error(2, "encode", english_text, "--tokenizer", "byte", "--out", out)
    assert "token ids, not text" in run_error(2, "compare", out, "--out", tmp_path / "compare")
    assert "chainrule train ngram" in run_error(3, "info", out)
