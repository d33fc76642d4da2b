"""Token bytes of sub-word tokenizers, with prefix lookup and word-boundary information."""

from bisect import bisect_left
from typing import Final

import numpy as np

from chainrule.lm import Ids, Mask
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet

WORD_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-_") | set(
    range(128, 256)
)
"""Bytes inside words: letters, digits, apostrophe, hyphen, underscore and all non-ASCII bytes."""
LAST_BYTE: Final = b"\xff"  # greater than every byte of UTF-8
CONTINUATION: Final = "##"  # WordPiece prefix of word-internal tokens


class TokenBytes:
    """Bytes of each token; empty for control symbols and `<unk>`.

    Attributes:
        texts: Bytes by id. Word-initial WordPiece tokens start with a blank.
        inner: Ids of tokens that consist of word bytes only.
        length: (V,) bytes per token.
        is_end: (V,) `</s>` and tokens whose first byte ends the preceding word.
        tail: (V,) number of trailing word bytes per token.

    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        controls = {tokenizer.bos, tokenizer.eos, tokenizer.unk}
        names = tokenizer.names()
        self.texts = [
            b"" if i in controls else _token_bytes(name, tokenizer.config.kind) for i, name in enumerate(names)
        ]
        self.tail: Ids = np.array([_tail_length(text) for text in self.texts])
        self.length: Ids = np.array([len(text) for text in self.texts])
        self.inner: Ids = np.flatnonzero((self.length > 0) & (self.tail == self.length))
        self.is_end: Mask = np.array([text[:1] != b"" and text[0] not in WORD_BYTES for text in self.texts])
        self.is_end[tokenizer.eos] = True
        order = sorted((text, i) for i, text in enumerate(self.texts) if text)
        self._sorted = [text for text, _ in order]
        self._ids = np.array([i for _, i in order], dtype=np.int64)
        self._id_of = {text: i for i, text in enumerate(self.texts) if text}

    def starting_with(self, prefix: bytes) -> Ids:
        """Ids of tokens that start with `prefix`."""
        first = bisect_left(self._sorted, prefix)
        last = bisect_left(self._sorted, prefix + LAST_BYTE, lo=first)
        return self._ids[first:last]

    def prefixes_of(self, text: bytes) -> Ids:
        """Ids of tokens that are proper prefixes of `text`."""
        ids = (self._id_of.get(text[:length]) for length in range(1, len(text)))
        return np.array([i for i in ids if i is not None], dtype=np.int64)


def _token_bytes(name: str, kind: str) -> bytes:
    if kind in ("whitespace", "char"):
        return name.encode()
    lead = b""
    if kind == "wordpiece" and len(name) > len(CONTINUATION) and name.startswith(CONTINUATION):
        name = name.removeprefix(CONTINUATION)
    elif kind == "wordpiece" and name:
        lead = b" "
    alphabet = byte_alphabet()
    return lead + bytes(alphabet[c] for c in name)


def _tail_length(text: bytes) -> int:
    length = 0
    while length < len(text) and text[-1 - length] in WORD_BYTES:
        length += 1
    return length
