"""The words of some lines and their candidates, as the lattices that are searched.

Lives here: which arc stands for which words, there and back. Not here: the search (lattice.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chainrule.applications.candidates import Arcs, Candidates
from chainrule.applications.lattice import Lattices, Path
from chainrule.applications.words import Word


@dataclass(frozen=True, slots=True)
class Part:
    """A word of a line, or two, and the candidate chosen there."""

    first: int
    last: int
    choice: int
    arcs: Arcs

    @property
    def text(self) -> str:
        """What was chosen."""
        return self.arcs.texts[self.choice]

    @property
    def ids(self) -> list[int]:
        """What the model reads for it."""
        return [i for i in self.arcs.ids[self.choice].tolist() if i >= 0]

    def put(self, words: list[Word], text: str) -> str:
        """A candidate as it would stand in the line."""
        first, last = words[self.first], words[self.last - 1]
        if self.last - self.first == 1:
            return first.put(text)
        is_unchanged = text == f"{first.core} {last.core}"
        return first.text + last.blanks + last.text if is_unchanged else first.put(text) + last.after


class Grid:
    """The candidates of some lines as lattices."""

    def __init__(self, candidates: Candidates, cuts: Sequence[list[Word]]) -> None:
        self._candidates = candidates
        distinct = {word.query: word for words in cuts for word in words}
        place = {key: i for i, key in enumerate(distinct)}
        sizes = np.array([len(words) for words in cuts], dtype=np.int64)
        at = np.full((len(cuts), int(sizes.max(initial=0))), len(distinct), dtype=np.int64)
        for row, words in enumerate(cuts):
            at[row, : len(words)] = [place[word.query] for word in words]
        single = candidates.of_words(list(distinct.values()))
        counts = np.array([*(len(arcs.texts) for arcs in single), 0], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        self._joined = int(counts.sum())  # the first arc over two words
        joined, joins = _joins(candidates, cuts, self._joined)
        self._arcs = [*single, *joined]
        self._owner = [i for i, arcs in enumerate(self._arcs) for _ in arcs.texts]
        self._places = [i for arcs in self._arcs for i in range(len(arcs.texts))]
        ids = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(arcs.ids for arcs in self._arcs)])
        log_channel = np.concatenate([np.zeros(0), *(arcs.log_channel for arcs in self._arcs)])
        self.lattices = Lattices(ids, log_channel, firsts[at], counts[at], sizes, joins)

    def read(self, words: list[Word], path: Path) -> list[Part]:
        """The words that a path's arcs go over."""
        parts, node = [], 0
        for arc in path.arcs:
            arcs = self._arcs[self._owner[arc]]
            size = 2 if arc >= self._joined else 1
            if size == 2:
                arcs = self._with_apart(arcs, words[node], words[node + 1])
            parts.append(Part(node, node + size, self._places[arc], arcs))
            node += size
        assert node == len(words)
        return parts

    def _with_apart(self, joined: Arcs, first: Word, second: Word) -> Arcs:
        """One word for two, and beside it the two as they are written."""
        one, other = self._candidates.of_words([first, second])
        ids = np.array([joined.ids[0], [one.ids[0, 0], other.ids[0, 0]]])
        log_channel = np.array([joined.log_channel[0], one.log_channel[0] + other.log_channel[0]])
        return Arcs((*joined.texts, f"{first.core} {second.core}"), ids, log_channel)


def _joins(
    candidates: Candidates, cuts: Sequence[list[Word]], first_arc: int
) -> tuple[list[Arcs], dict[int, list[tuple[int, int]]]]:
    """Arcs over two adjacent words that are one word of the vocabulary when joined, and their places by node."""
    places = [
        (row, node, (first.core, second.core))
        for row, words in enumerate(cuts)
        for node, (first, second) in enumerate(pairwise(words))
        if first.core + second.core in candidates.known and _can_be_joined(first, second)
    ]
    distinct = list(dict.fromkeys(pair for _, _, pair in places))
    arcs = candidates.joined(distinct)
    number = {pair: first_arc + i for i, pair in enumerate(distinct)}
    joins: dict[int, list[tuple[int, int]]] = {}
    for row, node, pair in places:
        joins.setdefault(node, []).append((row, number[pair]))
    return arcs, joins


def _can_be_joined(first: Word, second: Word) -> bool:
    """Whether the blank between two words may be an error: one between letters or digits."""
    if first.after or second.before or first.is_fixed or second.is_fixed:
        return False
    return first.core[-1].isalnum() and second.core[0].isalnum()
