"""The speller makes word models normalised distributions over strings."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_arrays

from chainrule import system, train
from chainrule.errors import ChainruleError, ModelFileError
from chainrule.lm import Batch
from chainrule.model import Model
from chainrule.ngram.oov_speller import MIN_SPELLED_PROBABILITY, UNICODE_SCALARS, Speller, train_speller
from chainrule.prepared_corpus import prepare_corpus
from chainrule.storage import tensors
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from ngram.reference import TableModel, as_tables, spelling_log_probs

ALPHABET = "ab"
LINES = ["a b a", "ab a", "b", "a a b", "ba b a", "aab b"] * 20


def test_speller_excludes_known_words() -> None:
    speller = train_speller(["abc", "abd", "xbc"], known=["abc", "q"])
    free = train_speller(["abc", "abd", "xbc"], known=[])
    # Renormalised: the other words share the mass of abc and q.
    inside = np.exp(free.log_probs(["abc", "q"])).sum()
    assert np.exp(speller.log_outside) == pytest.approx(np.exp(free.log_outside) * (1 - inside), rel=1e-6)
    assert speller.log_probs(["abd"])[0] > free.log_probs(["abd"])[0]


def test_spellings_sum_to_one() -> None:
    """Over strings of the alphabet and one unseen character, which stands for all unseen ones."""
    speller = train_speller(["ab", "ba", "a", "abb"], known=["b", "ab"])
    unseen_characters = UNICODE_SCALARS - len(set(speller.lm.alphabet) | set(" \t\r\n"))
    total = 0.0
    sums = []
    for length in range(1, 9):
        strings = ["".join(s) for s in product("ab\u2603", repeat=length)]
        weights = np.array([float(unseen_characters) ** s.count("\u2603") for s in strings])
        is_word = np.array([s not in ("b", "ab") for s in strings])
        total += float((np.exp(speller.log_probs(strings)) * weights)[is_word].sum())
        sums.append(total)
    assert all(value <= 1 + 1e-6 for value in sums)
    assert sums[-1] > 0.9
    # The rest belongs to longer strings and shrinks with every letter.
    rest = [1 - value for value in sums]
    assert all(later < 0.9 * earlier for earlier, later in pairwise(rest[2:]))


def test_single_character_spellings_sum_to_one() -> None:
    speller = train_speller(["x", "y", "x"], known=["a", "b"], is_single=True)
    unseen_characters = UNICODE_SCALARS - len("xy") - len("\r\n") - len("ab")
    p = np.exp(speller.log_probs(["x", "y", "z"]))
    assert p[0] > p[1] > p[2]
    assert p[0] + p[1] + unseen_characters * p[2] == pytest.approx(1, abs=1e-6)


def test_speller_reserves_mass_for_the_placeholder() -> None:
    """Of 9 unknown words 8 are `<unk>`: ε = (1 + 1)/(9 + 1)."""
    speller = train_speller(["<unk>"] * 8 + ["ab"], known=["b", "abc"], rare=["abc"], placeholder="<unk>")
    assert speller.log_probs(["<unk>"])[0] == pytest.approx(np.log(0.8), rel=1e-12)
    free = train_speller(
        ["ab", "abc"], known=["b", "abc", "<unk>"]
    )  # the same character model without a placeholder
    words = ["ab", "ba", "kitten", "<unk", "<unk>>"]
    assert speller.log_probs(words) == pytest.approx(free.log_probs(words) + np.log(0.2), rel=1e-9)
    assert "<" not in speller.lm.alphabet  # the placeholder is not a spelling example


def test_spelled_probability_has_a_lower_bound() -> None:
    few, many = (train_speller(["<unk>"] * n, [], rare=["ab"], placeholder="<unk>") for n in (1000, 10**6))
    difference = few.log_probs(["ab"])[0] - many.log_probs(["ab"])[0]
    assert difference == pytest.approx(np.log((1 / 1001) / MIN_SPELLED_PROBABILITY), rel=1e-6)


@pytest.mark.parametrize(
    "unknown", [["ab"] * 6, ["ab"] * 6 + ["ba", "aab", "a"]], ids=["placeholder alone", "both"]
)
def test_spellings_sum_to_one_with_a_placeholder(unknown: list[str]) -> None:
    """The placeholder is `ab`: all strings up to 6 letters, and the exact rest for longer ones.

    q(longer than L) = Σ_{|s| = L} q(s without its end) · (1 − q(end | s)).
    """
    known = ["b", "bb"]
    speller = train_speller(unknown, known, rare=["bb", "abb", "b"], placeholder="ab")
    unseen_characters, stranger = UNICODE_SCALARS - len("ab \t\r\n"), "\u2603"
    L, vocabulary = 6, speller.lm.vocabulary
    total = 0.0
    for length in range(1, L + 1):
        strings = ["".join(s) for s in product("ab" + stranger, repeat=length)]
        weights = np.array([float(unseen_characters) ** s.count(stranger) for s in strings])
        total += float((np.exp(speller.log_probs(strings)) * weights)[[s not in known for s in strings]].sum())
    inputs = np.array([[vocabulary.bos, *s] for s in product([0, 1, vocabulary.unk], repeat=L)])
    targets = np.append(inputs[:, 1:], np.full((len(inputs), 1), vocabulary.eos), axis=1)
    lm = TableModel(speller.lm.tables, vocabulary)
    log_p, _ = lm.score(Batch(inputs, targets, targets >= 0), lm.start(len(inputs)))
    longer = float((np.exp(log_p[:, :-1].sum(axis=1)) * (1 - np.exp(log_p[:, -1]))).sum())
    assert total + longer / np.exp(speller.log_outside) == pytest.approx(1, abs=1e-6)
    assert speller.log_probs(["ab"])[0] > speller.log_probs(["ba"])[0]


def test_single_character_spellings_sum_to_one_with_a_placeholder() -> None:
    speller = train_speller(["_", "_", "x"], known=["a"], is_single=True, placeholder="_")
    unseen_characters = UNICODE_SCALARS - len("x_a\r\n")
    p = np.exp(speller.log_probs(["_", "x", "z"]))
    assert p[0] == pytest.approx(1 / 2, rel=1e-12)  # ε = (1 + 1)/(3 + 1)
    assert p[0] + p[1] + unseen_characters * p[2] == pytest.approx(1, abs=1e-6)


def test_speller_round_trips_with_and_without_placeholder() -> None:
    speller = train_speller(["<unk>"] * 3, known=["cat"], rare=["cat"], placeholder="<unk>")
    again = Speller.from_bytes(speller.to_bytes(), "speller.safetensors")
    words = ["<unk>", "kitten", "<un", ""]
    assert again.log_probs(words).tolist() == speller.log_probs(words).tolist()
    assert again.placeholder == "<unk>"
    plain = train_speller(["<unk>"] * 3, known=["cat"])
    assert "placeholder" not in tensors.unpack(plain.to_bytes(), "")  # the format before placeholders
    assert Speller.from_bytes(plain.to_bytes(), "").placeholder == ""


@pytest.mark.parametrize("log_placeholder", [0.5, np.nan, -np.inf])
def test_speller_rejects_an_invalid_placeholder_probability(log_placeholder: float) -> None:
    speller = train_speller(["<unk>"], known=["cat"], rare=["cat"], placeholder="<unk>")
    arrays = tensors.unpack(speller.to_bytes(), "") | {"log_placeholder": np.array([log_placeholder])}
    with pytest.raises(ModelFileError, match=r"its probability is not valid|NaN or infinite"):
        Speller.from_bytes(save_arrays(arrays), "speller.safetensors")


def test_stored_log_outside_is_verified_on_first_use() -> None:
    speller = train_speller(["ab", "ba"], known=["cat"])
    arrays = tensors.unpack(speller.to_bytes(), "") | {"log_outside": np.array([-3.0])}
    wrong = Speller.from_bytes(save_arrays(arrays), "speller.safetensors", lambda: ["cat"])
    assert wrong.log_probs([]).tolist() == []  # a text without unknown words needs no estimate
    for _ in range(2):
        with pytest.raises(ModelFileError, match="log_outside is -3, but the tables and the vocabulary give"):
            wrong.log_probs(["ab"])
        with pytest.raises(ModelFileError, match="log_outside is -3"):
            wrong.sample(np.random.default_rng(0))


OLD_FILE = Path(__file__).parent / "speller_tables.safetensors"
"""Written before counts were stored, by training on OLD_LINES with `min_count=2`."""
OLD_LINES = ["the cat sees a dog", "a dog runs and the mouse runs", "the cat chases the mouse", "loves a Zebra"] * 6
OLD_LOG_PROBS = {"Yak": -41.634585501414946, "zebras": -28.423844439609994, "日本": -38.365906836253814}


def test_old_speller_file_round_trips() -> None:
    content = OLD_FILE.read_bytes()
    speller = Speller.from_bytes(content, str(OLD_FILE))
    assert speller.log_probs(list(OLD_LOG_PROBS)) == pytest.approx(list(OLD_LOG_PROBS.values()), rel=1e-12)
    assert speller.to_bytes() == content


def test_speller_counts_give_the_tables_of_the_old_file() -> None:
    speller = prepare_corpus(Corpus.from_lines(OLD_LINES), TokenizerConfig(min_count=2)).speller
    assert speller is not None
    old = Speller.from_bytes(OLD_FILE.read_bytes(), "")
    for again in (speller, Speller.from_bytes(speller.to_bytes(), "")):
        assert again.lm.alphabet == old.lm.alphabet
        assert again.log_outside == pytest.approx(old.log_outside, abs=1e-12)
        for level, expected in zip(again.lm.tables.levels, old.lm.tables.levels, strict=True):
            assert level.key.tolist() == expected.key.tolist()
            np.testing.assert_allclose(level.log_prob, expected.log_prob, rtol=1e-6)
            np.testing.assert_allclose(level.log_backoff, expected.log_backoff, rtol=1e-6)


def test_speller_file_takes_two_bytes_per_ngram() -> None:
    words = ["".join(letters) for letters in product("abcdef", repeat=5)]
    speller = train_speller(words, known=[])
    n_grams = sum(map(len, speller.lm.tables.levels))
    assert len(speller.to_bytes()) < 2 * n_grams + 3000  # names, dtypes and shapes
    assert len(as_tables(speller).to_bytes()) > 12 * n_grams


def test_speller_accepts_any_string_after_saving() -> None:
    speller = train_speller(["hello", "world"], known=[])
    again = Speller.from_bytes(speller.to_bytes(), "speller.safetensors")
    words = ["hello", "\U0001f600", "x" * 5000, "日本"]
    assert np.isfinite(speller.log_probs(words)).all()
    assert again.log_probs(words).tolist() == speller.log_probs(words).tolist()
    assert speller.log_probs([]).tolist() == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abcé", min_size=1), min_size=1), st.lists(st.text("abz\u2603", min_size=1)))
def test_spelling_log_probs_do_not_depend_on_the_batch(unknown: list[str], spellings: list[str]) -> None:
    speller = train_speller(unknown, known=["a"])
    alone = [speller.log_probs([s])[0] for s in spellings]
    np.testing.assert_allclose(speller.log_probs(spellings), alone, rtol=1e-9)


LETTERS = st.text("abcé\u2603\U0001f600", min_size=1)


@pytest.mark.native
@settings(max_examples=60, deadline=None)
@given(st.lists(LETTERS, min_size=1), st.lists(LETTERS | st.text(min_size=1)), st.booleans())
def test_compiled_speller_equals_the_reference(unknown: list[str], spellings: list[str], is_single: bool) -> None:
    """Characters of one to four bytes, unseen characters, and words longer than the context."""
    if is_single:
        unknown, spellings = [s[0] for s in unknown], [s[0] for s in spellings]
    speller = train_speller(unknown, known=["z"], is_single=is_single, placeholder=unknown[0])
    queries = [*spellings, *unknown, *spellings, *([] if is_single else ["", "abc" * 9])]
    np.testing.assert_allclose(speller.log_probs(queries), spelling_log_probs(speller, queries), rtol=1e-12)


@pytest.mark.native
def test_compiled_speller_rejects_invalid_tables() -> None:
    speller = train_speller(["abc", "abd"], known=[])
    arrays: list[list[Any]] = [
        [level.key.astype(np.int64), level.log_prob.astype(np.float32), level.log_backoff.astype(np.float32)]
        for level in speller.lm.tables.levels
    ]
    core = system.load_extension()
    alphabet = np.array([ord(c) for c in speller.lm.alphabet], dtype=np.uint32)
    core.Speller(alphabet, arrays, 0.0, 0.0, False)
    broken: list[tuple[Any, Any]] = [
        (alphabet[::-1].copy(), arrays),
        (alphabet, []),
        (alphabet[:-1].copy(), arrays),
        (alphabet, [arrays[0], [arrays[1][0][::-1].copy(), *arrays[1][1:]], *arrays[2:]]),
        (alphabet, [arrays[0], [arrays[1][0] + 10**6, *arrays[1][1:]], *arrays[2:]]),
        (alphabet, [arrays[0], [arrays[1][0], arrays[1][1][1:].copy(), arrays[1][2]], *arrays[2:]]),
        (alphabet, [arrays[0], arrays[1][:2], *arrays[2:]]),
        (alphabet, [[x.astype(np.float64) for x in arrays[0]], *arrays[1:]]),
        (alphabet, [*arrays, *arrays[-1:] * 40]),
    ]
    for letters, levels in broken:
        with pytest.raises(ChainruleError):
            core.Speller(letters, levels, 0.0, 0.0, False)


def mass(model: Model, length: int) -> float:
    """Probability of all one-line texts over the alphabet and the space, up to a length."""
    symbols = ALPHABET + " "
    lines = {
        model.tokenizer.canonicalize("".join(s)) for n in range(length + 1) for s in product(symbols, repeat=n)
    }
    scores = list(model.scores(sorted(lines)))
    return float(sum(np.exp(s.log_prob_with_spelling) for s in scores))


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@pytest.mark.parametrize(
    ("tokenizer", "settings_"),
    [
        ("word", {}),
        ("word", {"vocab_size": 1}),
        ("word", {"min_count": 2}),
        ("word", {"unk": "ab"}),
        ("word", {"unk": "ab", "min_count": 21}),
        ("char", {}),
        ("char", {"unk": "b"}),
        ("char", {"vocab_size": 1}),
        ("byte", {}),
    ],
)
def test_text_probabilities_approach_one_from_below(tokenizer: str, settings_: dict[str, Any]) -> None:
    model = train(
        "ngram", Corpus.from_lines(LINES), tokenizer=tokenizer, order=2, smoothing="witten-bell", **settings_
    )
    sums = [mass(model, length) for length in (1, 3, 5, 7)]
    assert sums[-1] <= 1 + 1e-6
    # The rest belongs to longer texts and shrinks geometrically with the length.
    rest = [1 - value for value in sums]
    assert all(later < 0.85 * earlier for earlier, later in pairwise(rest))
    assert rest[-1] < 0.2


def test_speller_samples_follow_their_probabilities() -> None:
    speller = train_speller(["ab", "ab", "b"], [], rare=())
    rng = np.random.default_rng(0)
    drawn = [speller.sample(rng) for _ in range(2000)]
    assert set("".join(drawn)) == {"a", "b"}
    assert "" not in drawn
    ratio = np.exp(np.subtract(*speller.log_probs(["ab", "b"])))
    assert drawn.count("ab") / drawn.count("b") == pytest.approx(ratio, rel=0.15)


def test_single_character_speller_samples_one_character() -> None:
    speller = train_speller(["x", "y", "y"], ["a"], is_single=True)
    rng = np.random.default_rng(0)
    assert {speller.sample(rng) for _ in range(100)} == {"x", "y"}
