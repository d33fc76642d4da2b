"""A prompt as ids, and the text that new ids add to it.

Lives here: the blank between prompt and continuation, stop strings, characters not yet complete.
Not here: how the ids are chosen (sample.py, beam.py).
"""

import re
from collections.abc import Sequence
from typing import Final

from chainrule.decoding.codec import Codec
from chainrule.decoding.stop_strings import StopStrings

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
        self._line: list[int] = codec.encode(last).tolist()
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

    def settled(self, ids: Sequence[int]) -> str:
        """The part of `text` that no further id can change: no open character, no possible stop string."""
        added = self._added(ids)
        position = self._stop_position(added)
        if position is not None:
            return added[:position]
        closed = added.rstrip(REPLACEMENT)
        return closed[: len(closed) - self._open_stop(closed)]

    def _added(self, ids: Sequence[int]) -> str:
        words = ids[:-1] if ids and ids[-1] == self._codec.eos else ids
        return self._codec.decode([*self._line, *words])[len(self._before) :]

    def _stop_position(self, added: str) -> int | None:
        return min((added.index(stop) for stop in self._stops if stop in added), default=None)

    def _open_stop(self, closed: str) -> int:
        """Length of the longest end of the text with which a stop string begins; no stop string is in the text."""
        longest = self._automaton.longest
        return self._automaton.depth(self._automaton.scan(closed[-longest:])) if longest else 0
