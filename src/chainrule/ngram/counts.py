"""N-gram counts of a text, one table per order.

An n-gram is identified by its row in the table of its order. A row refers to its context w_1…w_{n−1} and its suffix
w_2…w_n by their rows in the table of the next lower order.
"""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Context, Ids, Mask, Vocabulary


@dataclass(frozen=True, slots=True)
class Level:
    """All n-grams of one order, sorted by context, then by word."""

    context: Ids  # (M,)  row of w_1…w_{n−1} in the next lower order; 0 (the empty context) at order 1
    word: Ids  # (M,)  w_n
    suffix: Ids  # (M,)  row of w_2…w_n in the next lower order; 0 at order 1
    count: Ids  # (M,)  occurrences in the text
    begins: Mask  # (M,)  True if w_1 is <s>, so that no word can precede the n-gram

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all orders; `levels[k]` has order k + 1. At order 1 every id has a row and the row is the id."""

    levels: tuple[Level, ...]
    vocabulary: Vocabulary

    @property
    def order(self) -> int:
        """Highest order n."""
        return len(self.levels)

    def up_to(self, order: int) -> "Counts":
        """Return the counts of orders 1 to `order`."""
        return Counts(self.levels[:order], self.vocabulary)


def insert_bos(ids: Ids, vocabulary: Vocabulary, context: Context) -> Ids:
    """Insert `<s>` before every line, or once before a stream: (N,) -> (N + L,)."""
    if context == "stream":
        return np.concatenate([[vocabulary.bos], ids])
    ends = np.flatnonzero(ids == vocabulary.eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.insert(ids, starts, vocabulary.bos)


def copy_eos_contexts_to_bos(counts: Counts) -> Counts:
    """Return the counts of a stream with c(<s> w_2…w_n) set to c(</s> w_2…w_n): a text starts like a line.

    Needed for smoothing methods without lower-order estimates (add-k), where backing off from a `<s>` context would
    give the uniform distribution.
    """
    vocabulary, first = counts.vocabulary, counts.levels[0]
    levels = [first]
    new_row = np.arange(len(first))  # new row of each n-gram of the next lower order
    copy_row = np.full(len(first), -1)  # row of its copy that begins with <s>; −1 if it does not begin with </s>
    copy_row[vocabulary.eos] = vocabulary.bos
    for level in counts.levels[1:]:
        retained = np.flatnonzero(~level.begins)
        copied = np.flatnonzero(copy_row[level.context] >= 0)
        rows = np.concatenate([retained, copied])
        context = np.concatenate([new_row[level.context[retained]], copy_row[level.context[copied]]])
        order = np.argsort(context * vocabulary.size + level.word[rows])
        rows, begins = rows[order], order >= len(retained)
        suffix = new_row[level.suffix[rows]]
        levels.append(Level(context[order], level.word[rows], suffix, level.count[rows], begins))
        new_row, copy_row = np.full(len(level), -1), np.full(len(level), -1)
        new_row[rows[~begins]] = np.flatnonzero(~begins)
        copy_row[rows[begins]] = np.flatnonzero(begins)
    return Counts(tuple(levels), vocabulary)
