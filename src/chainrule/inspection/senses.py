"""How well the vectors of an ambiguous word tell its senses apart, in numbers and as points of a plane.

Lives here: arrays in, numbers out. Not here: the vectors (neural/occurrences.py), the picture (senses_picture.py).
Letters: n occurrences of the word, D width of a layer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats

TIE: Final = 1e-9
"""Cosines as near as this are equal: what rounding makes of the same vectors decides nothing."""


@dataclass(frozen=True, slots=True)
class Separation:
    """What the vectors of one layer know of the senses."""

    layer: int
    accuracy: float  # of naming each occurrence's sense by the nearest centroid of the others
    within: float  # mean cosine of two occurrences of one sense
    across: float  # of two senses
    different: int  # vectors that are not the same; 1: the layer does not look at the context

    @property
    def gap(self) -> float:
        """How much nearer to each other occurrences of one sense are."""
        return self.within - self.across if self.different > 1 else 0.0


def measure(layers: Mapping[int, Floats], senses: Sequence[str]) -> list[Separation]:
    """The figures of every layer, (n, D) each, for the sense of each of the n occurrences."""
    check(senses)
    found = []
    for layer, vectors in sorted(layers.items()):
        x = unit(vectors)
        within, across = mean_cosines(x, senses)
        different = len(np.unique(vectors, axis=0))
        found.append(Separation(layer, accuracy(x, senses), within, across, different))
    return found


def best(found: Sequence[Separation]) -> Separation:
    """The layer of the highest accuracy, of equals that of the largest gap; layer 0 where there is no other."""
    candidates = [each for each in found if each.layer > 0] or list(found)
    return max(candidates, key=lambda each: (each.accuracy, each.gap))


def check(senses: Sequence[str]) -> None:
    """Refuse what nothing can be measured on."""
    times = Counter(senses)
    if len(times) < 2:
        raise InputError(f"there is one sense only, '{senses[0]}'; give sentences of two or more")
    for sense, n in times.items():
        if n < 2:
            raise InputError(f"sense '{sense}' has one sentence only, and is unknown without it; give two or more")


def majority(senses: Sequence[str]) -> tuple[str, float]:
    """The most frequent sense, the first among equals, and what part of the occurrences has it."""
    sense, times = Counter(senses).most_common(1)[0]
    return sense, times / len(senses)


def unit(vectors: Floats) -> Floats:
    """(n, D) -> (n, D) of length 1; a vector of nothing stays one."""
    x = vectors.astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1.0)


def accuracy(x: Floats, senses: Sequence[str]) -> float:
    """Leave one out: the part of (n, D) unit vectors whose sense is that of the centroid with the largest cosine.

    The centroid of a sense is the mean of its other occurrences. Between equal cosines the most frequent sense is
    chosen, so that vectors that are all the same reach the majority's rate and no more.
    """
    names = [name for name, _ in Counter(senses).most_common()]  # ties go to the first
    is_of = np.array([[sense == name for name in names] for sense in senses])  # (n, S)
    sums = is_of.T.astype(np.float64) @ x  # (S, D)
    right = 0
    for i, vector in enumerate(x):
        # The sum has the direction of the mean.
        others = sums - is_of[i][:, None] * vector
        cosines = unit(others) @ vector  # (S,)
        chosen = int(np.flatnonzero(cosines >= cosines.max() - TIE)[0])
        right += bool(is_of[i, chosen])
    return right / len(senses)


def mean_cosines(x: Floats, senses: Sequence[str]) -> tuple[float, float]:
    """Over all pairs of (n, D) unit vectors: the mean cosine within senses and that across them."""
    cosines = x @ x.T  # (n, n)
    names = np.array(senses)
    is_same = names[:, None] == names
    is_pair = np.triu(np.ones(is_same.shape, dtype=bool), k=1)
    return float(cosines[is_pair & is_same].mean()), float(cosines[is_pair & ~is_same].mean())


def principal(vectors: Floats) -> tuple[Floats, Floats]:
    """The first two principal components of (n, D) unit vectors: (n, 2), and their shares of the variance, (2,).

    The sign of a component is that which makes its largest weight positive. Where there is no variance all is 0.
    """
    x = unit(vectors)
    x = x - x.mean(axis=0)
    U, S, V = np.linalg.svd(x, full_matrices=False)
    if len(S) < 2:
        U, S, V = np.pad(U, ((0, 0), (0, 1))), np.pad(S, (0, 1)), np.pad(V, ((0, 1), (0, 0)))
    signs = np.where(np.take_along_axis(V, np.abs(V).argmax(axis=1, keepdims=True), axis=1)[:, 0] < 0, -1.0, 1.0)
    total = (S**2).sum()
    if total < TIE:  # the same vector again and again
        return np.zeros((len(x), 2)), np.zeros(2)
    return (U * S * signs)[:, :2], (S**2 / total)[:2]
