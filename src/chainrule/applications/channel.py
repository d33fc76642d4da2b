"""Noisy-channel error model p(written | meant) by substitutions of short strings (Brill & Moore 2000)."""

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

MAX_SUBSTITUTION: Final = 3
"""Maximum length of either side of a substitution."""
FORMAT: Final = "chainrule channel"
BEGIN, END = "^", "$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Prior rate of each type of edit per character, uniform over letters."""

    deletion: float = 0.03
    insertion: float = 0.03  # any character, each with probability 1/`letters`
    substitution: float = 0.04  # likewise
    transposition: float = 0.02
    doubling: float = 0.02  # a letter doubled, or a double letter written once
    letters: int = 26


@dataclass(frozen=True)
class Channel:
    """Substitution counts smoothed towards prior edit rates.

    p(α → β) = (c(α → β) + κ p'(α → β)) / (c(α) + κ), where p' is the best product of shorter substitutions, or the
    prior rate of the edit type for a single edit. Without counts the prior rates are used alone.
    """

    substitutions: dict[tuple[str, str], float] = field(default_factory=dict)  # c(α → β), α ≠ β
    occurrences: dict[str, float] = field(default_factory=dict)  # c(α) in the intended words
    rates: Rates = field(default_factory=Rates)
    strength: float = 30.0  # κ

    @classmethod
    def learn(
        cls, pairs: Sequence[Misspelling], longest: int = MAX_SUBSTITUTION, strength: float = 30.0
    ) -> "Channel":
        """Align each pair with minimum edits and count every edit with up to `longest` characters of context."""
        substitutions: Counter[tuple[str, str]] = Counter()
        occurrences: Counter[str] = Counter()
        for pair in pairs:
            meant, written = (BEGIN + side.lower() + END for side in (pair.right, pair.wrong))
            substitutions.update(_substitutions_in(align(meant, written), longest))
            occurrences.update(_substrings(meant, longest))
        frequent = {key: float(n) for key, n in substitutions.items() if n >= max(map(len, key))}
        alphas = {alpha for alpha, _ in frequent} | {alpha for alpha in occurrences if len(alpha) <= 1}
        return cls(frequent, {alpha: float(occurrences[alpha]) for alpha in sorted(alphas)}, strength=strength)

    @cached_property
    def log_table(self) -> dict[tuple[str, str], float]:
        """log p(α → β) of all counted substitutions, shorter ones first."""
        table: dict[tuple[str, str], float] = {}
        for key in sorted(self.substitutions, key=lambda key: (len(key[0]) + len(key[1]), key)):
            alpha, beta = key
            total = self.occurrences.get(alpha, 0.0)
            prior = math.exp(_best_partition(alpha, beta, table, self))
            table[key] = math.log((self.substitutions[key] + self.strength * prior) / (total + self.strength))
        return table

    def log_match(self, character: str) -> float:
        """log p(a → a), the probability mass left by the edits of this character."""
        return math.log(max(1 - self._edit_rates.get(character, self._prior_edit_rate), 0.05))

    def log_prior_edit(self, alpha: str, beta: str) -> float:
        """Prior log p of a single edit by its type; −∞ if it takes more than one edit."""
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
    def _prior_edit_rate(self) -> float:
        rates = self.rates
        return rates.deletion + rates.substitution + rates.insertion + rates.transposition

    @cached_property
    def _edit_rates(self) -> dict[str, float]:
        """Smoothed rate at which each character is deleted or substituted."""
        lost: defaultdict[str, float] = defaultdict(float)
        for (alpha, beta), n in self.substitutions.items():
            if len(alpha) == 1 and len(beta) <= 1:
                lost[alpha] += n
        return {
            alpha: (lost[alpha] + self.strength * self._prior_edit_rate) / (n + self.strength)
            for alpha, n in self.occurrences.items()
            if len(alpha) == 1
        }

    def to_json(self) -> str:
        """Serialise to the channel file format."""
        rows = [[alpha, beta, n] for (alpha, beta), n in sorted(self.substitutions.items())]
        document = {"format": FORMAT, "schema_version": 1, "strength": self.strength}
        document |= {"occurrences": self.occurrences, "substitutions": rows}
        return json.dumps(document, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str = "the channel") -> "Channel":
        """Parse the channel file format."""
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
            if any(max(map(len, key)) > MAX_SUBSTITUTION or key[0] == key[1] for key in substitutions):
                raise ValueError(f"a substitution of more than {MAX_SUBSTITUTION} characters, or of nothing")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{name} is not a channel file ({error}); make one with --pairs and --channel"
            ) from error
        return cls(substitutions, occurrences, strength=strength)

    @classmethod
    def read(cls, path: Path) -> "Channel":
        """Read a channel file."""
        try:
            return cls.from_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError as error:
            raise NotFoundError(f"{path} does not exist; make it with --pairs FILE --channel {path}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a channel file (not UTF-8)") from error


def _substitutions_in(steps: Sequence[tuple[str, str]], longest: int) -> set[tuple[str, str]]:
    """Substitutions of at most `longest` characters per side formed by runs of alignment steps with an edit.

    Deletions and insertions of several characters include an adjacent matching character.
    """
    substitutions = set()
    for first in range(len(steps)):
        alpha = beta = ""
        for step in steps[first:]:
            alpha, beta = alpha + step[0], beta + step[1]
            if max(len(alpha), len(beta)) > longest:
                break
            if alpha != beta and (len(alpha) + len(beta) == 1 or (alpha and beta)):
                substitutions.add((alpha, beta))
    return substitutions


def _substrings(meant: str, longest: int) -> Iterator[str]:
    """All substrings of at most `longest` characters, and one empty string per character."""
    for size in range(longest + 1):
        yield from (meant[i : i + size] for i in range(len(meant) - max(size, 1) + 1))


def _best_partition(alpha: str, beta: str, table: dict[tuple[str, str], float], channel: Channel) -> float:
    """log p(α → β) by the best partition into shorter substitutions or single edits."""
    best = {(0, 0): 0.0}
    for i in range(len(alpha) + 1):
        for j in range(len(beta) + 1):
            parts = ((i - a, j - b) for a in range(i + 1) for b in range(j + 1) if a + b)
            scores = [best[p, q] + _log_substitution(alpha[p:i], beta[q:j], table, channel) for p, q in parts]
            best[i, j] = max(scores, default=0.0)
    return best[len(alpha), len(beta)]


def _log_substitution(alpha: str, beta: str, table: dict[tuple[str, str], float], channel: Channel) -> float:
    if alpha == beta:
        return channel.log_match(alpha) if len(alpha) == 1 else -math.inf
    return max(table.get((alpha, beta), -math.inf), channel.log_prior_edit(alpha, beta))
