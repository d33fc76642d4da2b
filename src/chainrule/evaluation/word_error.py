"""Word error rate and word-level edit distance.

Words are separated by blanks; case and punctuation are significant.
"""

from collections.abc import Sequence

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.significance import Comparison, paired_bootstrap
from chainrule.lm import Ids

Words = Sequence[str]


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
        raise InputError(
            "the references contain no words, so the word error rate is undefined; give references with words"
        )
    return 100 * int(np.sum(errors)) / reference_words


def compare_word_errors(
    a: Ids, b: Ids, words: Ids, *, samples: int = 1000, seed: int | np.random.Generator = 0
) -> Comparison:
    """Paired bootstrap test of the word error rates of A and B, in percent, over utterances.

    The arrays contain the errors of A, the errors of B and the number of reference words of each utterance, (U,).
    """
    if not len(a) == len(b) == len(words):
        raise UsageError(
            f"{len(a)}, {len(b)} and {len(words)} utterances cannot be paired; give the same number of each"
        )
    word_error_rate(a, words)

    def rate(errors: Ids, ids: Ids) -> float:
        return 100 * float(errors[ids].sum()) / max(float(words[ids].sum()), 1.0)  # a sample may have no words

    return paired_bootstrap(lambda ids: rate(a, ids), lambda ids: rate(b, ids), len(a), samples=samples, seed=seed)
