"""Read a vocabulary from a word list: a file with one word per line."""

from dataclasses import replace
from pathlib import Path

from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import BOS, EOS, TokenizerConfig
from chainrule.tokenizers.punctuation import joined_forms
from chainrule.tokenizers.tokenizer import build_normalizer, split_words

UNK = "<unk>"
"""Usual name of the unknown word, which is skipped in word lists."""


def read_word_list(config: TokenizerConfig) -> tuple[list[str], TokenizerConfig]:
    """Read the words of the file `config.vocab` in order; also return the config with only the name of the file.

    If punctuation is split, a punctuation mark is added with and without joiners. Blank lines, duplicates, control
    symbols and the unknown word are skipped.
    """
    assert config.vocab is not None, "no word list in the config"
    corpus = Corpus.of(Path(config.vocab), expects_lines=False)
    if len(corpus.files) != 1:
        raise InputError(f"{config.vocab} holds {len(corpus.files)} files; give one, with one word a line")
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
        raise InputError(f"{corpus.name} holds no words; give a file with one word a line")
    return list(words), replace(config, vocab=Path(config.vocab).name)
