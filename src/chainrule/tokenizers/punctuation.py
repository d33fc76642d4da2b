"""Splitting punctuation from words, reversibly, and the decision whether a text needs it.

The splitting itself is done by the compiled core (cpp/punctuation.hpp says by which rules).
"""

import dataclasses
import re
from typing import Any, Final

from chainrule import native
from chainrule.errors import ChainruleError, InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig

SAMPLE_BYTES: Final = 1 << 20
PRETOKENISED: Final = re.compile(r"""[.,;:!?"()]+|``|''|'(?:s|re|ve|ll|d|m|S)|n't|-LRB-|-RRB-|@[-,.]@""")
"""A token that stands between blanks only where a program split the text."""
ATTACHED: Final = re.compile(r"""[^ \t]+[.,;:!?"]|[("][^ \t]+""")
"""A word with a punctuation mark attached, as in text that no program split."""


def split(text: str, placeholder: str) -> str:
    """The tokens of a line, one blank apart, with a joiner where the line has no blank between two.

    >>> split('He said, "go!"', "<unk>")
    'He said ￭, "￭ go ￭! ￭"'
    """
    return str(_core().split_punctuation(_checked(text), placeholder))


def split_spans(text: str, placeholder: str) -> list[tuple[str, int, int]]:
    """The tokens of a line, and where in it each begins and ends."""
    spans: list[tuple[str, int, int]] = _core().split_punctuation_spans(_checked(text), placeholder)
    return spans


def join(tokens: str) -> str:
    """The text of tokens that are one blank apart: the inverse of `split`.

    >>> join('He said ￭, "￭ go ￭! ￭"')
    'He said, "go!"'
    """
    return str(_core().join_punctuation(tokens))


def joins(token: str) -> tuple[bool, bool]:
    """Whether a token is joined to the one before it, and to the one behind it."""
    left, right = _core().joins(token)
    return bool(left), bool(right)


def resolve_kind(corpus: Corpus, config: TokenizerConfig) -> TokenizerConfig:
    """Choose `whitespace` in place of `word` for a text that looks pre-tokenised."""
    if config.kind != "word" or not looks_pretokenised(corpus, config.unk):
        return config
    return dataclasses.replace(config, kind="whitespace")


def looks_pretokenised(corpus: Corpus, placeholder: str) -> bool:
    """Whether most punctuation of the first megabyte stands between blanks, as in Penn Treebank or WikiText."""
    apart = attached = size = 0
    for fragment in corpus.fragments():
        for word in re.split("[ \t]+", fragment.text):
            if word == placeholder or PRETOKENISED.fullmatch(word):
                apart += 1
            elif ATTACHED.fullmatch(word):
                attached += 1
        size += len(fragment.text.encode(errors="replace")) + 1
        if size >= SAMPLE_BYTES:
            break
    return apart > attached


def _core() -> Any:
    core = native.load()
    if core is None:
        raise ChainruleError(f"the word tokenizer needs the compiled part of chainrule: {native.HOW_TO_BUILD}")
    return core


def _checked(text: str) -> str:
    """Refuse a lone surrogate: bytes on the command line that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{text[:40]!a} is no text: it holds what is not UTF-8; mend it") from error
    return text
