"""The channel: p(what was written | what was meant), by substitutions of short strings (Brill & Moore 2000).

Lives here: the model, learning it from pairs, its file. Not here: applying it to many pairs at once (edits.py),
the probability that a word is wrong at all (correct.py).
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from chainrule.applications.alignment import align
from chainrule.applications.misspellings import Misspelling
from chainrule.errors import InputError, NotFoundError

LONGEST: Final = 3
"""Characters of a substitution, on either side."""
FORMAT: Final = "chainrule channel"
BEGIN, END = "^", "$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often each kind of slip happens at a character, before anything is learnt; all letters are equal."""

    deletion: float = 0.03
    insertion: float = 0.03  # of any character, each with 1/`letters` of it
    substitution: float = 0.04  # likewise
    transposition: float = 0.02
    doubling: float = 0.02  # a letter written twice, or a double one once
    letters: int = 26


@dataclass(frozen=True)
class Channel:
    """Counts of substitutions, smoothed towards the rates of their kinds.

    p(α → β) = (c(α → β) + κ p'(α → β)) / (c(α) + κ), where p' is the best that shorter substitutions give, and
    for one character the rate of its kind. Without counts it is the rates alone.
    """

    substitutions: dict[tuple[str, str], float] = field(default_factory=dict)  # c(α → β), α ≠ β
    occurrences: dict[str, float] = field(default_factory=dict)  # c(α) in what was meant
    rates: Rates = field(default_factory=Rates)
    strength: float = 30.0  # κ

    @classmethod
    def learn(cls, pairs: Sequence[Misspelling], longest: int = LONGEST, strength: float = 30.0) -> "Channel":
        """Align each pair with the fewest edits and count every edit with up to `longest` characters around it."""
        substitutions: Counter[tuple[str, str]] = Counter()
        occurrences: Counter[str] = Counter()
        for pair in pairs:
            meant, written = (BEGIN + side.lower() + END for side in (pair.right, pair.wrong))
            substitutions.update(_windows(align(meant, written), longest))
            occurrences.update(_pieces(meant, longest))
        kept = {key: float(n) for key, n in substitutions.items() if n >= max(map(len, key))}
        alphas = {alpha for alpha, _ in kept} | {alpha for alpha in occurrences if len(alpha) <= 1}
        return cls(kept, {alpha: float(occurrences[alpha]) for alpha in sorted(alphas)}, strength=strength)

    @cached_property
    def log_table(self) -> dict[tuple[str, str], float]:
        """log p(α → β) of all substitutions that were counted, shorter ones first."""
        table: dict[tuple[str, str], float] = {}
        for key in sorted(self.substitutions, key=lambda key: (len(key[0]) + len(key[1]), key)):
            alpha, beta = key
            total = self.occurrences.get(alpha, 0.0)
            below = math.exp(_best(alpha, beta, table, self))
            table[key] = math.log((self.substitutions[key] + self.strength * below) / (total + self.strength))
        return table

    def log_kept(self, character: str) -> float:
        """log p(a → a): what the slips at this character leave."""
        return math.log(max(1 - self._slips.get(character, self._slip), 0.05))

    def log_plain(self, alpha: str, beta: str) -> float:
        """log p of one slip by its kind alone; −∞ where it takes more than one."""
        rates = self.rates
        shape = (len(alpha), len(beta))
        if shape == (1, 0):
            return math.log(rates.deletion)
        if shape == (0, 1):
            return math.log(rates.insertion / rates.letters)
        if shape == (1, 1):
            return math.log(rates.substitution / rates.letters)
        if shape == (2, 2) and alpha == beta[::-1]:
            return math.log(rates.transposition)
        is_doubled = shape in ((1, 2), (2, 1)) and len({*alpha, *beta}) == 1
        return math.log(rates.doubling) if is_doubled else -math.inf

    @property
    def _slip(self) -> float:
        rates = self.rates
        return rates.deletion + rates.substitution + rates.insertion + rates.transposition

    @cached_property
    def _slips(self) -> dict[str, float]:
        """Of each character met the part that was lost or replaced."""
        lost: defaultdict[str, float] = defaultdict(float)
        for (alpha, beta), n in self.substitutions.items():
            if len(alpha) == 1 and len(beta) <= 1:
                lost[alpha] += n
        return {
            alpha: (lost[alpha] + self.strength * self._slip) / (n + self.strength)
            for alpha, n in self.occurrences.items()
            if len(alpha) == 1
        }

    def to_json(self) -> str:
        """What a channel's file holds."""
        rows = [[alpha, beta, n] for (alpha, beta), n in sorted(self.substitutions.items())]
        document = {"format": FORMAT, "schema_version": 1, "strength": self.strength}
        document |= {"occurrences": self.occurrences, "substitutions": rows}
        return json.dumps(document, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str = "the channel") -> "Channel":
        """Read that again."""
        try:
            document: Any = json.loads(text)
            if document["format"] != FORMAT or document["schema_version"] != 1:
                raise ValueError("another format")
            substitutions = {(str(alpha), str(beta)): float(n) for alpha, beta, n in document["substitutions"]}
            occurrences = {str(alpha): float(n) for alpha, n in document["occurrences"].items()}
            strength = float(document["strength"])
            numbers = [strength, *substitutions.values(), *occurrences.values()]
            if not all(math.isfinite(n) and n > 0 for n in numbers):
                raise ValueError("a count that is not above 0")
            if any(max(map(len, key)) > LONGEST or key[0] == key[1] for key in substitutions):
                raise ValueError(f"a substitution of more than {LONGEST} characters, or of nothing")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{name} is no channel file ({error}); make one with --pairs and --channel") from error
        return cls(substitutions, occurrences, strength=strength)

    @classmethod
    def read(cls, path: Path) -> "Channel":
        """The channel of a file."""
        try:
            return cls.from_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError as error:
            raise NotFoundError(f"{path} does not exist; make it with --pairs FILE --channel {path}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is no channel file (not UTF-8)") from error


def _windows(steps: Sequence[tuple[str, str]], longest: int) -> set[tuple[str, str]]:
    """Every run of steps around an edit, as one substitution of at most `longest` characters a side.

    More than one character lost or added stand beside one that is kept.
    """
    found = set()
    for first in range(len(steps)):
        alpha = beta = ""
        for step in steps[first:]:
            alpha, beta = alpha + step[0], beta + step[1]
            if max(len(alpha), len(beta)) > longest:
                break
            if alpha != beta and (len(alpha) + len(beta) == 1 or (alpha and beta)):
                found.add((alpha, beta))
    return found


def _pieces(meant: str, longest: int) -> Iterator[str]:
    """Every piece of at most `longest` characters, and one empty piece a character."""
    for size in range(longest + 1):
        yield from (meant[i : i + size] for i in range(len(meant) - max(size, 1) + 1))


def _best(alpha: str, beta: str, table: dict[tuple[str, str], float], channel: Channel) -> float:
    """log p(α → β) by shorter parts, or by its kind where it is one slip."""
    best = {(0, 0): 0.0}
    for i in range(len(alpha) + 1):
        for j in range(len(beta) + 1):
            parts = ((i - a, j - b) for a in range(i + 1) for b in range(j + 1) if a + b)
            found = [best[p, q] + _part(alpha[p:i], beta[q:j], table, channel) for p, q in parts]
            best[i, j] = max(found, default=0.0)
    return best[len(alpha), len(beta)]


def _part(alpha: str, beta: str, table: dict[tuple[str, str], float], channel: Channel) -> float:
    if alpha == beta:
        return channel.log_kept(alpha) if len(alpha) == 1 else -math.inf
    return max(table.get((alpha, beta), -math.inf), channel.log_plain(alpha, beta))
