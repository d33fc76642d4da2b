"""How long work tells whoever waits for it; the library calls it, the command line draws it."""

from typing import Protocol


class Progress(Protocol):
    """Anything that can be told how far work has come."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """What is being done, how much of it is done, and of how much; None where that is unknown."""
        ...


def silent(what: str, done: int, total: int | None) -> None:
    """The progress nobody sees."""
