"""A score's figures follow from its log-probabilities."""

import math

import pytest

import chainrule
from chainrule.score import Score
from chainrule.text.corpus import Corpus


def a_score(*probabilities: float, tokens: tuple[str, ...] | None = None) -> Score:
    log_probs = tuple(math.log(p) if p else -math.inf for p in probabilities)
    names = tokens or tuple(f"w{i}" for i in range(len(log_probs)))
    return Score(text="some text", tokens=names, log_probs=log_probs, oov=0, log_prob_of_spellings=0.0)


def test_figures_worked_by_hand() -> None:
    score = a_score(1 / 2, 1 / 4, 1, 1 / 8)
    assert score.log_prob == pytest.approx(-6 * math.log(2))
    assert score.bits == pytest.approx(6)
    assert score.perplexity == pytest.approx(2**1.5)  # 64^(1/4)
    assert not score.infinite


def test_an_impossible_token() -> None:
    score = a_score(1 / 2, 0)
    assert score.infinite
    assert score.log_prob == -math.inf
    assert score.bits == score.perplexity == math.inf


def test_a_perplexity_beyond_floating_point_is_infinite_without_a_warning() -> None:
    score = Score(text="", tokens=("a",), log_probs=(-1e4,), oov=0, log_prob_of_spellings=0.0)
    assert score.perplexity == math.inf
    assert not score.infinite


def test_it_shows_itself_in_a_notebook() -> None:
    shown = a_score(1 / 2, 1 / 4, tokens=("<script>", "b"))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "3.0 bits, perplexity 2.8" in shown  # 8^(1/2)
    assert "inf bits" in a_score(1 / 2, 0)._repr_html_()


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_the_cause_is_named_as_it_is_spelled() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "a c", "a <unk>"]), order=2, smoothing="mle")
    # `a zebra` is possible, an unknown word having followed a; `quagga a` is not.
    found = model.evaluate(Corpus.from_lines(["a zebra", "a b", "quagga a"]))
    assert found.cause == "'quagga' on line 3, token 1"
