"""What decoding needs of a tokenizer, and nothing more."""

from collections.abc import Sequence
from typing import Protocol

from chainrule.lm import Ids


class Codec(Protocol):
    """Text to ids and back.

    Decoding appends: further ids add text behind what was there, and change of it only the U+FFFD at its very
    end that stand for a character whose last bytes are still to come.
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
        """The ids of a line or its beginning, neither `<s>` nor `</s>` among them."""
        ...

    def encode_prompt(self, text: str) -> Ids:
        """The ids of the beginning of a line that is to be continued: they may differ from `encode` in the last."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each id."""
        ...
