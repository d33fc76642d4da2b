"""How long work tells whoever waits for it; the library calls it, the command line draws it."""

from typing import Protocol


class Progress(Protocol):
    """Called often with what is being done, how much of it is done, and of how much (None: unknown)."""

    def __call__(self, what: str, done: int, total: int | None) -> None: ...


def silent(what: str, done: int, total: int | None) -> None:
    """The progress nobody sees."""
