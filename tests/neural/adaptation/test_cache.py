"""Neural cache: worked by hand on three tokens, normalised, and carried across line boundaries."""

import math

import numpy as np
import pytest
import torch

from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context
from chainrule.neural import adaptation
from chainrule.neural.adaptation import ScoredText, cache_log_probs, cached_log_probs, interpolate, tune_cache
from chainrule.neural.probes.hidden_states import hidden_states
from neural.adaptation_models import CLOSED, FAMILIES, WORDS, encoded, make, some_ids


def three_tokens(targets: list[int]) -> ScoredText:
    """h = (1, 0), (0, 1), (2, 1): h_3·h_1 = 2, h_3·h_2 = 1, h_2·h_1 = 0."""
    hidden = torch.tensor([[1.0, 0], [0, 1], [2, 1]])
    return ScoredText(hidden, torch.tensor(targets), torch.ones(3, dtype=torch.bool), torch.zeros(3).double())


def test_cache_probabilities_worked_by_hand() -> None:
    θ = math.log(3)  # weights 3² and 3¹ of the two words before the third
    p = cache_log_probs(three_tokens([5, 6, 5]), [θ]).exp()[0]
    assert p[0].isnan()  # the cache is empty
    assert p[1].item() == 0  # the first was a different word
    assert p[2].item() == pytest.approx(9 / 12)
    assert cache_log_probs(three_tokens([5, 6, 6]), [θ]).exp()[0, 2].item() == pytest.approx(3 / 12)
    assert cache_log_probs(three_tokens([5, 6, 5]), [0.0]).exp()[0, 2].item() == pytest.approx(1 / 2)
    assert cache_log_probs(three_tokens([5, 5, 5]), [θ]).exp()[0].tolist()[1:] == pytest.approx([1, 1])
    assert cache_log_probs(three_tokens([5, 6, 5]), [θ], size=1).exp()[0, 2].item() == 0  # outside the cache


def test_cache_interpolation_worked_by_hand() -> None:
    log_p, log_cache = torch.tensor([0.2, 0.4, 0.5]).log(), torch.tensor([0.7, 0.0, 1.0]).log()
    log_cache[2] = torch.nan
    assert interpolate(log_p, log_cache, 0.25).exp().tolist() == pytest.approx([0.15 + 0.175, 0.3, 0.5])
    assert torch.equal(interpolate(log_p, log_cache, 0.0), log_p)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("context", ["stream", "line"])
def test_cached_distribution_sums_to_one(family: str, context: Context) -> None:
    model, ids = make(family, context), some_ids(20)
    for t in (0, 1, 13, 19):  # any word may be there: the history is the same
        total = 0.0
        for word in range(WORDS.size):
            changed = ids.copy()
            changed[t] = word
            total += math.exp(cached_log_probs(model, encoded(changed), 0.7, 0.3)[t])
        assert total == pytest.approx(1, abs=1e-5)


def test_empty_cache_gives_the_model_alone() -> None:
    model, text = make(), encoded(some_ids(30))
    static = token_log_probs(model, text)
    cached = cached_log_probs(model, text, 0.5, 0.3)
    assert cached[0] == pytest.approx(static[0], rel=1e-5)
    assert np.abs(cached[1:] - static[1:]).min() > 1e-3
    np.testing.assert_allclose(cached_log_probs(model, text, 0.5, 0.3, size=0), static, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cached_log_probs(model, text, 0.5, 0.0), static, rtol=1e-4, atol=1e-5)


def test_cache_does_not_depend_on_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = make(), encoded(some_ids(50))
    expected = cached_log_probs(model, text, 0.5, 0.2, size=11)
    monkeypatch.setattr(adaptation, "QUERY_BLOCK", 7)
    np.testing.assert_allclose(cached_log_probs(model, text, 0.5, 0.2, size=11), expected, rtol=1e-5)


def test_cache_is_carried_across_lines() -> None:
    # Three lines of one word: the state is reset at each, the cache is not. Before the third 9 it contains 9,
    # </s>, 9, </s>: p_cache(9) = 1/2 with equal weights.
    model, text = make(context="line"), encoded(np.array([9, 1, 9, 1, 9, 1], np.int32))
    static, cached = token_log_probs(model, text), cached_log_probs(model, text, 0.0, 0.3)
    assert static[4] == pytest.approx(static[0])
    assert math.exp(cached[4]) == pytest.approx(0.7 * math.exp(static[0]) + 0.3 / 2, rel=1e-5)


def test_unpredictable_words_are_not_cached() -> None:
    model = make(words=CLOSED)
    ids = np.full(12, CLOSED.unk, np.int32)
    cached = cached_log_probs(model, encoded(ids), 0.5, 0.3)
    assert np.isneginf(cached).all()
    ids[-1] = 5
    static = token_log_probs(model, encoded(ids))
    assert cached_log_probs(model, encoded(ids), 0.5, 0.3)[-1] == pytest.approx(static[-1], rel=1e-5)


def test_tuned_cache_helps_on_repetitive_text() -> None:
    model = make()
    rng = np.random.default_rng(2)
    text = encoded(np.concatenate([rng.permutation([w, w, w, w, 3, 1]) for w in range(3, 11)] * 2).astype(np.int32))
    static = token_log_probs(model, text).mean()
    chosen = tune_cache(model, text, size=12)
    best = cached_log_probs(model, text, *chosen, size=12).mean()
    assert best > static + 0.1
    square = hidden_states(model, text).square().sum(1).mean().item()  # the grid of θ is in units of 1 / mean |h|²
    grid = [(sharpness / square, λ) for sharpness in adaptation.SHARPNESS for λ in adaptation.WEIGHTS]
    means = [cached_log_probs(model, text, θ, λ, size=12).mean() for θ, λ in grid]
    assert chosen == pytest.approx(grid[int(np.argmax(means))])
