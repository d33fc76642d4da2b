"""Noisy-channel error model p(written | meant) by substitutions of short strings (Brill & Moore 2000).

`Channel` is learned from misspellings and saved as JSON; `ChannelTables` scores many words at once.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.applications.spelling.symspell import CodePoints, to_code_points
from chainrule.errors import InputError, NotFoundError
from chainrule.lm import Floats, Ids
from chainrule.text.corpus import Corpus

MAX_SUBSTITUTION: Final = 3
"""Maximum length of either side of a substitution."""
FORMAT: Final = "chainrule channel"
BEGIN, END = "^", "$"
CHARACTER_BITS: Final = 10  # bits per character in a key: 6 characters take 60
LENGTHS: Final = MAX_SUBSTITUTION + 1
MAX_ALPHABET: Final = (1 << CHARACTER_BITS) - 1  # number of distinguishable characters; 0 stands for all others
CONTEXT: Final = MAX_SUBSTITUTION
"""Characters searched on either side of an edit: one more than a substitution reaches, for doubled letters."""
HASH_BITS: Final = 19  # bits of the hash filter
PAIRS_AT_ONCE: Final = 1 << 14
TABLE_SHAPES: Final = tuple((a, b) for a in range(1, LENGTHS) for b in range(1, LENGTHS) if a + b > 2)
"""Lengths of (α, β) stored in lookup tables."""
Keys = NDArray[np.int64]


class Misspelling(NamedTuple):
    """A misspelt word and the intended word."""

    wrong: str
    right: str


def read_misspellings(files: Sequence[str | Path]) -> list[Misspelling]:
    """Read the pairs of all files; the format is detected line by line.

    Formats: `wrong<TAB>right`; `right: wrong wrong`; or `$right` followed by its misspellings, one per line, with
    `_` for a blank. Pairs of identical words are dropped.
    """
    pairs = [pair for file in files for pair in _read(file)]
    return [pair for pair in pairs if pair.wrong and pair.right and pair.wrong != pair.right]


def _read(file: str | Path) -> list[Misspelling]:
    corpus = Corpus.of(str(file), expects_lines=False)
    pairs: list[Misspelling] = []
    meant = ""
    for number, line in enumerate(corpus, start=1):
        if not line.strip():
            continue
        if "\t" in line:
            columns = line.split("\t")
            if len(columns) != 2:
                where = f"{corpus.name}, line {number} has {len(columns) - 1} tabs"
                raise InputError(f"{where}; each line must be misspelling<TAB>correction")
            pairs.append(Misspelling(*(column.strip() for column in columns)))
        elif line.startswith("$"):
            meant = _parse_word(line[1:])
        elif ":" in line:
            right, _, wrongs = line.partition(":")
            pairs += [Misspelling(_parse_word(wrong), _parse_word(right)) for wrong in wrongs.split()]
        elif meant:
            pairs.append(Misspelling(_parse_word(re.sub(r" \d+$", "", line)), meant))
        else:
            raise InputError(
                f"{corpus.name}, line {number}: {line[:40]!r} is not a pair; "
                "write wrong<TAB>right, or right: wrong wrong, or $right and below it its misspellings"
            )
    return pairs


def _parse_word(word: str) -> str:
    return word.strip().replace("_", " ")


DELETION_RATE: Final = 0.03
INSERTION_RATE: Final = 0.03  # of any character, each with probability 1 / LETTERS
SUBSTITUTION_RATE: Final = 0.04  # likewise
TRANSPOSITION_RATE: Final = 0.02
DOUBLING_RATE: Final = 0.02  # a letter doubled, or a double letter written once
LETTERS: Final = 26
PRIOR_EDIT_RATE: Final = DELETION_RATE + SUBSTITUTION_RATE + INSERTION_RATE + TRANSPOSITION_RATE
"""Prior rate of each type of edit per character, uniform over letters, and their sum."""


@dataclass(frozen=True)
class Channel:
    """Substitution counts smoothed towards prior edit rates.

    p(α → β) = (c(α → β) + κ p'(α → β)) / (c(α) + κ), where p' is the best product of shorter substitutions, or the
    prior rate of the edit type for a single edit. Without counts the prior rates are used alone.
    """

    substitutions: dict[tuple[str, str], float] = field(default_factory=dict)  # c(α → β), α ≠ β
    occurrences: dict[str, float] = field(default_factory=dict)  # c(α) in the intended words
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
            prior = math.exp(_best_segmentation(alpha, beta, table, self))
            table[key] = math.log((self.substitutions[key] + self.strength * prior) / (total + self.strength))
        return table

    def log_match(self, character: str) -> float:
        """log p(a → a), the probability mass left by the edits of this character."""
        return math.log(max(1 - self._edit_rates.get(character, PRIOR_EDIT_RATE), 0.05))

    def log_prior_edit(self, alpha: str, beta: str) -> float:
        """Prior log p of a single edit by its type; −∞ if it takes more than one edit."""
        shape = (len(alpha), len(beta))
        if shape == (1, 0):
            return math.log(DELETION_RATE)
        if shape == (0, 1):
            return math.log(INSERTION_RATE / LETTERS)
        if shape == (1, 1):
            return math.log(SUBSTITUTION_RATE / LETTERS)
        if shape == (2, 2) and alpha == beta[::-1]:
            return math.log(TRANSPOSITION_RATE)
        is_doubled = shape in ((1, 2), (2, 1)) and len({*alpha, *beta}) == 1
        return math.log(DOUBLING_RATE) if is_doubled else -math.inf

    @cached_property
    def _edit_rates(self) -> dict[str, float]:
        """Smoothed rate at which each character is deleted or substituted."""
        lost: defaultdict[str, float] = defaultdict(float)
        for (alpha, beta), n in self.substitutions.items():
            if len(alpha) == 1 and len(beta) <= 1:
                lost[alpha] += n
        return {
            alpha: (lost[alpha] + self.strength * PRIOR_EDIT_RATE) / (n + self.strength)
            for alpha, n in self.occurrences.items()
            if len(alpha) == 1
        }

    def to_json(self) -> str:
        """Serialize to the channel file format."""
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
                raise ValueError(f"a substitution longer than {MAX_SUBSTITUTION} characters or with equal sides")
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


def _best_segmentation(alpha: str, beta: str, table: dict[tuple[str, str], float], channel: Channel) -> float:
    """log p(α → β) by the best segmentation into shorter substitutions or single edits."""
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


def align(meant: str, written: str) -> list[tuple[str, str]]:
    """Edit steps (part of `meant`, part of `written`): match, substitution, deletion, insertion or transposition.

    >>> align("form", "from")
    [('f', 'f'), ('or', 'ro'), ('m', 'm')]
    """
    cost = _distance_table(meant, written)
    i, j = len(meant), len(written)
    steps: list[tuple[str, str]] = []
    while i or j:
        a, b = _last_step(cost, meant, written, i, j)
        steps.append((meant[i - a : i], written[j - b : j]))
        i, j = i - a, j - b
    return steps[::-1]


def _distance_table(meant: str, written: str) -> list[list[int]]:
    """Dynamic-programming table: D[i][j] edits turn i letters of `meant` into j letters of `written`."""
    cost = [list(range(len(written) + 1))]
    for i, x in enumerate(meant, start=1):
        above = cost[-1]
        row = [i]
        for j, y in enumerate(written, start=1):
            best = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == written[j - 2] and y == meant[i - 2]:
                best = min(best, cost[i - 2][j - 2] + 1)
            row.append(best)
        cost.append(row)
    return cost


def _last_step(cost: list[list[int]], meant: str, written: str, i: int, j: int) -> tuple[int, int]:
    """Letters of either side consumed by the last step of an optimal path; matches are preferred."""
    distance = cost[i][j]
    if i and j and meant[i - 1] == written[j - 1] and cost[i - 1][j - 1] == distance:
        return 1, 1
    swapped = i > 1 and j > 1 and meant[i - 1] == written[j - 2] and meant[i - 2] == written[j - 1]
    if swapped and cost[i - 2][j - 2] + 1 == distance:
        return 2, 2
    if i and j and cost[i - 1][j - 1] + 1 == distance:
        return 1, 1
    return (1, 0) if i and cost[i - 1][j] + 1 == distance else (0, 1)


@dataclass(frozen=True)
class ChannelTables:
    """Channel probabilities as arrays; characters are indices into the sorted alphabet, from 1."""

    alphabet: Ids  # code points, sorted
    match: Floats  # (A + 1,) log p(a → a); index 0: any other character
    deletion: Floats  # (A + 1,) log p(a → ε)
    insertion: Floats  # (A + 1,) log p(ε → b)
    substitution: Floats  # (A + 1, A + 1) log p(a → b)
    doubling: float
    transposition: float
    tables: dict[tuple[int, int], "_Table"]  # learned substitutions by lengths (|α|, |β|)

    @classmethod
    def of(cls, channel: Channel) -> "ChannelTables":
        """Compile a channel into arrays."""
        table = channel.log_table
        used = {c for alpha, beta in table for c in alpha + beta} | set(channel.occurrences) | {BEGIN, END}
        letters = sorted(c for c in used if len(c) == 1)[:MAX_ALPHABET]
        A = len(letters)
        index = {c: i for i, c in enumerate(letters, start=1)}
        match = np.array([channel.log_match(c) for c in ("", *letters)])
        deletion = np.full(A + 1, channel.log_prior_edit("x", ""))
        insertion = np.full(A + 1, channel.log_prior_edit("", "x"))
        substitution = np.full((A + 1, A + 1), channel.log_prior_edit("x", "y"))
        rows: dict[tuple[int, int], list[tuple[int, float]]] = {shape: [] for shape in TABLE_SHAPES}
        for (alpha, beta), log_p in table.items():
            if not all(c in index for c in alpha + beta):
                continue
            a, b = (tuple(index[c] for c in side) for side in (alpha, beta))
            if len(a) + len(b) == 1:
                (deletion if a else insertion)[(a or b)[0]] = log_p
            elif len(a) == len(b) == 1:
                substitution[a[0], b[0]] = log_p
            if (len(a), len(b)) in rows:
                rows[len(a), len(b)].append((_key((*a, *b)), log_p))
        match[[index[BEGIN], index[END]]] = 0.0
        for edit in (deletion, insertion):
            edit[[index[BEGIN], index[END]]] = -np.inf
        tables = {shape: _Table.of(entries) for shape, entries in rows.items() if entries}
        codes = np.array([ord(c) for c in letters], dtype=np.int64)
        return cls(
            codes,
            match,
            deletion,
            insertion,
            substitution,
            channel.log_prior_edit("x", "xx"),
            channel.log_prior_edit("xy", "yx"),
            tables,
        )

    def log_probs(self, meant: Sequence[str], written: Sequence[str]) -> Floats:
        """log p(written | meant) of each pair, given that the word was misspelt."""
        log_p = np.zeros(len(meant))
        for first in range(0, len(meant), PAIRS_AT_ONCE):
            part = slice(first, first + PAIRS_AT_ONCE)
            ends = (
                to_code_points([f"{BEGIN}{word.lower()}{END}" for word in side[part]]) for side in (meant, written)
            )
            log_p[part] = self._log_probs(*ends)
        return log_p

    def _log_probs(self, meant: CodePoints, written: CodePoints) -> Floats:
        log_common, first, last_x, last_y = self._trim(meant, written)
        sizes = np.maximum(last_x, last_y) - first
        log_p = np.empty(len(sizes))
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            x = _slice(meant, rows, first[rows], last_x[rows], int(size))
            y = _slice(written, rows, first[rows], last_y[rows], int(size))
            log_p[rows] = log_common[rows] + self._best_segmentation(x, y)
        return log_p

    def _trim(self, meant: CodePoints, written: CodePoints) -> tuple[Floats, Ids, Ids, Ids]:
        """log p of the common prefix and suffix, the start of the rest, and its end in either word."""
        width = max(meant.codes.shape[1], written.codes.shape[1])
        x, y = meant.padded(width), written.padded(width)
        shorter = np.minimum(meant.sizes, written.sizes)
        prefix = np.minimum(np.logical_and.accumulate(x == y, axis=1).sum(axis=1), shorter)
        x_end, y_end = meant.reversed(width), written.reversed(width)
        suffix = np.minimum(np.logical_and.accumulate(x_end == y_end, axis=1).sum(axis=1), shorter - prefix)
        first = np.maximum(prefix - CONTEXT, 0)
        suffix = np.maximum(suffix - CONTEXT, 0)
        last_x, last_y = meant.sizes - suffix, written.sizes - suffix
        log_match = np.zeros((len(x), width + 1))
        np.cumsum(np.where(x > 0, self.match[self._indices(x)], 0), axis=1, out=log_match[:, 1:])
        rows = np.arange(len(x))
        log_common = log_match[rows, first] + log_match[rows, meant.sizes] - log_match[rows, last_x]
        return log_common, first, last_x, last_y

    def _indices(self, codes: Ids) -> Ids:
        """Indices into the alphabet; 0 for unknown characters."""
        at = np.minimum(np.searchsorted(self.alphabet, codes), len(self.alphabet) - 1)
        return np.where(self.alphabet[at] == codes, at + 1, 0)

    def _best_segmentation(self, meant: CodePoints, written: CodePoints) -> Floats:
        """(P,) log p of the best segmentations: D[i, j] = max_{α,β} D[i − |α|, j − |β|] + log p(α → β)."""
        X, Y = (np.ascontiguousarray(word.codes.T) for word in (meant, written))  # (M, P), (J, P)
        x, y = self._indices(X), self._indices(Y)
        M, J, P = len(x), len(y), x.shape[1]
        D = np.full((M + 1, J + 1, P), -np.inf)
        D[0, 0] = 0
        keys_x, keys_y = _substring_keys(x), _substring_keys(y)
        band = int(np.abs(meant.sizes - written.sizes).max(initial=0)) + MAX_SUBSTITUTION
        for i, j in _cells(M, J, band):
            self._apply_single_edits(D, i, j, (X, Y), (x, y))
            for (a, b), table in self.tables.items():
                if a <= i and b <= j:
                    rows, log_p = table.find(keys_x[a][i - a] << CHARACTER_BITS * b | keys_y[b][j - b])
                    D[i, j, rows] = np.maximum(D[i, j, rows], D[i - a, j - b, rows] + log_p)
        best: Floats = D[meant.sizes, written.sizes, np.arange(P)]
        return best

    def _apply_single_edits(
        self, D: Floats, i: int, j: int, codes: tuple[Ids, Ids], indices: tuple[Ids, Ids]
    ) -> None:
        """Apply matches, substitutions, deletions, insertions, doublings and transpositions to cell (i, j)."""
        (X, Y), (x, y), cell = codes, indices, D[i, j]
        if i and j:
            is_same = X[i - 1] == Y[j - 1]
            step = np.where(is_same, self.match[x[i - 1]], self.substitution[x[i - 1], y[j - 1]])
            np.maximum(cell, D[i - 1, j - 1] + step, out=cell)
            if j > 1:
                _update_where(is_same & (Y[j - 2] == Y[j - 1]), D[i - 1, j - 2], self.doubling, cell)
            if i > 1:
                _update_where(is_same & (X[i - 2] == X[i - 1]), D[i - 2, j - 1], self.doubling, cell)
            if i > 1 and j > 1:
                is_swap = (X[i - 1] == Y[j - 2]) & (X[i - 2] == Y[j - 1])
                _update_where(is_swap, D[i - 2, j - 2], self.transposition, cell)
        if i:
            np.maximum(cell, D[i - 1, j] + self.deletion[x[i - 1]], out=cell)
        if j:
            np.maximum(cell, D[i, j - 1] + self.insertion[y[j - 1]], out=cell)


@dataclass(frozen=True, slots=True)
class _Table:
    """log p by key, with a hash filter that rejects most absent keys."""

    keys: Keys  # sorted
    log_probs: Floats
    is_used: NDArray[np.bool_]  # (2^HASH_BITS,)

    @classmethod
    def of(cls, rows: list[tuple[int, float]]) -> "_Table":
        rows = sorted(rows)
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        is_used = np.zeros(1 << HASH_BITS, dtype=bool)
        is_used[_hash(keys)] = True
        return cls(keys, np.array([log_p for _, log_p in rows]), is_used)

    def find(self, keys: Keys) -> tuple[Ids, Floats]:
        """Indices of the keys that are present, and their log p."""
        likely = np.flatnonzero(self.is_used[_hash(keys)])
        at = np.minimum(np.searchsorted(self.keys, keys[likely]), len(self.keys) - 1)
        is_found = self.keys[at] == keys[likely]
        return likely[is_found], self.log_probs[at[is_found]]


def _hash(keys: Keys) -> Ids:
    return (keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - HASH_BITS)).view(np.int64)


def _update_where(condition: NDArray[np.bool_], before: Floats, log_p: float, cell: Floats) -> None:
    """Update the cell with this edit where the condition is true."""
    rows = np.flatnonzero(condition)
    cell[rows] = np.maximum(cell[rows], before[rows] + log_p)


def _cells(M: int, J: int, band: int) -> Iterator[tuple[int, int]]:
    """Cells within `band` of the diagonal except (0, 0), in order of computation."""
    return ((i, j) for i in range(M + 1) for j in range(J + 1) if i + j and abs(i - j) <= band)


def _key(indices: Sequence[int]) -> int:
    key = 0
    for index in indices:
        key = key << CHARACTER_BITS | index
    return key


def _substring_keys(x: Ids) -> list[Keys]:
    """Keys of all substrings by length, (M − length + 1, P) each; −1 if a character is unknown."""
    M, P = x.shape
    keys = [np.zeros((M + 1, P), dtype=np.int64)]
    for length in range(1, min(MAX_SUBSTITUTION, M) + 1):
        key = np.zeros((M - length + 1, P), dtype=np.int64)
        is_other = np.zeros(key.shape, dtype=bool)
        for k in range(length):
            letters = x[k : M - length + 1 + k]
            key = key << CHARACTER_BITS | letters
            is_other |= letters == 0
        keys.append(np.where(is_other, -1, key))
    return keys


def _slice(words: CodePoints, rows: Ids, first: Ids, last: Ids, size: int) -> CodePoints:
    """Characters `first` to `last` of these rows, left-aligned."""
    columns = first[:, None] + np.arange(size)
    codes = np.where(columns < last[:, None], words.padded(words.codes.shape[1] + size)[rows[:, None], columns], 0)
    return CodePoints(codes, last - first)
