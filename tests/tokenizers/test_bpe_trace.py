from itertools import pairwise

import pytest

from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.bpe_trace import trace_merges
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.train import train

# The example of Sennrich et al. (2016), figure 1: low 5, lowest 2, newer 6, wider 3.
LINES = ["low"] * 5 + ["lowest"] * 2 + ["newer"] * 6 + ["wider"] * 3


def test_bpe_merges_of_the_paper_example() -> None:
    corpus = Corpus.from_lines(LINES)
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
    corpus = Corpus.from_lines(LINES)
    with pytest.raises(ConfigError, match="this one is word"):
        list(trace_merges(corpus, train(corpus, TokenizerConfig())))
