"""One completion as a client is told of it: piece by piece, or all at once from the same pieces.

Lives here: which text and which tokens go out when, and their log-probabilities. Not here: the draw (scheduler.py)
and the events of a stream (streaming.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from chainrule.decoding.stop_strings import StopStrings
from chainrule.server.pieces import Given, Pieces
from chainrule.server.scheduler import Drawn, Reading
from chainrule.server.writing import Spell, Writing
from chainrule.tokenizers.config import BOS

FLOOR: Final = -9999.0  # JSON has no infinity
Alternatives = Sequence[tuple[int, float]]


@dataclass(slots=True)
class Tokens:
    """Tokens of a text, as the field `logprobs` shows them."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, text: str, log_prob: float | None, top: dict[str, float] | None, offset: int) -> None:
        """One token more."""
        self.tokens.append(text)
        self.token_logprobs.append(log_prob)
        self.top_logprobs.append(top)
        self.text_offset.append(offset)

    def extend(self, other: "Tokens") -> None:
        """Those of the next piece of text."""
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset

    def document(self, with_top: bool) -> dict[str, Any]:
        """The field; without alternatives asked for, these are null as a whole."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs if with_top else None,
            "text_offset": self.text_offset,
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new of one choice."""

    index: int
    text: str
    tokens: Tokens
    finish_reason: Literal["stop", "length"] | None = None
    drawn: int = 0  # tokens drawn for it, told or not

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.text and not self.tokens.tokens and self.finish_reason is None


class Choice:
    """One completion while it is drawn.

    A token goes out with the text it begins in. Tokens of a stop string go out as little as its text does;
    `</s>`, which has no text, always goes out.

    Attributes:
        is_over: A stop string is complete, or the last token came.

    """

    def __init__(
        self,
        index: int,
        pieces: Pieces,
        given: Given,
        stops: StopStrings,
        *,
        echo: bool,
        has_tokens: bool,
        spell: Spell | None = None,
    ) -> None:
        self.is_over = False
        self._has_tokens = has_tokens
        self._index = index
        self._pieces = pieces
        self._given = given
        self._writing = Writing(pieces, given.last, stops, spell)
        self._start = len(given.text) if echo else 0  # of the completion in the text sent
        self._drawn: list[Drawn] = []
        self._tokens_sent = 0

    def opening(self, tokens: Tokens) -> Delta:
        """The prompt and its tokens, to be echoed."""
        return Delta(self._index, self._given.text, tokens)

    def closing(self) -> Delta:
        """The end of a completion of no tokens."""
        return Delta(self._index, "", Tokens(), "length")

    def take(self, drawn: Drawn) -> Delta:
        """One token more: what no other can change of the text by now, all of it after the last."""
        self._drawn.append(drawn)
        self._writing.add(drawn.id)
        if drawn.finish is None and self._writing.cut is None:
            return self._until(self._writing.settled, None)
        self.is_over = True
        self._writing.end()
        is_stopped = drawn.finish == "stop" or self._writing.cut is not None
        end = self._writing.length if self._writing.cut is None else self._writing.cut
        return self._until(end, "stop" if is_stopped else "length")

    def _until(self, settled: int, finish: Literal["stop", "length"] | None) -> Delta:
        """The text up to here that was not sent before, and the tokens that begin in it."""
        text, tokens = self._writing.release(settled), Tokens()
        eos = self._pieces.tokenizer.eos
        while self._has_tokens and self._tokens_sent < len(self._drawn):
            drawn = self._drawn[self._tokens_sent]
            begin = self._writing.begins[self._tokens_sent]
            if begin >= settled and drawn.id != eos:
                break
            before = self._drawn[self._tokens_sent - 1].id if self._tokens_sent else self._given.last
            spelled = self._writing.spelled.get(self._tokens_sent)
            name, top = named(self._pieces, before, drawn.id, drawn.log_prob, drawn.top, spelled)
            tokens.add(name, finite(drawn.log_prob), top, self._start + begin)
            self._tokens_sent += 1
        return Delta(self._index, text, tokens, finish, drawn=1)


def prompt_tokens(pieces: Pieces, given: Given, reading: Reading) -> Tokens:
    """The tokens of a prompt; as with OpenAI the first, be it `<s>` or not, has no log-probability."""
    shown = Tokens()
    if given.has_bos:
        shown.add(BOS, None, None, 0)
    before = None
    for position, id_ in enumerate(given.ids):
        log_prob = float(reading.log_probs[position])
        top = reading.top[position] if reading.top else ()
        name, alternatives = named(pieces, before, id_, log_prob, top)
        is_first = not shown.tokens
        shown.add(
            name,
            None if is_first else finite(log_prob),
            None if is_first else alternatives,
            given.begins[position],
        )
        before = id_
    return shown


def named(
    pieces: Pieces, before: int | None, id_: int, log_prob: float, top: Alternatives, spelled: str | None = None
) -> tuple[str, dict[str, float]]:
    """A token by its text, and its alternatives by theirs, itself among them; `spelled` is an unknown word's text.

    Of two that look alike the more probable is told.
    """
    name = pieces.text(before, id_) if spelled is None else spelled
    found: dict[str, float] = {}
    for other, value in top:
        found.setdefault(name if other == id_ else pieces.text(before, other), finite(value))
    found.setdefault(name, finite(log_prob))
    return name, found


def finite(log_prob: float) -> float:
    """A log-probability that JSON can hold."""
    return max(float(log_prob), FLOOR)
