"""How a continuation is to be chosen, as one value.

Lives here: the settings and their defaults. Not here: which values they may take (ranges.py), what they do
(shaping.py, sample.py, beam.py).
"""

from dataclasses import dataclass
from typing import Literal, get_args

from chainrule.decoding.ranges import RANGES, check
from chainrule.errors import ConfigError

Strategy = Literal["greedy", "sample", "beam"]
UnknownWord = Literal["exclude", "spell", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The settings of generation; the defaults sample from the model without `<unk>` and truncate nothing.

    `greedy` is sampling at temperature 0; `beam` searches the very distribution that `sample` draws from.
    """

    strategy: Strategy = "sample"
    temperature: float = 1.0  # p^{1/T}; 0 is the argmax
    top_k: int | None = None  # keep the k most probable
    top_p: float | None = None  # keep the smallest set whose mass reaches p
    min_p: float | None = None  # keep what is at least this fraction of the most probable
    beam_size: int = 5  # B, the hypotheses kept at each length
    length_penalty: float = 0.0  # p in score / length^p; 0 is the plain sum
    repetition_penalty: float = 1.0  # log p of a token already in the text is multiplied by it
    no_repeat_ngram: int | None = None  # no n-gram of this order occurs twice
    max_tokens: int = 100
    unk: UnknownWord = "exclude"  # `<unk>`: impossible, written by the speller, or printed as it is
    stop: tuple[str, ...] = ()  # the text ends before the first of these
    seed: int | None = None  # None: different each time

    def __post_init__(self) -> None:
        for name, kind in (("strategy", Strategy), ("unk", UnknownWord)):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {choices}")
        for name in self.__slots__:
            value = getattr(self, name)
            if name in RANGES and value is not None:
                check(name, value)
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop is {self.stop!r}; choose a tuple of texts, none of them empty")
