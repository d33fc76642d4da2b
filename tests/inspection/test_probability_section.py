"""Probability section: every family, unusual texts, numbers against evaluation and counting."""

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
from chainrule.inspection.text_excerpt import Sample, take_sample
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


def probability_section(*samples: Sample) -> Section:
    result = section(samples)
    assert result is not None
    json.dumps(result.data, allow_nan=False)
    assert len({figure.name for figure in result.figures}) == len(result.figures)
    assert all(figure.caption and "nan" not in figure.caption for figure in result.figures)
    assert not any("nan" in finding for finding in result.sentences)
    return result


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("family", ["ngram", *FAMILIES])
def test_section_bits_equal_an_evaluation(family: str, context: str) -> None:
    of = model(family, context=context)
    text = lines(40, 8)
    whole = sample(of, text, 10_000)
    predictions = read_sample(whole).predictions
    assert_allclose(predictions.log_prob, token_log_probs(of.lm, whole.text), rtol=1e-5, atol=1e-6)
    # The same text cut off mid-line: earlier predictions are unchanged.
    cut = next(t for t in range(60, 100) if whole.ids[t - 1] != whole.text.eos)
    assert_allclose(
        read_sample(sample(of, text, cut)).predictions.log_prob, predictions.log_prob[:cut], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("family", ["ngram", "lstm"])
def test_top_predictions_equal_next(family: str) -> None:
    of = model(family)
    one = sample(of, ["the cat sees"])
    predictions = read_sample(one).predictions
    expected = of.next("the cat", top=10)
    names = of.tokenizer.tokens(predictions.top_ids[2].tolist())
    assert names == [name for name, _ in expected]
    assert_allclose(np.exp(predictions.top_log_probs[2]), [p for _, p in expected], rtol=1e-5)


def test_probability_section_of_a_mixture() -> None:
    of = chainrule.mix([model(), model("lstm")], held_out=Corpus.from_lines(lines(20, 9)))
    section_ = probability_section(sample(of))
    assert section_["reading"].is_wide
    assert "orders" not in section_.data["models"][0]
    assert section_.data["models"][0]["calibration"]["expected_calibration_error"] >= 0


def test_probability_section_has_all_findings_and_figures() -> None:
    pytest.importorskip("matplotlib")
    section_ = probability_section(sample(model(), name="kn"), sample(model("lstm"), name="lstm"))
    names = [figure.name for figure in section_.figures]
    assert names == ["reading", "reading-2", "calibration", "confidence", "disagreement", "orders", "orders-text"]
    assert section_.sentences[0].startswith("kn: its surprisal is ")
    assert "bits per token over 100 tokens" in section_.sentences[0]
    assert any("% of tokens were scored by a 5-gram" in finding for finding in section_.sentences)
    assert "Over 100 tokens the expected calibration error of its top predictions is " in section_.sentences[1]
    errors = section_.data["models"][0]["calibration"]
    shares = [100 * errors[key] for key in ("expected_calibration_error", "expected_by_chance")]
    assert f"is {shares[0]:.1f} percentage points, against {shares[1]:.1f}" in section_.sentences[1]
    assert f"{shares[0]:.1f} ({shares[1]:.1f} by chance)" in section_["confidence"].caption
    assert "bits per token over 100 tokens" in section_.sentences[-1]
    bits = section_.arrays["kn/bits"]
    assert section_.data["models"][0]["bits_per_token"] == pytest.approx(bits.mean())
    assert section_.data["disagreement"][0]["mean_gain_bits"] == pytest.approx(
        (section_.arrays["lstm/bits"] - bits).mean()
    )


def test_uniform_model_has_known_confidence_and_entropy() -> None:
    # Four equally frequent symbols without smoothing: 1/4 each, 2 bits, entropy 2 bits.
    of = chainrule.train("ngram", Corpus.from_lines(["a b c"] * 5), order=1, smoothing="mle")
    section_ = probability_section(sample(of, ["a b c", "c b a"], name="u"))
    assert_allclose(section_.arrays["u/bits"], 2.0, atol=1e-6)
    assert_allclose(section_.arrays["u/entropy_bits"], 2.0, atol=1e-6)
    assert_allclose(section_.arrays["u/confidence"], 0.25, atol=1e-6)
    # All predicted 1/4. Of eight top predictions, all of them the first of a tie, two were correct: no error.
    assert section_.data["models"][0]["calibration"]["expected_calibration_error"] == pytest.approx(0.0, abs=1e-6)
    (only,) = section_.data["models"][0]["calibration"]["all_tokens"]
    assert (only["said"], only["came"]) == pytest.approx((0.25, 0.25))


def test_unnormalised_scores_are_not_called_probabilities() -> None:
    section_ = probability_section(sample(model(smoothing="stupid-backoff"), name="sb"))
    assert "its scores are not probabilities" in section_.sentences[0]
    assert "calibration" not in section_.data["models"][0]
    assert not any(figure.name in ("calibration", "confidence") for figure in section_.figures)
    assert "a score, not a probability" in section_["reading"].caption
    both = probability_section(sample(model(), name="kn"), sample(model(smoothing="stupid-backoff"), name="sb"))
    assert "(by score, not probability)" in both.sentences[-1]


def test_probability_section_with_impossible_tokens() -> None:
    of = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=2, smoothing="mle")
    section_ = probability_section(sample(of, ["a a", "b a"], name="mle"), sample(of, ["a a", "b a"], name="same"))
    assert "gives 1 of 6 tokens probability 0, the first “a”" in section_.sentences[0]
    assert section_.data["models"][0]["bits_per_token"] is None


def test_model_with_impossible_tokens_is_not_called_better() -> None:
    # "b b" is unseen: the unsmoothed bigram gives it probability 0 and predicts everything else better.
    train, text = Corpus.from_lines(["a b", "a b c"]), ["a b", "a b b c"]
    sharp = chainrule.train("ngram", train, order=2, smoothing="mle")
    broad = chainrule.train("ngram", train, order=1, smoothing="laplace")
    section_ = probability_section(sample(sharp, text, name="sharp"), sample(broad, text, name="broad"))
    message = "gives probability 0 to 1 of 8 tokens and"
    assert section_.sentences[-1].startswith(
        f"broad predicts this text better than sharp: sharp {message} broad to none; over"
    )
    assert (
        f"<b><bdi>sharp</bdi></b> {message} <b><bdi>broad</bdi></b> to none; over the 7 tokens possible under both"
        in (section_["disagreement"].caption)
    )


def test_pruned_ngrams_are_explained_as_not_seen() -> None:
    text = ["a b c", "a b d", "a b d"]
    of = chainrule.train("ngram", Corpus.from_lines(text), order=3, smoothing="stupid-backoff", prune=(0, 1, 1))
    section_ = probability_section(sample(of, text[:1], name="pruned"))
    text_of_section = " ".join(
        (*section_.sentences, *(figure.caption + figure.drawing for figure in section_.figures))
    )
    assert "a pruned n-gram counts as not seen" in text_of_section
    assert "backed off: context seen, word not seen after it" in text_of_section
    assert "backed off: context not seen" in text_of_section


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_models_of_any_tokenizer_are_compared_by_word(tokenizer: str) -> None:
    other = model(
        tokenizer=tokenizer, order=3, **({"vocab_size": 600} if tokenizer not in ("word", "char", "byte") else {})
    )
    one, two = read_sample(sample(model(), tokens=10_000)), read_sample(sample(other, tokens=10_000))
    comparison = compare_models(one, two)
    assert comparison.unit == ("token" if tokenizer == "word" else "word")
    assert list(comparison.names) == [word for line in lines(40, 8) for word in (*line.split(), "</s>")]
    # Whatever the tokens, their bits sum to the bits of the text.
    assert comparison.second_bits.sum() == pytest.approx(two.predictions.bits.sum())
    probability_section(one.sample, two.sample)


def test_unknown_word_includes_its_spelling_cost() -> None:
    of = model(vocab_size=5)
    assert of.speller is not None
    line = " ".join(WORDS)
    one, two = read_sample(sample(model(), [line], name="all")), read_sample(sample(of, [line], name="five"))
    comparison = compare_models(one, two)
    words = [word for word in WORDS if word not in of.tokenizer.vocab]
    assert len(words) == 5
    unknown = np.array([word in words for word in (*WORDS, "</s>")])
    spelt = -of.speller.log_probs(words) / math.log(2)
    assert_allclose(comparison.second_bits[unknown], two.predictions.bits[unknown] + spelt)
    assert_allclose(comparison.second_bits[~unknown], two.predictions.bits[~unknown])


ODD = (["a"], [""], ["שלום עולם", "cat"], ["<b>&\x01"], ["the cat", "", "", "a"])


@pytest.mark.parametrize("tokenizer", ["word", "byte"])
@pytest.mark.parametrize("number", range(len(ODD)))
def test_probability_section_of_unusual_texts(number: int, tokenizer: str) -> None:
    """Each with both tokenizers and contexts, alternating from text to text."""
    text, context = ODD[number], ("line", "stream")[(number + (tokenizer == "byte")) % 2]
    of = model(context=context, tokenizer=tokenizer, order=2)
    for tokens in (1, 2, 50):
        section_ = probability_section(sample(of, text, tokens), sample(model(order=1), text, tokens, name="one"))
        assert "<b>&" not in section_["reading"].drawing


def test_backoff_orders_of_a_text() -> None:
    # "a b" and "a c" were seen; in "a b" all bigrams are known, in "b c" only "c </s>".
    of = chainrule.train("ngram", Corpus.from_lines(["a b", "a c"]), order=2, smoothing="witten-bell")
    orders = backoff_orders(sample(of, ["a b", "b c"]))
    assert orders.matched_order.tolist() == [2, 2, 2, 1, 1, 2]
    assert_allclose(orders.bits, read_sample(sample(of, ["a b", "b c"])).predictions.bits, atol=1e-12)


def test_probability_numbers_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with figures.allow_missing_matplotlib():
        result = section([sample(model(), name="kn"), sample(model(order=2), name="bigram")])
    assert result is not None
    assert "pip install" in result["calibration"].drawing
    assert "pip install" not in result["reading"].drawing
    assert result.data["models"][0]["calibration"]["all_tokens"]


def test_probability_section_without_models() -> None:
    assert section([]) is None


def test_probability_section_reports_progress() -> None:
    calls: list[int] = []
    section([sample(model())], progress=lambda what, done, total: calls.append(done))
    assert calls[-1] == 100


@pytest.mark.data
def test_ptb_trigram_model_is_calibrated(data_folder: Path) -> None:
    of = chainrule.train("ngram", data_folder / "ptb" / "ptb.train.txt", order=3)
    section_ = probability_section(
        take_sample(of, Corpus.of(data_folder / "ptb" / "ptb.test.txt"), name="kn3", tokens=1000)
    )
    assert section_.data["models"][0]["calibration"]["expected_calibration_error"] < 0.1
    answered = section_.data["models"][0]["orders"]
    assert [item["order"] for item in answered] == [3, 2, 1]
    assert answered[0]["bits"] < answered[1]["bits"] < answered[2]["bits"]  # longer matches are more certain
    assert sum(len(figure.drawing) for figure in section_.figures) < 400_000
