"""Two spellings put side by side with the fewest edits (Damerau 1964): the letters of one beside the other's.

Lives here: one pair at a time, readably. Not here: how far many pairs are apart (candidates.py).
"""


def align(meant: str, written: str) -> list[tuple[str, str]]:
    """Steps (part of `meant`, part of `written`): kept, replaced, lost, added, or two letters exchanged.

    >>> align("form", "from")
    [('f', 'f'), ('or', 'ro'), ('m', 'm')]
    """
    cost = _costs(meant, written)
    i, j = len(meant), len(written)
    steps: list[tuple[str, str]] = []
    while i or j:
        a, b = _last_step(cost, meant, written, i, j)
        steps.append((meant[i - a : i], written[j - b : j]))
        i, j = i - a, j - b
    return steps[::-1]


def edits(meant: str, written: str) -> int:
    """The fewest edits from one to the other.

    >>> edits("form", "fromm")
    2
    """
    return _costs(meant, written)[-1][-1]


def _costs(meant: str, written: str) -> list[list[int]]:
    """D[i][j]: fewest edits from the first i letters to the first j."""
    cost = [list(range(len(written) + 1))]
    for i, x in enumerate(meant, start=1):
        above = cost[-1]
        row = [i]
        for j, y in enumerate(written, start=1):
            best = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == written[j - 2] and y == meant[i - 2]:
                best = min(best, cost[i - 2][j - 2] + 1)
            row.append(best)
        cost.append(row)
    return cost


def _last_step(cost: list[list[int]], meant: str, written: str, i: int, j: int) -> tuple[int, int]:
    """How many letters of each side the last of the fewest steps takes; what is kept goes first."""
    here = cost[i][j]
    if i and j and meant[i - 1] == written[j - 1] and cost[i - 1][j - 1] == here:
        return 1, 1
    swapped = i > 1 and j > 1 and meant[i - 1] == written[j - 2] and meant[i - 2] == written[j - 1]
    if swapped and cost[i - 2][j - 2] + 1 == here:
        return 2, 2
    if i and j and cost[i - 1][j - 1] + 1 == here:
        return 1, 1
    return (1, 0) if i and cost[i - 1][j] + 1 == here else (0, 1)
