"""Assembly of one completion from generated tokens: text deltas and log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from chainrule.decoding.stop_strings import StopStrings
from chainrule.server.pieces import EncodedPrompt, TokenDecoder
from chainrule.server.scheduler import ScoreResult, TokenResult
from chainrule.server.writing import DrawSpelling, IncrementalDetokenizer
from chainrule.tokenizers.config import BOS

FLOOR: Final = -9999.0  # JSON cannot represent −∞
Alternatives = Sequence[tuple[int, float]]


@dataclass(slots=True)
class LogprobTable:
    """Tokens, log-probabilities, alternatives and offsets, as in the field `logprobs`."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, text: str, log_prob: float | None, top: dict[str, float] | None, offset: int) -> None:
        """Append a token."""
        self.tokens.append(text)
        self.token_logprobs.append(log_prob)
        self.top_logprobs.append(top)
        self.text_offset.append(offset)

    def extend(self, other: "LogprobTable") -> None:
        """Append the tokens of another table."""
        self.tokens += other.tokens
        self.token_logprobs += other.token_logprobs
        self.top_logprobs += other.top_logprobs
        self.text_offset += other.text_offset

    def document(self, with_top: bool) -> dict[str, Any]:
        """Return the JSON document; `top_logprobs` is null unless requested."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs if with_top else None,
            "text_offset": self.text_offset,
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """New text and tokens of one choice."""

    index: int
    text: str
    tokens: LogprobTable
    finish_reason: Literal["stop", "length"] | None = None
    drawn: int = 0  # tokens generated, including those not sent

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.text and not self.tokens.tokens and self.finish_reason is None


class CompletionBuilder:
    """Builds one completion token by token.

    A token is sent together with the text in which it starts. Tokens of a stop string are not sent; `</s>`, which
    has no text, always is.

    Attributes:
        is_finished: Whether a stop string is complete or the last token was added.

    """

    def __init__(
        self,
        index: int,
        pieces: TokenDecoder,
        prompt: EncodedPrompt,
        stops: StopStrings,
        *,
        echo: bool,
        has_tokens: bool,
        spell: DrawSpelling | None = None,
    ) -> None:
        self.is_finished = False
        self._has_tokens = has_tokens
        self._index = index
        self._pieces = pieces
        self._prompt = prompt
        self._detokenizer = IncrementalDetokenizer(pieces, prompt.last, stops, spell)
        self._start = len(prompt.text) if echo else 0  # offset of the completion in the text sent
        self._generated: list[TokenResult] = []
        self._tokens_sent = 0

    def echo(self, tokens: LogprobTable) -> Delta:
        """Return the delta that echoes the prompt and its tokens."""
        return Delta(self._index, self._prompt.text, tokens)

    def finish_empty(self) -> Delta:
        """Return the only delta of a completion without tokens."""
        return Delta(self._index, "", LogprobTable(), "length")

    def add_token(self, token: TokenResult) -> Delta:
        """Add a token; return the text that no later token can change, or all of it after the last token."""
        self._generated.append(token)
        self._detokenizer.add(token.id)
        if token.finish is None and self._detokenizer.stop_start is None:
            return self._delta_until(self._detokenizer.stable_length, None)
        self.is_finished = True
        self._detokenizer.end()
        is_stopped = token.finish == "stop" or self._detokenizer.stop_start is not None
        end = self._detokenizer.length if self._detokenizer.stop_start is None else self._detokenizer.stop_start
        return self._delta_until(end, "stop" if is_stopped else "length")

    def _delta_until(self, settled: int, finish: Literal["stop", "length"] | None) -> Delta:
        """Return the unsent text up to `settled` and the tokens that start in it."""
        text, tokens = self._detokenizer.release(settled), LogprobTable()
        eos = self._pieces.tokenizer.eos
        while self._has_tokens and self._tokens_sent < len(self._generated):
            token = self._generated[self._tokens_sent]
            start = self._detokenizer.offsets[self._tokens_sent]
            if start >= settled and token.id != eos:
                break
            before = self._generated[self._tokens_sent - 1].id if self._tokens_sent else self._prompt.last
            spelled = self._detokenizer.spelled.get(self._tokens_sent)
            name, top = name_alternatives(self._pieces, before, token.id, token.log_prob, token.top, spelled)
            tokens.add(name, clamp_log_prob(token.log_prob), top, self._start + start)
            self._tokens_sent += 1
        return Delta(self._index, text, tokens, finish, drawn=1)


def prompt_logprobs(pieces: TokenDecoder, prompt: EncodedPrompt, reading: ScoreResult) -> LogprobTable:
    """Return the log-probabilities of a prompt; as in OpenAI's API, the first token has none."""
    table = LogprobTable()
    if prompt.has_bos:
        table.add(BOS, None, None, 0)
    before = None
    for position, id_ in enumerate(prompt.ids):
        log_prob = float(reading.log_probs[position])
        top = reading.top[position] if reading.top else ()
        name, alternatives = name_alternatives(pieces, before, id_, log_prob, top)
        is_first = not table.tokens
        table.add(
            name,
            None if is_first else clamp_log_prob(log_prob),
            None if is_first else alternatives,
            prompt.offsets[position],
        )
        before = id_
    return table


def name_alternatives(
    pieces: TokenDecoder,
    before: int | None,
    id_: int,
    log_prob: float,
    top: Alternatives,
    spelled: str | None = None,
) -> tuple[str, dict[str, float]]:
    """Return the text of a token and the log-probabilities of its alternatives by text, including its own.

    `spelled` replaces the text of an unknown word. Of alternatives with equal text, the most probable is returned.
    """
    name = pieces.text(before, id_) if spelled is None else spelled
    log_probs: dict[str, float] = {}
    for other, value in top:
        log_probs.setdefault(name if other == id_ else pieces.text(before, other), clamp_log_prob(value))
    log_probs.setdefault(name, clamp_log_prob(log_prob))
    return name, log_probs


def clamp_log_prob(log_prob: float) -> float:
    """Return `log_prob`, at least `FLOOR`."""
    return max(float(log_prob), FLOOR)
