"""Incremental detokenization with stop strings.

Gives the same result as decoding/continuation.py, in constant time per token: holds back incomplete characters and
possible beginnings of stop strings.
"""

import codecs
from collections.abc import Callable

from chainrule.decoding.stop_strings import StopSearch, StopStrings
from chainrule.server.pieces import TokenDecoder

DrawSpelling = Callable[[], str]
"""Draws the spelling of the next unknown word of a sample."""


class StreamDecoder:
    """Decode the tokens of one sample to text; with `spell`, `<unk>` is replaced by a drawn spelling.

    Attributes:
        spelled: Text of each spelled token by position, including the blank before it.

    """

    def __init__(self, pieces: TokenDecoder, previous: int | None, spell: DrawSpelling | None = None) -> None:
        self.spelled: dict[int, str] = {}
        self._pieces = pieces
        self._previous = previous
        self._spell = spell
        self._tokens = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id_: int) -> str:
        """Return the text that a token adds."""
        added = self._pieces.bytes(self._previous, id_)
        if self._spell is not None and id_ == self._pieces.tokenizer.unk:
            added = added.removesuffix(self._pieces.bytes(None, id_)) + self._spell().encode()
            self.spelled[self._tokens] = added.decode()
        self._previous = id_
        self._tokens += 1
        return self._decoder.decode(added)

    def end(self) -> str:
        """End the text; an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", True)


class IncrementalDetokenizer:
    """Incremental detokenizer that searches for stop strings.

    Released text is not stored, so that adding a token never copies the text before it.

    Attributes:
        offsets: Start of each token in the text; for a token inside a character, the start of that character.

    """

    def __init__(
        self, pieces: TokenDecoder, previous: int | None, stops: StopStrings, spell: DrawSpelling | None = None
    ) -> None:
        self.offsets: list[int] = []
        self._text = StreamDecoder(pieces, previous, spell)
        self._search = StopSearch(stops)
        self._released = 0
        self._pending = ""  # decoded text not yet released

    @property
    def spelled(self) -> dict[int, str]:
        """Text of each spelled token by position."""
        return self._text.spelled

    @property
    def stop_start(self) -> int | None:
        """Start of the first stop string, or None."""
        return self._search.start

    @property
    def length(self) -> int:
        """Number of decoded characters, including a stop string and the text after it."""
        return self._search.length

    @property
    def stable_length(self) -> int:
        """Number of leading characters that no further token can change or turn into a stop string."""
        return self.length - self._search.held_back if self.stop_start is None else self.stop_start

    def add(self, id_: int) -> None:
        """Add one token."""
        self.offsets.append(self.length)
        self._extend(self._text.add(id_))

    def end(self) -> None:
        """End the text; an incomplete character becomes U+FFFD."""
        self._extend(self._text.end())

    def release(self, end: int) -> str:
        """Return the characters up to `end` that were not released before."""
        text = self._pending[: max(0, end - self._released)]
        self._pending = self._pending[len(text) :]
        self._released += len(text)
        return text

    def _extend(self, added: str) -> None:
        self._pending += added
        self._search.feed(added)


class StopCheck:
    """Callable that tells whether a token completes a stop string; call it with every token of one sample.

    Spellings of unknown words are drawn later, so the search restarts after each of them; stop strings that overlap
    a spelling are found by `IncrementalDetokenizer`.
    """

    def __init__(
        self, pieces: TokenDecoder, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
    ) -> None:
        self._text = StreamDecoder(pieces, previous)
        self._stops = stops
        self._search = StopSearch(stops)
        self._unk = pieces.tokenizer.unk if is_unknown_spelled else None

    def __call__(self, id_: int) -> bool:
        """Add a token and return whether a stop string is complete."""
        added = self._text.add(id_)
        if id_ == self._unk:
            self._search = StopSearch(self._stops)
        else:
            self._search.feed(added)
        return self._search.start is not None


def stop_checks(
    pieces: TokenDecoder, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
) -> Callable[[], StopCheck] | None:
    """Return a factory of `StopCheck`, one per sample; None if there are no stop strings."""
    if not stops:
        return None
    return lambda: StopCheck(pieces, previous, stops, is_unknown_spelled=is_unknown_spelled)
