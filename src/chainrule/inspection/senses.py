"""Separation of the senses of an ambiguous word by its contextual vectors. n occurrences, D layer width."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats

TIE: Final = 1e-9
"""Cosines within this distance are ties, so that rounding decides nothing."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Sense separation of the vectors of one layer."""

    layer: int
    accuracy: float  # leave-one-out nearest-centroid classification
    within: float  # mean cosine within senses
    across: float  # mean cosine across senses
    different: int  # number of distinct vectors; 1 if the layer ignores context

    @property
    def gap(self) -> float:
        """Difference of the mean cosines within and across senses."""
        return self.within - self.across if self.different > 1 else 0.0


def measure_separation(layers: Mapping[int, Floats], senses: Sequence[str]) -> list[Separation]:
    """Return the separation for every layer, (n, D) each, given the sense of each occurrence."""
    check_senses(senses)
    separations = []
    for layer, vectors in sorted(layers.items()):
        x = unit_vectors(vectors)
        within, across = mean_cosines(x, senses)
        different = len(np.unique(vectors, axis=0))
        separations.append(Separation(layer, accuracy(x, senses), within, across, different))
    return separations


def best_layer(separations: Sequence[Separation]) -> Separation:
    """Return the layer of highest accuracy, ties by gap; layer 0 only if there is no other."""
    candidates = [separation for separation in separations if separation.layer > 0] or list(separations)
    return max(candidates, key=lambda separation: (separation.accuracy, separation.gap))


def check_senses(senses: Sequence[str]) -> None:
    """Raise unless there are at least two senses with two sentences each."""
    counts = Counter(senses)
    if len(counts) < 2:
        raise InputError(f"there is only one sense, '{senses[0]}'; give sentences of two or more")
    for sense, n in counts.items():
        if n < 2:
            raise InputError(f"sense '{sense}' has only one sentence; give two or more")


def majority_sense(senses: Sequence[str]) -> tuple[str, float]:
    """Return the most frequent sense (the first among ties) and its share."""
    sense, count = Counter(senses).most_common(1)[0]
    return sense, count / len(senses)


def unit_vectors(vectors: Floats) -> Floats:
    """Normalize rows to length 1, (n, D); zero rows stay zero."""
    x = vectors.astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1.0)


def accuracy(x: Floats, senses: Sequence[str]) -> float:
    """Return the leave-one-out accuracy of the nearest centroid by cosine for unit vectors (n, D).

    Ties go to the more frequent sense, so identical vectors reach the majority rate and no more.
    """
    names = [name for name, _ in Counter(senses).most_common()]  # ties go to the first
    is_of = np.array([[sense == name for name in names] for sense in senses])  # (n, S)
    sums = is_of.T.astype(np.float64) @ x  # (S, D)
    correct = 0
    for i, vector in enumerate(x):
        # The sum has the same direction as the mean.
        others = sums - is_of[i][:, None] * vector
        cosines = unit_vectors(others) @ vector  # (S,)
        nearest = int(np.flatnonzero(cosines >= cosines.max() - TIE)[0])
        correct += bool(is_of[i, nearest])
    return correct / len(senses)


def mean_cosines(x: Floats, senses: Sequence[str]) -> tuple[float, float]:
    """Return the mean cosine within and across senses over all pairs of unit vectors (n, D)."""
    cosines = x @ x.T  # (n, n)
    names = np.array(senses)
    is_same = names[:, None] == names
    is_pair = np.triu(np.ones(is_same.shape, dtype=bool), k=1)
    return float(cosines[is_pair & is_same].mean()), float(cosines[is_pair & ~is_same].mean())


def principal_components(vectors: Floats) -> tuple[Floats, Floats]:
    """Return the first two principal components (n, 2) of normalized vectors, and their variance shares (2,).

    Signs are chosen so that the largest loading is positive. Without variance everything is 0.
    """
    x = unit_vectors(vectors)
    x = x - x.mean(axis=0)
    U, S, V = np.linalg.svd(x, full_matrices=False)
    if len(S) < 2:
        U, S, V = np.pad(U, ((0, 0), (0, 1))), np.pad(S, (0, 1)), np.pad(V, ((0, 1), (0, 0)))
    signs = np.where(np.take_along_axis(V, np.abs(V).argmax(axis=1, keepdims=True), axis=1)[:, 0] < 0, -1.0, 1.0)
    total = (S**2).sum()
    if total < TIE:  # identical vectors
        return np.zeros((len(x), 2)), np.zeros(2)
    return (U * S * signs)[:, :2], (S**2 / total)[:2]
