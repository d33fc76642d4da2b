"""The text of one completion while it grows.

Lives here: characters not yet complete, stop strings, and which text no further token can change. It says what
decoding/continuation.py says, token by token in time that does not grow with the text.
"""

import codecs
from collections.abc import Callable, Sequence

from chainrule.server.pieces import Pieces


class Writing:
    """Takes tokens one by one and tells how much of their text is settled.

    Attributes:
        text: All characters that are complete.
        begins: Where in the text each token begins; a token inside a character where that character begins.
        cut: Where the first stop string begins, once there is one.

    """

    def __init__(self, pieces: Pieces, previous: int | None, stops: Sequence[str] = ()) -> None:
        self.text = ""
        self.begins: list[int] = []
        self.cut: int | None = None
        self._pieces = pieces
        self._previous = previous
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id_: int) -> None:
        """One token more."""
        self.begins.append(len(self.text))
        self._extend(self._decoder.decode(self._pieces.bytes(self._previous, id_)))
        self._previous = id_

    def end(self) -> None:
        """No more will come: what is open stays so."""
        self._extend(self._decoder.decode(b"", True))

    @property
    def final(self) -> str:
        """The text, cut before the first stop string."""
        return self.text[: self.cut]

    @property
    def settled(self) -> int:
        """How many characters no further token can change: no open character, no possible stop string."""
        return len(self.text) - self._open_stop() if self.cut is None else self.cut

    def _extend(self, added: str) -> None:
        before = len(self.text)
        self.text += added
        if self.cut is None and self._stops and added:
            places = (self.text.find(stop, max(0, before - len(stop) + 1)) for stop in self._stops)
            self.cut = min((place for place in places if place >= 0), default=None)

    def _open_stop(self) -> int:
        """Length of the longest end of the text with which a stop string begins."""
        tail = self.text[-self._longest :] if self._longest else ""
        lengths = (n for stop in self._stops for n in range(1, len(stop)) if tail.endswith(stop[:n]))
        return max(lengths, default=0)


def stopping(pieces: Pieces, previous: int | None, stops: Sequence[str]) -> Callable[[Sequence[int]], bool] | None:
    """Whether the last of these ids completes a stop string; None where there is none to complete."""
    if not stops:
        return None
    encoded = [stop.encode() for stop in stops]
    reach = max(map(len, encoded))  # a token is a byte at least

    def is_stopped(ids: Sequence[int]) -> bool:
        tail = ids[-reach:]
        before = [ids[-reach - 1] if len(ids) > reach else previous, *tail[:-1]]
        added = b"".join(pieces.bytes(b, i) for b, i in zip(before, tail, strict=True))
        return any(stop in added for stop in encoded)

    return is_stopped
