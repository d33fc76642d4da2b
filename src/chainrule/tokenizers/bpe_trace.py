"""Trace of byte-pair encoding: the pair, its count and the new symbol of every merge (Sennrich et al. 2016)."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.tokenizer import Tokenizer, decode_bytes

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of BPE training."""

    pair: tuple[str, str]
    count: int  # occurrences of the pair before the merge
    symbol: str
    vocab_size: int  # symbols after the merge, without control symbols


def trace_merges(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[Merge]:
    """Replay the merges of a BPE tokenizer on its training text."""
    if tokenizer.config.kind != "bpe":
        raise ConfigError(f"--trace follows the merges of a bpe tokenizer; this one is {tokenizer.config.kind}")
    words, counts = _words(corpus, tokenizer)
    where: dict[Pair, set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            where[pair].add(i)
    size = 256
    for left, right in _merges(tokenizer):
        count = 0
        for i in sorted(where.pop((left, right), ())):
            words[i], merges = _merge(words[i], left, right)
            count += merges * counts[i]
            for pair in pairwise(words[i]):
                where[pair].add(i)
        size += 1
        yield Merge((decode_bytes(left), decode_bytes(right)), count, decode_bytes(left + right), size)


def _words(corpus: Corpus, tokenizer: Tokenizer) -> tuple[list[list[str]], list[int]]:
    """Return the distinct pre-tokens of the text as byte symbols, and their counts."""
    counter: Counter[str] = Counter()
    pre_tokenizer = tokenizer.backend.pre_tokenizer
    assert pre_tokenizer is not None
    for fragment in corpus.fragments():
        text = tokenizer.canonicalize(fragment.text)
        counter.update(piece for piece, _ in pre_tokenizer.pre_tokenize_str(text))
    return [list(word) for word in counter], list(counter.values())


def _merges(tokenizer: Tokenizer) -> list[Pair]:
    return [(left, right) for left, right in json.loads(tokenizer.to_json())["model"]["merges"]]


def _merge(word: list[str], left: str, right: str) -> tuple[list[str], int]:
    """Merge every pair (left, right) of a word, from left to right; return the symbols and the number of merges."""
    joined: list[str] = []
    i = merges = 0
    while i < len(word):
        if word[i] == left and i + 1 < len(word) and word[i + 1] == right:
            joined.append(left + right)
            i, merges = i + 2, merges + 1
        else:
            joined.append(word[i])
            i += 1
    return joined, merges
