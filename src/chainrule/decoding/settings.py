"""Decoding settings and their defaults."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Range:
    """Interval of numbers from `low` (included if `has_low`) to `high`; does not contain NaN."""

    low: float
    high: float = math.inf
    is_whole: bool = False
    has_low: bool = True

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, Integral if self.is_whole else Real):
            return False
        number: Any = value  # not converted to float, since a large seed would lose digits
        is_above = number >= self.low if self.has_low else number > self.low
        return bool(is_above and number <= self.high and number < math.inf)

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        if self.high == math.inf:
            return f"{kind} {'of at least' if self.has_low else 'above'} {self.low:g}"
        high = f"{self.high:,}" if self.is_whole else f"{self.high:g}"
        return f"{kind} in {'[' if self.has_low else '('}{self.low:g}, {high}]"


RANGES: Final = {
    "temperature": Range(0),
    "top_k": Range(1, is_whole=True),
    "top_p": Range(0, 1, has_low=False),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, has_low=False),
    "no_repeat_ngram": Range(1, is_whole=True),
    "beam_size": Range(1, 10_000, is_whole=True),
    "length_penalty": Range(0, 10),
    "max_tokens": Range(0, 1_000_000, is_whole=True),
    "seed": Range(0, is_whole=True),
    "num": Range(1, 100_000, is_whole=True),
    "top": Range(1, is_whole=True),
}


def check_range(name: str, value: object) -> None:
    """Raise ConfigError if `value` is outside the range of the setting `name`."""
    if value not in RANGES[name]:
        raise ConfigError(f"{name} is {value!r}; choose {RANGES[name]}", name)


Strategy = Literal["greedy", "sample", "beam"]
UnknownWord = Literal["exclude", "spell", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decoding settings; the defaults sample from the full distribution without `<unk>`.

    `greedy` is sampling at temperature 0; `beam` searches the same filtered distribution that `sample` draws from.
    """

    strategy: Strategy = setting("sample", "Decoding strategy: greedy, sample or beam.", shows_default=True)
    temperature: float = setting(1.0, "Sampling temperature; 0 is greedy.", shows_default=True)  # p^{1/T}
    top_k: int | None = setting(None, "Top-k sampling: the k most probable tokens.")
    top_p: float | None = setting(None, "Nucleus sampling: the smallest set of tokens with total probability p.")
    min_p: float | None = setting(
        None, "Min-p sampling: tokens with at least this fraction of the highest probability."
    )
    beam_size: int = setting(5, "Beam size.", shows_default=True)  # B, hypotheses kept at each length
    length_penalty: float = setting(
        0.0, "Length penalty a: hypotheses are ranked by log p / length^a.", shows_default=True
    )
    repetition_penalty: float = setting(  # factor of log p
        1.0, "Values above 1 make tokens that already occurred less likely.", shows_default=True
    )
    no_repeat_ngram: int | None = setting(None, "Never repeat an n-gram of this order.")
    max_tokens: int = setting(100, "Maximum number of tokens.", shows_default=True)
    unk: UnknownWord = setting(
        "exclude",
        "Treatment of <unk>: exclude (never generated), spell (replaced by a spelling), or keep.",
        shows_default=True,
    )
    stop: tuple[str, ...] = ()  # stop strings; the text is truncated before the first one
    seed: int | None = setting(None, "Random seed; the same seed gives the same text.")  # None: random

    def __post_init__(self) -> None:
        for name, kind in (("strategy", Strategy), ("unk", UnknownWord)):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {choices}", name)
        for name in self.__slots__:
            value = getattr(self, name)
            if name in RANGES and value is not None:
                check_range(name, value)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop is {self.stop!r}; choose a tuple of texts, none of them empty", "stop")
