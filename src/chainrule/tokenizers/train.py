"""Train a tokenizer on the training text.

Word and character vocabularies are built by counting; sub-word tokenizers are trained by the `tokenizers` library
on the bytes of the text, so that they can encode any text.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, trainers

from chainrule import system
from chainrule.errors import ConfigError, InputError
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus, WordLengthCheck
from chainrule.tokenizers.components import LONGEST_WORDPIECE_WORD, make_backend, make_normalizer
from chainrule.tokenizers.config import BOS, EOS, SUBWORD_SIZE, TokenizerConfig
from chainrule.tokenizers.encode import (
    UNLIMITED,
    CountingLimit,
    TextScan,
    count_words,
    has_long_lines,
    scan_text,
)
from chainrule.tokenizers.punctuation import joined_forms, resolve_kind, split
from chainrule.tokenizers.tokenizer import (
    CONTROLS,
    Tokenizer,
    WordTokenizer,
    byte_alphabet,
    decode_bytes,
    split_words,
    translate_panics,
)

UNK = "<unk>"
"""Usual name of the unknown word, which is skipped in word lists."""


def train(
    corpus: Corpus, config: TokenizerConfig, progress: Progress = silent, limit: CountingLimit = UNLIMITED
) -> Tokenizer:
    """Train the configured kind of tokenizer, or build it from the word list `config.vocab`.

    Words are counted within `limit`.
    """
    return _train_resolved(corpus, resolve_kind(corpus, lower_unk(config)), progress, limit=limit)


def train_and_scan(
    corpus: Corpus, config: TokenizerConfig, progress: Progress = silent
) -> tuple[Tokenizer, TextScan | None]:
    """Train a tokenizer as `train` does; also return the scan of the text if a word tokenizer read it once."""
    config = resolve_kind(corpus, lower_unk(config))
    scan = scan_text(corpus, config)
    return _train_resolved(corpus, config, progress, scan), scan


def _train_resolved(
    corpus: Corpus,
    config: TokenizerConfig,
    progress: Progress,
    scan: TextScan | None = None,
    limit: CountingLimit = UNLIMITED,
) -> Tokenizer:
    if config.vocab is not None:
        return from_words(*read_word_list(config))
    progress(f"training the {config.kind} tokenizer", 0, None)
    match config.kind:
        case "word" | "whitespace":
            excluded = [config.unk, BOS, EOS]
            if scan is not None:
                counted = scan.counted(excluded)
            else:
                counted = count_words(corpus, config, excluded, limit) or _count_words(
                    corpus, config, excluded, limit
                )
            return _train_word_level(counted, config, limit)
        case "char":
            backend = _train_char_level(_count_characters(corpus, config), config)
        case "byte":
            backend = make_backend(config, models.BPE(vocab=dict(byte_alphabet()), merges=[]))
        case "bpe":
            backend = _train(models.BPE(), corpus, config, trainers.BpeTrainer)
        case "unigram":
            backend = _train(models.Unigram(), corpus, config, trainers.UnigramTrainer)
        case "wordpiece":
            backend = _wordpiece(corpus, config)
    return Tokenizer.with_control_symbols(backend, config)


def from_counts(counts: dict[str, int], config: TokenizerConfig) -> Tokenizer:
    """Build a word or character tokenizer from the counts of a text, in vocabulary order; `counts` is changed."""
    if not config.is_word_level:
        return Tokenizer.with_control_symbols(_train_char_level(counts, config), config)
    return WordTokenizer.of_names([config.unk, *_select(counts, config)], config)


def lower_unk(config: TokenizerConfig) -> TokenizerConfig:
    """Lower-case the unknown word of the config if the text is lower-cased."""
    lower = make_normalizer(config)
    return config if lower is None else replace(config, unk=lower.normalize_str(config.unk))


def from_words(words: list[str], config: TokenizerConfig) -> Tokenizer:
    """Build a word tokenizer with this vocabulary, in this order after the unknown word."""
    return WordTokenizer.of_names([config.unk, *(word for word in words if word != config.unk)], config)


def read_word_list(config: TokenizerConfig) -> tuple[list[str], TokenizerConfig]:
    """Read the words of the file `config.vocab` in order; also return the config with only the name of the file.

    If punctuation is split, a punctuation mark is added with and without joiners. Blank lines, duplicates, control
    symbols and the unknown word are skipped.
    """
    assert config.vocab is not None, "no word list in the config"
    corpus = Corpus.of(Path(config.vocab), expects_lines=False)
    if len(corpus.files) != 1:
        raise InputError(f"{config.vocab} contains {len(corpus.files)} files; give one, with one word per line")
    lower = make_normalizer(config)
    words: dict[str, None] = {}
    for number, line in enumerate(corpus, start=1):
        line_words = split_words(line)
        if len(line_words) > 1:
            raise InputError(
                f"{corpus.name}, line {number}: '{line[:40]}' is {len(line_words)} words; write one per line"
            )
        words.update((word if lower is None else lower.normalize_str(word), None) for word in line_words)
    if config.splits_punctuation:
        words = {form: None for word in words for form in joined_forms(word)}
    for name in (UNK, config.unk, BOS, EOS):
        words.pop(name, None)
    if not words:
        raise InputError(f"{corpus.name} contains no words; give a file with one word per line")
    return list(words), replace(config, vocab=Path(config.vocab).name)


def _train_word_level(counted: Any, config: TokenizerConfig, limit: CountingLimit) -> Tokenizer:
    """Select the vocabulary from the `CountedWords` of a text, excluding the unknown word and control symbols."""
    if config.closed and counted.excluded_count(0):
        raise _closed_error(config)
    if not counted.types and not any(map(counted.excluded_count, range(3))):
        raise _no_words_error()
    size = _vocabulary_size(counted.types, counted.types_from(config.min_count), config)
    limit.check(size)
    return WordTokenizer(counted.select(size, [config.unk], CONTROLS), config)


def _train_char_level(counts: dict[str, int], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Build a character vocabulary from counts sorted by decreasing count, then by code points."""
    vocabulary = {config.unk: 0} | {t: i for i, t in enumerate(_select(counts, config), start=1)}
    return make_backend(config, models.WordLevel(vocabulary, unk_token=config.unk))


def _select(counts: dict[str, int], config: TokenizerConfig) -> list[str]:
    """Select the vocabulary from counts sorted by decreasing count, then by code points; `counts` is changed."""
    if config.closed and config.unk in counts:
        raise _closed_error(config)
    if not counts:
        raise _no_words_error()
    for name in (config.unk, BOS, EOS):
        counts.pop(name, None)
    frequent = sum(count >= config.min_count for count in counts.values())
    return list(counts)[: _vocabulary_size(len(counts), frequent, config)]


def _vocabulary_size(types: int, frequent: int, config: TokenizerConfig) -> int:
    """Return the number of types to keep, of which `frequent` have the minimum count."""
    sizes = [frequent]
    if config.top_percent is not None:
        sizes.append(max(1, round(types * config.top_percent / 100)))
    if config.vocab_size is not None:
        sizes.append(config.vocab_size)
    return min(sizes)


def _closed_error(config: TokenizerConfig) -> ConfigError:
    return ConfigError(
        f"the text contains '{config.unk}', the unknown word; drop --closed or specify another with --unk"
    )


def _no_words_error() -> InputError:
    return InputError("the training text contains no words; give a text with at least one")


def _count_words(corpus: Corpus, config: TokenizerConfig, excluded: list[str], limit: CountingLimit) -> Any:
    """Count the words of any text as `CountedWords`."""
    counter = system.load_extension().VocabularyCounter(limit.memory, limit.folder)
    lower = make_normalizer(config)
    for text in _pieces(corpus, config):
        piece = text if lower is None else lower.normalize_str(text)
        counter.add(split(piece, config.unk) if config.splits_punctuation else piece)
    return counter.finish(excluded)


def count_lines(lines: bytes, config: TokenizerConfig, name: str) -> dict[str, int]:
    """Count the words or characters of lines in memory (UTF-8, LF after each); `name` is that of the text."""
    counts: dict[str, int]
    if config.is_word_level and not config.lowercase and not has_long_lines(lines):
        counts = system.load_extension().count_words_of_lines(lines, config.placeholder)
        return counts
    corpus = Corpus.from_lines(lines.decode().removesuffix("\n").split("\n"), title=name)
    if not config.is_word_level:
        return _count_characters(corpus, config)
    counts = _count_words(corpus, config, [], UNLIMITED).counts()
    return counts


def _count_characters(corpus: Corpus, config: TokenizerConfig) -> dict[str, int]:
    """Count the characters of the text, in vocabulary order."""
    counts = count_tokens(_pieces(corpus, config), config)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}


def count_tokens(texts: Iterable[str], config: TokenizerConfig) -> Counter[str]:
    """Count the characters of texts, or their words if the tokenizer is not one of characters."""
    counts: Counter[str] = Counter()
    lower = make_normalizer(config)
    for text in texts:
        piece = text if lower is None else lower.normalize_str(text)
        if config.kind != "char":
            counts.update(split_words(split(piece, config.unk) if config.splits_punctuation else piece))
        else:
            counts.update(piece)
    return counts


def _wordpiece(corpus: Corpus, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Train WordPiece on the bytes of each word; every byte is a piece, both at the start of and inside a word."""
    trained = _train(models.WordPiece(unk_token=config.unk), corpus, config, trainers.WordPieceTrainer)
    vocabulary = trained.get_vocab()
    pieces = [name for name in sorted(vocabulary, key=lambda name: vocabulary[name]) if name not in (BOS, EOS)]
    alphabet = [prefix + byte for prefix in ("", "##") for byte in sorted(byte_alphabet())]
    names = list(dict.fromkeys([config.unk, *alphabet, *pieces]))  # pieces are sorted by decreasing frequency
    model = models.WordPiece(
        {name: i for i, name in enumerate(names[: config.vocab_size or SUBWORD_SIZE])},
        unk_token=config.unk,
        max_input_chars_per_word=LONGEST_WORDPIECE_WORD,
    )
    return make_backend(config, model)


def _train(model: models.Model, corpus: Corpus, config: TokenizerConfig, trainer: Any) -> tokenizers.Tokenizer:
    size = config.vocab_size or SUBWORD_SIZE
    # Every byte, for WordPiece both at the start of and inside a word, and <unk>.
    least = 513 if config.kind == "wordpiece" else 256
    if size < least:
        raise ConfigError(
            f"vocab-size is {size}; a {config.kind} tokenizer needs {least} symbols for the bytes alone"
        )
    settings: dict[str, Any] = {"special_tokens": []} | ({"unk_token": None} if config.kind == "unigram" else {})
    if config.kind == "wordpiece":
        # The library numbers the word-internal bytes in hash-table order, which differs between processes, and
        # breaks ties between merges by these numbers. As special tokens they are numbered in this order.
        settings["special_tokens"] = ["##" + byte for byte in sorted(byte_alphabet())]
    instance = trainer(vocab_size=size, initial_alphabet=sorted(byte_alphabet()), show_progress=False, **settings)
    backend = make_backend(config, model)
    with translate_panics():
        backend.train_from_iterator(_pieces(corpus, config), instance)
    return backend


def _pieces(corpus: Corpus, config: TokenizerConfig) -> Iterator[str]:
    fragments = corpus.fragments()
    remedy = "insert blanks, or train with --tokenizer char, byte or bpe"
    words = WordLengthCheck(fragments, remedy) if config.collapses_blanks else None
    for fragment in fragments:
        if words:
            words.check(fragment.text + "\n" * fragment.ends_line)
        yield fragment.text


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of BPE training."""

    pair: tuple[str, str]
    count: int  # occurrences of the pair before the merge
    symbol: str
    vocab_size: int  # symbols after the merge, without control symbols


def trace_merges(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[Merge]:
    """Replay the merges of a BPE tokenizer on its training text (Sennrich et al. 2016)."""
    if tokenizer.config.kind != "bpe":
        raise ConfigError(f"--trace follows the merges of a bpe tokenizer; this one is {tokenizer.config.kind}")
    words, counts = _byte_words(corpus, tokenizer)
    where: dict[tuple[str, str], set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        for pair in pairwise(word):
            where[pair].add(i)
    size = 256
    for left, right in json.loads(tokenizer.to_json())["model"]["merges"]:
        count = 0
        for i in sorted(where.pop((left, right), ())):
            words[i], merges = _merge(words[i], left, right)
            count += merges * counts[i]
            for pair in pairwise(words[i]):
                where[pair].add(i)
        size += 1
        yield Merge((decode_bytes(left), decode_bytes(right)), count, decode_bytes(left + right), size)


def _byte_words(corpus: Corpus, tokenizer: Tokenizer) -> tuple[list[list[str]], list[int]]:
    """Return the distinct pre-tokens of the text as byte symbols, and their counts."""
    counter: Counter[str] = Counter()
    pre_tokenizer = tokenizer.backend.pre_tokenizer
    assert pre_tokenizer is not None
    for fragment in corpus.fragments():
        text = tokenizer.canonicalize(fragment.text)
        counter.update(piece for piece, _ in pre_tokenizer.pre_tokenize_str(text))
    return [list(word) for word in counter], list(counter.values())


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
