"""What a comparison found: the rows, curves and sentences that `results.json` and the report are made of.

Lives here: the typed results, their order and their JSON. Not here: how they look (page.py).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainrule.versions import SCHEMA_VERSION

if TYPE_CHECKING:
    from chainrule.inspection.flow import GradientFlow

Facets = Mapping[str, str | int]
Json = dict[str, Any]

TIE: Final = 0.05
"""The p-value from which a difference is called a tie."""
GROUP_SHARE: Final = 0.005
"""Unigram models whose bits differ by no more than this part are shown as one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much better a row is than the next one in the table, by a paired bootstrap over the test lines."""

    other: str  # name of the next row
    percent: float  # fewer bits than the other
    margin: float  # half the width of the 95 % interval, in percent
    p_value: float

    @property
    def is_tie(self) -> bool:
        """Whether the difference may be chance (p ≥ 0.05)."""
        return self.p_value >= TIE

    def describe(self) -> str:
        """In words.

        >>> Difference(other="b", percent=0.41, margin=0.3, p_value=0.2).describe()
        '0.4 % ± 0.3 better than b, p = 0.2: a tie'
        """
        return f"{self.percent:.1f} % ± {self.margin:.1f} better than {self.other}, {self._chance()}"

    def short(self) -> str:
        """The same without the name of the other row.

        >>> Difference(other="b", percent=0.41, margin=0.3, p_value=0.2).short()
        'vs next: 0.4 % ± 0.3, p = 0.2: a tie'
        """
        return f"vs next: {self.percent:.1f} % ± {self.margin:.1f}, {self._chance()}"

    def _chance(self) -> str:
        chance = "p < 0.01" if self.p_value < 0.01 else f"p = {self.p_value:.2g}"
        return f"{chance}{': a tie' if self.is_tie else ''}"

    def to_json(self) -> Json:
        """The figures and the conclusion."""
        return {
            "other": self.other,
            "percent": self.percent,
            "margin": self.margin,
            "p_value": self.p_value,
            "is_tie": self.is_tie,
        }


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
    tokenizer: str = ""  # its kind
    status: str = ""  # how training ended
    is_still_falling: bool = False  # its time ran out while the validation loss was falling
    epochs: float | None = None  # networks: how often the training text was read, and in how many steps
    steps: int | None = None
    sd: float | None = None  # of bits_per_byte over several seeds; the figures above are then means
    seeds: tuple[Mapping[str, Any], ...] = ()  # figures of each seed
    valid_bits_per_byte: float | None = None
    advice: tuple[str, ...] = ()  # warnings of training
    components: tuple[str, ...] = ()  # mixture: the models mixed
    difference: Difference | None = None  # to the next row

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
            "tokenizer": self.tokenizer,
            "status": self.status,
            "is_still_falling": self.is_still_falling,
            "epochs": self.epochs,
            "steps": self.steps,
            "sd": self.sd,
            "seeds": [dict(figures) for figures in self.seeds],
            "valid_bits_per_byte": self.valid_bits_per_byte,
            "advice": list(self.advice),
            "components": list(self.components),
            "difference": None if self.difference is None else self.difference.to_json(),
        }

    @classmethod
    def from_json(cls, document: Json) -> "Row":
        """Back from `to_json`; null stands for infinity among the figures of a row that says so."""
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
    """Quality by the amount of training text, which ascends."""

    name: str
    tokens: tuple[int, ...]
    bytes: tuple[int, ...]  # of the same parts of the text, comparable between tokenizers
    bits_per_byte: tuple[float, ...]
    doubled_bits: float | None = None  # extrapolated to twice the text

    def to_json(self) -> Json:
        """An infinite point is null."""
        extrapolation = None
        if self.doubled_bits is not None:
            doubled = {"tokens": 2 * self.tokens[-1], "bytes": 2 * self.bytes[-1]}
            extrapolation = {**doubled, "bits_per_byte": self.doubled_bits}
        return {
            "extrapolation": extrapolation,
            "name": self.name,
            "tokens": list(self.tokens),
            "bytes": list(self.bytes),
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
    remarks: tuple[str, ...] = ()  # what to know of the whole: text changed for all tokenizers, the plan
    plan: tuple[str, ...] = ()  # networks and their time, as planned before they were trained

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
            "remarks": list(self.remarks),
            "plan": list(self.plan),
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


def groups(rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    """The ranked rows as the table shows them, best first: unigrams that hardly differ stand together.

    An n-gram of order 1 joins the best one of its tokenizer where their bits differ by at most GROUP_SHARE: without
    context, smoothings differ in next to nothing.
    """
    shown: list[list[Row]] = []
    unigrams: dict[str, list[Row]] = {}
    for row in contenders(rows):
        group = unigrams.get(row.tokenizer) if is_unigram(row) else None
        if group is not None and row.bits_per_byte <= group[0].bits_per_byte * (1 + GROUP_SHARE):
            group.append(row)
            continue
        shown.append([row])
        if is_unigram(row):
            unigrams.setdefault(row.tokenizer, shown[-1])
    return [tuple(group) for group in shown]


def is_unigram(row: Row) -> bool:
    """Whether it is an n-gram that sees no context."""
    return row.family == "ngram" and row.facets.get("order") == 1


def best_of(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Of which families and tokenizers each of the best rows is the best, by its name."""
    marks: dict[str, list[str]] = {}
    ordered = contenders(rows)
    for field_name in ("family", "tokenizer"):
        values = dict.fromkeys(str(getattr(row, field_name)) for row in ordered)
        if len(values) > 1:
            for value in values:
                best = next(row for row in ordered if getattr(row, field_name) == value)
                marks.setdefault(best.name, []).append(value)
    return {name: tuple(values) for name, values in marks.items()}


def finite_or_null(value: float) -> float | None:
    """Strict JSON has no Infinity and no NaN."""
    return value if math.isfinite(value) else None


def is_any_infinite(values: Sequence[float]) -> bool:
    """What a null in the JSON stands for."""
    return any(math.isinf(value) for value in values)
