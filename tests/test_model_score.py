"""`Score`: derived quantities follow from the log-probabilities."""

import math

import pytest

import chainrule
from chainrule.model import Score
from chainrule.text.corpus import Corpus


def make_score(*probabilities: float, tokens: tuple[str, ...] | None = None) -> Score:
    log_probs = tuple(math.log(p) if p else -math.inf for p in probabilities)
    names = tokens or tuple(f"w{i}" for i in range(len(log_probs)))
    return Score(text="some text", tokens=names, log_probs=log_probs, oov=0, log_prob_of_spellings=0.0)


def test_score_figures_worked_by_hand() -> None:
    score = make_score(1 / 2, 1 / 4, 1, 1 / 8)
    assert score.log_prob == pytest.approx(-6 * math.log(2))
    assert score.bits == pytest.approx(6)
    assert score.perplexity == pytest.approx(2**1.5)  # 64^(1/4)
    assert not score.infinite


def test_certain_text_has_zero_bits_without_minus_sign() -> None:
    assert math.copysign(1, make_score(1, 1).bits) == 1
    assert "-0.0" not in make_score(1, 1)._repr_html_()


def test_score_with_an_impossible_token_is_infinite() -> None:
    score = make_score(1 / 2, 0)
    assert score.infinite
    assert score.log_prob == -math.inf
    assert score.bits == score.perplexity == math.inf


def test_spelling_cost_is_separate() -> None:
    score = Score(text="a x", tokens=("a", "<unk>"), log_probs=(-1.0, -2.0), oov=1, log_prob_of_spellings=-40.0)
    assert score.log_prob == -3
    assert score.log_prob_with_spelling == -43
    assert "62.0 bits with the spelling of unknown words" in score._repr_html_()  # 43 / ln 2
    assert make_score(1 / 2, 1 / 4).log_prob_with_spelling == make_score(1 / 2, 1 / 4).log_prob


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_gibberish_is_improbable_only_with_its_spelling() -> None:
    """An unknown word costs only p(<unk>), so any sentence of unknown words is cheap by `log_prob`."""
    lines = ["i saw a van", "i saw a car", "you saw the old house", "they saw a green van", "we saw the van"] * 3
    rare = ["a walnut", "the teapot", "an orchard", "some lanterns", "a thicket", "the harbour", "one kettle"]
    model = chainrule.train("ngram", Corpus.from_lines(lines + rare), order=2, min_count=2)
    sentence, gibberish = model.score("they saw the green car"), model.score("qwzx jjkq zzzx qqqj")
    assert gibberish.oov == 4
    assert gibberish.log_prob > sentence.log_prob
    assert gibberish.log_prob_with_spelling < sentence.log_prob_with_spelling - 20


def test_unknown_words_are_impossible_without_a_speller() -> None:
    closed = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=2, smoothing="laplace", closed=True)
    assert closed.speller is None
    assert closed.score("a zebra").log_prob_with_spelling == -math.inf
    assert closed.score("a b").log_prob_with_spelling == closed.score("a b").log_prob


def test_overflowing_perplexity_is_infinite_without_a_warning() -> None:
    score = Score(text="", tokens=("a",), log_probs=(-1e4,), oov=0, log_prob_of_spellings=0.0)
    assert score.perplexity == math.inf
    assert not score.infinite


def test_score_notebook_representation() -> None:
    html = make_score(1 / 2, 1 / 4, tokens=("<script>", "b"))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "3.0 bits, perplexity 2.8" in html  # 8^(1/2)
    assert "inf bits" in make_score(1 / 2, 0)._repr_html_()


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_infinite_cause_is_spelled_as_in_the_text() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "a c", "a <unk>"]), order=2, smoothing="mle")
    # `a zebra` is possible because an unknown word followed a; `quagga a` is not.
    evaluation = model.evaluate(Corpus.from_lines(["a zebra", "a b", "quagga a"]))
    assert evaluation.cause == "'quagga' on line 3, token 1"


def test_infinite_cause_is_shown_without_joiners() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a, b", "b a"]), order=2, smoothing="mle")
    # A comma never followed b; the second text has an unknown mark.
    assert model.evaluate(Corpus.from_lines(["b, a"])).cause == "',' on line 1, token 2"
    assert model.evaluate(Corpus.from_lines(["a! b"])).cause == "'!' on line 1, token 2"
