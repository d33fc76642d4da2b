"""Trained word vectors: nearest neighbours, similarity and analogies."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.formats import Format, write_vectors
from chainrule.embeddings.subwords import Subwords
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats
from chainrule.storage.provenance import Origin

AnalogyMethod = Literal["add", "mul"]
"""Analogy score: 3CosAdd (Mikolov et al. 2013) or 3CosMul (Levy & Goldberg 2014)."""

EPSILON: Final = 0.001  # of 3CosMul, the authors' value
SUGGESTION_LENGTH_SLACK: Final = 2  # length difference allowed for a suggestion
SUGGESTION_RATIO: Final = 0.7  # minimum `difflib` similarity ratio of a suggestion
SUGGESTION_CHARACTERS: Final = 200_000  # characters compared at most, which takes about a second

ScoredWords = list[tuple[str, float]]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Words, the most frequent first if counts are known, and a vector for each.

    A matrix of width 0 represents one-hot vectors, in which different words have similarity 0.
    """

    task: ClassVar = "vectors"
    words: tuple[str, ...]
    matrix: Floats  # (V, D)  float32
    counts: NDArray[np.uint64] | None = None  # (V,)  counts in the training text
    subwords: Subwords | None = None
    buckets: Floats | None = None  # (B, D)  vectors of character n-gram buckets
    lowercase: bool = False  # look words up in lower case; set to True if all words are lower-case
    metrics: dict[str, Any] = field(default_factory=dict)
    config: VectorConfig | None = None  # None: imported from a file
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words) or not self.words:
            raise InputError(f"{len(self.words)} words need a row each, not an array of shape {self.matrix.shape}")
        # Set here for all sources, so that a folder and an exported file of the same vectors behave the same.
        is_lower = self.lowercase or all(word == word.lower() for word in self.words)
        object.__setattr__(self, "lowercase", is_lower)

    def __repr__(self) -> str:
        return f"<{self.method} vectors: {len(self):,} words, {self.dimensions:,} dimensions>"

    def __len__(self) -> int:
        """Number of words V."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.row(word) is not None

    def __getitem__(self, word: str) -> Floats:
        """Return `vector(word)`."""
        return self.vector(word)

    @property
    def method(self) -> str:
        """Training method; "imported" if the vectors come from other software."""
        return "imported" if self.config is None else self.config.method

    @property
    def parameters(self) -> int:
        """Number of stored values."""
        return self.matrix.size + (0 if self.buckets is None else self.buckets.size)

    @property
    def dimensions(self) -> int:
        """Number of dimensions D; V for one-hot vectors."""
        return len(self) if self.is_one_hot else self.matrix.shape[1]

    @property
    def is_one_hot(self) -> bool:
        """Whether the vectors are one-hot, which are not stored."""
        return not self.matrix.shape[1]

    @cached_property
    def unit(self) -> Floats:
        """Rows normalized to length 1, (V, D); zero rows stay zero."""
        return _normalize_rows(self.matrix)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def row(self, word: str) -> int | None:
        """Return the row of a word, or None if it is not in the vocabulary."""
        return self._row_of.get(self._normalize_case(word))

    def _normalize_case(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def find(self, word: str) -> Floats | None:
        """Return the vector (D,) of a word, or None if it is unknown and has no character n-grams.

        The vector of an unknown word is the mean of its n-gram vectors (Bojanowski et al. 2017).
        """
        if (row := self.row(word)) is not None:
            return np.asarray(self.matrix[row])
        if self.subwords is None or self.buckets is None:
            return None
        rows = self.subwords.rows(self._normalize_case(word))
        return np.asarray(self.buckets[rows].mean(axis=0)) if len(rows) else None

    def vector(self, word: str) -> Floats:
        """Return the vector (D,) of a word; raise InputError if it has none."""
        if self.is_one_hot:
            return np.asarray(np.arange(len(self)) == self._require_row(word), dtype=np.float32)
        return self._require_vector(word)

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine similarity of two words."""
        if self.is_one_hot:
            return float(self._require_row(a) == self._require_row(b))
        u, v = (_normalize_rows(self._require_vector(word)[None])[0] for word in (a, b))
        return float(u @ v)

    def neighbors(self, word: str, top: int = 10) -> ScoredWords:
        """Return the words with the highest cosine similarity, most similar first, excluding the word itself."""
        _check_top(top)
        if self.is_one_hot:
            self._require_row(word)
            return []
        cosines = self.unit @ _normalize_rows(self._require_vector(word)[None])[0]  # (V,)
        return self._top_words(cosines, [word], top)

    def analogy(self, a: str, b: str, c: str, top: int = 10, method: AnalogyMethod = "add") -> ScoredWords:
        """Return the words x for "a is to b as c is to x", best first, excluding a, b and c.

        `add`: cos(x, b − a + c) of unit vectors. `mul`: cos(x, b)·cos(x, c) / (cos(x, a) + ε), with cosines mapped
        to [0, 1].
        """
        _check_top(top)
        check_analogy_method(method)
        if self.is_one_hot:
            for word in (a, b, c):
                self._require_row(word)
            return []
        units = _normalize_rows(np.stack([self._require_vector(word) for word in (a, b, c)]))  # (3, D)
        if method == "add":
            target = _normalize_rows((units[1] - units[0] + units[2])[None])[0]
            return self._top_words(self.unit @ target, [a, b, c], top)
        cosines = (self.unit @ units.T + 1) / 2  # (V, 3)
        return self._top_words(cosines[:, 1] * cosines[:, 2] / (cosines[:, 0] + EPSILON), [a, b, c], top)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model folder; an existing model or unfinished run is replaced only with `force`."""
        from chainrule.embeddings import storage

        storage.save(self, Path(folder), force=force)

    def export(self, file: str | Path, format: Format = "word2vec") -> None:
        """Write a file in word2vec, word2vec-binary or glove format, without character n-grams."""
        if self.is_one_hot:
            raise UsageError(
                f"one-hot vectors of {len(self):,} words cannot be exported; they are determined by the vocabulary"
            )
        write_vectors(file, self.words, self.matrix, format)

    def suggest_spellings(self, word: str) -> list[str]:
        """Return at most three similarly spelled known words, most similar first."""
        word = self._normalize_case(word)
        swapped = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)]
        variants = (word.lower(), word.capitalize(), word.upper(), *swapped)
        known_variants = [variant for variant in variants if variant in self._row_of]
        candidates = islice(self._spelling_candidates(word), SUGGESTION_CHARACTERS // (len(word) + 1))
        close = difflib.get_close_matches(word, candidates, n=3, cutoff=SUGGESTION_RATIO)
        return list(dict.fromkeys([*known_variants, *close]))[:3]

    def _spelling_candidates(self, word: str) -> Iterator[str]:
        """Yield the words whose length and letters allow the minimum similarity ratio."""
        letters = set(word)
        for known in self.words:
            if abs(len(known) - len(word)) > SUGGESTION_LENGTH_SLACK:
                continue
            # Letters that the other word lacks cannot match; this many must:
            matching = SUGGESTION_RATIO / 2 * (len(word) + len(known))
            others = set(known)
            if len(letters - others) <= len(word) - matching and len(others - letters) <= len(known) - matching:
                yield known

    def _top_words(self, scores: Floats, excluded: Sequence[str], top: int) -> ScoredWords:
        """Return the words with the highest scores; ties go to the more frequent word."""
        scores = scores.copy()
        scores[[row for word in excluded if (row := self.row(word)) is not None]] = -np.inf
        rows = np.arange(len(scores))
        if top < len(scores):
            rows = np.flatnonzero(scores >= np.partition(scores, -top)[-top])
        order = rows[np.argsort(-scores[rows], kind="stable")][:top]
        return [(self.words[row], float(scores[row])) for row in order if scores[row] > -np.inf]

    def _require_vector(self, word: str) -> Floats:
        vector = self.find(word)
        if vector is None:
            raise self._unknown_word_error(word)
        return vector

    def _require_row(self, word: str) -> int:
        row = self.row(word)
        if row is None:
            raise self._unknown_word_error(word)
        return row

    def _unknown_word_error(self, word: str) -> InputError:
        suggestions = self.suggest_spellings(word)
        advice = (
            f"did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "nothing is spelled like it"
        )
        return InputError(f"{word!r} is not among the {len(self):,} words; {advice}")


def check_analogy_method(method: str) -> None:
    """Raise UsageError unless `method` is an analogy method."""
    if method not in get_args(AnalogyMethod):
        raise UsageError(f"method is '{method}'; choose add or mul")


def _check_top(top: int) -> None:
    if top < 1:
        raise UsageError(f"top is {top}; choose how many words to list, 1 or more")


def _normalize_rows(rows: Floats) -> Floats:
    """Scale each row of (N, D) to length 1; zero rows stay zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, np.float32(1)))
