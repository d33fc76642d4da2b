"""Words -> the ids of their characters, for models that look inside a word.

Lives here: the table of characters and how a spelling is written in ids. Not here: what a model makes of them
(neural/characters.py), the words themselves.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from chainrule.errors import ConfigError, ModelFileError
from chainrule.lm import Ids

PADDING: Final = 0
UNKNOWN: Final = 1
BEGIN: Final = 2
END: Final = 3
FIRST: Final = 4  # of the characters themselves


@dataclass(frozen=True)
class Spellings:
    """A table of characters (code points); two with the same characters in the same order are equal."""

    characters: tuple[str, ...]  # the i-th has the id FIRST + i

    @classmethod
    def build(cls, words: Iterable[str], min_count: int = 1) -> "Spellings":
        """The characters that occur at least `min_count` times in these words, the most frequent first.

        >>> Spellings.build(["noon", "on"]).characters
        ('n', 'o')
        """
        counts = Counter(character for word in words for character in word)
        kept = [character for character, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(kept, key=lambda character: (-counts[character], character))))

    @property
    def size(self) -> int:
        """How many ids there are, the four that are no characters counted."""
        return FIRST + len(self.characters)

    def ids(self, words: Sequence[str], longest: int = 40) -> Ids:
        """(N, L) begin, the characters, end, then padding; L is what the longest of these words needs.

        Of a word of more than `longest` characters the first and the last half of `longest` are kept.

        >>> Spellings(("n", "o")).ids(["on", "n!no"]).tolist()
        [[2, 5, 4, 3, 0, 0], [2, 4, 1, 4, 5, 3]]
        """
        if longest < 2:
            raise ConfigError(f"a spelling of at most {longest} characters has no two halves; choose 2 or more")
        cut = [_shortened(word, longest) for word in words]
        spellings = np.full((len(cut), 2 + max(map(len, cut), default=0)), PADDING, dtype=np.int64)
        for row, word in zip(spellings, cut, strict=True):
            row[: len(word) + 2] = [BEGIN, *(self._places.get(character, UNKNOWN) for character in word), END]
        return spellings

    def to_json(self) -> list[str]:
        """The characters in the order of their ids."""
        return list(self.characters)

    @classmethod
    def from_json(cls, characters: Any) -> "Spellings":
        """Back from `to_json`."""
        is_list = isinstance(characters, list)
        if not is_list or not all(isinstance(item, str) and len(item) == 1 for item in characters):
            raise ModelFileError(
                "the table of characters is not a list of single characters; train the model again"
            )
        if len(set(characters)) < len(characters):
            twice = next(character for character, count in Counter(characters).items() if count > 1)
            raise ModelFileError(f"the table of characters holds {twice!r} more than once; train the model again")
        return cls(tuple(characters))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {character: FIRST + place for place, character in enumerate(self.characters)}


def _shortened(word: str, longest: int) -> str:
    """The first and last halves of a word that is too long, the first the greater where `longest` is odd."""
    half = longest // 2
    return word if len(word) <= longest else word[: longest - half] + word[-half:]
