"""What a comparison found: the rows, curves and sentences that `results.json` and the report are made of.

Lives here: the typed results, their order and their JSON. Not here: how they look (page.py).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chainrule.versions import SCHEMA_VERSION

if TYPE_CHECKING:
    from chainrule.inspection.flow import GradientFlow

Facets = Mapping[str, str | int]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model: what it costs and how well it predicts the test text."""

    name: str
    family: str
    parameters: int
    size_bytes: int
    train_seconds: float
    train_tokens_per_second: float
    perplexity: float  # may be infinite, as the two below
    perplexity_per_word: float
    bits_per_byte: float
    sample: str
    is_ranked: bool  # False: infinite, or a score that is not a probability
    note: str = ""  # why it is not ranked, or what else to know about its figures
    facets: Facets = field(default_factory=dict)  # {"order": 5, "smoothing": "modified-kneser-ney"}

    def to_json(self) -> Json:
        """The keys of the interface, then what explains them."""
        figures = (self.perplexity, self.perplexity_per_word, self.bits_per_byte)
        return {
            "name": self.name,
            "family": self.family,
            "parameters": self.parameters,
            "size_bytes": self.size_bytes,
            "train_seconds": self.train_seconds,
            "train_tokens_per_second": finite_or_null(self.train_tokens_per_second),
            "perplexity": finite_or_null(self.perplexity),
            "perplexity_per_word": finite_or_null(self.perplexity_per_word),
            "bits_per_byte": finite_or_null(self.bits_per_byte),
            "infinite": is_any_infinite(figures),
            "sample": self.sample,
            "is_ranked": self.is_ranked,
            "note": self.note,
            "facets": dict(self.facets),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Quality by the amount of training text; `tokens` ascend."""

    name: str
    tokens: tuple[int, ...]
    bits_per_byte: tuple[float, ...]

    def to_json(self) -> Json:
        """An infinite point is null."""
        return {
            "name": self.name,
            "tokens": list(self.tokens),
            "bits_per_byte": [finite_or_null(bits) for bits in self.bits_per_byte],
            "infinite": is_any_infinite(self.bits_per_byte),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprisal:
    """How many bits each token of a sentence costs one model."""

    name: str
    tokens: tuple[str, ...]
    bits: tuple[float, ...]

    def to_json(self) -> Json:
        """An impossible token is null."""
        return {
            "name": self.name,
            "tokens": list(self.tokens),
            "bits": [finite_or_null(bits) for bits in self.bits],
            "infinite": is_any_infinite(self.bits),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence as several models read it."""

    text: str
    by_model: tuple[Surprisal, ...]

    def to_json(self) -> Json:
        """The text, then each model's view of it."""
        return {"text": self.text, "by_model": [surprisal.to_json() for surprisal in self.by_model]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInfo:
    """How much text was learnt from, tuned on and tested on."""

    train_lines: int
    valid_lines: int
    test_lines: int
    train_tokens: int
    test_tokens: int
    test_bytes: int
    seed: int | None  # None: the splits were given as files

    def to_json(self) -> Json:
        """One key a field."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything one run of `compare` found, and what it takes to repeat it."""

    text: str  # what was compared on: a file name, or a few words
    text_sha256: str
    tokenizer: str
    split: SplitInfo
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    sentences: tuple[Sentence, ...]
    command: str
    versions: Mapping[str, str]
    seconds: float
    flows: "tuple[GradientFlow, ...]" = ()  # of the networks kept: how far back an error reaches

    def to_json(self) -> Json:
        """What `compare --json` prints and `results.json` holds; rows best first."""
        return {
            "schema_version": SCHEMA_VERSION,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "tokenizer": self.tokenizer,
            "split": self.split.to_json(),
            "rows": [row.to_json() for row in ranked(self.rows)],
            "curves": [curve.to_json() for curve in self.curves],
            "sentences": [sentence.to_json() for sentence in self.sentences],
            "gradient_flow": [flow_to_json(flow) for flow in self.flows],
            "command": self.command,
            "versions": dict(self.versions),
            "seconds": self.seconds,
        }


def flow_to_json(flow: "GradientFlow") -> Json:
    """What is left of the signal by lag, 1 at lag 0, in the top layer."""
    left, half_life = flow.relative()[-1].tolist(), flow.half_life(flow.layers - 1)
    return {
        "name": flow.name,
        "relative": [finite_or_null(part) for part in left],
        "half_life": None if half_life is None else finite_or_null(half_life),
    }


def is_contender(row: Row) -> bool:
    """Whether its bits per byte may be held against another's."""
    return row.is_ranked and math.isfinite(row.bits_per_byte)


def ranked(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Best first by bits per byte; what cannot be ranked stands last, in the order it came."""
    return tuple(sorted(rows, key=lambda row: row.bits_per_byte if is_contender(row) else math.inf))


def contenders(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that can be ranked, best first."""
    return tuple(filter(is_contender, ranked(rows)))


def finite_or_null(value: float) -> float | None:
    """Strict JSON has no Infinity and no NaN."""
    return value if math.isfinite(value) else None


def is_any_infinite(values: Sequence[float]) -> bool:
    """What a null in the JSON stands for."""
    return any(math.isinf(value) for value in values)
