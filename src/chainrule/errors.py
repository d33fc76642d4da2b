"""Exceptions of chainrule, with the exit status of the command line for each.

A message has one or two lines: what is wrong, where (file, line, byte), and what to do.
"""

from typing import ClassVar


class ChainruleError(Exception):
    """Base class of all errors raised by chainrule; raised directly for failures at run time."""

    exit_code: ClassVar[int] = 1


class UsageError(ChainruleError):
    """Invalid usage: an unknown option, a value out of range or an invalid combination."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting has an unknown name or an invalid value; `setting` is its name where callers need it."""

    def __init__(self, message: str, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class InputError(ChainruleError):
    """An input file (text, table, ARPA, vectors) is malformed."""

    exit_code = 3


class VocabularyError(InputError):
    """Token ids or models do not match the tokenizer."""


class ModelFileError(ChainruleError):
    """A model folder or one of its files is missing, damaged or in an unknown format.

    `remedy` is the advice that ends the message; callers can pass more specific advice than the default.
    """

    exit_code = 3

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message, self.remedy = message, remedy


class ShardError(ChainruleError):
    """A shard of an n-gram model is not in its folder, or the server that has it does not answer."""


class LostRankError(ChainruleError):
    """Another process of a training run has ended, or does not answer."""


class NotFoundError(ChainruleError):
    """A named file or folder does not exist."""

    exit_code = 4


class MissingExtra(ChainruleError):
    """An optional dependency is not installed; the message contains the install command."""


class ChainruleWarning(UserWarning):
    """A valid result needs attention, e.g. because a default was substituted."""


def printable(text: str) -> str:
    r"""Escape control characters, so that text from files cannot inject terminal sequences.

    >>> print(printable("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
