"""The tokens of a sub-word tokenizer as bytes of text, and how they begin, continue and end a word.

Lives here: which tokens agree with what was typed. Not here: their probabilities (complete.py).
"""

from bisect import bisect_left
from typing import Final

import numpy as np

from chainrule.lm import Ids, Mask
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet

INSIDE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-_") | set(
    range(128, 256)
)
"""Bytes that do not end a word: letters, digits, apostrophe, hyphen, underscore, and all beyond ASCII."""
HIGHEST: Final = b"\xff"  # follows every byte of UTF-8
CONTINUED: Final = "##"  # WordPiece's mark of a piece inside a word


class Pieces:
    """What each id writes; nothing for control symbols and `<unk>`.

    Attributes:
        texts: Bytes by id. A piece of WordPiece that begins a word has a blank before it.
        inner: Ids of the pieces that go on with a word and do not end it.
        length: (V,) bytes of each piece.
        is_end: (V,) `</s>`, and pieces whose first byte ends the word before them.
        tail: (V,) how many of the last bytes of a piece belong to one word.

    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        controls = {tokenizer.bos, tokenizer.eos, tokenizer.unk}
        names = tokenizer.names()
        self.texts = [b"" if i in controls else _bytes(name, tokenizer.config.kind) for i, name in enumerate(names)]
        self.tail: Ids = np.array([_tail(text) for text in self.texts])
        self.length: Ids = np.array([len(text) for text in self.texts])
        self.inner: Ids = np.flatnonzero((self.length > 0) & (self.tail == self.length))
        self.is_end: Mask = np.array([text[:1] != b"" and text[0] not in INSIDE for text in self.texts])
        self.is_end[tokenizer.eos] = True
        order = sorted((text, i) for i, text in enumerate(self.texts) if text)
        self._sorted = [text for text, _ in order]
        self._ids = np.array([i for _, i in order], dtype=np.int64)
        self._id_of = {text: i for i, text in enumerate(self.texts) if text}

    def beginning_with(self, wanted: bytes) -> Ids:
        """The pieces that hold all of this and perhaps more."""
        first = bisect_left(self._sorted, wanted)
        last = bisect_left(self._sorted, wanted + HIGHEST, lo=first)
        return self._ids[first:last]

    def part_of(self, wanted: bytes) -> Ids:
        """The pieces with which this begins, shorter than all of it."""
        found = (self._id_of.get(wanted[:length]) for length in range(1, len(wanted)))
        return np.array([i for i in found if i is not None], dtype=np.int64)


def _bytes(name: str, kind: str) -> bytes:
    if kind in ("whitespace", "char"):
        return name.encode()
    lead = b""
    if kind == "wordpiece" and len(name) > len(CONTINUED) and name.startswith(CONTINUED):
        name = name.removeprefix(CONTINUED)
    elif kind == "wordpiece" and name:
        lead = b" "
    alphabet = byte_alphabet()
    return lead + bytes(alphabet[c] for c in name)


def _tail(text: bytes) -> int:
    length = 0
    while length < len(text) and text[-1 - length] in INSIDE:
        length += 1
    return length
