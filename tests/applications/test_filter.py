"""Line costs by hand, and selection of lines compared with sorting."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule
from chainrule.applications.filter import (
    Keep,
    LineCost,
    assign_buckets,
    keep_nearest,
    measure_distances,
    reread_batches,
    select_nearest,
)
from chainrule.errors import InputError, UsageError
from chainrule.model import Model
from chainrule.text.corpus import Corpus

pytestmark = pytest.mark.native


@pytest.fixture
def laplace(toy: Path) -> Model:
    return chainrule.train("ngram", toy, order=3, smoothing="laplace", closed=True)


@pytest.fixture
def mle(toy: Path) -> Model:
    return chainrule.train("ngram", toy, order=3, smoothing="mle", closed=True)


def test_costs_by_hand(laplace: Model, mle: Model) -> None:
    # The worked example: p(i love mice </s>) = 1/630 with add-one, 0 with maximum likelihood;
    # p(i love cats </s>) = 3/10 · 3/9 · 2/9 · 2/8 = 1/180 and 1/3.
    lines = ["i love mice", "i love cats", "i love zebras"]
    costs = LineCost.of(laplace, by="perplexity").costs(lines)
    assert costs == pytest.approx([630**0.25, 180**0.25, math.inf], rel=1e-6)
    costs = LineCost.of(laplace).costs(lines)  # bits per byte; twelve bytes a line with its break
    assert costs == pytest.approx([math.log2(630) / 12, math.log2(180) / 12, math.inf], rel=1e-6)
    costs = LineCost.of(laplace, mle).costs(lines)
    assert costs == pytest.approx([-math.inf, (math.log2(180) - math.log2(3)) / 4, math.inf], rel=1e-6)
    costs = LineCost.of(mle, laplace).costs(lines)  # impossible for both, or for the reference alone: far
    assert costs == pytest.approx([math.inf, (math.log2(3) - math.log2(180)) / 4, math.inf], rel=1e-6)


def test_overflowing_perplexities_are_ranked(toy: Path) -> None:
    model = chainrule.train("ngram", toy, order=2, smoothing="witten-bell")
    lines = ["q" * 3000, "q" * 300, "i love cats", "q" * 400]
    judge = LineCost.of(model, by="perplexity")
    assert np.isfinite(judge.costs(lines)).all()
    assert list(keep_nearest(judge, Corpus.from_lines(lines), "2")) == ["q" * 300, "i love cats"]
    assert list(keep_nearest(judge, Corpus.from_lines(lines), "3")) == [lines[1], lines[2], lines[3]]


def test_words_are_counted_alike_whatever_the_tokens(toy: Path) -> None:
    model = chainrule.train("ngram", toy, tokenizer="char", order=2, smoothing="witten-bell")
    line = "i love cats"
    nats = -model.score(line).log_prob
    assert LineCost.of(model, by="perplexity").costs([line]) == pytest.approx([math.exp(nats / 4)], rel=1e-6)
    result = model.evaluate(Corpus.from_lines([line, "unknown: q"]))
    costs = LineCost.of(model, by="bits-per-byte").costs([line, "unknown: q"])
    assert costs @ [12, 11] == pytest.approx(result.bits_per_byte * 23, rel=1e-6)


def test_unknown_words_do_not_lower_the_cost(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the <unk> of the <unk>\nthe <unk> <unk> <unk>\na <unk> of <unk> cats\n" * 5)
    model = chainrule.train("ngram", text, order=2, smoothing="witten-bell")
    assert -model.score("qwertz yxcvb").log_prob < -model.score("a cats").log_prob  # p(<unk>) alone
    for by in ("perplexity", "bits-per-byte"):
        known, unknown = LineCost.of(model, by=by).costs(["a cats", "qwertz yxcvb"])
        assert known < unknown


def test_repetition_gains_from_perplexity_more_than_from_bits_per_byte() -> None:
    # Order 1, maximum likelihood: of 20 tokens a is 8, wonderful 8 and </s> 4; both lines are as probable. Three
    # tokens each, but 4 bytes (2 words of a letter) against 20.
    model = chainrule.train("ngram", Corpus.from_lines(["a a wonderful wonderful"] * 4), order=1, smoothing="mle")
    lines = ["a a", "wonderful wonderful"]
    assert LineCost.of(model, by="perplexity").costs(lines) == pytest.approx([(0.4 * 0.4 * 0.2) ** (-1 / 3)] * 2)
    bits = -math.log2(0.4 * 0.4 * 0.2)
    assert LineCost.of(model).costs(lines) == pytest.approx([bits / 4, bits / 20])


@pytest.mark.data
def test_order_of_sentences_on_the_penn_treebank(data_folder: Path) -> None:
    model = chainrule.train("ngram", data_folder / "ptb" / "ptb.train.txt", order=5)
    ordinary = "the company said it expects to report a profit for the year"
    kitten, repetition, gibberish = "the kitten sat on the table", "the the the the of of of", "qwzx jjkq of zzz"
    lines = [gibberish, kitten, ordinary]
    for by in ("bits-per-byte", "perplexity"):
        costs = LineCost.of(model, by=by).costs(lines)
        assert [lines[i] for i in np.argsort(costs)] == [ordinary, kitten, gibberish]
    # About a tie in bits per byte, as docs/filter.md says; by perplexity the repetition is far ahead.
    near, far = LineCost.of(model).costs([repetition, kitten])
    assert near == pytest.approx(far, rel=0.05)
    # A unigram model of the same text finds frequent words as probable in any order.
    background = chainrule.train("ngram", data_folder / "ptb" / "ptb.train.txt", order=1, smoothing="witten-bell")
    costs = LineCost.of(model, background).costs([ordinary, kitten, repetition])
    assert costs[0] < costs[1] < 0 < costs[2]


def test_parse_keep() -> None:
    assert Keep.parse("20%") == Keep.parse("0.2") == Keep.parse(" 2e-1 ") == Keep(share=0.2)
    assert Keep.parse("100%").number(7) == Keep.parse("1.0").number(7) == 7
    assert Keep.parse("1") == Keep(lines=1)
    assert [Keep.parse("0.25").number(total) for total in (0, 1, 2, 10, 11)] == [0, 1, 1, 2, 3]
    assert [Keep.parse("5").number(total) for total in (0, 4, 6)] == [0, 4, 5]
    for wrong in ("0", "0%", "101%", "1.5", "-3", "nan", "inf", "half", "", "%", "٣"):
        with pytest.raises(UsageError, match="keep is"):
            Keep.parse(wrong)


def test_invalid_measures_are_rejected(laplace: Model) -> None:
    with pytest.raises(UsageError, match="choose one of perplexity"):
        LineCost.of(laplace, by="length")
    with pytest.raises(UsageError, match="two models"):
        LineCost.of(laplace, by="difference")
    with pytest.raises(UsageError, match="two models"):
        LineCost.of(laplace, laplace, by="perplexity")


costs_with_ties = st.lists(st.sampled_from([1.0, 2.0, 2.5, math.inf, -math.inf]), max_size=30)


@given(costs_with_ties, st.integers(0, 35))
def test_the_nearest_are_the_first_of_a_stable_sort(costs: list[float], number: int) -> None:
    order = sorted(range(len(costs)), key=lambda i: (costs[i], i))
    assert np.flatnonzero(select_nearest(np.array(costs), number)).tolist() == sorted(order[:number])


@given(costs_with_ties, st.integers(1, 5))
def test_buckets_are_even_and_in_order(costs: list[float], number: int) -> None:
    parts = assign_buckets(np.array(costs), number)
    sizes = np.bincount(parts, minlength=number) if costs else np.zeros(number)
    assert len(sizes) == number
    assert sizes.max() - sizes.min() <= 1
    ranked = sorted(zip(costs, range(len(costs)), parts.tolist(), strict=True))
    assert [part for _, _, part in ranked] == sorted(parts.tolist())


def test_lines_are_kept_in_their_order(laplace: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.text.corpus.CHARACTERS_AT_ONCE", 5)
    corpus = Corpus.from_lines(["mice mice mice", "i love cats", "cats love i", "i love dogs"])
    assert list(keep_nearest(LineCost.of(laplace), corpus, "50%")) == ["i love cats", "i love dogs"]
    assert list(keep_nearest(LineCost.of(laplace), corpus, "9")) == list(corpus)
    assert list(keep_nearest(LineCost.of(laplace), Corpus.from_lines([]), "50%")) == []
    progress_calls: list[tuple[str, int]] = []
    measure_distances(LineCost.of(laplace), corpus, lambda what, done, total: progress_calls.append((what, done)))
    assert progress_calls == [
        ("scoring", 15),
        ("scoring", 27),
        ("scoring", 39),
        ("scoring", 51),
    ]  # LF behind each line


def test_a_text_that_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one\ntwo\n")
    corpus = Corpus.of(path)
    assert [lines for _, lines in reread_batches(corpus, 2)] == [["one", "two"]]
    for total in (1, 3):
        with pytest.raises(InputError, match="changed while it was being read"):
            list(reread_batches(corpus, total))


def test_the_difference_finds_the_domain(tmp_path: Path) -> None:
    """Moore & Lewis: a frequent line that both models like is not near; a line of the domain is, though rarer."""
    news, web = tmp_path / "news.txt", tmp_path / "web.txt"
    news.write_text("shares rose in tokyo\nshares fell in london\nclick here now\n" * 4)
    web.write_text("click here now\nclick here to win\nshares rose in tokyo\n" * 4)
    reference, background = (
        chainrule.train("ngram", path, order=2, smoothing="witten-bell") for path in (news, web)
    )
    corpus = Corpus.from_lines(["click here now", "shares fell in tokyo"])
    assert list(keep_nearest(LineCost.of(reference), corpus, "1")) == ["click here now"]
    assert list(keep_nearest(LineCost.of(reference, background), corpus, "1")) == ["shares fell in tokyo"]
