"""Every figure of `chainrule evaluate`, from the log-probabilities of a text's tokens.

Per-token figures are over token events, p(`<unk>`) without its spelling; bits per byte and per character and
perplexity per word are of the text itself, spellings included, and so compare across tokenizers.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.lm import Floats

LN2 = float(np.log(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a model makes of a text. Nothing here is rounded; infinity is infinity."""

    sentences: int
    tokens: int  # predicted: </s> counted, <s> not
    oov: int
    words: int
    characters: int
    bytes: int
    nats: float  # −log p(tokens)
    nats_known: float  # the same without the unknown ones
    nats_of_spellings: float  # −log p(spellings)
    seconds: float
    cause: str | None = None  # the first token that has no probability, and where it stands
    replaced: int = 0
    is_upper_bound: bool = False  # one segmentation of many was scored

    @property
    def nats_per_token(self) -> float:
        """Cross-entropy in nats."""
        return self.nats / self.tokens

    @property
    def bits_per_token(self) -> float:
        """Cross-entropy in bits."""
        return self.nats_per_token / LN2

    @property
    def perplexity(self) -> float:
        """P(w_1…w_N)^(−1/N)."""
        return _exp(self.nats_per_token)

    @property
    def perplexity_excluding_oov(self) -> float:
        """The same over the tokens the vocabulary holds."""
        known = self.tokens - self.oov
        return _exp(self.nats_known / known) if known else float("nan")

    @property
    def perplexity_per_word(self) -> float:
        """Of the text with its spellings, a line break counting as a word."""
        return _exp(self._nats_of_text / (self.words + self.sentences))

    @property
    def bits_per_character(self) -> float:
        """Of the text with its spellings, a line break counting as a character."""
        return self._nats_of_text / LN2 / self.characters

    @property
    def bits_per_byte(self) -> float:
        """−log₂[p(tokens) p(spellings)] / bytes: the one scale."""
        return self._nats_of_text / LN2 / self.bytes

    @property
    def infinite(self) -> bool:
        """Whether some token had no probability."""
        return bool(np.isinf(self.nats))

    @property
    def tokens_per_second(self) -> float:
        """How fast it was computed."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def _nats_of_text(self) -> float:
        return self.nats + self.nats_of_spellings


def summarize(
    text: Encoded,
    log_probs: Floats,
    spelling_log_probs: Floats,
    *,
    seconds: float,
    cause: str | None = None,
    is_upper_bound: bool = False,
) -> Evaluation:
    """Figures of a text from the log-probabilities of its tokens (N,) and of its unknown words' spellings."""
    known = log_probs[text.ids != text.unk] if text.unk is not None else log_probs
    # 0.0 - x rather than -x: a text that is certain has 0 nats, not -0.
    return Evaluation(
        sentences=text.lines,
        tokens=text.tokens,
        oov=text.oov,
        words=text.words,
        characters=text.characters,
        bytes=text.bytes,
        nats=float(0.0 - log_probs.sum()),
        nats_known=float(0.0 - known.sum()),
        nats_of_spellings=float(0.0 - spelling_log_probs.sum()),
        seconds=seconds,
        cause=cause,
        replaced=text.replaced,
        is_upper_bound=is_upper_bound,
    )


def first_impossible(text: Encoded, log_probs: Floats) -> tuple[int, int, int] | None:
    """Id, line and place in it (from 1) of the first token without probability."""
    impossible = np.flatnonzero(np.isneginf(log_probs))
    if not len(impossible):
        return None
    at = int(impossible[0])
    ends = np.flatnonzero(text.ids[:at] == text.eos)
    start = int(ends[-1]) + 1 if len(ends) else 0
    return int(text.ids[at]), len(ends) + 1, at - start + 1


def perplexity(log_probs: Floats) -> float:
    """exp(−mean of (N,) log p in nats); inf where a token is impossible.

    >>> round(perplexity(np.log([0.5, 0.5, 0.5])), 6)
    2.0
    """
    return _exp(-float(log_probs.mean()))


def _exp(nats: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(nats))
