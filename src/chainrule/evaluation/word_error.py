"""Word error rate and word-level edit distance.

Words are separated by blanks; case and punctuation are significant.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.significance import Comparison, paired_bootstrap
from chainrule.lm import Ids

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class EditCounts:
    """Counts of a minimal edit sequence from the hypothesis to the reference."""

    substitutions: int
    deletions: int  # words of the reference that the hypothesis lacks
    insertions: int  # words of the hypothesis that the reference lacks

    @property
    def errors(self) -> int:
        """Levenshtein distance."""
        return self.substitutions + self.deletions + self.insertions


def count_edits(hypothesis: Words, reference: Words) -> EditCounts:
    """Count the edits of one pair; among minimal edit sequences, the one with the fewest deletions.

    >>> count_edits("the cat sat down".split(), "a cat sat".split())
    EditCounts(substitutions=1, deletions=0, insertions=1)
    """
    # row[j]: (errors, deletions, insertions) between the first i reference words and the first j hypothesis words
    row = [(j, 0, j) for j in range(len(hypothesis) + 1)]
    for i, reference_word in enumerate(reference, start=1):
        above, row = row, [(i, i, 0)]
        for j, word in enumerate(hypothesis, start=1):
            (e, d, n), (e_up, d_up, n_up), (e_left, d_left, n_left) = above[j - 1], above[j], row[j - 1]
            candidates = (
                (e + (reference_word != word), d, n),  # match or substitution
                (e_up + 1, d_up + 1, n_up),  # deletion
                (e_left + 1, d_left, n_left + 1),  # insertion
            )
            row.append(min(candidates))
    errors, deletions, insertions = row[-1]
    return EditCounts(errors - deletions - insertions, deletions, insertions)


def word_errors(hypotheses: Sequence[Words], reference: Words) -> Ids:
    """Return the Levenshtein distance of each of K hypotheses to one reference, (K,).

    >>> word_errors(["a cat".split(), "cats sat".split(), []], "a cat sat".split()).tolist()
    [1, 2, 3]
    """
    word_ids = {word: i for i, word in enumerate(dict.fromkeys(reference))}
    lengths = np.array([len(words) for words in hypotheses], dtype=np.int64)
    columns = np.arange(lengths.max(initial=0) + 1)
    ids = np.full((len(hypotheses), len(columns) - 1), -1)  # (K, H); −1: not in the reference
    for row, words in enumerate(hypotheses):
        ids[row, : len(words)] = [word_ids.get(word, -1) for word in words]
    # distance[k, j]: between the reference words so far and the first j words of hypothesis k
    distance = np.tile(columns, (len(hypotheses), 1))  # (K, H + 1)
    for word in reference:
        best = distance + 1  # deletion
        best[:, 1:] = np.minimum(best[:, 1:], distance[:, :-1] + (ids != word_ids[word]))  # match or substitution
        # Insertions: d[j] = min over i ≤ j of best[i] + (j − i)
        distance = np.minimum.accumulate(best - columns, axis=1) + columns
    return np.asarray(distance[np.arange(len(hypotheses)), lengths], dtype=np.int64)


def word_error_rate(errors: Ids, words: Ids) -> float:
    """Return 100 · errors / reference words, given both counts of each utterance; it can exceed 100."""
    reference_words = int(np.sum(words))
    if not reference_words:
        raise InputError("the references hold no words, so there is no word error rate; give some that do")
    return 100 * int(np.sum(errors)) / reference_words


def compare_word_errors(
    a: Ids, b: Ids, words: Ids, *, samples: int = 1000, seed: int | np.random.Generator = 0
) -> Comparison:
    """Paired bootstrap test of the word error rates of A and B, in percent, over utterances.

    The arrays hold the errors of A, the errors of B and the number of reference words of each utterance, (U,).
    """
    if not len(a) == len(b) == len(words):
        raise UsageError(
            f"{len(a)}, {len(b)} and {len(words)} utterances cannot be paired; give the same number of each"
        )
    word_error_rate(a, words)

    def rate(errors: Ids, ids: Ids) -> float:
        return 100 * float(errors[ids].sum()) / max(float(words[ids].sum()), 1.0)  # a sample may have no words

    return paired_bootstrap(lambda ids: rate(a, ids), lambda ids: rate(b, ids), len(a), samples=samples, seed=seed)
