"""Valid ranges of the decoding settings."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

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
        raise ConfigError(f"{name} is {value!r}; choose {RANGES[name]}")
