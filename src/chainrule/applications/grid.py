"""Build the candidate lattices of lines, and map lattice paths back to words."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chainrule.applications.candidates import Arcs, Candidates
from chainrule.applications.lattice import Lattices, Path
from chainrule.applications.words import Word


@dataclass(frozen=True, slots=True)
class WordChoice:
    """One word of a line, or two joined words, and its chosen candidate."""

    first: int
    last: int
    choice: int
    arcs: Arcs

    @property
    def text(self) -> str:
        """Text of the chosen candidate."""
        return self.arcs.texts[self.choice]

    @property
    def ids(self) -> list[int]:
        """Token ids of the chosen candidate."""
        return [i for i in self.arcs.ids[self.choice].tolist() if i >= 0]

    def put(self, words: list[Word], text: str) -> str:
        """Render a candidate with the case and punctuation of the line."""
        first, last = words[self.first], words[self.last - 1]
        if self.last - self.first == 1:
            return first.put(text)
        is_unchanged = text == f"{first.core} {last.core}"
        return first.text + last.blanks + last.text if is_unchanged else first.put(text) + last.after


class CandidateLattices:
    """Candidate lattices of a batch of lines."""

    def __init__(self, candidates: Candidates, line_words: Sequence[list[Word]]) -> None:
        self._candidates = candidates
        distinct = {word.lookup_key: word for words in line_words for word in words}
        index = {key: i for i, key in enumerate(distinct)}
        sizes = np.array([len(words) for words in line_words], dtype=np.int64)
        word_index = np.full((len(line_words), int(sizes.max(initial=0))), len(distinct), dtype=np.int64)
        for row, words in enumerate(line_words):
            word_index[row, : len(words)] = [index[word.lookup_key] for word in words]
        single = candidates.find_in_line(list(distinct.values()))
        counts = np.array([*(len(arcs.texts) for arcs in single), 0], dtype=np.int64)
        firsts = np.cumsum(counts) - counts
        self._joined = int(counts.sum())  # index of the first arc over two words
        joined, joins = _find_joins(candidates, line_words, self._joined)
        self._arcs = [*single, *joined]
        self._arc_owner = [i for i, arcs in enumerate(self._arcs) for _ in arcs.texts]
        self._arc_choice = [i for arcs in self._arcs for i in range(len(arcs.texts))]
        ids = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(arcs.ids for arcs in self._arcs)])
        log_channel = np.concatenate([np.zeros(0), *(arcs.log_channel for arcs in self._arcs)])
        self.lattices = Lattices(ids, log_channel, firsts[word_index], counts[word_index], sizes, joins)

    def read(self, words: list[Word], path: Path) -> list[WordChoice]:
        """Convert a path to the words and candidates of its arcs."""
        parts, node = [], 0
        for arc in path.arcs:
            arcs = self._arcs[self._arc_owner[arc]]
            size = 2 if arc >= self._joined else 1
            if size == 2:
                arcs = self._with_unjoined(arcs, words[node], words[node + 1])
            parts.append(WordChoice(node, node + size, self._arc_choice[arc], arcs))
            node += size
        assert node == len(words)
        return parts

    def _with_unjoined(self, joined: Arcs, first: Word, second: Word) -> Arcs:
        """Arcs of the joined word and of the two words as written."""
        first_arcs, second_arcs = self._candidates.find_in_line([first, second])
        ids = np.array([joined.ids[0], [first_arcs.ids[0, 0], second_arcs.ids[0, 0]]])
        log_channel = np.array([joined.log_channel[0], first_arcs.log_channel[0] + second_arcs.log_channel[0]])
        return Arcs((*joined.texts, f"{first.core} {second.core}"), ids, log_channel)


def _find_joins(
    candidates: Candidates, line_words: Sequence[list[Word]], first_arc: int
) -> tuple[list[Arcs], dict[int, list[tuple[int, int]]]]:
    """Arcs over two adjacent words whose concatenation is in the vocabulary, and their positions by node."""
    positions = [
        (row, node, (first.core, second.core))
        for row, words in enumerate(line_words)
        for node, (first, second) in enumerate(pairwise(words))
        if first.core + second.core in candidates.known and _can_be_joined(first, second)
    ]
    distinct = list(dict.fromkeys(pair for _, _, pair in positions))
    arcs = candidates.joined(distinct)
    arc_index = {pair: first_arc + i for i, pair in enumerate(distinct)}
    joins: dict[int, list[tuple[int, int]]] = {}
    for row, node, pair in positions:
        joins.setdefault(node, []).append((row, arc_index[pair]))
    return arcs, joins


def _can_be_joined(first: Word, second: Word) -> bool:
    """Whether the blank between two words may be an error: it separates letters or digits."""
    if first.after or second.before or first.is_fixed or second.is_fixed:
        return False
    return first.core[-1].isalnum() and second.core[0].isalnum()
