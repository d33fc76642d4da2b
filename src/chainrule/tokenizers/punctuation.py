"""Reversible splitting of punctuation from words, and detection of pre-tokenized text.

The splitting rules are implemented in the compiled extension (cpp/text/punctuation.hpp).
"""

import dataclasses
import re
import unicodedata
from collections import Counter
from typing import Final

from chainrule import system
from chainrule.errors import InputError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import JOINER, TokenizerConfig

SAMPLE_BYTES: Final = 1 << 20
PRETOKENISED: Final = re.compile(r"""[.,;:!?"()]+|``|''|'(?:s|re|ve|ll|d|m|S)|n't|-LRB-|-RRB-|@[-,.]@""")
"""A token that occurs between blanks only in pre-tokenized text."""
ATTACHED: Final = re.compile(r"""[^ \t]+[.,;:!?"]|[("][^ \t]+""")
"""A word with a punctuation mark attached, as in raw text."""

INITIALS: Final = re.compile(r"(?:[^\W\d_]\.)+")
"""Single letters with a period each, as in U.S."""


def split(text: str, placeholder: str) -> str:
    """Split a line into tokens separated by one blank, with a joiner where the line has no blank between two.

    >>> split('He said, "go!"', "<unk>")
    'He said ￭, "￭ go ￭! ￭"'
    """
    return str(system.load_extension().split_punctuation(_check_utf8(text), placeholder))


def split_spans(text: str, placeholder: str) -> list[tuple[str, int, int]]:
    """Return the tokens of a line with their start and end offsets."""
    spans: list[tuple[str, int, int]] = system.load_extension().split_punctuation_spans(
        _check_utf8(text), placeholder
    )
    return spans


def split_without_joiners(text: str) -> bytes:
    """Split several lines into words and punctuation marks separated by one blank, as UTF-8; not reversible."""
    words: bytes = system.load_extension().split_without_joiners(text)
    return words


def join(tokens: str) -> str:
    """Restore the text from tokens separated by one blank: the inverse of `split`.

    >>> join('He said ￭, "￭ go ￭! ￭"')
    'He said, "go!"'
    """
    return str(system.load_extension().join_punctuation(tokens))


def without_joiners(token: str) -> str:
    """Remove the joiners of a punctuation mark, an ideograph or 's.

    >>> without_joiners("\uffed,"), without_joiners("don't")
    (',', "don't")
    """
    return join(token) if JOINER in token and any(joined_sides(token)) else token


def joined_sides(token: str) -> tuple[bool, bool]:
    """Whether a token is joined to the previous token, and to the next."""
    left, right = system.load_extension().joins(token) if JOINER in token else (False, False)
    return bool(left), bool(right)


def is_punctuation(token: str) -> bool:
    """Whether a token is a punctuation mark, an ideograph or 's, all of which may have joiners.

    >>> is_punctuation(","), is_punctuation("\uffed's"), is_punctuation("don't")
    (True, True, False)
    """
    return any(joined_sides(token)) or joined_sides(JOINER + token)[0]


def is_opening(token: str) -> bool:
    """Whether a mark without a trailing joiner opens a bracket or quotation, so that no blank follows it.

    A straight quotation mark is opening if it is not joined to the previous token.

    >>> is_opening("("), is_opening("\uffed("), is_opening('"'), is_opening('\uffed"'), is_opening(")")
    (True, True, True, False, False)
    """
    first = token.removeprefix(JOINER)[:1]
    return unicodedata.category(first or " ") in ("Ps", "Pi") or token[:1] in ('"', "'", "`")


def resolve_kind(corpus: Corpus, config: TokenizerConfig) -> TokenizerConfig:
    """Choose `whitespace` in place of `word` for a text that looks pre-tokenized."""
    if config.kind != "word" or not looks_pretokenised(corpus, config.unk):
        return config
    return dataclasses.replace(config, kind="whitespace")


def describe_choice(requested: object, kind: str) -> str:
    """Describe the choice between `word` and `whitespace`; empty if `word` was not requested.

    >>> describe_choice("word", "word")
    'tokenizer: word (punctuation is split from words)'
    """
    if requested != "word" or kind not in ("word", "whitespace"):
        return ""
    if kind == "word":
        return "tokenizer: word (punctuation is split from words)"
    return "tokenizer: whitespace (the text looks pre-tokenized: its punctuation is separated by blanks)"


def looks_pretokenised(corpus: Corpus, placeholder: str) -> bool:
    """Whether most punctuation of the first megabyte is separated by blanks, as in Penn Treebank or WikiText.

    The period of an abbreviation belongs to its word in pre-tokenized text, too, and is not counted.
    """
    inside: Counter[str] = Counter()  # words that are not the last of their line
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
    """Whether a word is an abbreviation: S., U.S., or a word that usually has a period (Mr.).

    At the end of a line, the period may still end a sentence.
    """
    if INITIALS.fullmatch(word):
        return True
    stem = word.removesuffix(".")
    return stem != word and not ATTACHED.fullmatch(stem) and counts[word] > max(1, counts[stem])


def joined_forms(word: str) -> list[str]:
    """Return a word and, for a punctuation mark, an ideograph or 's, its forms with joiners.

    >>> joined_forms("the"), joined_forms(","), joined_forms("'s")
    (['the'], [',', '￭,', ',￭', '￭,￭'], ["'s", "￭'s"])
    """
    if re.fullmatch("['\u2019][sS]", word):
        return [word, JOINER + word]
    is_mark = split(word, "") == word and joined_sides(JOINER + word)[0]
    return [word, JOINER + word, word + JOINER, JOINER + word + JOINER] if is_mark else [word]


def _check_utf8(text: str) -> str:
    """Raise for a lone surrogate, i.e. a command-line argument that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{text[:40]!a} is not UTF-8; correct it") from error
    return text
