"""Speller: a character n-gram model of the spelling of unknown words, which makes vocabularies comparable.

p(text) = p(tokens) · Π p(spelling | unknown). The probability of a spelling is that of a character n-gram model,
divided by 1 − Σ_{v ∈ V} p(v), because words of the vocabulary are not unknown. Unseen characters share the
probability of the unknown character equally, so every Unicode string has a probability.

If the training text writes unknown words as a placeholder (`<unk>` in Penn Treebank), the placeholder has a
probability of its own and the character model distributes the rest over all other spellings:

    p(s | unknown) = 1 − ε                                        for the placeholder
                     ε · q(s) / (1 − Σ_{v ∈ V ∪ {placeholder}} q(v))   for any other spelling outside V
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as write_tensors

from chainrule import system
from chainrule.errors import ModelFileError
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Counts, Level, estimate
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find_ngrams
from chainrule.storage import tensors
from chainrule.storage.tensors import TensorSpec
from chainrule.text.lines import BLANKS
from chainrule.tokenizers.tokenizer import VocabularyWords

Arrays = dict[str, NDArray[Any]]

ORDER: Final = 6
MAX_ORDER: Final = 16
"""Highest order accepted in a file."""
UNICODE_SCALARS: Final = 0x110000 - 0x800
"""Number of Unicode scalar values: all code points except surrogates."""
LINE_BREAKS: Final = "\r\n"
MAX_SAMPLE_LENGTH: Final = 64
"""Maximum number of characters of a sampled spelling."""
MIN_SPELLED_PROBABILITY: Final = 1e-5
"""Lower bound of ε, the probability that an unknown word is not the placeholder."""
TOLERANCE: Final = 1e-3
"""Tolerance for sums of float32 probabilities."""
LARGE: Final = 255
"""Counts of this size or more are stored in a separate array."""
MAX_TOTAL_COUNT: Final = 2**53
"""Largest total count; sums up to this value are exact in float64."""


@dataclass(frozen=True, eq=False)
class CharacterNgram:
    """Character n-gram model as stored in a file; its back-off tables are estimated at first use (Witten–Bell)."""

    alphabet: str  # sorted characters; the index is the id
    is_single: bool  # of single characters instead of words
    arrays: Arrays  # count trie, or back-off tables in files of earlier versions; checked
    name: str = "the speller"  # of the file, for error messages
    trie: Any = field(default=None, repr=False)  # CharacterTrie of the extension, if the arrays are from it

    @property
    def vocabulary(self) -> Vocabulary:
        """Ids of the characters."""
        return _vocabulary(len(self.alphabet))

    @cached_property
    def tables(self) -> BackoffTables:
        """Back-off tables."""
        if "1.count" in self.arrays:
            counts = counts_from_arrays(self.arrays, self.vocabulary, self.name)
            return estimate(counts, Config(order=counts.order, smoothing="witten-bell"))
        return _tables_from_arrays(self.arrays, self.vocabulary.size)

    @cached_property
    def sampler(self) -> NgramModel:
        """Language model over the ids of the characters."""
        return NgramModel.from_tables(self.tables, self.vocabulary)

    def compile(self, log_outside: float = 0.0, placeholder: str = "", log_placeholder: float = 0.0) -> Any:
        """Return the compiled speller (cpp/speller/) with these constants."""
        log_others = float(np.log(count_other_characters(self.alphabet, self.is_single)))
        constants = (log_others, log_outside, self.is_single, placeholder, log_placeholder)
        if "1.count" in self.arrays:
            trie = trie_from_arrays(self.arrays, self.alphabet) if self.trie is None else self.trie
            return system.load_extension().Speller(trie, _estimate_logs(trie, self.vocabulary), *constants)
        levels = [
            [level.key.astype(np.int64), *(x.astype(np.float32) for x in (level.log_prob, level.log_backoff))]
            for level in self.tables.levels
        ]
        return system.load_extension().Speller(_code_points(self.alphabet), levels, *constants)

    def log_outside(self, known: "Sequence[str] | VocabularyWords", placeholder: str) -> float:
        """Return log of the probability mass outside the words `known`, the placeholder and the empty string."""
        others = [*([placeholder] if placeholder else []), *([] if self.is_single else [""])]
        if isinstance(known, VocabularyWords):
            others = [word for word in others if word not in known]
            excluded = np.flatnonzero(~known.is_included).tolist()
            log_p = self.compile().vocabulary_log_probs(known.table, excluded, others, system.thread_count())
        else:
            log_p = np.asarray(self.compile().log_probs(list(dict.fromkeys([*known, *others]))))
        inside = float(np.exp(log_p, out=log_p).sum())
        if self.is_single:  # a single character is never `</s>`
            inside += float(np.exp(self.tables.levels[0].log_prob[self.vocabulary.eos]))
        return float(np.log(max(1 - inside, 1e-9)))


@dataclass(frozen=True)
class Speller:
    """Character model of unknown words, or of single unknown characters."""

    lm: CharacterNgram
    log_outside: float = 0.0  # log(1 − p(empty) − Σ_{v ∈ V} p(v)) − log ε; subtracted from the n-gram's log p
    placeholder: str = ""  # spelling of unknown words in the training text, such as `<unk>`; "" if there is none
    log_placeholder: float = 0.0  # log(1 − ε)
    known: "Callable[[], Sequence[str] | VocabularyWords] | None" = field(default=None, repr=False, compare=False)
    """Words of the vocabulary, against which a `log_outside` read from a file is checked at first use."""

    @cached_property
    def _checked_lm(self) -> CharacterNgram:
        """Return the n-gram; raise ModelFileError if `log_outside` disagrees with its tables and the vocabulary."""
        if self.known is not None:
            log_spelled = float(np.log(-np.expm1(self.log_placeholder))) if self.placeholder else 0.0
            expected = self.lm.log_outside(self.known(), self.placeholder)
            if abs(self.log_outside + log_spelled - expected) > TOLERANCE:
                raise ModelFileError(
                    f"{self.lm.name}: log_outside is {self.log_outside:.6g}, but the tables and the vocabulary "
                    f"give {expected - log_spelled:.6g}; train it again"
                )
        return self.lm

    @cached_property
    def compiled(self) -> Any:
        """Compiled speller."""
        return self._checked_lm.compile(self.log_outside, self.placeholder, self.log_placeholder)

    def log_probs(self, spellings: Sequence[str]) -> Floats:
        """Return log p(spelling | unknown) of each spelling."""
        return np.asarray(self.compiled.log_probs(spellings)) if len(spellings) else np.zeros(0)

    def sample(self, rng: np.random.Generator) -> str:
        """Sample a non-empty spelling of at most `MAX_SAMPLE_LENGTH` known characters from the character model.

        The result may be a word of the vocabulary; the caller should reject it. The placeholder is never drawn.
        """
        lm, vocabulary = self._checked_lm.sampler, self.lm.vocabulary
        spelling = ""
        log_p, state = lm.step(lm.start(1), np.array([vocabulary.bos]))
        for _ in range(1 if self.lm.is_single else MAX_SAMPLE_LENGTH):
            p = np.exp(log_p[0].astype(np.float64))
            p[[vocabulary.bos, vocabulary.unk]] = 0
            if not spelling or self.lm.is_single:
                p[vocabulary.eos] = 0
            total = p.sum()
            drawn = (
                int(np.searchsorted(np.cumsum(p), rng.random() * total, side="right")) if total else vocabulary.eos
            )
            if drawn >= len(self.lm.alphabet):
                break
            spelling += self.lm.alphabet[drawn]
            log_p, state = lm.step(state, np.array([drawn]))
        return spelling

    def to_bytes(self) -> bytes:
        """Serialize the speller as safetensors."""
        arrays = dict(self.lm.arrays)
        arrays["alphabet"] = _code_points(self.lm.alphabet)
        arrays["is_single"] = np.array([int(self.lm.is_single)], dtype=np.uint8)
        arrays["log_outside"] = np.array([self.log_outside])
        if self.placeholder:
            arrays["placeholder"] = _code_points(self.placeholder)
            arrays["log_placeholder"] = np.array([self.log_placeholder])
        return write_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def from_bytes(
        cls, content: bytes, name: str, known: "Callable[[], Sequence[str] | VocabularyWords] | None" = None
    ) -> "Speller":
        """Deserialize a speller; raise ModelFileError if it is not sound.

        `known` returns the words of the vocabulary, for the check of `log_outside` at first use.
        """
        arrays = tensors.unpack(content, name)
        _check_counts(arrays, name) if "1.count" in arrays else _check_tables(arrays, name)
        placeholder = "".join(chr(c) for c in arrays.get("placeholder", ()))
        alphabet = "".join(chr(c) for c in arrays["alphabet"])
        trie = {array: values for array, values in arrays.items() if array not in _CONSTANTS}
        return cls(
            CharacterNgram(alphabet, bool(arrays["is_single"][0]), trie, name),
            log_outside=float(arrays["log_outside"][0]),
            placeholder=placeholder,
            log_placeholder=float(arrays["log_placeholder"][0]) if placeholder else 0.0,
            known=known,
        )


def train_speller(
    unknown: "Sequence[str] | Any",
    known: "Sequence[str] | VocabularyWords",
    is_single: bool = False,
    *,
    rare: "Sequence[str] | VocabularyWords" = (),
    placeholder: str = "",
) -> Speller:
    """Train a speller on `unknown` words and `rare` known ones; the words of the vocabulary, `known`, are excluded.

    `unknown` is a list, or the `CountedWords` of the extension that exclude the placeholder. `placeholder` is the
    word that the text writes for unknown words. It is not a training example; its probability is 1 − ε with
    ε = max((n + 1) / (N + 1), MIN_SPELLED_PROBABILITY), if n of the N unknown words are other words.
    """
    if isinstance(unknown, Sequence):
        spelled = [spelling for spelling in unknown if spelling != placeholder]
        others, placeholders = len(spelled), len(unknown) - len(spelled)
        examples: dict[str, Any] = {"spellings": spelled}
    else:
        others, placeholders = unknown.occurrences, unknown.excluded_count(0)
        examples = {"counted": unknown}
    if isinstance(rare, VocabularyWords):
        examples |= {"vocabulary": rare.table, "is_marked": rare.is_included}
    else:
        examples["spellings"] = [*examples.get("spellings", ()), *rare]
    if not others and not len(rare):
        examples = {"spellings": [placeholder] * placeholders}
    order = 1 if is_single else ORDER
    trie = system.load_extension().CharacterTrie(**examples, order=order, is_single=is_single)
    alphabet = "".join(map(chr, trie.alphabet.tolist()))
    arrays = trie_to_arrays(trie, _vocabulary(len(alphabet)))
    lm = CharacterNgram(alphabet, is_single, arrays, trie=trie)
    outside = lm.log_outside(known, placeholder if placeholders else "")
    lm = CharacterNgram(alphabet, is_single, arrays)
    if not placeholders:
        return Speller(lm, outside)
    spelled_mass = max((others + 1) / (others + placeholders + 1), MIN_SPELLED_PROBABILITY)
    return Speller(lm, outside - float(np.log(spelled_mass)), placeholder, float(np.log1p(-spelled_mass)))


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.array([ord(c) for c in text], dtype=np.uint32)


def _estimate_logs(trie: Any, vocabulary: Vocabulary) -> list[list[NDArray[np.float32]]]:
    """Return the logarithms of the Witten–Bell probabilities and back-off weights of each order."""
    logs: list[list[NDArray[np.float32]]] = []
    p: Floats = vocabulary.predictable / vocabulary.predictable.sum()
    with np.errstate(divide="ignore"):  # log 0 = −inf is intended
        for n in range(1, trie.order + 1):
            p, gamma = trie.estimate(n, p)
            if logs:
                logs[-1].append(np.log(gamma, out=gamma).astype(np.float32))
            logs.append([np.log(p).astype(np.float32)])
    logs[-1].append(np.zeros(len(p), dtype=np.float32))
    return logs


def _vocabulary(A: int) -> Vocabulary:
    """Return the vocabulary of A characters; id A is the unknown character."""
    return Vocabulary(size=A + 3, bos=A + 1, eos=A + 2, unk=A)


def count_other_characters(alphabet: str, is_single: bool) -> int:
    """Return the number of unknown characters possible in a spelling; words contain no whitespace."""
    return UNICODE_SCALARS - len(set(alphabet) | set(LINE_BREAKS) | set("" if is_single else BLANKS))


def trie_to_arrays(trie: Any, vocabulary: Vocabulary) -> Arrays:
    """Return the arrays of a file from a `CharacterTrie`."""
    arrays: Arrays = {}
    for n in range(1, trie.order + 1):
        word = trie.word(n)
        is_leaf = _is_leaf(word, n == trie.order, vocabulary)
        if n > 1:
            arrays[f"{n}.word"] = word.astype(_id_type(vocabulary))
        if n < trie.order:
            _pack(arrays, f"{n}.children", np.diff(trie.first(n))[~is_leaf])
        _pack(arrays, f"{n}.count", trie.count(n)[is_leaf])
    return arrays


def trie_from_arrays(arrays: Mapping[str, NDArray[Any]], alphabet: str) -> Any:
    """Return the `CharacterTrie` of the checked arrays of a file."""
    vocabulary, order = _vocabulary(len(alphabet)), infer_order(arrays)
    levels: list[list[NDArray[Any]]] = []
    following = np.zeros(1, dtype=np.int64)  # counts of the next order, summed up
    for n in range(order, 0, -1):
        word = arrays[f"{n}.word"] if n > 1 else np.arange(vocabulary.size)
        is_leaf = _is_leaf(word, n == order, vocabulary)
        first = np.zeros(0, dtype=np.uint32)
        count = np.zeros(len(word), dtype=np.int64)
        if n < order:
            first = np.zeros(len(word) + 1, dtype=np.uint32)
            children = np.zeros(len(word), dtype=np.int64)
            children[~is_leaf] = _unpack(arrays, f"{n}.children", "the speller")
            np.cumsum(children, out=first[1:], dtype=np.uint32)
            count = np.diff(following[first])
        count[is_leaf] = _unpack(arrays, f"{n}.count", "the speller")
        if n == 1:
            count[vocabulary.bos] = 0
        following = np.concatenate([[0], np.cumsum(count)])
        levels.insert(0, [word.astype(np.uint32), first, count.astype(np.uint64)])
    return system.load_extension().CharacterTrie.of_levels(_code_points(alphabet), levels)


def counts_from_arrays(arrays: Mapping[str, NDArray[Any]], vocabulary: Vocabulary, name: str) -> Counts:
    """Rebuild the counts from arrays that match `expected_specs`.

    Raise ModelFileError, with a message that starts with `name`, if the values do not form a valid trie.
    """
    order = infer_order(arrays)
    words = [np.arange(vocabulary.size), *(arrays[f"{n}.word"].astype(np.int64) for n in range(2, order + 1))]
    levels = [_unigrams(vocabulary)]
    for n in range(2, order + 1):
        children = np.zeros(len(levels[-1].word), dtype=np.int64)
        children[~_is_leaf(levels[-1].word, False, vocabulary)] = _unpack(arrays, f"{n - 1}.children", name)
        levels.append(_extend(levels, children, words[n - 1], vocabulary, f"{name}: {n}"))
    for n in range(order, 0, -1):
        level = levels[n - 1]
        is_leaf = _is_leaf(level.word, n == order, vocabulary)
        if n < order:
            level.count[:] = np.bincount(levels[n].context, levels[n].count, len(level.word))
        level.count[is_leaf] = _unpack(arrays, f"{n}.count", name)
        if n == 1:
            level.count[vocabulary.bos] = 0
        elif len(level.word) and level.count.min() < 1:
            raise ModelFileError(f"{name}: {n}.count contains an n-gram that never occurs; train it again")
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
            f"{name}.word has {len(word)} n-grams, which does not match the counts of their contexts; "
            "train it again"
        )
    context = np.repeat(np.arange(len(below.word)), children)
    key = context * V + word
    is_sorted = bool((key[1:] > key[:-1]).all())
    if len(word) and (not is_sorted or word.max() >= V or (word == vocabulary.bos).any()):
        raise ModelFileError(f"{name}.word is not sorted or contains an id that is never predicted; train it again")
    if len(levels) == 1:
        suffix = word
    else:
        suffix = find_ngrams(below.context * V + below.word, below.suffix[context], word, V)
        if len(suffix) and suffix.min() < 0:
            raise ModelFileError(f"{name}.word contains an n-gram whose last words occur nowhere; train it again")
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
        raise ModelFileError(f"{source}: {name}.large contains a value below {LARGE} or above {MAX_TOTAL_COUNT}")
    values[is_large] = large
    return values


def _tables_from_arrays(arrays: Mapping[str, NDArray[Any]], size: int) -> BackoffTables:
    """Return the tables of a file written by an earlier version."""
    levels = []
    for n in range(1, _table_order(arrays) + 1):
        log_prob = arrays[f"{n}.log_prob"]
        key = arrays[f"{n}.key"] if n > 1 else np.arange(size)
        levels.append(
            BackoffLevel(key, log_prob, arrays.get(f"{n}.log_backoff", np.zeros(len(log_prob), np.float32)))
        )
    return BackoffTables(tuple(levels), float(arrays["log_missing"][0]))


_SCALAR: Final = TensorSpec("float64", (1,))
_COMMON_SPECS: Final = {
    "alphabet": TensorSpec("uint32", (None,)),
    "is_single": TensorSpec("uint8", (1,)),
    "log_outside": _SCALAR,
}
_OPTIONAL_SPECS: Final = {"placeholder": TensorSpec("uint32", (None,)), "log_placeholder": _SCALAR}
"""Arrays present only if the training text writes unknown words as a placeholder."""
_CONSTANTS: Final = _COMMON_SPECS.keys() | _OPTIONAL_SPECS.keys()


def _check_tables(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
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
        raise ModelFileError(f"{name}: <s> has a probability, but it is never predicted; train it again")
    possible = {**arrays, "1.log_prob": np.delete(unigrams, bos)}
    for array, values in possible.items():
        tensors.check_finite(values, f"{name}: {array}")
        is_log = array == "log_missing" or array.endswith((".log_prob", ".log_backoff"))
        if is_log and values.size and values.max() > TOLERANCE:
            raise ModelFileError(f"{name}: {array} contains the logarithm of more than 1; train it again")
    _check_constants(arrays, name)
    _check_sums(possible, order, bos + 2, name)


def _check_counts(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """Raise ModelFileError unless the arrays are the count trie of a character n-gram with valid constants."""
    _check_order(infer_order(arrays), name)
    vocabulary = _vocabulary(arrays.get("alphabet", np.zeros(0)).size)
    specs = expected_specs(arrays, vocabulary)
    tensors.check_specs(arrays, {**_COMMON_SPECS, **specs}, name, _OPTIONAL_SPECS)
    for array in ("log_outside", "log_placeholder"):
        tensors.check_finite(arrays.get(array, np.zeros(0)), f"{name}: {array}")
    _check_constants(arrays, name)
    counts_from_arrays(arrays, vocabulary, name)


def _table_order(arrays: Mapping[str, NDArray[Any]]) -> int:
    return sum(array.endswith(".log_prob") for array in arrays)


def _check_order(order: int, name: str) -> None:
    if not 1 <= order <= MAX_ORDER:
        raise ModelFileError(f"{name} contains n-grams of {order} orders, but a speller has 1 to {MAX_ORDER}")


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
        raise ModelFileError(f"{name} contains only one of placeholder and log_placeholder; train it again")
    if "placeholder" in arrays:
        codes, log_placeholder = arrays["placeholder"].astype(np.int64), float(arrays["log_placeholder"][0])
        if not codes.size or not _is_unicode(codes) or not log_placeholder < 0:
            raise ModelFileError(f"{name}: the placeholder or its probability is not valid; train it again")
        log_outside += float(np.log(-np.expm1(log_placeholder)))  # + log ε
    if log_outside > TOLERANCE:
        raise ModelFileError(f"{name}: log_outside contains the logarithm of more than 1; train it again")


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
            raise ModelFileError(f"{name}: {n}.key is not sorted or refers to a context that does not exist")
        sums = np.bincount(key // size, np.exp(arrays[f"{n}.log_prob"], dtype=np.float64), minlength=1)
        if sums.max() > 1 + TOLERANCE:
            raise ModelFileError(
                f"{name}: the probabilities after a context of {n - 1} characters sum to more than 1"
            )
        contexts = len(key)
