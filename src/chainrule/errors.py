"""The few ways chainrule fails, each with the exit status the command line gives it.

A message is one or two lines: what was wrong, where (file, line, byte), what to do about it.
"""

from typing import ClassVar


class ChainruleError(Exception):
    """Something failed while running; every error chainrule raises on purpose is one of these."""

    exit_code: ClassVar[int] = 1


class UsageError(ChainruleError):
    """The call itself is wrong: an option, a range, a combination."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting has no such name or no such value."""


class InputError(ChainruleError):
    """A text, table or exchange file cannot be read as what it claims to be."""

    exit_code = 3


class VocabularyError(InputError):
    """Ids and tokenizer do not belong together."""


class ModelFileError(ChainruleError):
    """A model folder or one of its files is missing, damaged or foreign."""

    exit_code = 3


class NotFoundError(ChainruleError):
    """A named file or folder does not exist."""

    exit_code = 4


class MissingExtra(ChainruleError):
    """An optional dependency is not installed; the message holds the install line."""


class ChainruleWarning(UserWarning):
    """Something a person should know about a result that is nevertheless right."""


def printable(text: str) -> str:
    r"""The text in one line, control characters written as escapes: what a file holds must not steer the terminal.

    >>> print(printable("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
