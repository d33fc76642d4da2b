"""The text of one completion while it grows.

It says what decoding/continuation.py says, token by token in time that does not grow with the text: characters not
yet complete, stop strings, and which text no further token can change.
"""

import codecs
from collections.abc import Callable

from chainrule.decoding.stop_strings import StopSearch, StopStrings
from chainrule.server.pieces import Pieces

Spell = Callable[[], str]
"""Draws the spelling of the next unknown word of one sample."""


class TokenText:
    """The text that each token of one sample adds; with `spell`, a spelling in place of the name of `<unk>`.

    Attributes:
        spelled: The text of each spelled token by its position, with the blank before it.

    """

    def __init__(self, pieces: Pieces, previous: int | None, spell: Spell | None = None) -> None:
        self.spelled: dict[int, str] = {}
        self._pieces = pieces
        self._previous = previous
        self._spell = spell
        self._tokens = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id_: int) -> str:
        """Read one token."""
        added = self._pieces.bytes(self._previous, id_)
        if self._spell is not None and id_ == self._pieces.tokenizer.unk:
            added = added.removesuffix(self._pieces.bytes(None, id_)) + self._spell().encode()
            self.spelled[self._tokens] = added.decode()
        self._previous = id_
        self._tokens += 1
        return self._decoder.decode(added)

    def end(self) -> str:
        """Close the text: bytes of a character that was not completed become U+FFFD."""
        return self._decoder.decode(b"", True)


class Writing:
    """Takes tokens one by one and tells how much of their text is settled.

    Text that was released is not kept, so that adding a token never copies the text before it.

    Attributes:
        begins: Where in the text each token begins; a token inside a character where that character begins.

    """

    def __init__(
        self, pieces: Pieces, previous: int | None, stops: StopStrings, spell: Spell | None = None
    ) -> None:
        self.begins: list[int] = []
        self._text = TokenText(pieces, previous, spell)
        self._search = StopSearch(stops)
        self._released = 0
        self._pending = ""  # what follows the released text

    @property
    def spelled(self) -> dict[int, str]:
        """The text of each spelled token by its position."""
        return self._text.spelled

    @property
    def cut(self) -> int | None:
        """Where the first stop string begins, once there is one."""
        return self._search.start

    @property
    def length(self) -> int:
        """Complete characters, a stop string and what follows it included."""
        return self._search.length

    @property
    def settled(self) -> int:
        """How many characters no further token can change: no open character, no possible stop string."""
        return self.length - self._search.held_back if self.cut is None else self.cut

    def add(self, id_: int) -> None:
        """Add one token."""
        self.begins.append(self.length)
        self._extend(self._text.add(id_))

    def end(self) -> None:
        """Close the text: bytes of a character that was not completed become U+FFFD."""
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
    """Whether the tokens of one sample complete a stop string; called with each token as it is drawn.

    Where unknown words are spelled, their spellings are drawn later: the search starts anew behind each of them,
    and `Writing` finds the stop strings that contain a part of one.
    """

    def __init__(
        self, pieces: Pieces, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
    ) -> None:
        self._text = TokenText(pieces, previous)
        self._stops = stops
        self._search = StopSearch(stops)
        self._unk = pieces.tokenizer.unk if is_unknown_spelled else None

    def __call__(self, id_: int) -> bool:
        """Read one token."""
        added = self._text.add(id_)
        if id_ == self._unk:
            self._search = StopSearch(self._stops)
        else:
            self._search.feed(added)
        return self._search.start is not None


def stop_checks(
    pieces: Pieces, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
) -> Callable[[], StopCheck] | None:
    """Return a function that makes the check of one sample; None where there is no stop string."""
    if not stops:
        return None
    return lambda: StopCheck(pieces, previous, stops, is_unknown_spelled=is_unknown_spelled)
