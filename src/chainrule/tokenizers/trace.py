"""Byte-pair encoding followed merge by merge: which pair, how often, what it became (Sennrich et al. 2016)."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.tokenizer import Tokenizer, readable

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """One step of training."""

    pair: tuple[str, str]
    count: int  # how often the pair stood in the text at that moment
    symbol: str
    vocab_size: int  # symbols after the step, control symbols not counted


def trace(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[Merge]:
    """Replay a BPE tokenizer's merges over the text it was trained on."""
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
            words[i], found = _merge(words[i], left, right)
            count += found * counts[i]
            for pair in pairwise(words[i]):
                where[pair].add(i)
        size += 1
        yield Merge((readable(left), readable(right)), count, readable(left + right), size)


def _words(corpus: Corpus, tokenizer: Tokenizer) -> tuple[list[list[str]], list[int]]:
    """The different pre-tokens of the text as byte symbols, and how often each stands there."""
    counter: Counter[str] = Counter()
    pre_tokenizer = tokenizer.backend.pre_tokenizer
    assert pre_tokenizer is not None
    for fragment in corpus.fragments():
        seen = tokenizer.see(fragment.text)
        counter.update(piece for piece, _ in pre_tokenizer.pre_tokenize_str(seen))
    return [list(word) for word in counter], list(counter.values())


def _merges(tokenizer: Tokenizer) -> list[Pair]:
    return [(left, right) for left, right in json.loads(tokenizer.to_json())["model"]["merges"]]


def _merge(word: list[str], left: str, right: str) -> tuple[list[str], int]:
    """Join each (left, right), from the left; also how often."""
    joined: list[str] = []
    i = found = 0
    while i < len(word):
        if word[i] == left and i + 1 < len(word) and word[i + 1] == right:
            joined.append(left + right)
            i, found = i + 2, found + 1
        else:
            joined.append(word[i])
            i += 1
    return joined, found
