import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import api
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.entropy_pruning import divergences, entropy_prune
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.prepared_corpus import prepare_corpus
from chainrule.storage.provenance import Origin
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from ngram.brute_force import Dictionary, Gram, tables_of

UNK, A, B, C, BOS, EOS = range(6)
WORDS = Vocabulary(size=6, bos=BOS, eos=EOS, unk=UNK)
LINES = st.lists(st.lists(st.sampled_from([UNK, A, B, C]), max_size=6), min_size=1, max_size=12)
METHODS = st.sampled_from(["modified-kneser-ney", "witten-bell", "katz", "mle", "laplace"])
SOME = [[A, B, C], [A, B, A], [B, C], [A, B, C, A], [C, A], [UNK, A, B]]


def p_of_history(model: Dictionary, h: Gram) -> float:
    """By the chain rule; `<s>` has the probability of `</s>`."""
    words = [EOS, *h[1:]] if h[0] == BOS else list(h)
    return math.prod(model.p(h[:i], w) for i, w in enumerate(words))


def distribution_without(model: Dictionary, gram: Gram) -> list[float]:
    """p′(· | h) after removing this n-gram alone, from the definition of a back-off model."""
    h, w = gram[:-1], gram[-1]
    stored = [v for v in model.followers(h) if v != w]
    left = 1 - sum(model.p(h, v) for v in stored)
    left_shorter = 1 - sum(model.p(h[1:], v) for v in stored)
    return [model.p(h, v) if v in stored else left / left_shorter * model.p(h[1:], v) for v in range(model.size)]


@settings(max_examples=60, deadline=None)
@given(lines=LINES, order=st.integers(2, 4), method=METHODS)
def test_divergence_equals_kl_of_both_distributions(lines: list[list[int]], order: int, method: str) -> None:
    tables = tables_of(lines, WORDS, order=order, smoothing=method)
    model = Dictionary(tables, WORDS.size)
    for n, D in enumerate(divergences(tables, WORDS), start=2):
        for gram, divergence in zip(model.grams(n), D, strict=True):
            h = gram[:-1]
            if sum(model.p(h[1:], v) for v in model.followers(h) if v != gram[-1]) > 1 - 1e-4:
                continue  # dominated by rounding
            p, changed = model.distribution(h), distribution_without(model, gram)
            is_lost = any(a > 1e-6 and b <= 0 for a, b in zip(p, changed, strict=True))
            expected = (
                math.inf
                if is_lost
                else sum(a * math.log(a / b) for a, b in zip(p, changed, strict=True) if a > 0 and b > 0)
            )
            expected = expected * p_of_history(model, h) if p_of_history(model, h) else 0.0
            assert divergence == pytest.approx(expected, abs=2e-6), gram


@settings(max_examples=60, deadline=None)
@given(
    lines=LINES,
    order=st.integers(1, 4),
    method=METHODS,
    threshold=st.sampled_from([1e-9, 1e-4, 1e-3, 1e-2, 0.1, 9]),
)
def test_entropy_pruned_distributions_sum_to_one(
    lines: list[list[int]], order: int, method: str, threshold: float
) -> None:
    tables = tables_of(lines, WORDS, order=order, smoothing=method)
    before = Dictionary(tables, WORDS.size)
    after = Dictionary(entropy_prune(tables, WORDS, threshold), WORDS.size)
    for h in before.contexts():
        assert sum(after.distribution(h)) == pytest.approx(sum(before.distribution(h)), abs=1e-5), h
    assert set(after.log_p) <= set(before.log_p)
    for gram in after.log_p:
        assert gram[:-1] == () or gram[:-1] in after.log_p, "a context is missing"


def test_entropy_pruning_removes_exactly_ngrams_below_the_threshold() -> None:
    tables = tables_of(SOME, WORDS, order=3, smoothing="witten-bell")
    before, threshold = Dictionary(tables, WORDS.size), 0.004
    after = Dictionary(entropy_prune(tables, WORDS, threshold), WORDS.size)
    removed = 0
    for n, D in enumerate(divergences(tables, WORDS), start=2):
        for gram, cost in zip(before.grams(n), D, strict=True):
            is_needed = any(longer[:-1] == gram for longer in after.log_p)
            assert (gram in after.log_p) == (is_needed or math.exp(cost) - 1 >= threshold), gram
            removed += gram not in after.log_p
    assert 0 < removed < sum(map(len, tables.levels[1:]))


def test_entropy_pruning_worked_by_hand() -> None:
    # Two words x = 1 and y = 2, and </s> = 4; unigrams 0.5, 0.3, 0.2. After x only y is stored, p(y | x) = 0.4, so
    # α(x) = 0.6 / 0.7. Without it p′(· | x) are the unigrams: α′ = 1.
    # D = 0.5 · [0.4 ln(0.4/0.3) + 0.6/0.7 · (0.5 + 0.2) ln(0.6/0.7)] = 0.5 · [0.115073 − 0.092490] = 0.011291
    with np.errstate(divide="ignore"):
        unigrams = np.log(np.array([0, 0.5, 0.3, 0, 0.2]))
    weights = np.array([0, math.log(0.6 / 0.7), 0, 0, 0])
    pair = BackoffLevel(np.array([1 * 5 + 2]), np.array([math.log(0.4)]), np.zeros(1))
    tables = BackoffTables((BackoffLevel(np.arange(5), unigrams, weights), pair))
    words = Vocabulary(size=5, bos=3, eos=4, unk=0, closed=True)
    [[D]] = divergences(tables, words)
    assert pytest.approx(0.011291, abs=1e-6) == D
    # exp(0.011291) − 1 = 0.011355
    assert len(entropy_prune(tables, words, 0.01135).levels[1]) == 1
    pruned = entropy_prune(tables, words, 0.01136)
    assert len(pruned.levels[1]) == 0
    assert pruned.levels[0].log_backoff.tolist() == [0] * 5


def test_entropy_pruning_with_threshold_zero_changes_nothing() -> None:
    tables = tables_of(SOME, WORDS, order=3, smoothing="witten-bell")
    assert entropy_prune(tables, WORDS, 0.0) is tables
    # The smallest threshold removes only n-grams that cost nothing, without changing the distributions.
    before = Dictionary(tables, WORDS.size)
    after = Dictionary(entropy_prune(tables, WORDS, 1e-12), WORDS.size)
    for h in before.contexts():
        np.testing.assert_allclose(after.distribution(h), before.distribution(h), atol=1e-6)


def test_entropy_pruning_keeps_a_context_that_stores_every_word() -> None:
    # A is followed by A, B, C, <unk> and </s>: removing any one costs nothing, removing all would cost much.
    tables = tables_of([[A, w] for w in (A, B, C, UNK)] * 2 + [[A], [B, B]], WORDS, order=2, smoothing="mle")
    after = Dictionary(entropy_prune(tables, WORDS, 1e-9), WORDS.size)
    assert after.followers((A,)) == [UNK, A, B, C, EOS]


def test_entropy_pruning_recomputes_backoff_weights_of_longer_contexts() -> None:
    # The trigram (A, C, <unk>) is worth keeping and the bigram (C, <unk>) is not: the weight of (A, C) must match
    # the new probability of <unk> after C.
    lines = [[A, C, UNK], [UNK], [UNK, A, UNK], [C], [UNK, A, UNK, C], [UNK], [UNK, C], [A], [A], [C, A, UNK]]
    tables = tables_of(lines, WORDS, order=3, smoothing="witten-bell")
    after = Dictionary(entropy_prune(tables, WORDS, 0.01), WORDS.size)
    assert (A, C, UNK) in after.log_p
    assert (C, UNK) not in after.log_p
    assert after.log_weight[(A, C)] != Dictionary(tables, WORDS.size).log_weight[(A, C)]
    assert sum(after.distribution((A, C))) == pytest.approx(1, abs=1e-6)


@pytest.mark.data
def test_entropy_pruning_trades_size_for_perplexity(data_folder: Path) -> None:
    train, valid = (Corpus.of(data_folder / "ptb" / f"ptb.{part}.txt") for part in ("train", "valid"))
    prepared = prepare_corpus(train, TokenizerConfig(), valid)
    thresholds = (0, 1e-8, 1e-7, 1e-6, 1e-5)
    configs = [Config(order=3, entropy_prune=threshold) for threshold in thresholds]
    models = [api.train_prepared("ngram", config, prepared, Origin()) for config in configs]
    sizes = [model.parameters for model in models]
    perplexities = [model.metrics["valid_perplexity"] for model in models]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] / 10
    assert perplexities == sorted(perplexities)
    assert perplexities[1] < 1.01 * perplexities[0]


def test_entropy_pruning_rejects_unnormalised_models() -> None:
    with pytest.raises(ConfigError, match="stupid backoff gives unnormalized scores"):
        Config(smoothing="stupid-backoff", entropy_prune=1e-8)
    with pytest.raises(ConfigError, match="choose 0 or a small number"):
        Config(entropy_prune=-1.0)
    with pytest.raises(ConfigError, match="choose 0 or a small number"):
        Config(entropy_prune=math.nan)
