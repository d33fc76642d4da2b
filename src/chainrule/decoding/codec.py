"""Tokenizer protocol required by decoding."""

from collections.abc import Sequence
from typing import Protocol

from chainrule.lm import Ids


class Codec(Protocol):
    """Conversion between text and ids.

    `decode` must be incremental: further ids only append text, except that U+FFFD characters at the very end, which
    stand for an incomplete character, may change.
    """

    @property
    def bos(self) -> int:
        """The id of `<s>`."""
        ...

    @property
    def eos(self) -> int:
        """The id of `</s>`."""
        ...

    @property
    def vocab_size(self) -> int:
        """V, special tokens included."""
        ...

    def encode(self, text: str) -> Ids:
        """Return the ids of a line or its beginning, without `<s>` and `</s>`."""
        ...

    def encode_prompt(self, text: str) -> Ids:
        """Return the ids of the beginning of a line to be continued; the last id may differ from `encode`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token string of each id."""
        ...
