"""Damerau–Levenshtein alignment of two spellings (Damerau 1964)."""


def align(meant: str, written: str) -> list[tuple[str, str]]:
    """Edit steps (part of `meant`, part of `written`): match, substitution, deletion, insertion or transposition.

    >>> align("form", "from")
    [('f', 'f'), ('or', 'ro'), ('m', 'm')]
    """
    cost = _distance_table(meant, written)
    i, j = len(meant), len(written)
    steps: list[tuple[str, str]] = []
    while i or j:
        a, b = _last_step(cost, meant, written, i, j)
        steps.append((meant[i - a : i], written[j - b : j]))
        i, j = i - a, j - b
    return steps[::-1]


def edit_distance(meant: str, written: str) -> int:
    """Damerau–Levenshtein distance.

    >>> edit_distance("form", "fromm")
    2
    """
    return _distance_table(meant, written)[-1][-1]


def _distance_table(meant: str, written: str) -> list[list[int]]:
    """Dynamic-programming table: D[i][j] edits turn i letters of `meant` into j letters of `written`."""
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
    """Letters of either side consumed by the last step of an optimal path; matches are preferred."""
    distance = cost[i][j]
    if i and j and meant[i - 1] == written[j - 1] and cost[i - 1][j - 1] == distance:
        return 1, 1
    swapped = i > 1 and j > 1 and meant[i - 1] == written[j - 2] and meant[i - 2] == written[j - 1]
    if swapped and cost[i - 2][j - 2] + 1 == distance:
        return 2, 2
    if i and j and cost[i - 1][j - 1] + 1 == distance:
        return 1, 1
    return (1, 0) if i and cost[i - 1][j] + 1 == distance else (0, 1)
