"""Word vectors to look at: neighbours, similarity, analogies.

Lives here: what a person asks of finished vectors. Not here: learning them (learning.py), the folder (storage.py),
files of other software (formats.py), how good they are (evaluation/).
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.subwords import Subwords
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats
from chainrule.manifest import JSON
from chainrule.vector_file import Format, write_vectors

Rule = Literal["add", "mul"]
"""How analogies are solved: 3CosAdd (Mikolov et al. 2013) or 3CosMul (Levy & Goldberg 2014)."""

EPSILON: Final = 0.001  # of 3CosMul, as its authors chose it
NEAR_IN_LENGTH: Final = 2  # letters by which a near spelling may be longer or shorter
NEAR_RATIO: Final = 0.7  # of a near spelling: letters that match in order, both words' together, over all of them
NEAR_EFFORT: Final = 200_000  # letters of the words compared at most, so that a long list takes a second at most

Found = list[tuple[str, float]]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Words, the most frequent first where they were counted, and a row of numbers for each.

    A matrix of width 0 stands for one-hot vectors: a word has nothing in common with any other.
    """

    task: ClassVar = "vectors"
    words: tuple[str, ...]
    matrix: Floats  # (V, D)  float32
    counts: NDArray[np.uint64] | None = None  # (V,)  in the training text
    subwords: Subwords | None = None
    buckets: Floats | None = None  # (B, D)  of character n-grams
    lowercase: bool = False  # words are looked up in lower case; True wherever all words are in lower case
    metrics: dict[str, Any] = field(default_factory=dict)
    config: VectorConfig | None = None  # None: they come from a file of other software
    about: Mapping[str, JSON] = field(default_factory=dict)  # what the manifest says of where they come from

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.words:
            raise InputError(f"{len(self.words)} words need a row each, not an array of shape {self.matrix.shape}")
        # Decided here and nowhere else, so that a folder and a file of the same vectors have the same figures.
        is_lower = self.lowercase or all(word == word.lower() for word in self.words)
        object.__setattr__(self, "lowercase", is_lower)

    def __repr__(self) -> str:
        return f"<{self.method} vectors: {len(self):,} words, {self.dimensions:,} dimensions>"

    def __len__(self) -> int:
        """How many words there are."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.row(word) is not None

    def __getitem__(self, word: str) -> Floats:
        """`vector`."""
        return self.vector(word)

    @property
    def method(self) -> str:
        """How they were learnt; "imported" where another software did it."""
        return "imported" if self.config is None else self.config.method

    @property
    def parameters(self) -> int:
        """How many numbers there are."""
        return self.matrix.size + (0 if self.buckets is None else self.buckets.size)

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return len(self) if self.is_one_hot else self.matrix.shape[1]

    @property
    def is_one_hot(self) -> bool:
        """True: no vector has anything in common with another, and none is stored."""
        return not self.matrix.shape[1]

    @cached_property
    def unit(self) -> Floats:
        """(V, D) the rows at length 1; one that is all zeros stays so."""
        return _unit(self.matrix)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def row(self, word: str) -> int | None:
        """The row of a word, lower-cased where all words are; None where it has none."""
        return self._row_of.get(self._spelled(word))

    def _spelled(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def find(self, word: str) -> Floats | None:
        """(D,) the vector of a word, of an unknown one by its character n-grams; None where there is no way.

        The vector of an unknown word is the mean of those of its n-grams (Bojanowski et al. 2017).
        """
        if (row := self.row(word)) is not None:
            return np.asarray(self.matrix[row])
        if self.subwords is None or self.buckets is None:
            return None
        rows = self.subwords.rows(self._spelled(word))
        return np.asarray(self.buckets[rows].mean(axis=0)) if len(rows) else None

    def vector(self, word: str) -> Floats:
        """(D,) the vector of a word; (V,) where they are one-hot."""
        if self.is_one_hot:
            return np.asarray(np.arange(len(self)) == self._known_row(word), dtype=np.float32)
        return self._known(word)

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between two words' vectors."""
        if self.is_one_hot:
            return float(self._known_row(a) == self._known_row(b))
        u, v = (_unit(self._known(word)[None])[0] for word in (a, b))
        return float(u @ v)

    def neighbors(self, word: str, top: int = 10) -> Found:
        """The words nearest in angle with their cosines, nearest first, the word itself left out."""
        _check_top(top)
        if self.is_one_hot:
            self._known_row(word)
            return []
        cosines = self.unit @ _unit(self._known(word)[None])[0]  # (V,)
        return self._best(cosines, [word], top)

    def analogy(self, a: str, b: str, c: str, top: int = 10, method: Rule = "add") -> Found:
        """What stands to c as b stands to a, best first, the three themselves left out.

        `add`: cos(x, b − a + c), of vectors at length 1. `mul`: cos(x, b)·cos(x, c) / (cos(x, a) + ε), with cosines
        moved to [0, 1].
        """
        _check_top(top)
        check_rule(method)
        if self.is_one_hot:
            for word in (a, b, c):
                self._known_row(word)
            return []
        units = _unit(np.stack([self._known(word) for word in (a, b, c)]))  # (3, D)
        if method == "add":
            target = _unit((units[1] - units[0] + units[2])[None])[0]
            return self._best(self.unit @ target, [a, b, c], top)
        cosines = (self.unit @ units.T + 1) / 2  # (V, 3)
        return self._best(cosines[:, 1] * cosines[:, 2] / (cosines[:, 0] + EPSILON), [a, b, c], top)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the folder; another model or an unfinished run there is replaced only with `force`."""
        from chainrule.embeddings import storage

        storage.save(self, Path(folder), force=force)

    def export(self, file: str | Path, format: Format = "word2vec") -> None:
        """Write a file for other software: word2vec, word2vec-binary or glove; n-grams are not part of it."""
        if self.is_one_hot:
            raise UsageError(f"one-hot vectors of {len(self):,} words are not written out; they need no file")
        write_vectors(file, self.words, self.matrix, format)

    def near_spellings(self, word: str) -> list[str]:
        """At most three known words that are spelled much like this one, nearest first."""
        word = self._spelled(word)
        swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)]
        slips = (word.lower(), word.capitalize(), word.upper(), *swapped)
        sure = [slip for slip in slips if slip in self._row_of]
        alike = islice(self._alike(word), NEAR_EFFORT // (len(word) + 1))
        return list(dict.fromkeys([*sure, *difflib.get_close_matches(word, alike, n=3, cutoff=NEAR_RATIO)]))[:3]

    def _alike(self, word: str) -> Iterator[str]:
        """The words that may be near spellings, by length and letters: at least all those that are."""
        letters = set(word)
        for known in self.words:
            if abs(len(known) - len(word)) > NEAR_IN_LENGTH:
                continue
            # A letter that the other word lacks matches nothing there, and so many must match:
            matching = NEAR_RATIO / 2 * (len(word) + len(known))
            others = set(known)
            if len(letters - others) <= len(word) - matching and len(others - letters) <= len(known) - matching:
                yield known

    def _best(self, scores: Floats, left_out: Sequence[str], top: int) -> Found:
        """The words with the highest scores; the more frequent one among equals."""
        scores = scores.copy()
        scores[[row for word in left_out if (row := self.row(word)) is not None]] = -np.inf
        rows = np.arange(len(scores))
        if top < len(scores):
            rows = np.flatnonzero(scores >= np.partition(scores, -top)[-top])
        order = rows[np.argsort(-scores[rows], kind="stable")][:top]
        return [(self.words[row], float(scores[row])) for row in order if scores[row] > -np.inf]

    def _known(self, word: str) -> Floats:
        found = self.find(word)
        if found is None:
            raise self._unknown(word)
        return found

    def _known_row(self, word: str) -> int:
        row = self.row(word)
        if row is None:
            raise self._unknown(word)
        return row

    def _unknown(self, word: str) -> InputError:
        near = self.near_spellings(word)
        advice = f"did you mean {' or '.join(map(repr, near))}?" if near else "nothing is spelled like it"
        return InputError(f"{word!r} is not among the {len(self):,} words; {advice}")


def check_rule(method: str) -> None:
    """Refuse a way to solve analogies that there is not."""
    if method not in get_args(Rule):
        raise UsageError(f"method is '{method}'; choose add or mul")


def _check_top(top: int) -> None:
    if top < 1:
        raise UsageError(f"top is {top}; choose how many words to list, 1 or more")


def _unit(rows: Floats) -> Floats:
    """(N, D) each row at length 1, zeros as they are."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, np.float32(1)))
