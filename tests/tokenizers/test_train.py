"""Tokenizer training is deterministic, and `lowercase` applies to the unknown word."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.train import trace_merges, train

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


# The example of Sennrich et al. (2016), figure 1: low 5, lowest 2, newer 6, wider 3.
WORDS = ["low"] * 5 + ["lowest"] * 2 + ["newer"] * 6 + ["wider"] * 3


def test_bpe_merges_of_the_paper_example() -> None:
    corpus = Corpus.from_lines(WORDS)
    merges = list(trace_merges(corpus, train(corpus, TokenizerConfig(kind="bpe", vocab_size=260))))
    # "er" occurs in newer and wider: 9. Then "lo" (7), "lo" + "w" (7), then n + e, e + w or w + er, 6 each.
    assert (merges[0].pair, merges[0].count, merges[0].symbol) == (("e", "r"), 9, "er")
    assert (merges[1].pair, merges[1].count, merges[1].symbol) == (("l", "o"), 7, "lo")
    assert (merges[2].pair, merges[2].count, merges[2].symbol) == (("lo", "w"), 7, "low")
    assert merges[3].count == 6
    assert [m.vocab_size for m in merges] == [257, 258, 259, 260]


def test_trace_merges_ends_with_the_trained_vocabulary() -> None:
    corpus = Corpus.from_lines(["the cat sat on the mat"] * 3 + ["that hat"])
    tokenizer = train(corpus, TokenizerConfig(kind="bpe", vocab_size=275))
    merges = list(trace_merges(corpus, tokenizer))
    assert all(first.count >= second.count for first, second in pairwise(merges))
    assert all(m.symbol == "".join(m.pair) for m in merges)
    assert merges[-1].vocab_size == tokenizer.vocab_size - 2


def test_trace_merges_requires_a_bpe_tokenizer() -> None:
    corpus = Corpus.from_lines(WORDS)
    with pytest.raises(ConfigError, match="this one is word"):
        list(trace_merges(corpus, train(corpus, TokenizerConfig())))
