"""Compare the surprisal of two models on one text, unit by unit.

A unit is a token if both models tokenize the text alike, otherwise a word: a run of non-blank characters with the
summed bits of its tokens. A blank belongs to the following word, and `</s>` is a unit.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.inspection.foreign import escape, to_printable
from chainrule.inspection.reading import STYLE
from chainrule.inspection.section import finite_or_none
from chainrule.inspection.surprisal import format_bits
from chainrule.inspection.table import READ, Group, Markup, html_table
from chainrule.lm import Floats, Mask
from chainrule.tokenizers.punctuation import joined_sides

SHOWN: Final = 15  # largest differences shown in each direction
NEAR: Final = 5  # context units on either side
BLANKS: Final = " \t"
END: Final = "</s>"

WordPosition = tuple[int, int]
"""(line, word index); the index after the last word is the end of the line."""


@dataclass(frozen=True, slots=True)
class WordBits:
    """The words of a text and their surprisal."""

    names: dict[WordPosition, str]
    bits: dict[WordPosition, float]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Surprisal of two models on N units of one text."""

    first: str  # name of model A
    second: str  # name of model B
    unit: str  # "token" or "word"
    names: Sequence[str]  # (N,)
    first_bits: Floats  # (N,)  −log₂ p_A
    second_bits: Floats  # (N,)  −log₂ p_B
    is_probability: bool = True  # False if one of the models is not normalized

    @property
    def gain(self) -> Floats:
        """log₂ p_A − log₂ p_B, (N,): bits by which A predicts the unit better; 0 if both give probability 0."""
        is_lost = np.isposinf(self.first_bits) & np.isposinf(self.second_bits)
        with np.errstate(invalid="ignore"):
            return np.where(is_lost, 0.0, self.second_bits - self.first_bits)

    @property
    def mean_gain(self) -> float:
        """Mean gain in bits over the units to which both models give nonzero probability; 0 without any."""
        gain = self.gain[np.isfinite(self.first_bits) & np.isfinite(self.second_bits)]
        return float(gain.mean()) if len(gain) else 0.0

    @property
    def impossible(self) -> tuple[int, int]:
        """Number of units of probability 0 under A and under B."""
        first, second = (int(np.count_nonzero(np.isposinf(bits))) for bits in (self.first_bits, self.second_bits))
        return first, second

    @property
    def shared(self) -> int:
        """Number of units of nonzero probability under both models."""
        return int(np.count_nonzero(np.isfinite(self.first_bits) & np.isfinite(self.second_bits)))

    @property
    def one_sided(self) -> int:
        """Number of units of nonzero probability under exactly one model."""
        return int(np.count_nonzero(np.isinf(self.gain)))

    def largest(self, sign: int, most: int = SHOWN) -> list[int]:
        """Return the indices of the units that A (sign 1) or B (sign −1) predicts best relative to the other."""
        gain = sign * self.gain
        order = np.argsort(-gain, kind="stable")[:most]
        return [int(i) for i in order if gain[i] > 0]


def word_positions(tokens: Sequence[str], is_end: Mask, kind: str) -> list[WordPosition]:
    """Return the word of each token, following the word-boundary convention of this kind of tokenizer.

    >>> word_positions(["the", "cat", "s", " sat", "</s>"], np.array([0, 0, 0, 0, 1], bool), "bpe")
    [(0, 0), (0, 0), (0, 0), (0, 1), (0, 2)]
    """
    positions: list[WordPosition] = []
    joins_next = False
    line, word, is_apart = 0, -1, True  # is_apart: the next token begins a word
    for token, ends in zip(tokens, is_end, strict=True):
        if ends:
            positions.append((line, word + 1))
            line, word, is_apart, joins_next = line + 1, -1, True, False
        elif kind == "word":
            left, right = joined_sides(token)
            word += not (left or joins_next) or word < 0
            joins_next = right
            positions.append((line, word))
        elif kind in ("whitespace", "wordpiece"):
            word += kind == "whitespace" or not token.startswith("##") or word < 0
            positions.append((line, word))
        else:
            parts = [part for part in token.replace("\t", " ").split(" ") if part]
            begins = is_apart or token[:1] in BLANKS
            word += len(parts) - (not begins) if parts else 0
            positions.append((line, word if parts else word + 1))
            is_apart = token[-1:] in BLANKS
    return positions


def group_words(
    tokens: Sequence[str],
    bits: Sequence[float] | Floats,
    is_end: Mask,
    kind: str,
    spell: Callable[[list[int]], str],
) -> WordBits:
    """Group tokens into words; `spell` decodes the tokens at the given indices.

    The last word is dropped if the text is cut off before its end.
    """
    positions = word_positions(tokens, is_end, kind)
    members: dict[WordPosition, list[int]] = {}
    for i, position in enumerate(positions):
        members.setdefault(position, []).append(i)
    if positions and not is_end[-1] and kind != "whitespace":
        del members[positions[-1]]
    costs = {position: math.fsum(float(bits[i]) for i in indices) for position, indices in members.items()}
    return WordBits(
        {position: END if is_end[indices[-1]] else spell(indices) for position, indices in members.items()}, costs
    )


def compare_words(first: str, second: str, first_words: WordBits, second_words: WordBits) -> Disagreement:
    """Compare the words that both texts contain completely, in text order, named as in the first."""
    shared = [position for position in first_words.bits if position in second_words.bits]
    bits, other_bits = (
        np.array([words.bits[position] for position in shared], dtype=float)
        for words in (first_words, second_words)
    )
    names = [first_words.names[position] for position in shared]
    return Disagreement(first, second, "word", names, bits, other_bits)


def table_html(comparison: Disagreement) -> str:
    """Return a table of the largest differences in both directions, each unit in context."""
    names = [escape(name) for name in (comparison.first, comparison.second)]
    groups = [
        Group(Markup(f"better predicted by {name}"), [_row(comparison, i) for i in comparison.largest(sign)])
        for name, sign in zip(names, (1, -1), strict=True)
    ]
    bits = [Markup(f"bits, {name}") for name in names]
    header = (f"{comparison.unit} in its context", *bits, "difference, bits")
    table = html_table(header, label="Largest differences", groups=groups, style=READ, numbers=(1, 2, 3))
    return f'<div style="overflow-x:auto"><style>{STYLE}</style>{table}</div>'


def describe(comparison: Disagreement) -> str:
    """State which model predicts the text better, by how much, and where the two differ most.

    A model that gives probability 0 to units the other allows is never called better.
    """
    largest = max(
        (*comparison.largest(1, 1), *comparison.largest(-1, 1)), key=lambda i: abs(comparison.gain[i]), default=None
    )
    if largest is None:
        impossible = (
            f"; both give {comparison.impossible[0]:,} of them probability 0" if any(comparison.impossible) else ""
        )
        both = f"{comparison.first} and {comparison.second}"
        return f"{both} give every {comparison.unit} the same probability{impossible}."
    caveat = "" if comparison.is_probability else " (by score, not probability)"
    largest_clause = f"they differ most on “{to_printable(comparison.names[largest])}”"
    impossible_first, impossible_second = comparison.impossible
    if impossible_first and impossible_second:
        head = f"Both {comparison.first} and {comparison.second} give parts of this text probability 0{caveat}"
        return f"{head}: {describe_balance(comparison, comparison.first, comparison.second)}; {largest_clause}."
    gain = comparison.mean_gain
    is_first = not impossible_first if impossible_first or impossible_second else gain >= 0
    better, worse = (comparison.first, comparison.second) if is_first else (comparison.second, comparison.first)
    head = f"{better} predicts this text better than {worse}{caveat}"
    if impossible_first or impossible_second:
        return f"{head}: {describe_balance(comparison, comparison.first, comparison.second)}; {largest_clause}."
    units = _several(len(comparison.names), comparison.unit)
    return f"{head}, by {abs(gain):.2f} bits per {comparison.unit} over {units}; {largest_clause}."


def describe_balance(comparison: Disagreement, first: str, second: str) -> str:
    """State the units of probability 0 and the mean gain over the rest; `first` and `second` are display names."""
    N, shared, (impossible_first, impossible_second) = (
        len(comparison.names),
        comparison.shared,
        comparison.impossible,
    )
    direction = "better" if comparison.mean_gain >= 0 else "worse"
    gain = f"{abs(comparison.mean_gain):.2f} bits per {comparison.unit} {direction}"
    if not impossible_first and not impossible_second:
        return f"on average {first} is {gain} than {second}"
    first_count, second_count = (
        f"{impossible:,}" if impossible else "none" for impossible in (impossible_first, impossible_second)
    )
    units = _several(N, comparison.unit)
    impossible = f"{first} gives probability 0 to {first_count} of {units} and {second} to {second_count}"
    if not shared:
        return f"{impossible}; no unit is possible under both"
    rest = f"over the {_several(shared, comparison.unit)} possible under both"
    return f"{impossible}; {rest}, {first} is {gain} than {second}"


def to_json(comparison: Disagreement) -> dict[str, Any]:
    """Return means and largest differences; infinite values are None."""
    rows = [
        {
            "place": i,
            "name": comparison.names[i],
            "context": " ".join(comparison.names[max(0, i - NEAR) : i + NEAR + 1]),
            "bits": [finite_or_none(comparison.first_bits[i]), finite_or_none(comparison.second_bits[i])],
        }
        for i in (*comparison.largest(1), *comparison.largest(-1))
    ]
    return {
        "models": [comparison.first, comparison.second],
        "unit": comparison.unit,
        "is_probability": comparison.is_probability,
        "units": len(comparison.names),
        "mean_gain_bits": comparison.mean_gain,
        "impossible": list(comparison.impossible),
        "possible_to_both": comparison.shared,
        "possible_to_one_only": comparison.one_sided,
        "largest": rows,
    }


def _row(comparison: Disagreement, i: int) -> tuple[str, ...]:
    gain = float(comparison.gain[i])
    first, second = (
        format_bits(float(bits[i])).removesuffix(" bits")
        for bits in (comparison.first_bits, comparison.second_bits)
    )
    difference = f"{gain:+.2f}".replace("-", "−") if math.isfinite(gain) else "infinite"
    return Markup(_in_context(comparison.names, i)), first, second, difference


def _in_context(names: Sequence[str], i: int) -> str:
    """Return the unit in bold between its neighbours."""
    before = [html.escape(to_printable(name)) for name in names[max(0, i - NEAR) : i]]
    after = [html.escape(to_printable(name)) for name in names[i + 1 : i + NEAR + 1]]
    unit = f"<b>{html.escape(to_printable(names[i]))}</b>"
    return f"<bdi>{' '.join([*before, unit, *after])}</bdi>"


def _several(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
