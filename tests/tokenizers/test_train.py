"""Tokenizer training is deterministic, and `lowercase` applies to the unknown word."""

import subprocess
import sys
from pathlib import Path

import pytest

from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.train import train

PROGRAM = """
import hashlib, sys
from chainrule.text.corpus import Corpus
from chainrule.text.splits import default_text
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.train import train

for kind in sys.argv[1:]:
    lines = default_text()[:80]
    tokenizer = train(Corpus.from_lines(lines), TokenizerConfig(kind=kind, vocab_size=900))
    print(kind, hashlib.sha256(tokenizer.to_json().encode()).hexdigest())
"""
KINDS = ["bpe", "wordpiece"]


def test_training_is_deterministic_across_processes() -> None:
    """Three processes, because hash order differs between processes."""
    command = [sys.executable, "-c", PROGRAM, *KINDS]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert outputs[0].count("\n") == len(KINDS)
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]


def test_lowercase_applies_to_the_unknown_word() -> None:
    config = TokenizerConfig(unk="UNK", lowercase=True)
    tokenizer = train(Corpus.from_lines(["The cat saw UNK", "the dog saw unk"]), config)
    assert tokenizer.config.unk == "unk"
    assert tokenizer.unk == tokenizer.vocab["unk"]
    assert "UNK" not in tokenizer.vocab
    encoded = encode(Corpus.from_lines(["the UNK saw Unk"]), tokenizer).ids.tolist()
    assert encoded.count(tokenizer.unk) == 2


def test_lowercase_applies_to_the_unknown_word_of_a_word_list(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("The\nUNK\ncat\n", encoding="utf-8")
    config = TokenizerConfig(unk="UNK", lowercase=True, vocab=str(tmp_path / "words.txt"))
    tokenizer = train(Corpus.from_lines(["the cat"]), config)
    assert tokenizer.vocab.keys() == {"unk", "the", "cat"}
    assert tokenizer.unk == tokenizer.vocab["unk"]


def test_unknown_word_lower_cased_to_a_control_symbol_is_rejected() -> None:
    with pytest.raises(ConfigError, match="unk is '<s>'"):
        train(Corpus.from_lines(["a b"]), TokenizerConfig(unk="<S>", lowercase=True))
