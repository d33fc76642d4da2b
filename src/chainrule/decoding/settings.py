"""Decoding settings and their defaults."""

from dataclasses import dataclass
from typing import Literal, get_args

from chainrule.decoding.ranges import RANGES, check_range
from chainrule.errors import ConfigError

Strategy = Literal["greedy", "sample", "beam"]
UnknownWord = Literal["exclude", "spell", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decoding settings; the defaults sample from the full distribution without `<unk>`.

    `greedy` is sampling at temperature 0; `beam` searches the same filtered distribution that `sample` draws from.
    """

    strategy: Strategy = "sample"
    temperature: float = 1.0  # p^{1/T}; 0 is the argmax
    top_k: int | None = None  # keep the k most probable tokens
    top_p: float | None = None  # keep the smallest set of tokens with probability mass p
    min_p: float | None = None  # keep tokens with at least this fraction of the highest probability
    beam_size: int = 5  # B, hypotheses kept at each length
    length_penalty: float = 0.0  # p in score / length^p; 0: no length normalisation
    repetition_penalty: float = 1.0  # factor of log p of tokens that are already in the text
    no_repeat_ngram: int | None = None  # order n of n-grams that must not be repeated
    max_tokens: int = 100
    unk: UnknownWord = "exclude"  # `<unk>`: never generated, replaced by a sampled spelling, or kept as `<unk>`
    stop: tuple[str, ...] = ()  # stop strings; the text is truncated before the first one
    seed: int | None = None  # None: random

    def __post_init__(self) -> None:
        for name, kind in (("strategy", Strategy), ("unk", UnknownWord)):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {choices}")
        for name in self.__slots__:
            value = getattr(self, name)
            if name in RANGES and value is not None:
                check_range(name, value)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop is {self.stop!r}; choose a tuple of texts, none of them empty")
