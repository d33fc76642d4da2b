"""Mixtures: EM weights with a known optimum, and agreement of `score` and `step`."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.data.encoded import EncodedText
from chainrule.errors import ConfigError, InputError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context, Vocabulary
from chainrule.mixture import (
    Component,
    Config,
    Mixture,
    component_log_probs,
    em_weights,
    fit_to_log_probs,
    mixture_config,
)
from chainrule.ngram.config import Config as NgramConfig
from chainrule.ngram.config import Smoothing
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import estimate
from ngram.reference import count

V = Vocabulary(size=5, bos=3, eos=4, unk=0)  # <unk> a b <s> </s>
TEXTS = ([1, 2, 4, 1, 1, 4, 2, 1, 4], [2, 2, 2, 4, 2, 1, 4, 4, 2, 4])
HELD_OUT = np.array([1, 2, 2, 4, 1, 4, 2, 2, 1, 4])


def component(
    ids: list[int], order: int, context: Context = "line", smoothing: Smoothing = "witten-bell"
) -> Component:
    config = NgramConfig(order=order, smoothing=smoothing)
    tables = estimate(count(np.array(ids), order, V, context), config)
    return Component("ngram", config, NgramModel.from_tables(tables, V, context))


def encoded(ids: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]]) -> EncodedText:
    return EncodedText(ids=np.array(ids), eos=V.eos, unk=V.unk, words=0, characters=0, bytes=1)


def test_em_weights_of_two_outcomes() -> None:
    # q(a) = 0.2 + 0.6 λ; two a and one b are most probable at q(a) = 2/3, so λ = 7/9.
    p = np.array([[0.8, 0.2, 0.8], [0.2, 0.8, 0.2]])
    assert_allclose(em_weights(np.log(p)), [7 / 9, 2 / 9], atol=1e-5)


def test_em_weights_of_models_that_know_one_word_each() -> None:
    # λ is then the relative frequency of each word: 5, 3 and 2 of 10.
    truth = np.repeat([0, 1, 2], [5, 3, 2])
    with np.errstate(divide="ignore"):
        log_p = np.log(np.equal.outer(np.arange(3), truth).astype(float))
    assert_allclose(em_weights(log_p), [0.5, 0.3, 0.2], atol=1e-9)


def test_em_weights_at_the_boundary() -> None:
    p = np.array([[0.5, 0.5, 0.5], [0.1, 0.2, 0.3]])  # the first is always better
    assert_allclose(em_weights(np.log(p)), [1, 0], atol=1e-6)
    assert_allclose(em_weights(np.log(p[[0, 0]])), [0.5, 0.5])  # equal models keep equal weights


def test_em_weights_of_tiny_probabilities() -> None:
    log_p = np.log([[0.8, 0.2, 0.8], [0.2, 0.8, 0.2]]) - 5000  # exp would underflow
    assert_allclose(em_weights(log_p), [7 / 9, 2 / 9], atol=1e-5)


def test_em_weights_ignore_impossible_tokens() -> None:
    log_p = np.log([[0.8, 0.2, 0.8], [0.2, 0.8, 0.2]])
    impossible = np.full((2, 1), -np.inf)
    assert_allclose(em_weights(np.hstack([impossible, log_p])), [7 / 9, 2 / 9], atol=1e-5)
    with pytest.raises(InputError, match="all models give every token of the held-out text probability 0"):
        em_weights(impossible)


def test_mixture_is_the_weighted_sum() -> None:
    parts = (component(TEXTS[0], 2), component(TEXTS[1], 3))
    mixed = Mixture(parts, (0.25, 0.75), V)
    first, second = (np.exp(token_log_probs(part.lm, encoded(HELD_OUT))) for part in parts)
    assert_allclose(np.exp(token_log_probs(mixed, encoded(HELD_OUT))), 0.25 * first + 0.75 * second, rtol=1e-9)


@pytest.mark.parametrize("contexts", [("line", "line"), ("line", "stream"), ("stream", "stream")])
def test_mixture_score_and_step_agree_and_sum_to_one(contexts: tuple[Context, Context]) -> None:
    parts = tuple(component(list(text), 3, context) for text, context in zip(TEXTS, contexts, strict=True))
    mixed = fit_to_log_probs(parts, component_log_probs(parts, encoded(HELD_OUT)), V)
    assert mixed.context == ("stream" if "stream" in contexts else "line")
    stepped, state, last = [], mixed.start(1), V.bos
    for id_ in HELD_OUT.tolist():
        log_p, state = mixed.step(state, np.array([last]))
        assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-6)
        assert log_p[0, V.bos] == -np.inf
        stepped.append(log_p[0, id_])
        last = id_
        if mixed.context == "line" and id_ == V.eos:
            state, last = mixed.start(1), V.bos
    assert_allclose(stepped, token_log_probs(mixed, encoded(HELD_OUT)), rtol=1e-6)


def test_mixture_components_keep_their_context_rule() -> None:
    """In a stream the line model still restarts at `</s>`."""
    parts = (component(TEXTS[0], 3, "line"), component(TEXTS[1], 3, "stream"))
    alone = [token_log_probs(part.lm, encoded(HELD_OUT)) for part in parts]
    for weights, expected in (((1.0, 0.0), alone[0]), ((0.0, 1.0), alone[1])):
        assert_allclose(token_log_probs(Mixture(parts, weights, V), encoded(HELD_OUT)), expected, rtol=1e-9)
    assert not np.allclose(alone[0], alone[1])


def test_mixture_state_select_reorders_rows() -> None:
    mixed = Mixture((component(TEXTS[0], 2), component(TEXTS[1], 3)), (0.5, 0.5), V)
    _, state = mixed.step(mixed.start(2), np.array([V.bos, V.bos]))
    both, after = mixed.step(state, np.array([1, 2]))
    ones = np.array([1, 1])
    swapped, _ = mixed.step(after.select(np.array([1, 0])), ones)
    straight, _ = mixed.step(after, ones)
    assert_allclose(swapped, straight[::-1])
    assert not np.allclose(straight[0], straight[1])
    assert both.shape == (2, V.size)


def test_mixture_with_an_unnormalised_model_is_unnormalised() -> None:
    parts = (component(TEXTS[0], 2), Component("ngram", NgramConfig(), component(TEXTS[1], 2).lm))
    assert Mixture(parts, (0.5, 0.5), V).is_normalized
    tables = estimate(count(np.array(TEXTS[0]), 2, V), NgramConfig(order=2, smoothing="stupid-backoff"))
    stupid = Component("ngram", NgramConfig(), NgramModel.from_tables(tables, V, is_normalized=False))
    assert not Mixture((parts[0], stupid), (0.5, 0.5), V).is_normalized


@pytest.mark.parametrize("weights", [(), (1.0,), (0.5, 0.6), (1.5, -0.5), (math.nan, 0.5)])
def test_invalid_mixture_weights_are_rejected(weights: tuple[float, ...]) -> None:
    saved = mixture_config(Mixture((component(TEXTS[0], 1), component(TEXTS[1], 1)), (0.5, 0.5), V))
    with pytest.raises(ConfigError, match="one weight per component, and the weights must sum to 1"):
        Config(weights=weights, components=saved.components)


def test_em_weights_reach_a_corner_exactly() -> None:
    # The first model is better at every token: λ = 1, which EM alone approaches like 1/iterations.
    p = np.array([[0.5, 0.5, 0.5001], [0.5, 0.5, 0.5]])
    weights = em_weights(np.log(p))
    assert np.log(weights @ p).sum() >= np.log(p[0]).sum() - 1e-12
