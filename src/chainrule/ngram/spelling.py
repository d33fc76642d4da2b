"""The speller: the probability of how an unknown word is written, so that `<unk>` buys nothing.

p(text) = p(tokens) · Π p(spelling | unknown). A word's spelling has the probability of a character n-gram,
divided by 1 − Σ_{v ∈ V} p(v): only spellings outside the vocabulary are possible. A character never met has an
equal share of what the model leaves to others, so that every Unicode string has a probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.lm import Batch, Floats, Ids, Vocabulary
from chainrule.ngram import storage
from chainrule.ngram.config import Config
from chainrule.ngram.counts import count
from chainrule.ngram.estimate import estimate
from chainrule.ngram.model import NgramModel

ORDER: Final = 6
SCALARS: Final = 0x110000 - 0x800
"""Unicode scalar values: all code points but the surrogates."""
BREAKS: Final = "\r\n"
BLANKS: Final = " \t"
LINES_AT_ONCE: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Speller:
    """A character model of unknown words; `is_single` where what is unknown is one character, not a word."""

    alphabet: str  # the characters it knows, id = place
    lm: NgramModel
    is_single: bool
    log_outside: float = 0.0  # log(1 − p(empty) − Σ_{v ∈ V} p(v))

    def log_probs(self, spellings: Sequence[str]) -> Floats:
        """log p(spelling | unknown), one each."""
        parts = [self._raw(spellings[i : i + LINES_AT_ONCE]) for i in range(0, len(spellings), LINES_AT_ONCE)]
        return np.concatenate([np.zeros(0), *parts]) - self.log_outside

    def _raw(self, spellings: Sequence[str]) -> Floats:
        """Character model and the uniform share of strange characters, before renormalisation."""
        v = self.lm.vocabulary
        width = max(map(len, spellings)) + 1
        lengths = np.array([len(spelling) for spelling in spellings])[:, None]
        columns = np.arange(width)[None, :]
        targets = np.full((len(spellings), width), v.eos, dtype=np.int64)
        targets[columns < lengths] = _ids("".join(spellings), self.alphabet)
        mask = columns < lengths + (not self.is_single)  # one character needs no end
        inputs = np.concatenate([np.full((len(spellings), 1), v.bos), targets[:, :-1]], axis=1)
        log_p, _ = self.lm.score(Batch(inputs, targets, mask), self.lm.start(len(spellings)))
        strangers = ((targets == v.unk) & mask).sum(axis=1)
        return np.where(mask, log_p, 0).sum(axis=1) - strangers * np.log(
            _others(self.alphabet, self.is_single)
        )

    def to_bytes(self) -> bytes:
        """What the speller's file holds."""
        arrays = storage.to_arrays(self.lm.tables)
        arrays["alphabet"] = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
        arrays["is_single"] = np.array([int(self.is_single)], dtype=np.uint8)
        arrays["log_outside"] = np.array([self.log_outside])
        return storage.pack(arrays)

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Speller":
        """Read the speller's file."""
        arrays = storage.unpack(content, name)
        alphabet = "".join(chr(c) for c in arrays["alphabet"])
        is_single = bool(arrays["is_single"][0])
        vocabulary = _vocabulary(alphabet)
        tables = storage.from_arrays(arrays, 1 if is_single else ORDER, vocabulary.size)
        return cls(alphabet, NgramModel(tables, vocabulary), is_single, float(arrays["log_outside"][0]))


def train_speller(unknown: Sequence[str], known: Sequence[str], is_single: bool = False) -> Speller:
    """Learn from the spellings of unknown words, never giving what it says to the `known` ones."""
    alphabet = "".join(sorted({c for spelling in unknown for c in spelling}))
    vocabulary = _vocabulary(alphabet)
    ids = _ids("\n".join([*unknown, ""]), alphabet)  # a line break is in no alphabet
    breaks = np.cumsum([len(spelling) + 1 for spelling in unknown], dtype=np.int64) - 1
    ids[breaks] = vocabulary.eos
    order = 1 if is_single else ORDER
    counts = count(ids[ids != vocabulary.eos] if is_single else ids, order, vocabulary)
    tables = estimate(counts, Config(order=order, smoothing="witten-bell"))
    speller = Speller(alphabet, NgramModel(tables, vocabulary), is_single)
    impossible = [*known] if is_single else ["", *known]
    inside = np.exp(speller.log_probs(impossible)).sum() if impossible else 0.0
    outside = float(np.log(max(1 - inside, 1e-9)))
    return Speller(alphabet, speller.lm, is_single, outside)


def _vocabulary(alphabet: str) -> Vocabulary:
    A = len(alphabet)
    return Vocabulary(size=A + 3, bos=A + 1, eos=A + 2, unk=A)  # A: any other character


def _ids(text: str, alphabet: str) -> Ids:
    """Place of each character in the sorted alphabet; one past its end for all others."""
    known = np.array([ord(c) for c in alphabet] or [-1])
    codes = np.array([ord(c) for c in text], dtype=np.int64)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[place] == codes, place, len(alphabet))


def _others(alphabet: str, is_single: bool) -> int:
    """How many characters are not in the alphabet and might stand in a spelling: no word holds a blank."""
    return SCALARS - len(set(alphabet) | set(BREAKS) | set("" if is_single else BLANKS))
