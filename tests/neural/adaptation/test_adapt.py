"""Test-time adaptation: settings are tuned on validation text and used to score the test text."""

import warnings
from typing import Any

import numpy as np
import pytest

from chainrule import api
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.model import Model
from chainrule.neural.adaptation import (
    DECAYS,
    RATES,
    Kind,
    adapt,
    cached_log_probs,
    log_probs_at,
    strided_log_probs,
)
from chainrule.text.corpus import Corpus
from neural.adaptation_models import WINDOW, encoded, make, some_ids

TRAIN = Corpus.from_lines(["the cat sees the dog", "a dog sees a cat", "the zebra sees a zebu"] * 20)
SHIFTED = Corpus.from_lines(["zebu zebu zebra zebu"] * 30)  # rare words of the training text, repeated


def train_without_warnings(family: str, **chosen: Any) -> Model:
    """A trained model; diagnostics about the short training are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        return api.train(family, TRAIN, **chosen)


@pytest.fixture(scope="module")
def trained() -> Model:
    small = {"hidden": 16, "epochs": 6, "batch_size": 4, "bptt": 5, "learning_rate": 1e-2}
    return train_without_warnings("lstm", context="stream", device="cpu", **small)


@pytest.mark.parametrize("kind", ["temperature", "cache", "dynamic"])
def test_adaptation_is_not_tuned_on_the_test_text(kind: Kind) -> None:
    model, valid = make(), encoded(some_ids(100, seed=1))
    first, second = (adapt(model, encoded(some_ids(40, seed=seed)), valid, kind) for seed in (2, 3))
    assert first.settings == second.settings
    assert first.log_probs.shape == (40,)
    assert not np.array_equal(first.log_probs, second.log_probs)


def test_adapt_equals_each_module_with_the_chosen_settings() -> None:
    model, text, valid = make(), encoded(some_ids(40, seed=2)), encoded(some_ids(100, seed=1))
    chosen = adapt(model, text, valid, "temperature")
    assert np.array_equal(chosen.log_probs, log_probs_at(model, text, [chosen.settings["temperature"]])[0])
    chosen = adapt(model, text, valid, "cache")
    assert chosen.settings["size"] == 2000
    theta, weight = chosen.settings["theta"], chosen.settings["lambda"]
    assert np.array_equal(chosen.log_probs, cached_log_probs(model, text, theta, weight))
    chosen = adapt(model, text, valid, "dynamic")
    assert (chosen.settings["rate"] in RATES, chosen.settings["decay"] in DECAYS) == (True, True)
    assert (chosen.settings["segment"], chosen.settings["epsilon"]) == (5, 2e-5)
    transformer = make("transformer")
    chosen = adapt(transformer, text, None, "stride", stride=2)
    assert chosen.settings == {"stride": 2}
    assert np.array_equal(chosen.log_probs, strided_log_probs(transformer, text, 2))
    assert adapt(transformer, text, valid, "dynamic").settings["segment"] == WINDOW


def test_dynamic_statistics_use_the_training_text_if_given() -> None:
    model, text, valid = make(), encoded(some_ids(40, seed=2)), encoded(some_ids(100, seed=1))
    plain = adapt(model, text, valid, "dynamic")
    with_training_text = adapt(model, text, valid, "dynamic", train=encoded(some_ids(300, seed=7)))
    same = adapt(model, text, valid, "dynamic", train=valid)
    assert np.array_equal(plain.log_probs, same.log_probs)
    assert not np.array_equal(plain.log_probs, with_training_text.log_probs)


def test_adaptation_requires_validation_text() -> None:
    text = encoded(some_ids(40))
    for kind in ("temperature", "cache", "dynamic"):
        with pytest.raises(UsageError, match=f"--{kind} chooses its settings on validation text"):
            adapt(make(), text, None, kind)
    with pytest.raises(UsageError, match="needs a stride"):
        adapt(make("transformer"), text, None, "stride")


@pytest.mark.parametrize("kind", ["cache", "dynamic"])
def test_adaptation_helps_on_text_unlike_the_training_text(trained: Model, kind: str) -> None:
    static = trained.evaluate(SHIFTED)
    adapted, settings = trained.evaluate_adapted(SHIFTED, SHIFTED, [kind], train=TRAIN)[kind]
    assert adapted.perplexity < 0.98 * static.perplexity
    assert adapted.bits_per_byte < static.bits_per_byte
    assert (adapted.tokens, adapted.bytes, adapted.oov) == (static.tokens, static.bytes, static.oov)
    assert settings
    assert trained.evaluate(SHIFTED).perplexity == static.perplexity  # the model is unchanged


def test_unknown_words_are_spelled_as_in_static_evaluation(trained: Model) -> None:
    text = Corpus.from_lines(["the yak sees a gnu"] * 3)
    static = trained.evaluate(text)
    adapted, _ = trained.evaluate_adapted(text, SHIFTED, ["temperature"])["temperature"]
    assert adapted.nats_of_spellings == static.nats_of_spellings > 0


def test_adaptation_is_for_neural_models_only() -> None:
    model = train_without_warnings("ngram", order=2)
    with pytest.raises(UsageError, match=r"are for neural models; this is an ngram"):
        model.evaluate_adapted(SHIFTED, SHIFTED, ["cache"])


def test_empty_texts_are_rejected(trained: Model) -> None:
    for texts in ((SHIFTED, Corpus()), (Corpus(), SHIFTED)):
        with pytest.raises(InputError, match="text is empty"):
            trained.evaluate_adapted(*texts, ["temperature"])


def test_adaptation_does_not_change_static_scores() -> None:
    model, text, valid = make(), encoded(some_ids(40, seed=2)), encoded(some_ids(100, seed=1))
    before = token_log_probs(model, text)
    for kind in ("temperature", "cache", "dynamic"):
        adapt(model, text, valid, kind)
    assert np.array_equal(token_log_probs(model, text), before)


def test_unknown_adaptation_is_rejected() -> None:
    text = encoded(some_ids(20))
    with pytest.raises(UsageError, match="there is no adaptation 'temprature'; choose one of temperature, cache"):
        adapt(make(), text, text, "temprature")  # type: ignore[arg-type]
