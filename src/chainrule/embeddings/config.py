"""What can be chosen about word vectors."""

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.errors import ConfigError

Method = Literal["skipgram", "cbow", "glove", "ppmi", "one-hot"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
Splitting = Literal["word", "whitespace"]
TOKENIZERS: Final[tuple[Splitting, ...]] = get_args(Splitting)
RATES: Final[dict[str, float]] = {"skipgram": 0.025, "cbow": 0.05, "glove": 0.05}
INSTRUCTIONS: Final = ("auto", "avx512", "avx2", "none")
MOST: Final = 1 << 16
UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorConfig:
    """How word vectors are learnt; each method reads those settings that it has."""

    method: Method = "skipgram"
    dimensions: int = 100
    window: int = 5  # words to each side, at most; word2vec draws 1 … window anew for each word
    negative: int = 5  # noise words for each word
    epochs: int = 5
    learning_rate: float = 0.0  # 0: the method's own
    sample: float = 1e-3  # words more frequent than this part of the text are thinned out; 0: none
    power: float = 0.75  # of the counts, for noise and for contexts
    min_count: int = 5
    vocab_size: int | None = None  # the most frequent so many
    lowercase: bool = False
    tokenizer: Splitting = "word"  # word: punctuation is split from words; whitespace: words end at blanks alone
    shortest: int = 0  # letters of the shortest character n-gram; 0: none
    longest: int = 0
    buckets: int = 200_000  # vectors that the character n-grams share
    x_max: float = 10.0  # GloVe: pairs counted so often have the whole weight
    alpha: float = 0.75  # GloVe: power of the weight below that
    memory: str = "1G"  # for counting co-occurrences
    simd: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"vectors.method is '{self.method}'; choose one of {', '.join(METHODS)}")
        if self.simd not in INSTRUCTIONS:
            raise ConfigError(f"vectors.simd is '{self.simd}'; choose one of {', '.join(INSTRUCTIONS)}")
        if self.tokenizer not in TOKENIZERS:
            raise ConfigError(f"vectors.tokenizer is '{self.tokenizer}'; choose one of {', '.join(TOKENIZERS)}")
        for name, least, most in (
            ("dimensions", 1, MOST),
            ("window", 1, MOST),
            ("negative", 0, 1000),
            ("epochs", 1, MOST),
            ("min_count", 1, 1 << 62),
            ("vocab_size", 1, (1 << 31) - 1),
            ("buckets", 1, (1 << 31) - 1),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"vectors.{name} is {value}; choose a whole number from {least} to {most}")
        self._check_numbers()
        if (self.shortest, self.longest) != (0, 0) and not 1 <= self.shortest <= self.longest <= 64:
            raise ConfigError(
                f"vectors.shortest is {self.shortest} and vectors.longest {self.longest}; "
                "choose 1 ≤ shortest ≤ longest ≤ 64, such as 3 and 6, or 0 and 0 for no character n-grams"
            )
        if self.has_subwords and self.method not in ("skipgram", "cbow"):
            raise ConfigError(
                f"vectors.shortest is {self.shortest}, but vectors.method '{self.method}' "
                "has no character n-grams; choose skipgram or cbow"
            )
        if self.memory_bytes < UNITS["M"]:
            raise ConfigError(f"vectors.memory is '{self.memory}'; choose 1M or more")

    def _check_numbers(self) -> None:
        for name in ("learning_rate", "sample", "power", "x_max", "alpha"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"vectors.{name} is {value}; choose 0 or more")
        if self.x_max == 0:
            raise ConfigError("vectors.x_max is 0; choose a number above 0")

    @property
    def has_subwords(self) -> bool:
        """Whether words are also read by their character n-grams."""
        return self.shortest > 0

    @property
    def rate(self) -> float:
        """The learning rate to begin with."""
        return self.learning_rate or RATES.get(self.method, 0.0)

    @property
    def memory_bytes(self) -> int:
        """`memory` in bytes.

        >>> VectorConfig(memory="64M").memory_bytes
        67108864
        """
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", self.memory.strip().upper())
        if not found:
            raise ConfigError(f"vectors.memory is '{self.memory}'; write it as 500M or 2G")
        return int(float(found[1]) * UNITS[found[2]])
