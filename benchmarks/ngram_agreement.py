"""How far two ARPA files differ, n-gram by n-gram."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Numbers = tuple[float, float]  # log10 probability and weight


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one order."""

    order: int
    ours: int  # n-grams
    theirs: int
    shared: int
    prob: float  # the largest difference of log10 probabilities
    backoff: float  # and of log10 weights


def compare(ours: Path, theirs: Path) -> Iterator[Agreement]:
    """Order by order; the probability of `<s>`, which nothing asks for, is left out."""
    for order, (mine, others) in enumerate(zip(sections(ours), sections(theirs), strict=True), start=1):
        listed = dict(mine)
        count = shared = 0
        prob = backoff = 0.0
        for ngram, (log_prob, weight) in others:
            count += 1
            if ngram in listed:
                shared += 1
                prob = max(prob, 0.0 if ngram == "<s>" else abs(listed[ngram][0] - log_prob))
                backoff = max(backoff, abs(listed[ngram][1] - weight))
        yield Agreement(order, len(listed), count, shared, prob, backoff)


def sections(path: Path) -> Iterator[Iterator[tuple[str, Numbers]]]:
    """The n-grams of each order; one order must be read before the next is asked for."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("-grams:\n"):
                yield (entry(inner) for inner in itertools.takewhile(lambda read: read != "\n", file))


def entry(line: str) -> tuple[str, Numbers]:
    """The n-gram of a line, its log10 probability and weight."""
    log_prob, words, *weight = line.rstrip("\n").split("\t")
    return words, (float(log_prob), float(weight[0]) if weight else 0.0)
