import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule import api
from chainrule.applications import convert
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.ngram.entropy_pruning import entropy_prune
from chainrule.ngram.interpolation import interpolate
from ngram.brute_force import Dictionary, tables_of

UNK, A, B, C, BOS, EOS = range(6)
WORDS = Vocabulary(size=6, bos=BOS, eos=EOS, unk=UNK)
LINES = st.lists(st.lists(st.sampled_from([UNK, A, B, C]), max_size=6), min_size=1, max_size=8)
ORDERS = st.integers(1, 4)
METHODS = st.sampled_from(["modified-kneser-ney", "witten-bell", "katz", "mle", "laplace"])


@st.composite
def models(draw: st.DrawFn) -> Dictionary:
    """Any smoothing and order, sometimes pruned, so that suffixes are missing."""
    tables = tables_of(draw(LINES), WORDS, order=draw(ORDERS), smoothing=draw(METHODS))
    return Dictionary(entropy_prune(tables, WORDS, draw(st.sampled_from([0, 0.003, 0.03]))), WORDS.size)


@given(parts=st.lists(models(), min_size=1, max_size=3), shares=st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_interpolation_mixes_stored_ngrams_and_sums_to_one(parts: list[Dictionary], shares: list[int]) -> None:
    weights = np.array(shares[: len(parts)]) / sum(shares[: len(parts)])
    merged = Dictionary(interpolate([part.tables for part in parts], weights.tolist(), WORDS.size), WORDS.size)
    assert set(merged.log_p) == set().union(*(part.log_p for part in parts))
    for gram in merged.log_p:
        expected = sum(weight * part.p(gram[:-1], gram[-1]) for weight, part in zip(weights, parts, strict=True))
        assert merged.p(gram[:-1], gram[-1]) == pytest.approx(expected, abs=1e-6), gram
    for h in merged.contexts():
        assert sum(merged.distribution(h)) == pytest.approx(1, abs=1e-5), h


def test_interpolation_is_exact_for_complete_tables() -> None:
    # Every pair of words, including </s>, occurs in both texts, so nothing backs off.
    pairs = [[v, w] for v in (UNK, A, B, C) for w in (UNK, A, B, C)] + [[]]
    first = tables_of(pairs, WORDS, order=2, smoothing="witten-bell")
    second = tables_of([*pairs, [A, B, A], [A, B], [C, C, B]], WORDS, order=2, smoothing="kneser-ney")
    merged = Dictionary(interpolate([first, second], [0.3, 0.7], WORDS.size), WORDS.size)
    ours, theirs = (Dictionary(tables, WORDS.size) for tables in (first, second))
    for h in ((), (UNK,), (A,), (B,), (C,), (BOS,)):
        mixed = 0.3 * np.array(ours.distribution(h)) + 0.7 * np.array(theirs.distribution(h))
        np.testing.assert_allclose(merged.distribution(h), mixed, atol=1e-7)


def test_interpolation_worked_by_hand() -> None:
    # "A B" and "A C", maximum-likelihood bigrams: p(B | A) is 1 in the first and 0 in the second, mixed 1/4 and
    # 3/4. Unigrams: a third each of A, the other word and </s>; so p(B) = 1/4 · 1/3.
    merged = Dictionary(
        interpolate(
            [tables_of([[A, w]], WORDS, order=2, smoothing="mle") for w in (B, C)], [0.25, 0.75], WORDS.size
        ),
        WORDS.size,
    )
    assert merged.p((A,), B) == pytest.approx(0.25)
    assert merged.p((A,), C) == pytest.approx(0.75)
    assert merged.p((), B) == pytest.approx(1 / 12)
    assert merged.p((A,), A) == 0
    # Only the first has seen B; the second gives its unigrams: 1/4 + 3/4 · 1/3.
    assert merged.p((B,), EOS) == pytest.approx(0.5)


def test_interpolation_drops_a_component_of_zero_weight() -> None:
    first, second = (tables_of([[A, w]], WORDS, order=n, smoothing="witten-bell") for w, n in ((B, 2), (C, 3)))
    merged = interpolate([first, second], [1.0, 0.0], WORDS.size)
    assert merged.order == 2
    np.testing.assert_allclose(merged.levels[1].log_prob, first.levels[1].log_prob, atol=1e-6)
    np.testing.assert_allclose(merged.levels[0].log_backoff[[A, B]], first.levels[0].log_backoff[[A, B]], atol=1e-5)


def test_merge_mixture_rejects_unnormalised_models(toy: Path) -> None:
    scores = api.train("ngram", toy, order=2, smoothing="stupid-backoff")
    mixed = api.mix([scores, api.train("ngram", toy, order=2, smoothing="laplace")], held_out=toy)
    with pytest.raises(ConfigError, match="contains a stupid-backoff model"):
        convert.merge_mixture(mixed)


def test_merge_mixture_of_nested_mixtures(toy: Path) -> None:
    methods = ("laplace", "witten-bell", "add-k")
    laplace, bell, add = (api.train("ngram", toy, order=2, smoothing=method) for method in methods)
    nested = api.mix([api.mix([laplace, bell], held_out=toy), add], held_out=toy)
    merged = convert.merge_mixture(nested)
    assert merged.family == "ngram"
    assert merged.config.smoothing == "interpolated"
    # "i love" occurs in the text, so its mixed probability is stored exactly.
    scores = [model.score("i love").log_probs for model in (merged, nested)]
    np.testing.assert_allclose(scores[0][:2], scores[1][:2], rtol=1e-5)


@pytest.mark.data
def test_merged_mixture_is_close_to_the_mixture_on_text(data_folder: Path, tmp_path: Path) -> None:
    lines = (data_folder / "ptb" / "ptb.train.txt").read_text().splitlines(keepends=True)
    halves = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for i, half in enumerate(halves):
        half.write_text("".join(lines[i::2]))
    first = api.train("ngram", halves[0], order=3)
    first.save(tmp_path / "first")
    second = api.train("ngram", halves[1], order=4, tokenizer=tmp_path / "first")
    valid = data_folder / "ptb" / "ptb.valid.txt"
    mixed = api.mix([first, second], held_out=valid)
    alone, together, merged = (
        math.log(model.evaluate(valid).perplexity) for model in (second, mixed, convert.merge_mixture(mixed))
    )
    assert together < alone
    assert abs(merged - together) < 0.02
