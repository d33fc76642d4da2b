"""Prefix index of a vocabulary, for completing a partially typed word."""

from bisect import bisect_left

import numpy as np

from chainrule.lm import Ids
from chainrule.tokenizers.tokenizer import Tokenizer


class PrefixIndex:
    """Sorted index of token texts without leading blanks, joiners and control symbols."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos, tokenizer.unk)]
        names = [name.lstrip(" ") for name in tokenizer.display_texts(ids)]
        order = sorted(range(len(ids)), key=names.__getitem__)
        self._names = [names[i] for i in order]
        self._ids = np.array([ids[i] for i in order], dtype=np.int64)

    def matches(self, prefix: str) -> Ids:
        """Return the sorted ids of the tokens that start with `prefix`, ignoring leading blanks."""
        prefix = prefix.lstrip(" ")
        first = bisect_left(self._names, prefix)
        last = bisect_left(self._names, True, lo=first, key=lambda name: not name.startswith(prefix))
        ids: Ids = np.sort(self._ids[first:last])
        return ids
