"""Character vocabulary and CNN (Ma & Hovy 2016): convolution over the characters of a word, then max-pooling.

Notation: N words, L characters of the longest word, F filters.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError, ModelFileError
from chainrule.lm import Ids
from chainrule.neural.layers.dropout import units
from chainrule.neural.layers.initialization import initialize

PADDING: Final = 0
UNKNOWN: Final = 1
BEGIN: Final = 2
END: Final = 3
FIRST: Final = 4  # id of the first character


@dataclass(frozen=True)
class CharVocabulary:
    """Character (code point) vocabulary."""

    characters: tuple[str, ...]  # the i-th has the id FIRST + i

    @classmethod
    def build(cls, words: Iterable[str], min_count: int = 1) -> "CharVocabulary":
        """Build the vocabulary of characters with at least `min_count` occurrences, most frequent first.

        >>> CharVocabulary.build(["noon", "on"]).characters
        ('n', 'o')
        """
        counts = Counter(character for word in words for character in word)
        frequent = [character for character, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(frequent, key=lambda character: (-counts[character], character))))

    @property
    def size(self) -> int:
        """Number of ids, including the four special ones."""
        return FIRST + len(self.characters)

    def ids(self, words: Sequence[str], longest: int = 40) -> Ids:
        """Encode words as (N, L) ids: begin, characters, end, padding; L is the length of the longest word plus 2.

        A word of more than `longest` characters is shortened to its first and last `longest` / 2 characters.

        >>> CharVocabulary(("n", "o")).ids(["on", "n!no"]).tolist()
        [[2, 5, 4, 3, 0, 0], [2, 4, 1, 4, 5, 3]]
        """
        if longest < 2:
            raise ConfigError(f"the maximum spelling length is {longest}; choose 2 or more")
        cut = [_shortened(word, longest) for word in words]
        spellings = np.full((len(cut), 2 + max(map(len, cut), default=0)), PADDING, dtype=np.int64)
        for row, word in zip(spellings, cut, strict=True):
            row[: len(word) + 2] = [BEGIN, *(self._ids.get(character, UNKNOWN) for character in word), END]
        return spellings

    def to_json(self) -> list[str]:
        """Return the characters in the order of their ids."""
        return list(self.characters)

    @classmethod
    def from_json(cls, characters: Any) -> "CharVocabulary":
        """Restore from the output of `to_json`."""
        is_list = isinstance(characters, list)
        if not is_list or not all(isinstance(item, str) and len(item) == 1 for item in characters):
            raise ModelFileError(
                "the table of characters is not a list of single characters; train the model again"
            )
        if len(set(characters)) < len(characters):
            twice = next(character for character, count in Counter(characters).items() if count > 1)
            raise ModelFileError(
                f"the table of characters contains {twice!r} more than once; train the model again"
            )
        return cls(tuple(characters))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: FIRST + index for index, character in enumerate(self.characters)}


def _shortened(word: str, longest: int) -> str:
    """Keep the first and last halves of a word that is too long; the first is larger if `longest` is odd."""
    half = longest // 2
    return word if len(word) <= longest else word[: longest - half] + word[-half:]


class CharCNN(nn.Module):
    """max_l (W · [e_{l−1}; e_l; e_{l+1}] + b), then ReLU, with zero padding around the word.

    Features depend only on the characters of the word; a row that is all padding has zero features.
    """

    def __init__(
        self, characters: int, features: int, dropout: float = 0.0, width: int = 32, span: int = 3
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(characters, width, padding_idx=PADDING)  # padding gets no gradient
        self.filters = nn.Conv1d(width, features, span, padding="same")
        initialize(self.embedding.weight, "uniform", math.sqrt(3 / width))  # variance 1 / width
        initialize(self.filters.weight, "xavier")
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
            self.filters.bias.zero_()

    def forward(self, spellings: Tensor) -> Tensor:
        """(N, L) character ids, right-padded with 0 -> (N, F)."""
        e = units(self.embedding(spellings), self.dropout, self.training)  # (N, L, D)
        z = self.filters(e.transpose(1, 2))  # (N, F, L)
        z = z.masked_fill((spellings == PADDING)[:, None], -torch.inf)
        return z.amax(dim=-1).relu()  # ReLU commutes with max, and maps `-inf` to 0
