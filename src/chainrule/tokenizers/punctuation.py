"""Splitting punctuation from words, reversibly, and the decision whether a text needs it.

The splitting itself is done by the compiled core (cpp/text/punctuation.hpp says by which rules).
"""

import dataclasses
import re
import unicodedata
from collections import Counter
from typing import Any, Final

from chainrule import native
from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import JOINER, TokenizerConfig

SAMPLE_BYTES: Final = 1 << 20
PRETOKENISED: Final = re.compile(r"""[.,;:!?"()]+|``|''|'(?:s|re|ve|ll|d|m|S)|n't|-LRB-|-RRB-|@[-,.]@""")
"""A token that stands between blanks only where a program split the text."""
ATTACHED: Final = re.compile(r"""[^ \t]+[.,;:!?"]|[("][^ \t]+""")
"""A word with a punctuation mark attached, as in text that no program split."""

INITIALS: Final = re.compile(r"(?:[^\W\d_]\.)+")
"""Single letters with a period each, as in U.S."""


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


def split_without_joiners(text: str) -> bytes:
    """The words and punctuation marks of several lines as UTF-8, one blank apart; the text cannot be restored."""
    words: bytes = _core().split_without_joiners(text)
    return words


def join(tokens: str) -> str:
    """The text of tokens that are one blank apart: the inverse of `split`.

    >>> join('He said ￭, "￭ go ￭! ￭"')
    'He said, "go!"'
    """
    return str(_core().join_punctuation(tokens))


def without_joiners(token: str) -> str:
    """A token as a reader knows it: of a punctuation mark, an ideograph or 's only the characters of the text.

    >>> without_joiners("\uffed,"), without_joiners("don't")
    (',', "don't")
    """
    return join(token) if JOINER in token and any(joins(token)) else token


def joins(token: str) -> tuple[bool, bool]:
    """Whether a token is joined to the one before it, and to the one behind it."""
    left, right = _core().joins(token)
    return bool(left), bool(right)


def is_mark(token: str) -> bool:
    """Whether a token is a punctuation mark, an ideograph or 's, all of which may carry joiners.

    >>> is_mark(","), is_mark("\uffed's"), is_mark("don't")
    (True, True, False)
    """
    return any(joins(token)) or joins(JOINER + token)[0]


def is_opening(mark: str) -> bool:
    """Whether a mark without a joiner behind it opens a bracket or quotation: what follows has no blank before it.

    A straight quotation mark opens one where it is not joined to the token before it.

    >>> is_opening("("), is_opening("\uffed("), is_opening('"'), is_opening('\uffed"'), is_opening(")")
    (True, True, True, False, False)
    """
    first = mark.removeprefix(JOINER)[:1]
    return unicodedata.category(first or " ") in ("Ps", "Pi") or mark[:1] in ('"', "'", "`")


def resolve_kind(corpus: Corpus, config: TokenizerConfig) -> TokenizerConfig:
    """Choose `whitespace` in place of `word` for a text that looks pre-tokenised."""
    if config.kind != "word" or not looks_pretokenised(corpus, config.unk):
        return config
    return dataclasses.replace(config, kind="whitespace")


def describe_choice(requested: object, kind: str) -> str:
    """Say which of `word` and `whitespace` the text led to; an empty string where `word` was not requested.

    >>> describe_choice("word", "word")
    'tokenizer: word (punctuation is split from words)'
    """
    if requested != "word":
        return ""
    if kind == "word":
        return "tokenizer: word (punctuation is split from words)"
    return "tokenizer: whitespace (the text looks pre-tokenised: its punctuation stands between blanks)"


def looks_pretokenised(corpus: Corpus, placeholder: str) -> bool:
    """Whether most punctuation of the first megabyte stands between blanks, as in Penn Treebank or WikiText.

    The period of an abbreviation is part of its word in a pre-tokenised text, too, and counts for neither.
    """
    inside: Counter[str] = Counter()  # words that another one follows on their line
    last: Counter[str] = Counter()
    size = 0
    for fragment in corpus.fragments():
        *words, end = fragment.text.replace("\t", " ").rstrip(" ").split(" ")
        inside.update(words)
        last[end] += 1
        size += len(fragment.text.encode(errors="replace")) + 1
        if size >= SAMPLE_BYTES:
            break
    counts = inside + last
    apart = sum(n for word, n in counts.items() if word == placeholder or PRETOKENISED.fullmatch(word))
    attached = 0
    for word, n in counts.items():
        if word != placeholder and ATTACHED.fullmatch(word) and not PRETOKENISED.fullmatch(word):
            attached += last[word] if _is_abbreviation(word, counts) else n
    return apart > attached


def _is_abbreviation(word: str, counts: Counter[str]) -> bool:
    """Whether a word ends with a period that is its own: S., U.S., or one it has more often than not (Mr.).

    At the end of a line, the period may still be that of a sentence.
    """
    if INITIALS.fullmatch(word):
        return True
    stem = word.removesuffix(".")
    return stem != word and not ATTACHED.fullmatch(stem) and counts[word] > max(1, counts[stem])


def joined_forms(word: str) -> list[str]:
    """The names of a word of a list: of a punctuation mark, an ideograph or 's also those with joiners.

    >>> joined_forms("the"), joined_forms(","), joined_forms("'s")
    (['the'], [',', '￭,', ',￭', '￭,￭'], ["'s", "￭'s"])
    """
    if re.fullmatch("['\u2019][sS]", word):
        return [word, JOINER + word]
    is_mark = split(word, "") == word and joins(JOINER + word)[0]
    return [word, JOINER + word, word + JOINER, JOINER + word + JOINER] if is_mark else [word]


def _core() -> Any:
    return native.require("the word tokenizer needs")


def _checked(text: str) -> str:
    """Refuse a lone surrogate: bytes on the command line that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{text[:40]!a} is no text: it holds what is not UTF-8; mend it") from error
    return text
