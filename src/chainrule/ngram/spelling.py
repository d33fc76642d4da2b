"""The speller: the probability of how an unknown word is written, so that `<unk>` buys nothing.

p(text) = p(tokens) · Π p(spelling | unknown). A word's spelling has the probability of a character n-gram,
divided by 1 − Σ_{v ∈ V} p(v): only spellings outside the vocabulary are possible. A character never met has an
equal share of what the model leaves to others, so that every Unicode string has a probability.

Where unknown words of the training text are written as a placeholder (`<unk>` in Penn Treebank), the placeholder
has a probability of its own and the character model shares the rest among all other spellings:

    p(s | unknown) = 1 − ε                                        for the placeholder
                     ε · q(s) / (1 − Σ_{v ∈ V ∪ {placeholder}} q(v))   for any other spelling outside V
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from chainrule import native
from chainrule.errors import ModelFileError
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.manifest import REMEDY
from chainrule.ngram import storage
from chainrule.ngram.config import Config
from chainrule.ngram.counts import count
from chainrule.ngram.estimate import estimate
from chainrule.ngram.table_model import TableModel
from chainrule.ngram.tables import BackoffTables, take
from chainrule.text.lines import BLANKS

ORDER: Final = 6
SCALARS: Final = 0x110000 - 0x800
"""Unicode scalar values: all code points but the surrogates."""
BREAKS: Final = "\r\n"
WORDS_AT_ONCE: Final = 1 << 13
LEAST_SPELLED: Final = 1e-5
"""The least ε: probability of an unknown word that is not the placeholder, however many placeholders were seen."""


@dataclass(frozen=True, slots=True)
class Speller:
    """A character model of unknown words; `is_single` where what is unknown is one character, not a word."""

    alphabet: str  # the characters it knows, id = place
    lm: TableModel
    is_single: bool
    log_outside: float = 0.0  # log(1 − p(empty) − Σ_{v ∈ V} p(v)) − log ε; subtracted from what the n-gram gives
    placeholder: str = ""  # how the training text writes an unknown word, as `<unk>`; "": it writes none so
    log_placeholder: float = 0.0  # log(1 − ε)

    _compiled: Any = field(default=None, init=False, repr=False, compare=False)

    def log_probs(self, spellings: Sequence[str]) -> Floats:
        """log p(spelling | unknown), one each: by the compiled speller where there is one."""
        compiled = self.compiled()
        return self.specified(spellings) if compiled is None else np.asarray(compiled.log_probs(spellings))

    def compiled(self) -> Any:
        """The same in the core, made once; None where the core is not built."""
        if self._compiled is None and (core := native.load()) is not None:
            levels = [
                [level.key.astype(np.int64), *(x.astype(np.float32) for x in (level.log_prob, level.log_backoff))]
                for level in self.lm.tables.levels
            ]
            alphabet = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
            log_others = float(np.log(_others(self.alphabet, self.is_single)))
            constants = (log_others, self.log_outside, self.is_single, self.placeholder, self.log_placeholder)
            object.__setattr__(self, "_compiled", core.Speller(alphabet, levels, *constants))
        return self._compiled

    def specified(self, spellings: Sequence[str]) -> Floats:
        """The specification of `log_probs`, in NumPy."""
        distinct = sorted(set(spellings))  # beginnings that many share are looked up while they are at hand
        slices = (distinct[i : i + WORDS_AT_ONCE] for i in range(0, len(distinct), WORDS_AT_ONCE))
        log_p = np.concatenate([np.zeros(0), *map(self._log_probs, slices)])
        found = dict(zip(distinct, log_p.tolist(), strict=True))
        return np.array([found[spelling] for spelling in spellings], dtype=np.float64)

    def _log_probs(self, spellings: Sequence[str]) -> Floats:
        ids, ends = _ids(spellings, self.alphabet)
        log_p = _score(self.lm.tables, ids, self.lm.vocabulary)
        log_p[ids == self.lm.vocabulary.unk] -= np.log(_others(self.alphabet, self.is_single))
        if self.is_single:
            log_p[ends] = 0  # one character needs no end
        starts = np.concatenate([[0], ends[:-1] + 1])
        is_placeholder = np.array([bool(self.placeholder) and s == self.placeholder for s in spellings])
        return np.where(is_placeholder, self.log_placeholder, np.add.reduceat(log_p, starts) - self.log_outside)

    def to_bytes(self) -> bytes:
        """What the speller's file holds."""
        arrays = storage.to_arrays(self.lm.tables)
        arrays["alphabet"] = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
        arrays["is_single"] = np.array([int(self.is_single)], dtype=np.uint8)
        arrays["log_outside"] = np.array([self.log_outside])
        if self.placeholder:
            arrays["placeholder"] = np.array([ord(c) for c in self.placeholder], dtype=np.uint32)
            arrays["log_placeholder"] = np.array([self.log_placeholder])
        return storage.pack(arrays)

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Speller":
        """Read the speller's file; one written before there were placeholders has none."""
        arrays = storage.unpack(content, name)
        alphabet = "".join(chr(c) for c in arrays["alphabet"])
        is_single = bool(arrays["is_single"][0])
        vocabulary = _vocabulary(alphabet)
        order = sum(array.endswith(".log_prob") for array in arrays)
        tables = storage.from_arrays(arrays, order, vocabulary.size)
        placeholder = "".join(chr(c) for c in arrays.get("placeholder", ()))
        log_placeholder = float(arrays["log_placeholder"][0]) if placeholder else 0.0
        if not -np.inf < log_placeholder <= 0:
            raise ModelFileError(f"{name}: log_placeholder is {log_placeholder}, not a log-probability; {REMEDY}")
        lm = TableModel(tables, vocabulary)
        return cls(alphabet, lm, is_single, float(arrays["log_outside"][0]), placeholder, log_placeholder)


def train_speller(
    unknown: Sequence[str],
    known: Sequence[str],
    is_single: bool = False,
    *,
    rare: Sequence[str] = (),
    placeholder: str = "",
) -> Speller:
    """Learn from the spellings of unknown words and of `rare` known ones; `known` ones have no probability.

    `placeholder` is the word that stands for unknown words in the text. It is not an example of how words are
    spelled: it has the probability 1 − ε, ε = (n + 1) / (N + 1) being Witten and Bell's estimate where n of the N
    unknown words are other ones, and LEAST_SPELLED where that is less.
    """
    examples = [*(spelling for spelling in unknown if spelling != placeholder), *rare] or list(unknown)
    others = sum(spelling != placeholder for spelling in unknown)
    has_placeholder = others < len(unknown)
    alphabet = "".join(sorted({c for spelling in examples for c in spelling}))
    vocabulary = _vocabulary(alphabet)
    ids, _ = _ids(examples, alphabet)
    order = 1 if is_single else ORDER
    counts = count(ids[ids != vocabulary.eos] if is_single else ids, order, vocabulary)
    tables = estimate(counts, Config(order=order, smoothing="witten-bell"))
    speller = Speller(alphabet, TableModel(tables, vocabulary), is_single)
    impossible = {*known, *([placeholder] if has_placeholder else []), *([] if is_single else [""])}
    inside = float(np.exp(speller.log_probs(sorted(impossible))).sum())
    if is_single:
        inside += float(np.exp(tables.levels[0].log_prob[vocabulary.eos]))  # an end never comes
    outside = float(np.log(max(1 - inside, 1e-9)))
    if not has_placeholder:
        return replace(speller, log_outside=outside)
    spelled = max((others + 1) / (len(unknown) + 1), LEAST_SPELLED)
    return replace(
        speller,
        log_outside=outside - float(np.log(spelled)),
        placeholder=placeholder,
        log_placeholder=float(np.log1p(-spelled)),
    )


def _score(tables: BackoffTables, ids: Ids, vocabulary: Vocabulary) -> Floats:
    """log p of each id, (N,) -> (N,); every `</s>` begins a word anew.

    The (m + 1)-gram that was found for an id is the context of m + 1 characters of the next one, so that each
    order is looked up once. What the model's own `score` gives for the same text: with Witten–Bell a context that
    was never seen has the weight 1.
    """
    V, bos, eos = vocabulary.size, vocabulary.bos, vocabulary.eos
    log_p: Floats = tables.levels[0].log_prob[ids].astype(np.float64)
    found = np.where(ids == eos, bos, ids)
    for m, level in enumerate(tables.levels[1:], start=1):
        context = np.concatenate([[bos if m == 1 else -1], found[:-1]])
        found = level.find(context, ids, V)
        passed_by = log_p + take(tables.levels[m - 1].log_backoff, context, np.zeros(1))
        log_p = take(level.log_prob, found, passed_by)
        found[ids == eos] = -1
    return log_p


def _vocabulary(alphabet: str) -> Vocabulary:
    A = len(alphabet)
    return Vocabulary(size=A + 3, bos=A + 1, eos=A + 2, unk=A)  # A: any other character


def _ids(spellings: Sequence[str], alphabet: str) -> tuple[Ids, Ids]:
    """All spellings end to end, `</s>` after each, and where those stand.

    A character is its place in the sorted alphabet; any other is one past the alphabet's end.
    """
    known = np.array([ord(c) for c in alphabet] or [-1])
    codes = np.frombuffer("\n".join([*spellings, ""]).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    ids = np.where(known[place] == codes, place, len(alphabet))
    ends = np.cumsum([len(spelling) + 1 for spelling in spellings], dtype=np.int64) - 1
    ids[ends] = _vocabulary(alphabet).eos
    return ids, ends


def _others(alphabet: str, is_single: bool) -> int:
    """How many characters are not in the alphabet and might stand in a spelling: no word holds a blank."""
    return SCALARS - len(set(alphabet) | set(BREAKS) | set("" if is_single else BLANKS))
