"""Word error rate: what it takes to turn what was heard into what was said, per word that was said.

Lives here: the edit distance over words, of one pair and of many hypotheses at once, and the rate. Words are what
stands between blanks; case and punctuation count as they are. Not here: choosing (applications/rerank.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.significance import Comparison, paired_bootstrap
from chainrule.lm import Ids

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Edits:
    """The fewest changes that make the hypothesis the reference, by kind."""

    substitutions: int
    deletions: int  # words of the reference that the hypothesis lacks
    insertions: int  # words of the hypothesis that the reference lacks

    @property
    def errors(self) -> int:
        """All of them: Levenshtein's distance."""
        return self.substitutions + self.deletions + self.insertions


def edits(hypothesis: Words, reference: Words) -> Edits:
    """The edits of one pair; among equally few errors, those with the fewest deletions.

    >>> edits("the cat sat down".split(), "a cat sat".split())
    Edits(substitutions=1, deletions=0, insertions=1)
    """
    # row[j]: (errors, deletions, insertions) between the reference read so far and the first j words heard
    row = [(j, 0, j) for j in range(len(hypothesis) + 1)]
    for i, said in enumerate(reference, start=1):
        above, row = row, [(i, i, 0)]
        for j, heard in enumerate(hypothesis, start=1):
            (kept, d, n), (deleted, d_up, n_up), (inserted, d_left, n_left) = above[j - 1], above[j], row[j - 1]
            ways = (
                (kept + (said != heard), d, n),
                (deleted + 1, d_up + 1, n_up),
                (inserted + 1, d_left, n_left + 1),
            )
            row.append(min(ways))
    errors, deletions, insertions = row[-1]
    return Edits(errors - deletions - insertions, deletions, insertions)


def word_errors(hypotheses: Sequence[Words], reference: Words) -> Ids:
    """Levenshtein's distance of each of K hypotheses to one reference, all at once: (K,).

    >>> word_errors(["a cat".split(), "cats sat".split(), []], "a cat sat".split()).tolist()
    [1, 2, 3]
    """
    numbers = {word: number for number, word in enumerate(dict.fromkeys(reference))}
    lengths = np.array([len(words) for words in hypotheses], dtype=np.int64)
    columns = np.arange(lengths.max(initial=0) + 1)
    heard = np.full((len(hypotheses), len(columns) - 1), -1)  # (K, H); −1: in the reference nowhere
    for row, words in enumerate(hypotheses):
        heard[row, : len(words)] = [numbers.get(word, -1) for word in words]
    # distance[k, j]: between the reference read so far and the first j words of hypothesis k
    distance = np.tile(columns, (len(hypotheses), 1))  # (K, H + 1)
    for said in reference:
        best = distance + 1  # the word was not heard
        best[:, 1:] = np.minimum(best[:, 1:], distance[:, :-1] + (heard != numbers[said]))
        # d[j] = min over i ≤ j of best[i] + (j − i): words heard that were not said
        distance = np.minimum.accumulate(best - columns, axis=1) + columns
    return np.asarray(distance[np.arange(len(hypotheses)), lengths], dtype=np.int64)


def word_error_rate(errors: Ids, words: Ids) -> float:
    """Errors per word of the references, in percent, from both counts of each utterance; it can exceed 100."""
    said = int(np.sum(words))
    if not said:
        raise InputError("the references hold no words, so there is no word error rate; give some that do")
    return 100 * int(np.sum(errors)) / said


def compare_word_errors(
    a: Ids, b: Ids, words: Ids, *, samples: int = 1000, seed: int | np.random.Generator = 0
) -> Comparison:
    """Paired bootstrap of the word error rates of A and B, in percent, utterances drawn.

    The arrays hold each utterance's errors by A and by B and the words of its reference, (U,) each.
    """
    if not len(a) == len(b) == len(words):
        raise UsageError(f"{len(a)}, {len(b)} and {len(words)} utterances cannot be paired; give as many of each")
    word_error_rate(a, words)

    def rate(errors: Ids, ids: Ids) -> float:
        return 100 * float(errors[ids].sum()) / max(float(words[ids].sum()), 1.0)  # a draw may have no words

    return paired_bootstrap(lambda ids: rate(a, ids), lambda ids: rate(b, ids), len(a), samples=samples, seed=seed)
