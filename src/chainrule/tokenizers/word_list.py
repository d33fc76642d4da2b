"""A vocabulary that is given: the words of a file, one a line.

Lives here: reading the list. Not here: the tokenizer made of it (train.py).
"""

from dataclasses import replace
from pathlib import Path

from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import BOS, EOS, TokenizerConfig
from chainrule.tokenizers.punctuation import joined_forms
from chainrule.tokenizers.tokenizer import normalizer, split_words

UNK = "<unk>"
"""The usual name of the unknown word, no word of a list whatever the name it goes by here."""


def given_words(config: TokenizerConfig) -> tuple[list[str], TokenizerConfig]:
    """The words of the file `config.vocab` in its order, and the config to save, which keeps the file's name alone.

    Where punctuation is split, a mark of the list is known with and without joiners. Blank lines, words that came
    before, and the names of control symbols and of the unknown word are passed over.
    """
    assert config.vocab is not None, "there is no list to read"
    corpus = Corpus.of(Path(config.vocab), expects_lines=False)
    if len(corpus.files) != 1:
        raise InputError(f"{config.vocab} holds {len(corpus.files)} files; give one, with one word a line")
    lower = normalizer(config)
    words: dict[str, None] = {}
    for number, line in enumerate(corpus, start=1):
        found = split_words(line)
        if len(found) > 1:
            raise InputError(f"{corpus.name}, line {number}: '{line[:40]}' is {len(found)} words; write one a line")
        words.update((word if lower is None else lower.normalize_str(word), None) for word in found)
    if config.splits_punctuation:
        words = {form: None for word in words for form in joined_forms(word)}
    for name in (UNK, config.unk, BOS, EOS):
        words.pop(name, None)
    if not words:
        raise InputError(f"{corpus.name} holds no words; give a file with one word a line")
    return list(words), replace(config, vocab=Path(config.vocab).name)
