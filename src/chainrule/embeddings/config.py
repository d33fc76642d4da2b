"""Configuration of word vectors."""

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.errors import ConfigError

Method = Literal["skipgram", "cbow", "glove", "ppmi", "one-hot"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
WordTokenizer = Literal["word", "whitespace"]
TOKENIZERS: Final[tuple[WordTokenizer, ...]] = get_args(WordTokenizer)
DEFAULT_LEARNING_RATES: Final[dict[str, float]] = {"skipgram": 0.025, "cbow": 0.05, "glove": 0.05}
SIMD_CHOICES: Final = ("auto", "avx512", "avx2", "none")
MAX_SETTING: Final = 1 << 16
UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorConfig:
    """Training settings; each method uses the ones that apply to it."""

    method: Method = "skipgram"
    dimensions: int = 100
    window: int = 5  # maximum words on each side; word2vec draws 1 … window for each word
    negative: int = 5  # negative samples per positive pair
    epochs: int = 5
    learning_rate: float = 0.0  # initial learning rate; 0: default of the method
    sample: float = 1e-3  # subsampling threshold for frequent words; 0: no subsampling
    power: float = 0.75  # exponent of the counts in the noise distribution and in PPMI context smoothing
    min_count: int = 5
    vocab_size: int | None = None  # maximum number of words, the most frequent first
    lowercase: bool = False
    tokenizer: WordTokenizer = "word"  # word: split punctuation from words; whitespace: split at whitespace only
    shortest: int = 0  # length of the shortest character n-grams; 0: no character n-grams
    longest: int = 0  # length of the longest character n-grams
    buckets: int = 200_000  # hash buckets of character n-grams
    x_max: float = 10.0  # GloVe: co-occurrence count from which the weight is 1
    alpha: float = 0.75  # GloVe: exponent of the weight below x_max
    memory: str = "1G"  # memory limit for counting co-occurrences
    simd: str = "auto"  # instruction set of the kernels

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"vectors.method is '{self.method}'; choose one of {', '.join(METHODS)}")
        if self.simd not in SIMD_CHOICES:
            raise ConfigError(f"vectors.simd is '{self.simd}'; choose one of {', '.join(SIMD_CHOICES)}")
        if self.tokenizer not in TOKENIZERS:
            raise ConfigError(f"vectors.tokenizer is '{self.tokenizer}'; choose one of {', '.join(TOKENIZERS)}")
        for name, least, most in (
            ("dimensions", 1, MAX_SETTING),
            ("window", 1, MAX_SETTING),
            ("negative", 0, 1000),
            ("epochs", 1, MAX_SETTING),
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
        """Whether word vectors include character n-grams."""
        return self.shortest > 0

    @property
    def rate(self) -> float:
        """Initial learning rate."""
        return self.learning_rate or DEFAULT_LEARNING_RATES.get(self.method, 0.0)

    @property
    def memory_bytes(self) -> int:
        """`memory` in bytes.

        >>> VectorConfig(memory="64M").memory_bytes
        67108864
        """
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", self.memory.strip().upper())
        if not match:
            raise ConfigError(f"vectors.memory is '{self.memory}'; write it as 500M or 2G")
        return int(float(match[1]) * UNITS[match[2]])
