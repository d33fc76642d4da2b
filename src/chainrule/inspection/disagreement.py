"""Where two models of one text disagree: the bits of each unit side by side, the largest differences first.

Lives here: units that both share, differences, the table. Not here: the bits themselves.

A unit is a token where both models cut the text alike, else a word: a run of non-blanks, at the cost of all its
tokens. A blank belongs to the word behind it, as in sub-words, and `</s>` is a unit of its own.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.inspection.foreign import isolated, plain_text
from chainrule.inspection.reading import STYLE
from chainrule.inspection.section import finite
from chainrule.inspection.surprisal import words_for
from chainrule.inspection.table import READ, Group, Markup, html_table
from chainrule.lm import Floats, Mask
from chainrule.tokenizers.punctuation import joins

SHOWN: Final = 15  # either way
NEAR: Final = 5  # units on either side
BLANKS: Final = " \t"
END: Final = "</s>"

Place = tuple[int, int]
"""Line, and word in it; the word behind the last is the line's end."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text and what a model made of them."""

    names: dict[Place, str]
    bits: dict[Place, float]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two models on N units of one text."""

    first: str  # name of model A
    second: str  # name of model B
    unit: str  # "token" or "word"
    names: Sequence[str]  # (N,)
    first_bits: Floats  # (N,)  −log₂ p_A
    second_bits: Floats  # (N,)  −log₂ p_B
    is_probability: bool = True  # False: one of them gives a score that is none

    @property
    def gain(self) -> Floats:
        """(N,) log₂ p_A − log₂ p_B: the bits by which A foresaw it better; 0 where neither held it possible."""
        is_lost = np.isposinf(self.first_bits) & np.isposinf(self.second_bits)
        with np.errstate(invalid="ignore"):
            return np.where(is_lost, 0.0, self.second_bits - self.first_bits)

    @property
    def mean_gain(self) -> float:
        """Bits a unit by which A is better, over the units that both hold possible; 0 where there are none."""
        gain = self.gain[np.isfinite(self.first_bits) & np.isfinite(self.second_bits)]
        return float(gain.mean()) if len(gain) else 0.0

    @property
    def impossible(self) -> tuple[int, int]:
        """How many units A holds impossible, and how many B."""
        lost, other = (int(np.count_nonzero(np.isposinf(bits))) for bits in (self.first_bits, self.second_bits))
        return lost, other

    @property
    def shared(self) -> int:
        """How many units both hold possible."""
        return int(np.count_nonzero(np.isfinite(self.first_bits) & np.isfinite(self.second_bits)))

    @property
    def one_sided(self) -> int:
        """How many units only one of the two holds possible."""
        return int(np.count_nonzero(np.isinf(self.gain)))

    def largest(self, sign: int, most: int = SHOWN) -> list[int]:
        """Places of the units that A (sign 1) or B (sign −1) foresaw best against the other."""
        gain = sign * self.gain
        order = np.argsort(-gain, kind="stable")[:most]
        return [int(i) for i in order if gain[i] > 0]


def places(tokens: Sequence[str], is_end: Mask, kind: str) -> list[Place]:
    """The word each token belongs to, by how this kind of tokenizer writes where words begin.

    >>> places(["the", "cat", "s", " sat", "</s>"], np.array([0, 0, 0, 0, 1], bool), "bpe")
    [(0, 0), (0, 0), (0, 0), (0, 1), (0, 2)]
    """
    found: list[Place] = []
    joins_next = False
    line, word, is_apart = 0, -1, True  # is_apart: what comes now begins a word
    for token, ends in zip(tokens, is_end, strict=True):
        if ends:
            found.append((line, word + 1))
            line, word, is_apart, joins_next = line + 1, -1, True, False
        elif kind == "word":
            left, right = joins(token)
            word += not (left or joins_next) or word < 0
            joins_next = right
            found.append((line, word))
        elif kind in ("whitespace", "wordpiece"):
            word += kind == "whitespace" or not token.startswith("##") or word < 0
            found.append((line, word))
        else:
            inside = [part for part in token.replace("\t", " ").split(" ") if part]
            begins = is_apart or token[:1] in BLANKS
            word += len(inside) - (not begins) if inside else 0
            found.append((line, word if inside else word + 1))
            is_apart = token[-1:] in BLANKS
    return found


def words(
    tokens: Sequence[str],
    bits: Sequence[float] | Floats,
    is_end: Mask,
    kind: str,
    spell: Callable[[list[int]], str],
) -> Words:
    """The whole words of a text; `spell` gives the text of the tokens at these places.

    The last word is left out where the text breaks off and it may go on.
    """
    where = places(tokens, is_end, kind)
    members: dict[Place, list[int]] = {}
    for i, place in enumerate(where):
        members.setdefault(place, []).append(i)
    if where and not is_end[-1] and kind != "whitespace":
        del members[where[-1]]
    cost = {place: math.fsum(float(bits[i]) for i in at) for place, at in members.items()}
    return Words({place: END if is_end[at[-1]] else spell(at) for place, at in members.items()}, cost)


def by_word(first: str, second: str, one: Words, other: Words) -> Disagreement:
    """Of the words that both texts hold whole, in the order of the text; names as the first model writes them."""
    shared = [place for place in one.bits if place in other.bits]
    bits, other_bits = (np.array([each.bits[place] for place in shared], dtype=float) for each in (one, other))
    names = [one.names[place] for place in shared]
    return Disagreement(first, second, "word", names, bits, other_bits)


def table_html(found: Disagreement) -> str:
    """The largest differences both ways, each with what stands around it."""
    names = [isolated(name) for name in (found.first, found.second)]
    groups = [
        Group(Markup(f"better foreseen by {name}"), [_row(found, i) for i in found.largest(sign)])
        for name, sign in zip(names, (1, -1), strict=True)
    ]
    bits = [Markup(f"bits, {name}") for name in names]
    header = (f"{found.unit} in its context", *bits, "difference, bits")
    table = html_table(header, label="Largest differences", groups=groups, look=READ, numbers=(1, 2, 3))
    return f'<div style="overflow-x:auto"><style>{STYLE}</style>{table}</div>'


def in_words(found: Disagreement) -> str:
    """Which is better, never the one that alone holds units impossible; by how much, and where they differ most."""
    most = max((*found.largest(1, 1), *found.largest(-1, 1)), key=lambda i: abs(found.gain[i]), default=None)
    if most is None:
        lost = f"; both hold {found.impossible[0]:,} of them impossible" if any(found.impossible) else ""
        return f"{found.first} and {found.second} give every {found.unit} the same probability{lost}."
    doubt = "" if found.is_probability else " (by a score, not a probability)"
    on = f"they differ most on “{plain_text(found.names[most])}”"
    lost_first, lost_second = found.impossible
    if lost_first and lost_second:
        head = f"Neither {found.first} nor {found.second} foresees all of this text{doubt}"
        return f"{head}: {balance(found, found.first, found.second)}; {on}."
    gain = found.mean_gain
    is_first = not lost_first if lost_first or lost_second else gain >= 0
    better, worse = (found.first, found.second) if is_first else (found.second, found.first)
    head = f"{better} foresees this text better than {worse}{doubt}"
    if lost_first or lost_second:
        return f"{head}: {balance(found, found.first, found.second)}; {on}."
    return f"{head}, by {abs(gain):.2f} bits per {found.unit} over {len(found.names):,} of them; {on}."


def balance(found: Disagreement, first: str, second: str) -> str:
    """What each holds impossible, and the mean over what both hold possible; the names as they are to be shown."""
    N, shared, (lost_first, lost_second) = len(found.names), found.shared, found.impossible
    by = f"{abs(found.mean_gain):.2f} bits per {found.unit} {'better' if found.mean_gain >= 0 else 'worse'}"
    if not lost_first and not lost_second:
        return f"on average {first} is {by} than {second}"
    one, other = (f"{lost:,}" if lost else "none" for lost in (lost_first, lost_second))
    lost = f"{first} holds {one} of {_several(N, found.unit)} impossible and {second} {other}"
    if not shared:
        return f"{lost}; none is possible to both"
    return f"{lost}; over the {_several(shared, found.unit)} possible to both {first} is {by} than {second}"


def to_json(found: Disagreement) -> dict[str, Any]:
    """Means and the largest differences as plain numbers, null where infinite."""
    rows = [
        {
            "place": i,
            "name": found.names[i],
            "context": " ".join(found.names[max(0, i - NEAR) : i + NEAR + 1]),
            "bits": [finite(found.first_bits[i]), finite(found.second_bits[i])],
        }
        for i in (*found.largest(1), *found.largest(-1))
    ]
    return {
        "models": [found.first, found.second],
        "unit": found.unit,
        "is_probability": found.is_probability,
        "units": len(found.names),
        "mean_gain_bits": found.mean_gain,
        "impossible": list(found.impossible),
        "possible_to_both": found.shared,
        "possible_to_one_only": found.one_sided,
        "largest": rows,
    }


def _row(found: Disagreement, i: int) -> tuple[str, ...]:
    gain = float(found.gain[i])
    first, second = (
        words_for(float(bits[i])).removesuffix(" bits") for bits in (found.first_bits, found.second_bits)
    )
    difference = f"{gain:+.2f}".replace("-", "−") if math.isfinite(gain) else "infinite"
    return Markup(_in_context(found.names, i)), first, second, difference


def _in_context(names: Sequence[str], i: int) -> str:
    """The unit, marked, between its neighbours."""
    before = [html.escape(plain_text(name)) for name in names[max(0, i - NEAR) : i]]
    behind = [html.escape(plain_text(name)) for name in names[i + 1 : i + NEAR + 1]]
    marked = f"<b>{html.escape(plain_text(names[i]))}</b>"
    return f"<bdi>{' '.join([*before, marked, *behind])}</bdi>"


def _several(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
