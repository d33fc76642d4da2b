"""Compare two ARPA files n-gram by n-gram."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Numbers = tuple[float, float]  # log10 probability and back-off weight


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of one order."""

    order: int
    ours: int  # n-grams
    theirs: int
    shared: int
    prob: float  # largest difference of log10 probabilities
    backoff: float  # largest difference of log10 weights


def compare(ours: Path, theirs: Path) -> Iterator[Agreement]:
    """Yield the agreement of each order, ignoring the probability of `<s>`, which is never used."""
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
    """Yield the n-grams of each order; each iterator must be consumed before the next."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("-grams:\n"):
                yield (entry(inner) for inner in itertools.takewhile(lambda text: text != "\n", file))


def entry(line: str) -> tuple[str, Numbers]:
    """Parse a line into n-gram, log10 probability and back-off weight."""
    log_prob, words, *weight = line.rstrip("\n").split("\t")
    return words, (float(log_prob), float(weight[0]) if weight else 0.0)
