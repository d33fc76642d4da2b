"""Training a tokenizer: the same text gives the same bytes."""

import subprocess
import sys

PROGRAM = """
import hashlib, sys
from chainrule.text.corpus import Corpus
from chainrule.text.default import default_text
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.train import train

for kind in sys.argv[1:]:
    lines = default_text()[:500]
    tokenizer = train(Corpus.from_lines(lines), TokenizerConfig(kind=kind, vocab_size=900))
    print(kind, hashlib.sha256(tokenizer.to_json().encode()).hexdigest())
"""
KINDS = ["bpe", "wordpiece"]


def test_training_again_gives_the_same_file() -> None:
    """Three processes, since hash tables are in another order in each."""
    command = [sys.executable, "-c", PROGRAM, *KINDS]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert outputs[0].count("\n") == len(KINDS)
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]
