"""Make a tokenizer from the training text alone.

Words and characters get a vocabulary by counting; sub-words are trained by the `tokenizers` library over the
text's bytes, so that no text is unknown to them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from chainrule.errors import ConfigError, InputError
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus, WordLengthCheck
from chainrule.tokenizers.config import BOS, EOS, JOINER, SUBWORD_SIZE, TokenizerConfig
from chainrule.tokenizers.plain import count_words
from chainrule.tokenizers.punctuation import resolve_kind, split
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet, no_panic, normalizer, split_words
from chainrule.tokenizers.word_list import given_words

LONGEST_PIECED_WORD = 200
"""Bytes; WordPiece's time grows with the cube of a word's length, longer words are unknown."""


def train(corpus: Corpus, config: TokenizerConfig, progress: Progress = silent) -> Tokenizer:
    """Train the configured kind of tokenizer, or make the one of a given list of words."""
    config = resolve_kind(corpus, lower_unk(config))
    if config.vocab is not None:
        return from_words(*given_words(config))
    progress(f"training the {config.kind} tokenizer", 0, None)
    match config.kind:
        case "word" | "whitespace" | "char":
            backend = _counted(corpus, config)
        case "byte":
            backend = _byte_level(models.BPE(vocab=_byte_vocabulary(), merges=[]), use_regex=False)
        case "bpe":
            backend = _byte_level(models.BPE())
            _train(backend, corpus, config, trainers.BpeTrainer)
        case "unigram":
            backend = _byte_level(models.Unigram())
            _train(backend, corpus, config, trainers.UnigramTrainer)
        case "wordpiece":
            backend = _wordpiece(corpus, config)
    lower = normalizer(config)
    if lower is not None:
        backend.normalizer = lower
    return Tokenizer.sealed(backend, config)


def lower_unk(config: TokenizerConfig) -> TokenizerConfig:
    """The config with its unknown word in lower case where the text is lower-cased: `UNK` becomes `unk` there."""
    lower = normalizer(config)
    return config if lower is None else replace(config, unk=lower.normalize_str(config.unk))


def from_words(words: list[str], config: TokenizerConfig) -> Tokenizer:
    """A word tokenizer of exactly these words, in this order after the unknown word."""
    backend = _word_level(words, config)
    lower = normalizer(config)
    if lower is not None:
        backend.normalizer = lower
    return Tokenizer.sealed(backend, config)


def _counted(corpus: Corpus, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Word or character vocabulary: the most frequent types first, in code point order among equals."""
    counts = count_words(corpus, config) or _count(corpus, config)
    if config.closed and config.unk in counts:
        raise ConfigError(
            f"the text contains '{config.unk}', the unknown word; drop --closed or name another with --unk"
        )
    if not counts:
        raise InputError("the training text holds no words; give a text with at least one")
    for name in (config.unk, BOS, EOS):
        counts.pop(name, None)
    types = [name for name, times in counts.items() if times >= config.min_count]
    if config.top_percent is not None:
        types = types[: max(1, round(len(counts) * config.top_percent / 100))]
    return _word_level(types[: config.vocab_size], config)


def _count(corpus: Corpus, config: TokenizerConfig) -> dict[str, int]:
    """How often each word or character stands in the text, in the order of the vocabulary."""
    counts: Counter[str] = Counter()
    for piece in _pieces(corpus, config):
        counts.update(_words(piece, config) if config.is_words else piece)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}


def _word_level(types: list[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    vocabulary = {config.unk: 0} | {t: i for i, t in enumerate(types, start=1)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=config.unk))
    if config.is_words:
        backend.pre_tokenizer = _at_blanks()
        if config.splits_punctuation:
            backend.decoder = _joined_decoder()
    else:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    return backend


def _words(piece: str, config: TokenizerConfig) -> list[str]:
    return split_words(split(piece, config.unk) if config.splits_punctuation else piece)


def _joined_decoder() -> decoders.Decoder:
    """What gives back the text in programs that know the `tokenizers` library alone."""
    return decoders.Sequence(
        [decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse(), decoders.Replace(JOINER + " ", "")]
    )


def _at_blanks() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex("[ \t]+"), "removed")


def _byte_vocabulary() -> dict[str, int]:
    return dict(byte_alphabet())


def _byte_level(model: models.Model, use_regex: bool = True) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    backend.decoder = decoders.ByteLevel()
    return backend


def _wordpiece(corpus: Corpus, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """WordPiece over the bytes of each word; every byte is a piece, alone and inside a word."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=config.unk))
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([_at_blanks(), bytes_of_words])
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token=config.unk))
    trained.pre_tokenizer = backend.pre_tokenizer
    _train(trained, corpus, config, trainers.WordPieceTrainer)
    vocabulary = trained.get_vocab()
    pieces = [name for name in sorted(vocabulary, key=lambda name: vocabulary[name]) if name not in (BOS, EOS)]
    alphabet = [prefix + byte for prefix in ("", "##") for byte in sorted(byte_alphabet())]
    names = list(dict.fromkeys([config.unk, *alphabet, *pieces]))  # the earlier a piece the more frequent it is
    backend.model = models.WordPiece(
        {name: i for i, name in enumerate(names[: config.vocab_size or SUBWORD_SIZE])},
        unk_token=config.unk,
        max_input_chars_per_word=LONGEST_PIECED_WORD,
    )
    # The pieces' decoder writes a blank before each word; as the blank's byte it survives the last step.
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix="##", cleanup=False),
            decoders.Replace(" ", "Ġ"),
            decoders.Fuse(),
            decoders.ByteLevel(),
        ]
    )
    return backend


def _train(backend: tokenizers.Tokenizer, corpus: Corpus, config: TokenizerConfig, trainer: Any) -> None:
    size = config.vocab_size or SUBWORD_SIZE
    least = (
        513 if config.kind == "wordpiece" else 256
    )  # each byte alone, with WordPiece also inside a word, and <unk>
    if size < least:
        raise ConfigError(
            f"vocab-size is {size}; a {config.kind} tokenizer needs {least} symbols for the bytes alone"
        )
    settings: dict[str, Any] = {"special_tokens": []} | ({"unk_token": None} if config.kind == "unigram" else {})
    if config.kind == "wordpiece":
        # The library numbers the bytes inside words in the order of a hash table, which differs between processes,
        # and breaks ties between merges by these numbers. Named here, they are numbered in this order.
        settings["special_tokens"] = ["##" + byte for byte in sorted(byte_alphabet())]
    made = trainer(vocab_size=size, initial_alphabet=sorted(byte_alphabet()), show_progress=False, **settings)
    with no_panic():
        backend.train_from_iterator(_pieces(corpus, config), made)


def _pieces(corpus: Corpus, config: TokenizerConfig) -> Iterator[str]:
    lower = normalizer(config)
    fragments = corpus.fragments()
    remedy = "put blanks in, or learn from it with --tokenizer char, byte or bpe"
    words = WordLengthCheck(fragments, remedy) if config.collapses_blanks else None
    for fragment in fragments:
        if words:
            words.check(fragment.text + "\n" * fragment.ends_line)
        yield fragment.text if lower is None else lower.normalize_str(fragment.text)
