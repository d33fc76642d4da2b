"""Temperature: p^{1/T} renormalised, and tuning against a full grid search."""

import numpy as np
import pytest

from chainrule.data.encoded import EncodedText
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context
from chainrule.neural.adaptation import log_probs_at, tune_temperature
from chainrule.neural.model import NeuralModel
from neural.adaptation_models import CLOSED, WORDS, encoded, make, some_ids


def drawn(model: NeuralModel, tokens: int, T: float) -> EncodedText:
    """A text sampled from the model at a temperature."""
    rng, state, last, ids = np.random.default_rng(4), model.start(1), WORDS.bos, []
    for _ in range(tokens):
        log_p, state = model.step(state, np.array([last]))
        p = np.exp(log_p[0] / T)
        last = int(rng.choice(len(p), p=p / p.sum()))
        ids.append(last)
    return encoded(np.array([*ids, WORDS.eos], np.int32))


@pytest.mark.parametrize("context", ["stream", "line"])
def test_temperature_one_is_static(context: Context) -> None:
    model, text = make(context=context), encoded(some_ids(40))
    np.testing.assert_allclose(
        log_probs_at(model, text, [1.0])[0], token_log_probs(model, text), rtol=1e-4, atol=1e-5
    )


def test_temperature_renormalises_powers() -> None:
    model, ids = make(), some_ids(12)
    state, last = model.start(1), WORDS.bos
    result = np.exp(log_probs_at(model, encoded(ids), [0.5, 2.0]))
    for t, word in enumerate(ids):
        log_p, state = model.step(state, np.array([last]))
        p = np.exp(log_p[0])
        assert result[0, t] == pytest.approx(p[word] ** 2 / (p**2).sum(), rel=1e-4)
        assert result[1, t] == pytest.approx(p[word] ** 0.5 / (p**0.5).sum(), rel=1e-4)
        last = word


@pytest.mark.parametrize("drawn_at", [0.9, 1.0, 1.17, 3.0])
def test_tuned_temperature_equals_grid_search(drawn_at: float) -> None:
    model = make()
    text = drawn(model, 300, drawn_at)
    grid = [T / 100 for T in range(80, 131)]
    assert tune_temperature(model, text) == grid[int(log_probs_at(model, text, grid).sum(axis=1).argmax())]
    if drawn_at == 3.0:
        assert tune_temperature(model, text) == 1.3


def test_impossible_tokens_do_not_affect_temperature_tuning() -> None:
    model = make(words=CLOSED)
    ids = drawn(model, 300, 1.17).ids
    ids[200] = 2  # <unk>
    grid = [T / 100 for T in range(80, 131)]
    log_p = log_probs_at(model, encoded(ids), grid)
    assert np.argwhere(np.isneginf(log_p)).tolist() == [[k, 200] for k in range(51)]
    best = grid[int(np.delete(log_p, 200, axis=1).sum(axis=1).argmax())]
    assert best > 0.8  # if all were −inf, the first would be selected
    assert tune_temperature(model, encoded(ids)) == best
