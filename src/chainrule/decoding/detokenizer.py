"""Encode prompts and detokenize generated ids, with stop strings and spellings of unknown words.

The stop strings of a request form one Aho-Corasick automaton (Aho and Corasick 1975), shared by all its
continuations. Its state is the longest suffix of the text that is a prefix of a stop string. It tells whether a
stop string is complete, and how many characters must be held back because they may begin one.
"""

import codecs
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.tokenizers.tokenizer import Tokenizer

ROOT: Final = 0
NO_CHILD: Final = 0xFFFFFFFF  # not a code point


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


REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"  # decoded from invalid or incomplete bytes
UNSPELLED: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Text of an unknown word whose spelling is drawn later; stop strings do not match it."""

SpellingSampler = Callable[[np.random.Generator], str]
"""Function that samples the spelling of a word outside the vocabulary."""
DrawSpelling = Callable[[], str]
"""Draws the spelling of the next unknown word of a sample."""


class IncrementalDetokenizer:
    """Decode the tokens of one continuation and search for stop strings, in constant time per token.

    With `spell`, `<unk>` is replaced by a drawn spelling. Released text is not stored.

    Attributes:
        offsets: Start of each token in the text; for a token inside a character, the start of that character.
        spelled: Text of each spelled token by position, including the blank before it.

    """

    def __init__(
        self, tokenizer: Tokenizer, previous: int | None, stops: StopStrings, spell: DrawSpelling | None = None
    ) -> None:
        self.offsets: list[int] = []
        self.spelled: dict[int, str] = {}
        self._tokenizer = tokenizer
        self._previous = previous  # the preceding token; None at the start of a text
        self._spell = spell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._search = StopSearch(stops)
        self._is_ended = False
        self._released = 0
        self._pending = ""  # decoded text not yet released

    @property
    def stop_start(self) -> int | None:
        """Start of the first stop string, or None."""
        return self._search.start

    @property
    def stable_length(self) -> int:
        """Number of leading characters that no further token can change or turn into a stop string."""
        if self._search.start is not None:
            return self._search.start
        return self._search.length - (0 if self._is_ended else self._search.held_back)

    def add(self, id_: int) -> None:
        """Add one token; control symbols add no text."""
        added = self._tokenizer.token_bytes(self._previous, id_)
        if self._spell is not None and id_ == self._tokenizer.unk:
            added = added.removesuffix(self._tokenizer.token_bytes(None, id_)) + self._spell().encode()
            self.spelled[len(self.offsets)] = added.decode()
        self._previous = id_
        self.offsets.append(self._search.length)
        self._extend(self._decoder.decode(added))

    def end(self) -> None:
        """End the text; an incomplete character becomes U+FFFD."""
        self._extend(self._decoder.decode(b"", True))
        self._is_ended = True

    def release(self) -> str:
        """Return the stable characters that were not released before."""
        text = self._pending[: max(0, self.stable_length - self._released)]
        self._pending = self._pending[len(text) :]
        self._released += len(text)
        return text

    def _extend(self, added: str) -> None:
        self._pending += added
        self._search.feed(added)


def stop_check(
    tokenizer: Tokenizer, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
) -> Callable[[int], bool]:
    """Return a function to call with each token of one sample; it returns True once a stop string is complete.

    With `is_unknown_spelled`, unknown words are spelled later and match no stop string here.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, previous, stops, _unspelled if is_unknown_spelled else None)

    def is_stopped(id_: int) -> bool:
        detokenizer.add(id_)
        detokenizer.release()
        return detokenizer.stop_start is not None

    return is_stopped


def _unspelled() -> str:
    return UNSPELLED


class Continuation:
    """Convert generated ids to the text that they append to the prompt.

    Attributes:
        prompt: Prompt text, without trailing blanks that the tokenizer does not encode.
        prompt_ids: Ids of the prompt, with `</s>` for each line break.

    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: str, stops: Sequence[str] = (), *, is_unknown_spelled: bool = False
    ) -> None:
        *lines, last = re.split(r"\r\n|\r|\n", prompt)
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._automaton = StopStrings(stops)
        self._is_unknown_spelled = is_unknown_spelled
        self._line: list[int] = tokenizer.encode_prompt(last).tolist()
        self._before = tokenizer.decode(self._line)
        blanks = last[len(last.rstrip(" \t")) :]
        self.prompt = prompt if self._before.endswith(blanks) else prompt.removesuffix(blanks)
        ended = (i for line in lines for i in (*tokenizer.encode(line).tolist(), tokenizer.eos))
        self.prompt_ids: tuple[int, ...] = (*ended, *self._line)

    def decode(self, ids: Sequence[int], spell: DrawSpelling | None = None) -> tuple[str, bool]:
        """Return the text of the ids, truncated before the first stop string, and whether there is one.

        `spell` draws the spellings of unknown words.
        """
        if spell is None and self._is_unknown_spelled:
            spell = _unspelled
        if spell is None:
            added = self._tokenizer.decode([*self._line, *ids])[len(self._before) :]
        else:
            detokenizer = IncrementalDetokenizer(self._tokenizer, self._previous, StopStrings(), spell)
            for id_ in ids:
                detokenizer.add(id_)
            detokenizer.end()
            added = detokenizer.release()
        position = min((added.index(stop) for stop in self._stops if stop in added), default=None)
        return added[:position], position is not None

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of the generated ids, truncated before the first stop string."""
        return self.decode(ids)[0]

    def is_stopped(self, ids: Sequence[int]) -> bool:
        """Return whether the text of the generated ids contains a stop string."""
        return bool(self._stops) and self.decode(ids)[1]

    def detokenizer(self, spell: DrawSpelling | None = None) -> IncrementalDetokenizer:
        """Return a detokenizer for one continuation of the prompt."""
        return IncrementalDetokenizer(self._tokenizer, self._previous, self._automaton, spell)

    def stop_check(self) -> Callable[[int], bool]:
        """Return the `stop_check` of one continuation of the prompt."""
        return stop_check(
            self._tokenizer, self._previous, self._automaton, is_unknown_spelled=self._is_unknown_spelled
        )

    @property
    def _previous(self) -> int | None:
        return self._line[-1] if self._line else None


def resolve_speller(
    vocabulary: Vocabulary, settings: Decoding, spell: SpellingSampler | None
) -> SpellingSampler | None:
    """Return the spelling sampler to use, or None if unknown words are not spelled.

    Raise ConfigError if the settings require a speller and the model has none.
    """
    if settings.unk != "spell" or vocabulary.unk is None or vocabulary.closed:
        return None
    if spell is None:
        raise ConfigError("unk is 'spell', but this model has no speller; choose exclude or keep", "unk")
    return spell


def spawn_spelling_generators(seed: int | None, num: int) -> list[np.random.Generator]:
    """Return one generator per text for spellings, independent of the generators of the tokens."""
    return [np.random.default_rng(child.spawn(1)[0]) for child in np.random.SeedSequence(seed).spawn(num)]
