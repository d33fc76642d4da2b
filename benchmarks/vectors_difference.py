"""How far two systems' vectors differ beyond chance.

The mean over seeds of one less that of the other, with a 95 % interval by drawing what they were asked anew
(bootstrap, the same draws for both). Of judged pairs the pairs are drawn. Analogies are made of two pairs of words
each, every pair of a section with every other, so that questions are not independent: there the pairs of words are
drawn, and a question counts as often as both of its pairs together.
"""

from collections.abc import Sequence

import numpy as np

from chainrule.embeddings.vectors import WordVectors
from chainrule.evaluation import analogies, similarity
from chainrule.lm import Floats, Ids

DRAWS = 1000

Difference = tuple[float, float, float]  # the difference, and its interval


def of_analogies(ours: Sequence[WordVectors], theirs: Sequence[WordVectors], file: str) -> Difference:
    """Points of the syntactic analogies (3CosAdd)."""
    random = np.random.default_rng(0)
    total, drawn = np.zeros(2), np.zeros((DRAWS, 2))  # the sum of differences, and of questions
    for section in analogies.read_questions(file):
        if not section.is_syntactic:
            continue
        asked = [q for q in section.questions if all(v.row(w) is not None for v in (*ours, *theirs) for w in q)]
        pairs = sorted({pair for a, b, c, d in asked for pair in ((a, b), (c, d))})
        number = {pair: i for i, pair in enumerate(pairs)}
        first = np.array([number[a, b] for a, b, _, _ in asked])
        second = np.array([number[c, d] for _, _, c, d in asked])
        difference = _answered(ours, asked) - _answered(theirs, asked)  # (n,)
        total += difference.sum(), len(asked)
        times = random.multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), size=DRAWS)  # (draws, pairs)
        weights = times[:, first] * times[:, second]  # (draws, n)
        drawn += np.stack([weights @ difference, weights.sum(axis=1)], axis=1)
    return _interval(100 * total[0] / total[1], 100 * drawn[:, 0] / drawn[:, 1])


def _answered(systems: Sequence[WordVectors], asked: Sequence[analogies.Question]) -> Floats:
    """(n,) which part of the systems answers each question rightly."""
    found = []
    for vectors in systems:
        rows = np.array([[vectors.row(word) for word in question] for question in asked])
        parts = np.array_split(rows, max(1, len(rows) // 500))
        found.append(np.concatenate([analogies.is_right(vectors.unit, part) for part in parts]))
    return np.asarray(np.mean(found, axis=0))


def of_pairs(ours: Sequence[WordVectors], theirs: Sequence[WordVectors], file: str) -> Difference:
    """Spearman's correlation with judged pairs."""
    pairs = similarity.read_pairs(file)
    known = [
        row
        for row, words in enumerate(zip(pairs.firsts, pairs.seconds, strict=True))
        if all(vectors.find(word) is not None for vectors in (*ours, *theirs) for word in words)
    ]
    kept = pairs.select(known)
    cosines = [[_cosines(vectors, kept) for vectors in systems] for systems in (ours, theirs)]

    def difference(rows: Ids) -> float:
        one, other = (np.mean([similarity.spearman(c[rows], kept.scores[rows]) for c in each]) for each in cosines)
        return float(one - other)

    random = np.random.default_rng(0)
    drawn = [difference(random.integers(len(kept), size=len(kept))) for _ in range(DRAWS)]
    return _interval(difference(np.arange(len(kept))), np.array(drawn))


def _cosines(vectors: WordVectors, pairs: similarity.Pairs) -> Floats:
    found = [[vectors.find(word) for word in side] for side in (pairs.firsts, pairs.seconds)]
    u, v = (np.array(side, dtype=np.float64) for side in found)
    return np.asarray((u * v).sum(axis=1) / np.sqrt((u * u).sum(axis=1) * (v * v).sum(axis=1)))


def _interval(found: float, drawn: Floats) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return found, float(low), float(high)
