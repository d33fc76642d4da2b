"""The tokens of a vocabulary by how they begin: for completing a word while it is typed."""

from bisect import bisect_left

import numpy as np

from chainrule.lm import Ids
from chainrule.tokenizers.tokenizer import Tokenizer


class Starts:
    """The texts of all tokens in order, blanks before them, joiners and control symbols left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos, tokenizer.unk)]
        names = [name.lstrip(" ") for name in tokenizer.texts(ids)]
        order = sorted(range(len(ids)), key=names.__getitem__)
        self._names = [names[place] for place in order]
        self._ids = np.array([ids[place] for place in order], dtype=np.int64)

    def beginning_with(self, prefix: str) -> Ids:
        """The ids of the tokens that begin so, the lowest first."""
        prefix = prefix.lstrip(" ")
        first = bisect_left(self._names, prefix)
        last = bisect_left(self._names, True, lo=first, key=lambda name: not name.startswith(prefix))
        found: Ids = np.sort(self._ids[first:last])
        return found
