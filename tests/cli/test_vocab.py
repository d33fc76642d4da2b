"""`--vocab` and `--entropy-prune` of the training commands."""

import json
from pathlib import Path

import pytest

from cli.command import QUIET, run_error, run_ok, trained, write


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write(tmp_path / "words.txt", "mice\nlove\n\nzebras\nlove\n<s>\n")


def test_train_with_a_word_list(tmp_path: Path, toy_text: Path, words: Path) -> None:
    model = trained(tmp_path / "m", toy_text, "--vocab", words, "--order", 2, *QUIET)
    # Three words of the list, <unk>, <s> and </s>.
    facts = run_ok("info", model, "--json").json()
    assert facts["vocab_size"] == 6
    assert facts["tokenizer"]["vocab"] == "words.txt"
    ids = run_ok("tokenizer", "encode", model, stdin="zebras love mice not cats\n").out
    assert ids == "3 2 1 0 0\n"
    assert run_ok("score", model, "--json", stdin="love zebras\n").json()["oov"] == 0


def test_tokenizer_of_a_word_list_needs_no_text(tmp_path: Path, toy_text: Path, words: Path) -> None:
    outcome = run_ok("tokenizer", "train", "--vocab", words, "--out", tmp_path / "t")
    assert outcome.err == f"saved {tmp_path / 't'}: 6 ids, <s> and </s> among them\n"
    words.unlink()
    model = trained(tmp_path / "m", toy_text, "--tokenizer", tmp_path / "t", "--order", 2, *QUIET)
    assert run_ok("info", model, "--json").json()["vocab_size"] == 6


def test_invalid_word_lists_are_rejected(tmp_path: Path, toy_text: Path, words: Path) -> None:
    train = ("train", "ngram", toy_text, "--out", tmp_path / "m")
    assert "nowhere.txt" in run_error(4, *train, "--vocab", tmp_path / "nowhere.txt")
    empty = write(tmp_path / "empty.txt", "")
    assert "empty.txt contains no words" in run_error(3, *train, "--vocab", empty)
    split = write(tmp_path / "split.txt", "one\ntwo words\n")
    assert "split.txt, line 2" in run_error(3, *train, "--vocab", split)
    assert "vocab fixes the vocabulary" in run_error(2, *train, "--vocab", words, "--min-count", 2)
    assert "char tokenizer" in run_error(2, *train, "--vocab", words, "--tokenizer", "char")
    assert "does not know 'i'" in run_error(2, *train, "--vocab", words, "--closed")
    assert "no text was given" in run_error(2, "tokenizer", "train", "--out", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_config_from_before_word_lists_loads(tmp_path: Path, toy_text: Path) -> None:
    from chainrule.config import build_config
    from chainrule.tokenizers.config import TokenizerConfig

    model = trained(tmp_path / "m", toy_text, "--order", 2, *QUIET)
    saved = json.loads((model / "config.json").read_bytes())["tokenizer"]
    del saved["vocab"]
    assert build_config(TokenizerConfig, saved, "tokenizer") == TokenizerConfig()


def test_train_with_entropy_pruning(tmp_path: Path, english_text: Path) -> None:
    train = ("--order", 3, *QUIET)
    sizes = [
        run_ok("info", trained(tmp_path / name, english_text, *train, *more), "--json").json()["parameters"]
        for name, more in (
            ("whole", ()),
            ("some", ("--entropy-prune", "1e-4")),
            ("set", ("--set", "entropy_prune=1e-4")),
            ("more", ("--entropy-prune", "1e-2")),
        )
    ]
    assert sizes[0] > sizes[1] == sizes[2] > sizes[3]
    refuse = ("train", "ngram", english_text, "--out", tmp_path / "m", "--entropy-prune")
    assert "entropy_prune is -1" in run_error(2, *refuse, "-1")
    assert "stupid backoff gives unnormalized scores" in run_error(
        2, *refuse, "1e-8", "--smoothing", "stupid-backoff"
    )
    network = ("train", "lstm", english_text, "--out", tmp_path / "m", "--entropy-prune", "1e-8")
    assert "a setting of ngram" in run_error(2, *network)
