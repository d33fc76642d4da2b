"""The section on probability: every family, odd texts, numbers against an evaluation and against counting."""

import json
import math
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.inspection.probability import backoff_orders, compare_models, read_sample, section
from chainrule.inspection.report import Section
from chainrule.inspection.sample import Sample, take_sample
from chainrule.model import Model
from chainrule.plots import figures
from chainrule.text.corpus import Corpus

WORDS = ["the", "a", "cat", "dog", "mouse", "sees", "chases", "loves", "and", "runs"]
FAMILIES = ("rnn", "lstm", "gru", "transformer", "feedforward")


def lines(number: int = 80, seed: int = 7) -> list[str]:
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 11)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 8), p=weights / weights.sum())) for _ in range(number)]


@cache
def model(family: str = "ngram", **chosen: Any) -> Model:
    small: dict[str, Any] = {"hidden": 8, "epochs": 1, "batch_size": 8} if family in FAMILIES else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        return chainrule.train(
            family, Corpus.from_lines(lines()), valid=Corpus.from_lines(lines()[:9]), **small, **chosen
        )


def sample(of: Model, text: Sequence[str] | None = None, tokens: int = 100, name: str = "model") -> Sample:
    return take_sample(of, Corpus.from_lines(lines(40, 8) if text is None else text), name=name, tokens=tokens)


def made(*samples: Sample) -> Section:
    found = section(samples)
    assert found is not None
    json.dumps(found.data, allow_nan=False)
    assert len({figure.name for figure in found.figures}) == len(found.figures)
    assert all(figure.caption and "nan" not in figure.caption for figure in found.figures)
    assert not any("nan" in finding for finding in found.sentences)
    return found


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("family", ["ngram", *FAMILIES])
def test_bits_are_those_of_an_evaluation(family: str, context: str) -> None:
    of = model(family, context=context)
    text = lines(40, 8)
    whole = sample(of, text, 10_000)
    found = read_sample(whole).predictions
    assert_allclose(found.log_prob, token_log_probs(of.lm, whole.text), rtol=1e-5, atol=1e-6)
    # The same text broken off in the middle of a line: what comes before is not changed by it.
    cut = next(t for t in range(60, 100) if whole.ids[t - 1] != whole.text.eos)
    assert_allclose(
        read_sample(sample(of, text, cut)).predictions.log_prob, found.log_prob[:cut], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("family", ["ngram", "lstm"])
def test_tops_are_those_of_next(family: str) -> None:
    of = model(family)
    one = sample(of, ["the cat sees"])
    found = read_sample(one).predictions
    expected = of.next("the cat", top=10)
    names = of.tokenizer.tokens(found.top_ids[2].tolist())
    assert names == [name for name, _ in expected]
    assert_allclose(np.exp(found.top_log_probs[2]), [p for _, p in expected], rtol=1e-5)


def test_a_mixture_is_read_like_any_other() -> None:
    of = chainrule.mix([model(), model("lstm")], held_out=Corpus.from_lines(lines(20, 9)))
    found = made(sample(of))
    assert found["reading"].is_wide
    assert "orders" not in found.data["models"][0]
    assert found.data["models"][0]["calibration"]["expected_calibration_error"] >= 0


def test_the_section_says_and_shows_all() -> None:
    pytest.importorskip("matplotlib")
    found = made(sample(model(), name="kn"), sample(model("lstm"), name="lstm"))
    names = [figure.name for figure in found.figures]
    assert names == ["reading", "reading-2", "calibration", "confidence", "disagreement", "orders", "orders-text"]
    assert found.sentences[0].startswith("kn: its surprisal is ")
    assert "bits per token over 100 tokens" in found.sentences[0]
    assert any("% of tokens were scored by a 5-gram" in finding for finding in found.sentences)
    assert "Over 100 tokens the expected calibration error of its top predictions is " in found.sentences[1]
    errors = found.data["models"][0]["calibration"]
    shares = [100 * errors[key] for key in ("expected_calibration_error", "expected_by_chance")]
    assert f"is {shares[0]:.1f} percentage points, against {shares[1]:.1f}" in found.sentences[1]
    assert f"{shares[0]:.1f} ({shares[1]:.1f} by chance)" in found["confidence"].caption
    assert "bits per token over 100 tokens" in found.sentences[-1]
    bits = found.arrays["kn/bits"]
    assert found.data["models"][0]["bits_per_token"] == pytest.approx(bits.mean())
    assert found.data["disagreement"][0]["mean_gain_bits"] == pytest.approx(
        (found.arrays["lstm/bits"] - bits).mean()
    )


def test_confidence_and_entropy_of_a_uniform_model() -> None:
    # Four signs come equally often, and nothing is smoothed: 1/4 each, 2 bits, unsure by 2 bits.
    of = chainrule.train("ngram", Corpus.from_lines(["a b c"] * 5), order=1, smoothing="mle")
    found = made(sample(of, ["a b c", "c b a"], name="u"))
    assert_allclose(found.arrays["u/bits"], 2.0, atol=1e-6)
    assert_allclose(found.arrays["u/entropy_bits"], 2.0, atol=1e-6)
    assert_allclose(found.arrays["u/confidence"], 0.25, atol=1e-6)
    # All said 1/4. Of eight best guesses, all of them the first of equals, two came: no error.
    assert found.data["models"][0]["calibration"]["expected_calibration_error"] == pytest.approx(0.0, abs=1e-6)
    (only,) = found.data["models"][0]["calibration"]["all_tokens"]
    assert (only["said"], only["came"]) == pytest.approx((0.25, 0.25))


def test_a_score_is_not_called_a_probability() -> None:
    found = made(sample(model(smoothing="stupid-backoff"), name="sb"))
    assert "its scores are not probabilities" in found.sentences[0]
    assert "calibration" not in found.data["models"][0]
    assert not any(figure.name in ("calibration", "confidence") for figure in found.figures)
    assert "a score, not a probability" in found["reading"].caption
    both = made(sample(model(), name="kn"), sample(model(smoothing="stupid-backoff"), name="sb"))
    assert "(by score, not probability)" in both.sentences[-1]


def test_the_impossible_is_no_trouble() -> None:
    of = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=2, smoothing="mle")
    found = made(sample(of, ["a a", "b a"], name="mle"), sample(of, ["a a", "b a"], name="same"))
    assert "gives 1 of 6 tokens probability 0, the first “a”" in found.sentences[0]
    assert found.data["models"][0]["bits_per_token"] is None


def test_one_that_holds_tokens_impossible_is_not_called_better() -> None:
    # "b b" was never seen: the unsmoothed bigram gives it probability 0, and predicts everything else better.
    train, text = Corpus.from_lines(["a b", "a b c"]), ["a b", "a b b c"]
    sharp = chainrule.train("ngram", train, order=2, smoothing="mle")
    broad = chainrule.train("ngram", train, order=1, smoothing="laplace")
    found = made(sample(sharp, text, name="sharp"), sample(broad, text, name="broad"))
    said = "gives probability 0 to 1 of 8 tokens and"
    assert found.sentences[-1].startswith(
        f"broad predicts this text better than sharp: sharp {said} broad to none; over"
    )
    assert (
        f"<b><bdi>sharp</bdi></b> {said} <b><bdi>broad</bdi></b> to none; over the 7 tokens possible under both"
        in (found["disagreement"].caption)
    )


def test_pruned_n_grams_count_as_not_seen() -> None:
    text = ["a b c", "a b d", "a b d"]
    of = chainrule.train("ngram", Corpus.from_lines(text), order=3, smoothing="stupid-backoff", prune=(0, 1, 1))
    found = made(sample(of, text[:1], name="pruned"))
    said = " ".join((*found.sentences, *(figure.caption + figure.drawing for figure in found.figures)))
    assert "a pruned n-gram counts as not seen" in said
    assert "backed off: context seen, word not seen after it" in said
    assert "backed off: context not seen" in said


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_any_tokenizer_is_compared_word_by_word(tokenizer: str) -> None:
    other = model(
        tokenizer=tokenizer, order=3, **({"vocab_size": 600} if tokenizer not in ("word", "char", "byte") else {})
    )
    one, two = read_sample(sample(model(), tokens=10_000)), read_sample(sample(other, tokens=10_000))
    found = compare_models(one, two)
    assert found.unit == ("token" if tokenizer == "word" else "word")
    assert list(found.names) == [word for line in lines(40, 8) for word in (*line.split(), "</s>")]
    # Whatever the tokens, the bits of all of them are the bits of the text.
    assert found.second_bits.sum() == pytest.approx(two.predictions.bits.sum())
    made(one.sample, two.sample)


def test_an_unknown_word_costs_its_spelling() -> None:
    of = model(vocab_size=5)
    assert of.speller is not None
    line = " ".join(WORDS)
    one, two = read_sample(sample(model(), [line], name="all")), read_sample(sample(of, [line], name="five"))
    found = compare_models(one, two)
    words = [word for word in WORDS if word not in of.tokenizer.vocab]
    assert len(words) == 5
    unknown = np.array([word in words for word in (*WORDS, "</s>")])
    spelt = -of.speller.log_probs(words) / math.log(2)
    assert_allclose(found.second_bits[unknown], two.predictions.bits[unknown] + spelt)
    assert_allclose(found.second_bits[~unknown], two.predictions.bits[~unknown])


ODD = (["a"], [""], ["שלום עולם", "cat"], ["<b>&\x01"], ["the cat", "", "", "a"])


@pytest.mark.parametrize("tokenizer", ["word", "byte"])
@pytest.mark.parametrize("number", range(len(ODD)))
def test_odd_texts_are_read(number: int, tokenizer: str) -> None:
    """Each by both tokenizers and in both contexts, which change places from text to text."""
    text, context = ODD[number], ("line", "stream")[(number + (tokenizer == "byte")) % 2]
    of = model(context=context, tokenizer=tokenizer, order=2)
    for tokens in (1, 2, 50):
        found = made(sample(of, text, tokens), sample(model(order=1), text, tokens, name="one"))
        assert "<b>&" not in found["reading"].drawing


def test_orders_are_those_of_the_text() -> None:
    # "a b" and "a c" were seen; in "a b" all bigrams are known, in "b c" none but "c </s>".
    of = chainrule.train("ngram", Corpus.from_lines(["a b", "a c"]), order=2, smoothing="witten-bell")
    orders = backoff_orders(sample(of, ["a b", "b c"]))
    assert orders.matched_order.tolist() == [2, 2, 2, 1, 1, 2]
    assert_allclose(orders.bits, read_sample(sample(of, ["a b", "b c"])).predictions.bits, atol=1e-12)


def test_without_matplotlib_the_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with figures.allow_missing_matplotlib():
        found = section([sample(model(), name="kn"), sample(model(order=2), name="bigram")])
    assert found is not None
    assert "pip install" in found["calibration"].drawing
    assert "pip install" not in found["reading"].drawing
    assert found.data["models"][0]["calibration"]["all_tokens"]


def test_no_model_has_nothing_to_say() -> None:
    assert section([]) is None


def test_progress_is_told() -> None:
    told: list[int] = []
    section([sample(model())], progress=lambda what, done, total: told.append(done))
    assert told[-1] == 100


@pytest.mark.data
def test_a_good_model_of_ptb_is_calibrated(data_folder: Path) -> None:
    of = chainrule.train("ngram", data_folder / "ptb" / "ptb.train.txt", order=3)
    found = made(take_sample(of, Corpus.of(data_folder / "ptb" / "ptb.test.txt"), name="kn3", tokens=1000))
    assert found.data["models"][0]["calibration"]["expected_calibration_error"] < 0.1
    answered = found.data["models"][0]["orders"]
    assert [each["order"] for each in answered] == [3, 2, 1]
    assert answered[0]["bits"] < answered[1]["bits"] < answered[2]["bits"]  # what is known longer is surer
    assert sum(len(figure.drawing) for figure in found.figures) < 400_000
