"""Bootstrap confidence intervals for the difference in quality between two sets of word vectors.

The difference of the means over seeds, with a 95 % interval from bootstrap resampling with the same samples for
both systems. For similarity lists, word pairs are resampled. An analogy question consists of two word pairs, and
a section combines all of its pairs, so that questions are not independent: the word pairs are resampled, and a
question is weighted by the product of the multiplicities of its pairs.
"""

from collections.abc import Sequence

import numpy as np

from chainrule.embeddings.vectors import WordVectors
from chainrule.evaluation import word_vectors
from chainrule.lm import Floats, Ids

DRAWS = 1000

Difference = tuple[float, float, float]  # difference, lower and upper bound


def of_analogies(ours: Sequence[WordVectors], theirs: Sequence[WordVectors], file: str) -> Difference:
    """Return the difference in accuracy on syntactic analogies (3CosAdd), in percentage points."""
    random = np.random.default_rng(0)
    total, drawn = np.zeros(2), np.zeros((DRAWS, 2))  # sum of differences, number of questions
    for section in word_vectors.read_questions(file):
        if not section.is_syntactic:
            continue
        questions = [q for q in section.questions if all(v.row(w) is not None for v in (*ours, *theirs) for w in q)]
        pairs = sorted({pair for a, b, c, d in questions for pair in ((a, b), (c, d))})
        number = {pair: i for i, pair in enumerate(pairs)}
        first = np.array([number[a, b] for a, b, _, _ in questions])
        second = np.array([number[c, d] for _, _, c, d in questions])
        difference = _accuracy(ours, questions) - _accuracy(theirs, questions)  # (n,)
        total += difference.sum(), len(questions)
        times = random.multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), size=DRAWS)  # (draws, pairs)
        weights = times[:, first] * times[:, second]  # (draws, n)
        drawn += np.stack([weights @ difference, weights.sum(axis=1)], axis=1)
    return _interval(100 * total[0] / total[1], 100 * drawn[:, 0] / drawn[:, 1])


def _accuracy(systems: Sequence[WordVectors], questions: Sequence[word_vectors.Question]) -> Floats:
    """Return the fraction of systems that answer each question correctly: (n,)."""
    correct = []
    for vectors in systems:
        rows = np.array([[vectors.row(word) for word in question] for question in questions])
        parts = np.array_split(rows, max(1, len(rows) // 500))
        correct.append(np.concatenate([word_vectors.is_correct(vectors.unit, part) for part in parts]))
    return np.asarray(np.mean(correct, axis=0))


def of_pairs(ours: Sequence[WordVectors], theirs: Sequence[WordVectors], file: str) -> Difference:
    """Return the difference in Spearman's correlation with human judgements."""
    pairs = word_vectors.read_pairs(file)
    known = [
        row
        for row, words in enumerate(zip(pairs.firsts, pairs.seconds, strict=True))
        if all(vectors.find(word) is not None for vectors in (*ours, *theirs) for word in words)
    ]
    known_pairs = pairs.select(known)
    cosines = [[_cosines(vectors, known_pairs) for vectors in systems] for systems in (ours, theirs)]

    def difference(rows: Ids) -> float:
        one, other = (
            np.mean([word_vectors.spearman(c[rows], known_pairs.scores[rows]) for c in systems])
            for systems in cosines
        )
        return float(one - other)

    random = np.random.default_rng(0)
    drawn = [difference(random.integers(len(known_pairs), size=len(known_pairs))) for _ in range(DRAWS)]
    return _interval(difference(np.arange(len(known_pairs))), np.array(drawn))


def _cosines(vectors: WordVectors, pairs: word_vectors.Pairs) -> Floats:
    sides = [[vectors.find(word) for word in side] for side in (pairs.firsts, pairs.seconds)]
    u, v = (np.array(side, dtype=np.float64) for side in sides)
    return np.asarray((u * v).sum(axis=1) / np.sqrt((u * u).sum(axis=1) * (v * v).sum(axis=1)))


def _interval(difference: float, drawn: Floats) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return difference, float(low), float(high)
