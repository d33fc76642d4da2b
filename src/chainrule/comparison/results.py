"""Results of a comparison: rows, learning curves and sentences, their ranking and their JSON form."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chainrule.evaluation.significance import compare_adjacent
from chainrule.lm import Floats
from chainrule.storage.strict_json import replace_nonfinite
from chainrule.system import SCHEMA_VERSION

if TYPE_CHECKING:
    from chainrule.neural.probes.measurements import GradientFlow


Facets = Mapping[str, str | int]
Json = dict[str, Any]

TIE_P_VALUE: Final = 0.05
"""Differences with a p-value of at least this are ties."""
GROUP_SHARE: Final = 0.005
"""Unigram models whose bits per byte differ by at most this fraction are grouped into one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Improvement of a row over the next one, by a paired bootstrap over the test lines."""

    other: str  # name of the next row
    percent: float  # fewer bits than the other
    margin: float  # half the width of the 95 % interval, in percent
    p_value: float

    @property
    def is_tie(self) -> bool:
        """Whether the difference is not significant (p ≥ 0.05)."""
        return self.p_value >= TIE_P_VALUE

    def describe(self) -> str:
        """Describe the difference.

        >>> Difference(other="b", percent=0.41, margin=0.3, p_value=0.2).describe()
        '0.4 % ± 0.3 better than b, p = 0.2: a tie'
        """
        return f"{self.percent:.1f} % ± {self.margin:.1f} better than {self.other}, {self._chance()}"

    def short(self) -> str:
        """Describe the difference without the name of the other row.

        >>> Difference(other="b", percent=0.41, margin=0.3, p_value=0.2).short()
        'vs next: 0.4 % ± 0.3, p = 0.2: a tie'
        """
        return f"vs next: {self.percent:.1f} % ± {self.margin:.1f}, {self._chance()}"

    def _chance(self) -> str:
        chance = "p < 0.01" if self.p_value < 0.01 else f"p = {self.p_value:.2g}"
        return f"{chance}{': a tie' if self.is_tie else ''}"

    def to_json(self) -> Json:
        """JSON form."""
        return dataclasses.asdict(self) | {"is_tie": self.is_tie}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cost and test metrics of one model."""

    name: str
    family: str
    parameters: int
    size_bytes: int
    train_seconds: float
    train_tokens_per_second: float
    perplexity: float  # this and the next two may be infinite
    perplexity_per_word: float
    bits_per_byte: float
    sample: str
    is_ranked: bool  # False: infinite, or a score that is not a probability
    note: str = ""  # why it is not ranked, or a remark
    facets: Facets = field(default_factory=dict)  # {"order": 5, "smoothing": "modified-kneser-ney"}
    tokenizer: str = ""  # tokenizer kind
    status: str = ""  # how training ended
    is_still_falling: bool = False  # the time limit ended training while the validation loss was falling
    epochs: float | None = None  # epochs and steps of networks
    steps: int | None = None
    sd: float | None = None  # standard deviation of bits_per_byte over seeds; the metrics are then means
    seeds: tuple[Mapping[str, Any], ...] = ()  # metrics of each seed
    valid_bits_per_byte: float | None = None
    advice: tuple[str, ...] = ()  # training warnings
    components: tuple[str, ...] = ()  # components of a mixture
    difference: Difference | None = None  # to the next row

    def to_json(self) -> Json:
        """JSON form; null for infinite values."""
        figures = (self.perplexity, self.perplexity_per_word, self.bits_per_byte)
        document: Json = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name == "sample":
                document["infinite"] = is_any_infinite(figures)
            if item.name in ("train_tokens_per_second", "perplexity", "perplexity_per_word", "bits_per_byte"):
                value = replace_nonfinite(value)
            document[item.name] = list(value) if isinstance(value, tuple) else value
        seeds = [dict(metrics) for metrics in self.seeds]
        difference = None if self.difference is None else self.difference.to_json()
        return document | {"facets": dict(self.facets), "seeds": seeds, "difference": difference}

    @classmethod
    def from_json(cls, document: Json) -> "Row":
        """Parse the output of `to_json`; null metrics are infinite if `infinite` is set."""
        values = {name: value for name, value in document.items() if name != "infinite"}
        for name in ("perplexity", "perplexity_per_word", "bits_per_byte"):
            if values[name] is None:
                values[name] = math.inf if document["infinite"] else math.nan
        for name in ("seeds", "advice", "components"):
            values[name] = tuple(values[name])
        if values["difference"] is not None:
            difference = {name: value for name, value in values["difference"].items() if name != "is_tie"}
            values["difference"] = Difference(**difference)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Learning curve: bits per byte by increasing amount of training text."""

    name: str
    tokens: tuple[int, ...]
    bytes: tuple[int, ...]  # sizes in bytes, comparable between tokenizers
    bits_per_byte: tuple[float, ...]
    doubled_bits: float | None = None  # extrapolated to twice the text

    def to_json(self) -> Json:
        """JSON form; null for infinite points."""
        extrapolation = None
        if self.doubled_bits is not None:
            doubled = {"tokens": 2 * self.tokens[-1], "bytes": 2 * self.bytes[-1]}
            extrapolation = {**doubled, "bits_per_byte": self.doubled_bits}
        return {
            "extrapolation": extrapolation,
            "name": self.name,
            "tokens": list(self.tokens),
            "bytes": list(self.bytes),
            "bits_per_byte": replace_nonfinite(self.bits_per_byte),
            "infinite": is_any_infinite(self.bits_per_byte),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprisal:
    """Surprisal in bits of each token of a sentence under one model."""

    name: str
    tokens: tuple[str, ...]
    bits: tuple[float, ...]

    def to_json(self) -> Json:
        """JSON form; null for tokens of probability 0."""
        return {
            "name": self.name,
            "tokens": list(self.tokens),
            "bits": replace_nonfinite(self.bits),
            "infinite": is_any_infinite(self.bits),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """Surprisal of one sentence under several models."""

    text: str
    by_model: tuple[Surprisal, ...]

    def to_json(self) -> Json:
        """JSON form."""
        return {"text": self.text, "by_model": [surprisal.to_json() for surprisal in self.by_model]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInfo:
    """Sizes of the training, validation and test text."""

    train_lines: int
    valid_lines: int
    test_lines: int
    train_tokens: int
    test_tokens: int
    test_bytes: int
    seed: int | None  # None: the splits were given as files


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Results of one comparison and the information needed to reproduce it."""

    text: str  # file name or description of the text
    text_sha256: str
    tokenizer: str
    split: SplitInfo
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    sentences: tuple[Sentence, ...]
    command: str
    versions: Mapping[str, str]
    seconds: float
    flows: "tuple[GradientFlow, ...]" = ()  # gradient flow of the saved networks
    remarks: tuple[str, ...] = ()  # remarks on the whole comparison
    plan: tuple[str, ...] = ()  # planned networks and their time

    def to_json(self) -> Json:
        """Document of `compare --json` and `results.json`; rows best first."""
        return {
            "schema_version": SCHEMA_VERSION,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "tokenizer": self.tokenizer,
            "split": dataclasses.asdict(self.split),
            "rows": [row.to_json() for row in rank_rows(self.rows)],
            "curves": [curve.to_json() for curve in self.curves],
            "sentences": [sentence.to_json() for sentence in self.sentences],
            "gradient_flow": [flow_to_json(flow) for flow in self.flows],
            "remarks": list(self.remarks),
            "plan": list(self.plan),
            "command": self.command,
            "versions": dict(self.versions),
            "seconds": self.seconds,
        }


def flow_to_json(flow: "GradientFlow") -> Json:
    """Gradient norm of the top layer by lag, relative to lag 0."""
    relative, half_life = flow.relative()[-1].tolist(), flow.half_life(flow.layers - 1)
    return {
        "name": flow.name,
        "relative": replace_nonfinite(relative),
        "half_life": replace_nonfinite(half_life),
    }


def is_rankable(row: Row) -> bool:
    """Whether the row can be ranked by bits per byte."""
    return row.is_ranked and math.isfinite(row.bits_per_byte)


def rank_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Sort rows by bits per byte; rows that cannot be ranked come last in their original order."""
    return tuple(sorted(rows, key=lambda row: row.bits_per_byte if is_rankable(row) else math.inf))


def rankable_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows that can be ranked, best first."""
    return tuple(filter(is_rankable, rank_rows(rows)))


def group_rows(rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    """Group ranked rows for display, best first.

    Unigram models of one tokenizer whose bits per byte are within GROUP_SHARE of the best are grouped, since
    without context the smoothings hardly differ.
    """
    shown: list[list[Row]] = []
    unigrams: dict[str, list[Row]] = {}
    for row in rankable_rows(rows):
        group = unigrams.get(row.tokenizer) if is_unigram(row) else None
        if group is not None and row.bits_per_byte <= group[0].bits_per_byte * (1 + GROUP_SHARE):
            group.append(row)
            continue
        shown.append([row])
        if is_unigram(row):
            unigrams.setdefault(row.tokenizer, shown[-1])
    return [tuple(group) for group in shown]


def is_unigram(row: Row) -> bool:
    """Whether the row is an n-gram model of order 1."""
    return row.family == "ngram" and row.facets.get("order") == 1


def find_wins(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Families and tokenizers in which a row is the best, by row name."""
    wins: dict[str, list[str]] = {}
    ordered = rankable_rows(rows)
    for field_name in ("family", "tokenizer"):
        values = dict.fromkeys(str(getattr(row, field_name)) for row in ordered)
        if len(values) > 1:
            for value in values:
                best = next(row for row in ordered if getattr(row, field_name) == value)
                wins.setdefault(best.name, []).append(value)
    return {name: tuple(values) for name, values in wins.items()}


def is_any_infinite(values: Sequence[float]) -> bool:
    """Whether any value is infinite."""
    return any(math.isinf(value) for value in values)


RESAMPLES: Final = 1000
FITTED_POINTS: Final = 4
"""Number of final points of a learning curve used for extrapolation."""
EXPONENTS: Final = np.geomspace(0.02, 2, 200)


def add_differences(
    rows: Sequence[Row], line_nats: Mapping[str, Floats], line_bytes: Floats, seed: int = 0
) -> tuple[Row, ...]:
    """Add to each row its difference from the next displayed row, where defined."""
    shown = [group[0] for group in group_rows(rows)]
    shown = [row for row in shown if row.name in line_nats and len(line_nats[row.name]) == len(line_bytes)]
    if len(shown) < 2:
        return tuple(rows)
    nats = np.stack([line_nats[row.name] for row in shown])
    compared = compare_adjacent(nats, line_bytes, samples=RESAMPLES, seed=seed)
    differences = {
        row.name: Difference(
            other=other.name,
            percent=100 * result.difference,
            margin=100 * (result.high - result.low) / 2,
            p_value=result.p_value,
        )
        for row, other, result in zip(shown, shown[1:], compared, strict=False)
        if result is not None
    }
    return tuple(dataclasses.replace(row, difference=differences.get(row.name)) for row in rows)


def extrapolate(sizes: Sequence[int], bits: Sequence[float]) -> float | None:
    """Extrapolate bits per byte to twice the training text by fitting a + b n^(−c) to the last points.

    c is chosen from a grid, a ≥ 0 and b by least squares. None for fewer than three finite points or a curve that
    does not fall.

    >>> round(extrapolate([1000, 2000, 4000, 8000], [3.0, 2.5, 2.25, 2.125]), 3)
    2.062
    """
    points = [(n, y) for n, y in zip(sizes, bits, strict=True) if n > 0 and math.isfinite(y)][-FITTED_POINTS:]
    if len(points) < 3 or points[-1][1] >= points[-2][1]:
        return None
    n, y = np.array(points, dtype=np.float64).T
    best: tuple[float, float] | None = None
    for c in EXPONENTS:
        x = (n / n[-1]) ** -c
        b, a = np.polyfit(x, y, 1)
        if a < 0:
            a, b = 0.0, float(x @ y / (x @ x))
        error = float(np.sum((a + b * x - y) ** 2))
        if b > 0 and (best is None or error < best[0]):
            best = error, float(a + b * 2**-c + (y[-1] - a - b))  # shifted to pass through the last point
    return None if best is None or best[1] >= points[-1][1] else best[1]
