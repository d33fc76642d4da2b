"""Sentence pairs with known targets: reversed strings and dates in ISO form."""

import calendar
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from chainrule.errors import ChainruleWarning
from chainrule.text.parallel import SentencePairs

MONTHS = tuple(calendar.month_name)[1:]


def reversed_strings(number: int, seed: int = 1, longest: int = 6) -> SentencePairs:
    rng = random.Random(seed)
    sources = ["".join(rng.choices("abcdef", k=rng.randint(2, longest))) for _ in range(number)]
    return make_pairs(sources, [text[::-1] for text in sources])


def dates(number: int, seed: int = 1) -> SentencePairs:
    """`March 5, 1987` and other ways to write it, to 1987-03-05."""
    rng = random.Random(seed)
    sources, targets = [], []
    for _ in range(number):
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1900, 2029)
        name = MONTHS[month - 1]
        ways = (
            f"{name} {day}, {year}",
            f"{day} {name} {year}",
            f"{name[:3]} {day} {year}",
            f"{day}/{month}/{year}",
        )
        sources.append(rng.choice(ways))
        targets.append(f"{year}-{month:02}-{day:02}")
    return make_pairs(sources, targets)


def make_pairs(sources: list[str], targets: list[str]) -> SentencePairs:
    return SentencePairs(tuple(sources), tuple(targets), "toy", tuple(range(1, len(sources) + 1)))


@contextmanager
def no_advice() -> Iterator[None]:
    """Ignore the advice to train longer that a short run gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        yield
