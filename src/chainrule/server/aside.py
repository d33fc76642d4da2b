"""Work that is done at once where it is small, and in a thread where the event loop would wait for it."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

SMALL: Final = 1 << 14
"""Characters, tokens or numbers worked on in a fraction of a millisecond."""


async def aside(size: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """The result of the work; a thread costs more than little work does."""
    return work(*args, **options) if size <= SMALL else await asyncio.to_thread(work, *args, **options)


def extent(given: object) -> int:
    """Characters of texts and ids of lists, however they lie in each other."""
    if isinstance(given, list):
        return sum(map(extent, given)) + 1
    return len(given) if isinstance(given, str) else 1
