"""Configuration of word vectors."""

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import ConfigError
from chainrule.system import parse_size

Method = Literal["skipgram", "cbow", "glove", "ppmi", "one-hot"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
WordTokenizer = Literal["word", "whitespace"]
TOKENIZERS: Final[tuple[WordTokenizer, ...]] = get_args(WordTokenizer)
DEFAULT_LEARNING_RATES: Final[dict[str, float]] = {"skipgram": 0.025, "cbow": 0.05, "glove": 0.05}
SIMD_CHOICES: Final = ("auto", "avx512", "avx2", "none")
MAX_SETTING: Final = 1 << 16
MIN_MEMORY: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorConfig:
    """Training settings; each method uses the ones that apply to it."""

    method: Method = setting("skipgram", "Method: skipgram, cbow, glove, ppmi or one-hot.", shows_default=True)
    dimensions: int = setting(100, "Vector size.", shows_default=True)
    window: int = setting(  # word2vec draws 1 … window for each word
        5, "Context window: words on either side.", shows_default=True
    )
    negative: int = setting(5, "skipgram, cbow: negative samples per word.", shows_default=True)
    epochs: int = setting(5, "Number of epochs.", shows_default=True)
    learning_rate: float = setting(0.0, "Initial learning rate.  [default: depends on the method]")  # 0: default
    sample: float = setting(  # 0: no subsampling
        1e-3, "skipgram, cbow: subsample words above this frequency.", shows_default=True
    )
    power: float = 0.75  # exponent of the counts in the noise distribution and in PPMI context smoothing
    min_count: int = setting(5, "Minimum count of a word; rarer words are ignored.", shows_default=True)
    vocab_size: int | None = setting(None, "Maximum number of words.")
    lowercase: bool = setting(False, "Lowercase the text.")
    tokenizer: WordTokenizer = setting(
        "word",
        "Tokenizer: word (splits punctuation) or whitespace (splits at blanks only).",
        shows_default=True,
    )
    shortest: int = 0  # length of the shortest character n-grams; 0: no character n-grams
    longest: int = 0  # length of the longest character n-grams
    buckets: int = 200_000  # hash buckets of character n-grams
    x_max: float = 10.0  # GloVe: co-occurrence count from which the weight is 1
    alpha: float = 0.75  # GloVe: exponent of the weight below x_max
    memory: str = setting("1G", "glove, ppmi: memory limit for counting co-occurrences.", shows_default=True)
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
        if self.memory_bytes < MIN_MEMORY:
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
        return parse_size(self.memory, "vectors.memory")
