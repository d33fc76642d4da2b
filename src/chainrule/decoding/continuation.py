"""A prompt as ids, and the text that new ids add to it.

Lives here: the blank between prompt and continuation, stop strings, characters not yet complete.
Not here: how the ids are chosen (sample.py, beam.py).
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from chainrule.decoding.codec import Codec
from chainrule.decoding.stop_strings import StopSearch, StopStrings

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"  # how a decoder shows bytes that are no character, or not yet


class Continuation:
    """Turns generated ids into text: what they add to the last line of the prompt.

    Attributes:
        prompt: The prompt as the text follows on it, without closing blanks that the tokenizer did not read.
        prompt_ids: The ids of the prompt, `</s>` for each line break in it.

    """

    def __init__(self, codec: Codec, prompt: str, stops: Sequence[str] = ()) -> None:
        *lines, last = re.split(r"\r\n|\r|\n", prompt)
        self._codec = codec
        self._stops = tuple(stops)
        self._automaton = StopStrings(stops)
        self._line: list[int] = codec.encode_prompt(last).tolist()
        self._before = codec.decode(self._line)
        blanks = last[len(last.rstrip(" \t")) :]
        self.prompt = prompt if self._before.endswith(blanks) else prompt.removesuffix(blanks)
        ended = (i for line in lines for i in (*codec.encode(line).tolist(), codec.eos))
        self.prompt_ids: tuple[int, ...] = (*ended, *self._line)

    def text(self, ids: Sequence[int]) -> str:
        """What these ids add, cut before the first stop string."""
        added = self._added(ids)
        return added[: self._stop_position(added)]

    def is_stopped(self, ids: Sequence[int]) -> bool:
        """Whether a stop string, be it spread over several tokens, is in the text of these ids."""
        return bool(self._stops) and self._stop_position(self._added(ids)) is not None

    def grow(self) -> "GrowingText":
        """Return the text of one continuation before its first id."""
        return GrowingText(self._codec, self._line, self._automaton)

    def stop_check(self) -> Callable[[int], bool]:
        """Return a function that is called with each id of one continuation: whether a stop string is complete."""
        text = self.grow()

        def check(id_: int) -> bool:
            text.add(id_)
            return text.is_stopped

        return check

    def _added(self, ids: Sequence[int]) -> str:
        words = ids[:-1] if ids and ids[-1] == self._codec.eos else ids
        return self._codec.decode([*self._line, *words])[len(self._before) :]

    def _stop_position(self, added: str) -> int | None:
        return min((added.index(stop) for stop in self._stops if stop in added), default=None)


class GrowingText:
    """The text that ids add to a prompt, decoded id by id in time that does not grow with the text.

    Only the ids after the last complete character are decoded again, behind one id of context: a decoder appends
    (see `Codec`), and whether a blank comes before a token depends on the token before it at most.

    Attributes:
        is_stopped: Whether the text contains a stop string.

    """

    def __init__(self, codec: Codec, line: Sequence[int], stops: StopStrings) -> None:
        self.is_stopped = False
        self._codec = codec
        self._ids = list(line)  # context, then the ids since the last complete character
        self._context_length = len(codec.decode(self._ids))  # characters
        self._search = StopSearch(stops)
        self._is_open = False  # the text ends with U+FFFD, which a further id may change
        self._read = 0  # characters behind the context that the search has read
        self._pending = ""  # text that was not released
        self._released = 0

    def add(self, id_: int) -> None:
        """Add one id; `</s>` adds no text."""
        if id_ == self._codec.eos:
            return
        self._ids.append(id_)
        added = self._codec.decode(self._ids)[self._context_length :]
        closed = added.rstrip(REPLACEMENT)
        self._append(closed[self._read :])
        self._read = max(self._read, len(closed))
        self._is_open = len(closed) < len(added)
        if not self._is_open:
            self._ids = [id_]
            self._context_length = len(self._codec.decode(self._ids))
            self._read = 0

    def release(self) -> str:
        """Return the text that was not returned before and that no further id can change.

        An open character and a possible beginning of a stop string are held back.
        """
        end = self._search.length - self._search.held_back if self._search.start is None else self._search.start
        text = self._pending[: max(0, end - self._released)]
        self._pending = self._pending[len(text) :]
        self._released += len(text)
        return text

    def end(self) -> str:
        """Return the rest of the text, cut before the first stop string."""
        if self._is_open:
            self._append(self._codec.decode(self._ids)[self._context_length + self._read :])
        if self._search.start is None:
            return self._pending
        return self._pending[: max(0, self._search.start - self._released)]

    def _append(self, text: str) -> None:
        self._pending += text
        self._search.feed(text)
        self.is_stopped = self._search.start is not None
