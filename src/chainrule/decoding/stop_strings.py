"""Incremental search for stop strings in linear time.

The stop strings form one Aho-Corasick automaton (Aho and Corasick 1975), built once and shared by all continuations
of a request. Its state is the longest suffix of the text that is a prefix of a stop string. It tells whether a stop
string is complete, and how many characters must be held back because they may be the beginning of one.
"""

from array import array
from collections.abc import Iterable
from typing import Final

ROOT: Final = 0
NO_CHILD: Final = 0xFFFFFFFF  # no code point


class StopStrings:
    """Aho-Corasick automaton of a set of stop strings; a state is the index of a trie node.

    A node's first child is the node created right after it; other children are in one dictionary, which has fewer
    entries than there are strings. A string of 1,024 characters takes about 20 KB.

    Attributes:
        longest: Length of the longest stop string, 0 if there is none.

    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._first_child = array("I", [NO_CHILD])  # code point that leads from node i to node i + 1
        self._other_children: dict[tuple[int, int], int] = {}
        self._depth = array("I", [0])
        self._match = array("I", [0])  # length of the longest string that ends in this node's text, 0 if none
        parents = array("I", [ROOT])
        codes = array("I", [NO_CHILD])
        for string in strings:
            self._insert(string, parents, codes)
        self._failure = array("I", bytes(4 * len(self._depth)))
        self._link(parents, codes)
        self.longest = max(self._depth)

    def __bool__(self) -> bool:
        return self.longest > 0

    def depth(self, state: int) -> int:
        """Return the length of the longest suffix of the text that is a prefix of a stop string."""
        return self._depth[state]

    def match(self, state: int) -> int:
        """Return the length of the longest stop string with which the text ends, 0 if there is none."""
        return self._match[state]

    def step(self, state: int, code: int) -> int:
        """Read one code point; over a whole text there are at most two lookups per character."""
        while (child := self._child(state, code)) is None:
            if state == ROOT:
                return ROOT
            state = self._failure[state]
        return child

    def scan(self, text: str, state: int = ROOT) -> int:
        """Return the state after `text`."""
        for code in map(ord, text):
            state = self.step(state, code)
        return state

    def _child(self, state: int, code: int) -> int | None:
        if self._first_child[state] == code:
            return state + 1
        return self._other_children.get((state, code))

    def _insert(self, string: str, parents: "array[int]", codes: "array[int]") -> None:
        node = ROOT
        for code in map(ord, string):
            child = self._child(node, code)
            if child is None:
                child = len(self._depth)
                if child == node + 1:
                    self._first_child[node] = code
                else:
                    self._other_children[node, code] = child
                self._first_child.append(NO_CHILD)
                self._depth.append(self._depth[node] + 1)
                self._match.append(0)
                parents.append(node)
                codes.append(code)
            node = child
        self._match[node] = len(string)

    def _link(self, parents: "array[int]", codes: "array[int]") -> None:
        """Set the failure links, nodes of smaller depth first."""
        for node in sorted(range(1, len(self._depth)), key=self._depth.__getitem__):
            parent = parents[node]
            if parent != ROOT:
                self._failure[node] = self.step(self._failure[parent], codes[node])
            self._match[node] = self._match[node] or self._match[self._failure[node]]


class StopSearch:
    """State of the search in one text.

    Attributes:
        length: Characters read so far.
        start: Start of the first stop string once one is complete, otherwise None.

    """

    def __init__(self, stops: StopStrings) -> None:
        self.length = 0
        self.start: int | None = None
        self._stops = stops
        self._state = ROOT

    @property
    def held_back(self) -> int:
        """Characters at the end of the text that may be the beginning of a stop string."""
        return self._stops.depth(self._state)

    def feed(self, text: str) -> None:
        """Read more text; if several stop strings are completed in it, `start` is that of the earliest."""
        if self.start is not None or not self._stops:
            self.length += len(text)
            return
        for code in map(ord, text):
            self.length += 1
            self._state = self._stops.step(self._state, code)
            if length := self._stops.match(self._state):
                start = self.length - length
                self.start = start if self.start is None else min(self.start, start)
