"""Speller: a character n-gram model of the spelling of unknown words, which makes vocabularies comparable.

p(text) = p(tokens) · Π p(spelling | unknown). The probability of a spelling is that of a character n-gram model,
divided by 1 − Σ_{v ∈ V} p(v), because words of the vocabulary are not unknown. Unseen characters share the
probability of the unknown character equally, so every Unicode string has a probability.

If the training text writes unknown words as a placeholder (`<unk>` in Penn Treebank), the placeholder has a
probability of its own and the character model distributes the rest over all other spellings:

    p(s | unknown) = 1 − ε                                        for the placeholder
                     ε · q(s) / (1 − Σ_{v ∈ V ∪ {placeholder}} q(v))   for any other spelling outside V
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as write_tensors

from chainrule import system
from chainrule.errors import ModelFileError
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.counts import Counts, Level, count
from chainrule.ngram.smoothing import estimate
from chainrule.ngram.table_model import TableModel
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find_ngrams, take_or_default
from chainrule.storage import tensors
from chainrule.storage.tensors import TensorSpec
from chainrule.text.lines import BLANKS

Arrays = dict[str, NDArray[Any]]


def tables_to_arrays(tables: BackoffTables) -> Arrays:
    """Return the arrays named by order; the keys of order 1 are implied and not stored."""
    arrays: Arrays = {"log_missing": np.array([tables.log_missing])}
    for n, level in enumerate(tables.levels, start=1):
        arrays[f"{n}.log_prob"] = level.log_prob
        if n > 1:
            arrays[f"{n}.key"] = level.key
        if n < tables.order:
            arrays[f"{n}.log_backoff"] = level.log_backoff
    return arrays


def tables_from_arrays(arrays: Mapping[str, NDArray[Any]], order: int, size: int) -> BackoffTables:
    """Return tables of `order` over `size` ids; raise ModelFileError if the arrays are not valid."""
    levels: list[BackoffLevel] = []
    try:
        for n in range(1, order + 1):
            log_prob = arrays[f"{n}.log_prob"]
            key = arrays[f"{n}.key"] if n > 1 else np.arange(size)
            is_top = n == order
            log_backoff = np.zeros(len(log_prob), np.float32) if is_top else arrays[f"{n}.log_backoff"]
            _check(n, key, log_prob, log_backoff, limit=size * (len(levels[-1]) if levels else 1))
            levels.append(BackoffLevel(key, log_prob, log_backoff))
        log_missing = float(arrays["log_missing"][0])
    except (KeyError, IndexError) as missing:
        raise ModelFileError(f"the n-gram tables have no array {missing}; the file is not whole") from missing
    if f"{order + 1}.log_prob" in arrays:
        raise ModelFileError(f"the n-gram tables hold more orders than the {order} of the config; train it anew")
    return BackoffTables(tuple(levels), log_missing)


def _check(n: int, key: Ids, log_prob: Floats, log_backoff: Floats, limit: int) -> None:
    is_whole = key.dtype == np.int64 and log_prob.dtype == log_backoff.dtype == np.float32
    is_whole = is_whole and key.shape == log_prob.shape == log_backoff.shape and key.ndim == 1
    is_whole = is_whole and bool(np.all(key[1:] > key[:-1]))
    is_whole = is_whole and (len(key) == 0 or (int(key[0]) >= 0 and int(key[-1]) < limit))
    if not is_whole or np.isnan(log_prob).any() or np.isnan(log_backoff).any():
        raise ModelFileError(f"the n-gram table of order {n} is not sound; train or copy the model anew")


def serialize(arrays: Arrays) -> bytes:
    """Return the arrays as safetensors bytes."""
    return write_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})


LARGE: Final = 255
MAX_TOTAL_COUNT: Final = 2**53
"""Largest total count; sums up to this value are exact in float64."""


def counts_to_arrays(counts: Counts) -> Arrays:
    """Return the arrays of the trie; `counts` must be counted per line, so that nothing follows `</s>`."""
    arrays: Arrays = {}
    for n, level in enumerate(counts.levels, start=1):
        is_leaf = _is_leaf(level.word, n == counts.order, counts.vocabulary)
        if n > 1:
            arrays[f"{n}.word"] = level.word.astype(_id_type(counts.vocabulary))
        if n < counts.order:
            children = np.bincount(counts.levels[n].context, minlength=len(level))
            _pack(arrays, f"{n}.children", children[~is_leaf])
        _pack(arrays, f"{n}.count", level.count[is_leaf])
    return arrays


def counts_from_arrays(arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary, name: str) -> Counts:
    """Rebuild the counts from arrays that match `expected_specs`.

    Raise ModelFileError, with a message that starts with `name`, if the values do not form a valid trie.
    """
    order = infer_order(arrays)
    words = [np.arange(vocabulary.size), *(arrays[f"{n}.word"].astype(np.int64) for n in range(2, order + 1))]
    levels = [_unigrams(vocabulary)]
    for n in range(2, order + 1):
        children = np.zeros(len(levels[-1]), dtype=np.int64)
        children[~_is_leaf(levels[-1].word, False, vocabulary)] = _unpack(arrays, f"{n - 1}.children", name)
        levels.append(_extend(levels, children, words[n - 1], vocabulary, f"{name}: {n}"))
    for n in range(order, 0, -1):
        level = levels[n - 1]
        is_leaf = _is_leaf(level.word, n == order, vocabulary)
        if n < order:
            level.count[:] = np.bincount(levels[n].context, levels[n].count, len(level))
        level.count[is_leaf] = _unpack(arrays, f"{n}.count", name)
        if n == 1:
            level.count[vocabulary.bos] = 0
        elif len(level) and level.count.min() < 1:
            raise ModelFileError(f"{name}: {n}.count holds an n-gram that never occurs; train it again")
        if level.count.sum(dtype=np.float64) > MAX_TOTAL_COUNT:
            raise ModelFileError(f"{name}: {n}.count sums to more than {MAX_TOTAL_COUNT}; train it again")
    return Counts(tuple(levels), vocabulary)


def infer_order(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the n-gram order implied by the array names."""
    return 1 + sum(array.endswith(".word") for array in arrays)


def expected_specs(arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary) -> dict[str, TensorSpec]:
    """Return the dtypes and shapes that the arrays of a trie must have, given its `word` arrays."""
    order = infer_order(arrays)
    words = [np.arange(vocabulary.size), *(arrays.get(f"{n}.word", np.zeros(0)) for n in range(2, order + 1))]
    expected: dict[str, TensorSpec] = {}
    for n, word in enumerate(words, start=1):
        leaves = int(_is_leaf(word, n == order, vocabulary).sum())
        if n > 1:
            expected[f"{n}.word"] = TensorSpec(_id_type(vocabulary).name, (None,))
        if n < order:
            expected[f"{n}.children"] = TensorSpec("uint8", (word.size - leaves,))
            expected[f"{n}.children.large"] = TensorSpec("int64", (None,))
        expected[f"{n}.count"] = TensorSpec("uint8", (leaves,))
        expected[f"{n}.count.large"] = TensorSpec("int64", (None,))
    return expected


def _id_type(vocabulary: Vocabulary) -> np.dtype[Any]:
    return np.min_scalar_type(vocabulary.size - 1)


def _is_leaf(word: Ids, is_highest: bool, vocabulary: Vocabulary) -> Mask:
    """Return the mask (M,) of rows without children."""
    return np.full(word.shape, True) if is_highest else word == vocabulary.eos


def _unigrams(vocabulary: Vocabulary) -> Level:
    ids = np.arange(vocabulary.size)
    zeros = np.zeros(vocabulary.size, dtype=np.int64)
    return Level(zeros, ids, zeros, zeros.copy(), ids == vocabulary.bos)


def _extend(levels: list[Level], children: Ids, word: Ids, vocabulary: Vocabulary, name: str) -> Level:
    """Return the level above `levels` with all counts 0."""
    below, V = levels[-1], vocabulary.size
    if children.sum(dtype=np.float64) != len(word):  # checked before `repeat` allocates memory
        raise ModelFileError(
            f"{name}.word has {len(word)} n-grams, and their contexts count others; train it again"
        )
    context = np.repeat(np.arange(len(below)), children)
    key = context * V + word
    is_sorted = bool((key[1:] > key[:-1]).all())
    if len(word) and (not is_sorted or word.max() >= V or (word == vocabulary.bos).any()):
        raise ModelFileError(f"{name}.word is not sorted or holds an id that is never predicted; train it again")
    if len(levels) == 1:
        suffix = word
    else:
        suffix = find_ngrams(below.context * V + below.word, below.suffix[context], word, V)
        if len(suffix) and suffix.min() < 0:
            raise ModelFileError(f"{name}.word holds an n-gram whose last words occur nowhere; train it again")
    return Level(context, word, suffix, np.zeros(len(word), dtype=np.int64), below.begins[context])


def _pack(arrays: Arrays, name: str, values: Ids) -> None:
    arrays[name] = np.minimum(values, LARGE).astype(np.uint8)
    arrays[f"{name}.large"] = values[values >= LARGE].astype(np.int64)


def _unpack(arrays: Mapping[str, NDArray[Any]], name: str, source: str) -> Ids:
    values, large = arrays[name].astype(np.int64), arrays[f"{name}.large"]
    is_large = values == LARGE
    if int(is_large.sum()) != len(large):
        raise ModelFileError(f"{source}: {name}.large has {len(large)} values and should have {is_large.sum()}")
    if len(large) and not (large.min() >= LARGE and large.max() <= MAX_TOTAL_COUNT):
        raise ModelFileError(f"{source}: {name}.large holds a value below {LARGE} or above {MAX_TOTAL_COUNT}")
    values[is_large] = large
    return values


ORDER: Final = 6
UNICODE_SCALARS: Final = 0x110000 - 0x800
"""Number of Unicode scalar values: all code points except surrogates."""
LINE_BREAKS: Final = "\r\n"
MAX_SAMPLE_LENGTH: Final = 64
"""Maximum number of characters of a sampled spelling."""
SPELLINGS_PER_BATCH: Final = 1 << 13
MIN_SPELLED_PROBABILITY: Final = 1e-5
"""Lower bound of ε, the probability that an unknown word is not the placeholder."""


@dataclass(frozen=True, slots=True)
class Speller:
    """Character model of unknown words; with `is_single`, of single unknown characters."""

    alphabet: str  # sorted characters; the index is the id
    lm: TableModel
    is_single: bool
    log_outside: float = 0.0  # log(1 − p(empty) − Σ_{v ∈ V} p(v)) − log ε; subtracted from the n-gram's log p
    placeholder: str = ""  # spelling of unknown words in the training text, such as `<unk>`; "" if there is none
    log_placeholder: float = 0.0  # log(1 − ε)
    counts: Arrays | None = field(default=None, repr=False, compare=False)
    """Count trie from which the n-gram was estimated; None if it was loaded as back-off tables."""

    _compiled: Any = field(default=None, init=False, repr=False, compare=False)

    def log_probs(self, spellings: Sequence[str]) -> Floats:
        """Return log p(spelling | unknown) of each spelling."""
        compiled = self.compiled()
        if compiled is None:
            return self.reference_log_probs(spellings)
        return np.asarray(compiled.log_probs(spellings))

    def sample(self, rng: np.random.Generator) -> str:
        """Sample a non-empty spelling of at most `MAX_SAMPLE_LENGTH` known characters from the character model.

        The result may be a word of the vocabulary; the caller should reject it. The placeholder is never drawn.
        """
        vocabulary = self.lm.vocabulary
        spelling = ""
        log_p, state = self.lm.step(self.lm.start(1), np.array([vocabulary.bos]))
        for _ in range(1 if self.is_single else MAX_SAMPLE_LENGTH):
            p = np.exp(log_p[0].astype(np.float64))
            p[[vocabulary.bos, vocabulary.unk]] = 0
            if not spelling or self.is_single:
                p[vocabulary.eos] = 0
            total = p.sum()
            drawn = (
                int(np.searchsorted(np.cumsum(p), rng.random() * total, side="right")) if total else vocabulary.eos
            )
            if drawn >= len(self.alphabet):
                break
            spelling += self.alphabet[drawn]
            log_p, state = self.lm.step(state, np.array([drawn]))
        return spelling

    def compiled(self) -> Any:
        """Return the compiled speller, created once; None if the extension is not built."""
        if self._compiled is None and (core := system.load()) is not None:
            levels = [
                [level.key.astype(np.int64), *(x.astype(np.float32) for x in (level.log_prob, level.log_backoff))]
                for level in self.lm.tables.levels
            ]
            alphabet = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
            log_others = float(np.log(_count_other_characters(self.alphabet, self.is_single)))
            constants = (log_others, self.log_outside, self.is_single, self.placeholder, self.log_placeholder)
            object.__setattr__(self, "_compiled", core.Speller(alphabet, levels, *constants))
        return self._compiled

    def reference_log_probs(self, spellings: Sequence[str]) -> Floats:
        """Compute `log_probs` in NumPy."""
        distinct = sorted(set(spellings))  # sorted, so that shared prefixes are looked up close together
        slices = (distinct[i : i + SPELLINGS_PER_BATCH] for i in range(0, len(distinct), SPELLINGS_PER_BATCH))
        log_p = np.concatenate([np.zeros(0), *map(self._log_probs, slices)])
        log_prob_of = dict(zip(distinct, log_p.tolist(), strict=True))
        return np.array([log_prob_of[spelling] for spelling in spellings], dtype=np.float64)

    def _log_probs(self, spellings: Sequence[str]) -> Floats:
        ids, ends = _ids(spellings, self.alphabet)
        log_p = _score(self.lm.tables, ids, self.lm.vocabulary)
        log_p[ids == self.lm.vocabulary.unk] -= np.log(_count_other_characters(self.alphabet, self.is_single))
        if self.is_single:
            log_p[ends] = 0  # a single character has no `</s>`
        starts = np.concatenate([[0], ends[:-1] + 1])
        is_placeholder = np.array([bool(self.placeholder) and s == self.placeholder for s in spellings])
        return np.where(is_placeholder, self.log_placeholder, np.add.reduceat(log_p, starts) - self.log_outside)

    def to_bytes(self) -> bytes:
        """Serialise the counts, or the back-off tables if there are no counts."""
        arrays = tables_to_arrays(self.lm.tables) if self.counts is None else dict(self.counts)
        arrays["alphabet"] = np.array([ord(c) for c in self.alphabet], dtype=np.uint32)
        arrays["is_single"] = np.array([int(self.is_single)], dtype=np.uint8)
        arrays["log_outside"] = np.array([self.log_outside])
        if self.placeholder:
            arrays["placeholder"] = np.array([ord(c) for c in self.placeholder], dtype=np.uint32)
            arrays["log_placeholder"] = np.array([self.log_placeholder])
        return serialize(arrays)

    def check_outside(self, known: Sequence[str], name: str) -> None:
        """Raise ModelFileError unless `log_outside` agrees with the tables and the vocabulary `known`."""
        log_spelled = float(np.log(-np.expm1(self.log_placeholder))) if self.placeholder else 0.0
        expected = _log_outside(replace(self, log_outside=0.0, placeholder=""), known, self.placeholder)
        if abs(self.log_outside + log_spelled - expected) > TOLERANCE:
            raise ModelFileError(
                f"{name}: log_outside is {self.log_outside:.6g}, and the tables and the vocabulary give "
                f"{expected - log_spelled:.6g}; train it again"
            )

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> "Speller":
        """Deserialise counts, or back-off tables written by earlier versions."""
        arrays = tensors.unpack(content, name)
        is_counts = "1.count" in arrays
        _check_counts(arrays, name) if is_counts else check_speller_arrays(arrays, name)
        alphabet = "".join(chr(c) for c in arrays["alphabet"])
        vocabulary = _vocabulary(len(alphabet))
        if is_counts:
            tables = _estimate(counts_from_arrays(arrays, vocabulary, name))
            trie = {array: arrays[array] for array in expected_specs(arrays, vocabulary)}
        else:
            tables = tables_from_arrays(arrays, _table_order(arrays), vocabulary.size)
            trie = None
        placeholder = "".join(chr(c) for c in arrays.get("placeholder", ()))
        return cls(
            alphabet,
            TableModel(tables, vocabulary),
            is_single=bool(arrays["is_single"][0]),
            log_outside=float(arrays["log_outside"][0]),
            placeholder=placeholder,
            log_placeholder=float(arrays["log_placeholder"][0]) if placeholder else 0.0,
            counts=trie,
        )


def train_speller(
    unknown: Sequence[str],
    known: Sequence[str],
    is_single: bool = False,
    *,
    rare: Sequence[str] = (),
    placeholder: str = "",
) -> Speller:
    """Train a speller on `unknown` words and `rare` known ones; the words of the vocabulary, `known`, are excluded.

    `placeholder` is the word that the text writes for unknown words. It is not a training example; its probability
    is 1 − ε with ε = max((n + 1) / (N + 1), MIN_SPELLED_PROBABILITY), if n of the N unknown words are other words.
    """
    examples = [*(spelling for spelling in unknown if spelling != placeholder), *rare] or list(unknown)
    others = sum(spelling != placeholder for spelling in unknown)
    has_placeholder = others < len(unknown)
    alphabet = "".join(sorted({c for spelling in examples for c in spelling}))
    vocabulary = _vocabulary(len(alphabet))
    ids, _ = _ids(examples, alphabet)
    counts = count(ids[ids != vocabulary.eos] if is_single else ids, 1 if is_single else ORDER, vocabulary)
    lm = TableModel(_estimate(counts), vocabulary)
    speller = Speller(alphabet, lm, is_single, counts=counts_to_arrays(counts))
    outside = _log_outside(speller, known, placeholder if has_placeholder else "")
    if not has_placeholder:
        return replace(speller, log_outside=outside)
    spelled = max((others + 1) / (len(unknown) + 1), MIN_SPELLED_PROBABILITY)
    return replace(
        speller,
        log_outside=outside - float(np.log(spelled)),
        placeholder=placeholder,
        log_placeholder=float(np.log1p(-spelled)),
    )


def _estimate(counts: Counts) -> BackoffTables:
    return estimate(counts, Config(order=counts.order, smoothing="witten-bell"))


def _log_outside(speller: Speller, known: Sequence[str], placeholder: str) -> float:
    """Return log of the character model's probability mass outside the vocabulary, placeholder and empty string."""
    excluded = [*known, *([placeholder] if placeholder else []), *([] if speller.is_single else [""])]
    inside = float(np.exp(speller.log_probs(list(dict.fromkeys(excluded)))).sum())
    if speller.is_single:
        inside += float(
            np.exp(speller.lm.tables.levels[0].log_prob[speller.lm.vocabulary.eos])
        )  # a single character is never `</s>`
    return float(np.log(max(1 - inside, 1e-9)))


def _score(tables: BackoffTables, ids: Ids, vocabulary: Vocabulary) -> Floats:
    """Return log p of each id, (N,) -> (N,); a new word starts after every `</s>`.

    The (m + 1)-gram matched at one id is the context of m + 1 characters of the next id, so each order is looked up
    once. An unseen context has back-off weight 1 (Witten–Bell).
    """
    V, bos, eos = vocabulary.size, vocabulary.bos, vocabulary.eos
    log_p: Floats = tables.levels[0].log_prob[ids].astype(np.float64)
    rows = np.where(ids == eos, bos, ids)
    for m, level in enumerate(tables.levels[1:], start=1):
        context = np.concatenate([[bos if m == 1 else -1], rows[:-1]])
        rows = level.find(context, ids, V)
        backed_off = log_p + take_or_default(tables.levels[m - 1].log_backoff, context, np.zeros(1))
        log_p = take_or_default(level.log_prob, rows, backed_off)
        rows[ids == eos] = -1
    return log_p


def _vocabulary(A: int) -> Vocabulary:
    """Return the vocabulary of A characters; id A is the unknown character."""
    return Vocabulary(size=A + 3, bos=A + 1, eos=A + 2, unk=A)


def _ids(spellings: Sequence[str], alphabet: str) -> tuple[Ids, Ids]:
    """Return the concatenated ids of all spellings, each followed by `</s>`, and the positions of `</s>`.

    The id of a character is its index in the sorted alphabet; unknown characters have id `len(alphabet)`.
    """
    known = np.array([ord(c) for c in alphabet] or [-1])
    codes = np.frombuffer("\n".join([*spellings, ""]).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    index = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    ids = np.where(known[index] == codes, index, len(alphabet))
    ends = np.cumsum([len(spelling) + 1 for spelling in spellings], dtype=np.int64) - 1
    ids[ends] = _vocabulary(len(alphabet)).eos
    return ids, ends


def _count_other_characters(alphabet: str, is_single: bool) -> int:
    """Return the number of unknown characters possible in a spelling; words contain no whitespace."""
    return UNICODE_SCALARS - len(set(alphabet) | set(LINE_BREAKS) | set("" if is_single else BLANKS))


MAX_SPELLER_ORDER: Final = 16
TOLERANCE: Final = 1e-3
"""Tolerance for sums of float32 probabilities."""


def check_speller_arrays(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """Raise ModelFileError unless the arrays are the back-off tables of a character n-gram.

    Checks names, dtypes and shapes; the alphabet (sorted, distinct Unicode scalars); keys (sorted, in range);
    log-probabilities (≤ 0, -inf for `<s>` only); log back-off weights (≤ 0); and sums: 1 for unigrams, at most 1
    for the stored characters after a longer context.
    """
    order = _table_order(arrays)
    _check_order(order, name)
    tensors.check_specs(arrays, {**_COMMON_SPECS, **_table_specs(arrays, order)}, name, _OPTIONAL_SPECS)
    bos = len(arrays["alphabet"]) + 1
    unigrams = arrays["1.log_prob"]
    if not np.isneginf(unigrams[bos]):
        raise ModelFileError(f"{name}: <s> has a probability, and it is never predicted; train it again")
    possible = {**arrays, "1.log_prob": np.delete(unigrams, bos)}
    for array, values in possible.items():
        tensors.check_finite(values, f"{name}: {array}")
        is_log = array == "log_missing" or array.endswith((".log_prob", ".log_backoff"))
        if is_log and values.size and values.max() > TOLERANCE:
            raise ModelFileError(f"{name}: {array} holds the logarithm of more than 1; train it again")
    _check_constants(arrays, name)
    _check_sums(possible, order, bos + 2, name)


def _check_counts(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """Raise ModelFileError unless the names, dtypes and shapes are those of counts and the constants are valid.

    `count_trie.from_arrays` checks the values.
    """
    _check_order(infer_order(arrays), name)
    specs = expected_specs(arrays, _vocabulary(arrays.get("alphabet", np.zeros(0)).size))
    tensors.check_specs(arrays, {**_COMMON_SPECS, **specs}, name, _OPTIONAL_SPECS)
    for array in ("log_outside", "log_placeholder"):
        tensors.check_finite(arrays.get(array, np.zeros(0)), f"{name}: {array}")
    _check_constants(arrays, name)


def _table_order(arrays: Mapping[str, NDArray[Any]]) -> int:
    return sum(array.endswith(".log_prob") for array in arrays)


def _check_order(order: int, name: str) -> None:
    if not 1 <= order <= MAX_SPELLER_ORDER:
        raise ModelFileError(f"{name} holds n-grams of {order} orders, and a speller has 1 to {MAX_SPELLER_ORDER}")


_SCALAR: Final = TensorSpec("float64", (1,))
_COMMON_SPECS: Final = {
    "alphabet": TensorSpec("uint32", (None,)),
    "is_single": TensorSpec("uint8", (1,)),
    "log_outside": _SCALAR,
}
_OPTIONAL_SPECS: Final = {"placeholder": TensorSpec("uint32", (None,)), "log_placeholder": _SCALAR}
"""Arrays present only if the training text writes unknown words as a placeholder."""


def _is_unicode(codes: Ids) -> bool:
    """Return whether all codes are Unicode scalar values."""
    return bool(((codes >= 0) & (codes < 0x110000) & ((codes < 0xD800) | (codes > 0xDFFF))).all())


def _check_constants(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """Check the alphabet, `is_single`, the placeholder and `log_outside`."""
    alphabet = arrays["alphabet"].astype(np.int64)
    if not _is_unicode(alphabet) or not (np.diff(alphabet) > 0).all():
        raise ModelFileError(f"{name}: the alphabet is not sorted Unicode characters, each once; train it again")
    if arrays["is_single"][0] > 1:
        raise ModelFileError(f"{name}: is_single is {arrays['is_single'][0]} and should be 0 or 1; train it again")
    log_outside = float(arrays["log_outside"][0])
    if ("placeholder" in arrays) != ("log_placeholder" in arrays):
        raise ModelFileError(f"{name} holds one of placeholder and log_placeholder alone; train it again")
    if "placeholder" in arrays:
        codes, log_placeholder = arrays["placeholder"].astype(np.int64), float(arrays["log_placeholder"][0])
        if not codes.size or not _is_unicode(codes) or not log_placeholder < 0:
            raise ModelFileError(f"{name}: the placeholder or its probability is not valid; train it again")
        log_outside += float(np.log(-np.expm1(log_placeholder)))  # + log ε
    if log_outside > TOLERANCE:
        raise ModelFileError(f"{name}: log_outside holds the logarithm of more than 1; train it again")


def _table_specs(arrays: Mapping[str, NDArray[Any]], order: int) -> dict[str, TensorSpec]:
    """Return the dtypes and shapes of back-off tables of this order; the keys determine the number of n-grams."""
    alphabet = arrays.get("alphabet", np.zeros(0))
    keys = [arrays.get(f"{n}.key", np.zeros(0)) for n in range(2, order + 1)]
    sizes = [alphabet.size + 3, *(key.size for key in keys)]
    return {
        "log_missing": _SCALAR,
        **{f"{n}.log_prob": TensorSpec("float32", (size,)) for n, size in enumerate(sizes, start=1)},
        **{f"{n}.log_backoff": TensorSpec("float32", (size,)) for n, size in enumerate(sizes[:-1], start=1)},
        **{f"{n}.key": TensorSpec("int64", (size,)) for n, size in enumerate(sizes[1:], start=2)},
    }


def _check_sums(arrays: Mapping[str, NDArray[Any]], order: int, size: int, name: str) -> None:
    """Raise if keys are unsorted or out of range, or if the probabilities after a context sum to more than 1."""
    total = float(np.exp(arrays["1.log_prob"], dtype=np.float64).sum())
    if abs(total - 1) > TOLERANCE:
        raise ModelFileError(f"{name}: the probabilities of single characters sum to {total:.4g}; train it again")
    contexts = size
    for n in range(2, order + 1):
        key = arrays[f"{n}.key"]
        if len(key) and not (key[0] >= 0 and key[-1] // size < contexts and (key[1:] > key[:-1]).all()):
            raise ModelFileError(f"{name}: {n}.key is not sorted or names a context that is not there")
        sums = np.bincount(key // size, np.exp(arrays[f"{n}.log_prob"], dtype=np.float64), minlength=1)
        if sums.max() > 1 + TOLERANCE:
            raise ModelFileError(
                f"{name}: the probabilities after a context of {n - 1} characters sum to more than 1"
            )
        contexts = len(key)
