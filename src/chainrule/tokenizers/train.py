"""Train a tokenizer on the training text.

Word and character vocabularies are built by counting; sub-word tokenizers are trained by the `tokenizers` library
on the bytes of the text, so that they can encode any text.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from chainrule.errors import ConfigError, InputError
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus, WordLengthCheck
from chainrule.tokenizers.config import BOS, EOS, JOINER, SUBWORD_SIZE, TokenizerConfig
from chainrule.tokenizers.encode import TextScan, count_words, scan_text
from chainrule.tokenizers.punctuation import joined_forms, resolve_kind, split
from chainrule.tokenizers.tokenizer import Tokenizer, build_normalizer, byte_alphabet, split_words, translate_panics

UNK = "<unk>"
"""Usual name of the unknown word, which is skipped in word lists."""
LONGEST_PIECED_WORD = 200
"""Bytes; the time of WordPiece is cubic in the length of a word, so longer words are unknown."""


def train(corpus: Corpus, config: TokenizerConfig, progress: Progress = silent) -> Tokenizer:
    """Train the configured kind of tokenizer, or build it from the word list `config.vocab`."""
    return _train_resolved(corpus, resolve_kind(corpus, lower_unk(config)), progress)


def train_and_scan(
    corpus: Corpus, config: TokenizerConfig, progress: Progress = silent
) -> tuple[Tokenizer, TextScan | None]:
    """Train a tokenizer as `train` does; also return the scan of the text if a word tokenizer read it once."""
    config = resolve_kind(corpus, lower_unk(config))
    scan = scan_text(corpus, config)
    return _train_resolved(corpus, config, progress, scan), scan


def _train_resolved(
    corpus: Corpus, config: TokenizerConfig, progress: Progress, scan: TextScan | None = None
) -> Tokenizer:
    if config.vocab is not None:
        return from_words(*read_word_list(config))
    progress(f"training the {config.kind} tokenizer", 0, None)
    match config.kind:
        case "word" | "whitespace" | "char":
            counts = count_words(corpus, config) if scan is None else scan.counts
            backend = _train_word_level(counts or _count(corpus, config), config)
        case "byte":
            backend = _byte_level(models.BPE(vocab=dict(byte_alphabet()), merges=[]), use_regex=False)
        case "bpe":
            backend = _byte_level(models.BPE())
            _train(backend, corpus, config, trainers.BpeTrainer)
        case "unigram":
            backend = _byte_level(models.Unigram())
            _train(backend, corpus, config, trainers.UnigramTrainer)
        case "wordpiece":
            backend = _wordpiece(corpus, config)
    return _finish(backend, config)


def _finish(backend: tokenizers.Tokenizer, config: TokenizerConfig) -> Tokenizer:
    """Add lower-casing, if configured, and the control symbols."""
    lower = build_normalizer(config)
    if lower is not None:
        backend.normalizer = lower
    return Tokenizer.with_control_symbols(backend, config)


def lower_unk(config: TokenizerConfig) -> TokenizerConfig:
    """Lower-case the unknown word of the config if the text is lower-cased."""
    lower = build_normalizer(config)
    return config if lower is None else replace(config, unk=lower.normalize_str(config.unk))


def from_words(words: list[str], config: TokenizerConfig) -> Tokenizer:
    """Build a word tokenizer with this vocabulary, in this order after the unknown word."""
    return _finish(_word_level(words, config), config)


def read_word_list(config: TokenizerConfig) -> tuple[list[str], TokenizerConfig]:
    """Read the words of the file `config.vocab` in order; also return the config with only the name of the file.

    If punctuation is split, a punctuation mark is added with and without joiners. Blank lines, duplicates, control
    symbols and the unknown word are skipped.
    """
    assert config.vocab is not None, "no word list in the config"
    corpus = Corpus.of(Path(config.vocab), expects_lines=False)
    if len(corpus.files) != 1:
        raise InputError(f"{config.vocab} contains {len(corpus.files)} files; give one, with one word per line")
    lower = build_normalizer(config)
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


def _train_word_level(counts: dict[str, int], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Build a word or character vocabulary from counts sorted by decreasing count, then by code points."""
    if config.closed and config.unk in counts:
        raise ConfigError(
            f"the text contains '{config.unk}', the unknown word; drop --closed or specify another with --unk"
        )
    if not counts:
        raise InputError("the training text contains no words; give a text with at least one")
    for name in (config.unk, BOS, EOS):
        counts.pop(name, None)
    types = [name for name, count in counts.items() if count >= config.min_count]
    if config.top_percent is not None:
        types = types[: max(1, round(len(counts) * config.top_percent / 100))]
    return _word_level(types[: config.vocab_size], config)


def _count(corpus: Corpus, config: TokenizerConfig) -> dict[str, int]:
    """Count the words or characters of the text, in vocabulary order."""
    counts: Counter[str] = Counter()
    for piece in _pieces(corpus, config):
        counts.update(_words(piece, config) if config.is_word_level else piece)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}


def _word_level(types: list[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    vocabulary = {config.unk: 0} | {t: i for i, t in enumerate(types, start=1)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=config.unk))
    if config.is_word_level:
        backend.pre_tokenizer = _split_at_blanks()
        if config.splits_punctuation:
            backend.decoder = _joined_decoder()
    else:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
    return backend


def _words(piece: str, config: TokenizerConfig) -> list[str]:
    return split_words(split(piece, config.unk) if config.splits_punctuation else piece)


def _joined_decoder() -> decoders.Decoder:
    """Return the decoder that restores the text in programs that use the `tokenizers` library directly."""
    return decoders.Sequence(
        [decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse(), decoders.Replace(JOINER + " ", "")]
    )


def _split_at_blanks() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex("[ \t]+"), "removed")


def _byte_level(model: models.Model, use_regex: bool = True) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    backend.decoder = decoders.ByteLevel()
    return backend


def _wordpiece(corpus: Corpus, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Train WordPiece on the bytes of each word; every byte is a piece, at the start and inside of a word."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=config.unk))
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([_split_at_blanks(), bytes_of_words])
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token=config.unk))
    trained.pre_tokenizer = backend.pre_tokenizer
    _train(trained, corpus, config, trainers.WordPieceTrainer)
    vocabulary = trained.get_vocab()
    pieces = [name for name in sorted(vocabulary, key=lambda name: vocabulary[name]) if name not in (BOS, EOS)]
    alphabet = [prefix + byte for prefix in ("", "##") for byte in sorted(byte_alphabet())]
    names = list(dict.fromkeys([config.unk, *alphabet, *pieces]))  # pieces are sorted by decreasing frequency
    backend.model = models.WordPiece(
        {name: i for i, name in enumerate(names[: config.vocab_size or SUBWORD_SIZE])},
        unk_token=config.unk,
        max_input_chars_per_word=LONGEST_PIECED_WORD,
    )
    # The WordPiece decoder writes a blank before each word; as Ġ it survives the byte-level decoder.
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
    # Every byte, for WordPiece at the start and inside of a word, and <unk>.
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
    with translate_panics():
        backend.train_from_iterator(_pieces(corpus, config), instance)


def _pieces(corpus: Corpus, config: TokenizerConfig) -> Iterator[str]:
    lower = build_normalizer(config)
    fragments = corpus.fragments()
    remedy = "insert blanks, or train with --tokenizer char, byte or bpe"
    words = WordLengthCheck(fragments, remedy) if config.collapses_blanks else None
    for fragment in fragments:
        if words:
            words.check(fragment.text + "\n" * fragment.ends_line)
        yield fragment.text if lower is None else lower.normalize_str(fragment.text)
