import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import ChainruleWarning
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.ngram.config import SMOOTHINGS, Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import estimate
from ngram.reference import count
from ngram.specification import Gram, Specification, contexts

UNK, A, B, C, BOS, EOS = range(6)
OPEN = Vocabulary(size=6, bos=BOS, eos=EOS, unk=UNK)
CLOSED = Vocabulary(size=6, bos=BOS, eos=EOS, unk=UNK, closed=True)
METHODS = [
    s for s in SMOOTHINGS if s != "jelinek-mercer"
]  # jelinek-mercer needs held-out text: test_jelinek_mercer.py


def flat(lines: list[list[int]]) -> Ids:
    return np.array([i for line in lines for i in line], dtype=np.int64)


def model_of(lines: list[list[int]], config: Config, vocabulary: Vocabulary = OPEN) -> NgramModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        counts = count(flat(lines), config.order, vocabulary)
        return NgramModel.from_tables(estimate(counts, config), vocabulary, is_normalized=config.is_normalized)


def distribution(lm: NgramModel, h: Gram) -> Floats:
    """p(· | h); −1 in h stands for <s>."""
    state = lm.start(1)
    for w in h:
        log_p, state = lm.step(state, np.array([BOS if w == -1 else w]))
    return np.asarray(np.exp(log_p[0]))


LINES = st.lists(st.lists(st.sampled_from([UNK, A, B, C]), max_size=6), min_size=1, max_size=12)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(lines=LINES, order=st.integers(1, 4), closed=st.booleans())
def test_smoothed_tables_equal_the_formulas(method: str, lines: list[list[int]], order: int, closed: bool) -> None:
    if closed:
        lines = [[w for w in line if w != UNK] for line in lines]
    ended = [[*line, EOS] for line in lines]
    vocabulary = CLOSED if closed else OPEN
    words = [int(w) for w in np.flatnonzero(vocabulary.predictable)]
    config = Config(order=order, smoothing=method, k=0.3)
    lm = model_of(ended, config, vocabulary)
    spec = Specification(ended, order, method, words, k=config.k, backoff=config.backoff)
    for h in contexts(lines):
        expected = [spec.p(h, w) if w in words else 0.0 for w in range(6)]
        np.testing.assert_allclose(distribution(lm, h), expected, atol=2e-6, err_msg=f"after {h}")


# The worked example of the syllabus: i love cats / i love dogs / cats chase mice.
I_, LOVE, CATS, DOGS, CHASE, MICE = range(1, 7)
TOY = [[I_, LOVE, CATS, 8], [I_, LOVE, DOGS, 8], [CATS, CHASE, MICE, 8]]
TOY_WORDS = Vocabulary(size=9, bos=7, eos=8, unk=0)
TOY_CLOSED = Vocabulary(size=9, bos=7, eos=8, unk=0, closed=True)


def probability(lm: NgramModel, sentence: list[int]) -> float:
    log_p, state = lm.step(lm.start(1), np.array([7]))
    total = 0.0
    for w in [*sentence, 8]:
        total += log_p[0, w]
        log_p, state = lm.step(state, np.array([w]))
    return float(np.exp(total))


def test_maximum_likelihood_worked_by_hand() -> None:
    lm = model_of(TOY, Config(order=3, smoothing="mle"), TOY_WORDS)
    assert probability(lm, [I_, LOVE, CATS]) == pytest.approx(2 / 3 * 1 * 1 / 2 * 1)
    assert probability(lm, [I_, LOVE, MICE]) == 0


def test_add_one_worked_by_hand() -> None:
    lm = model_of(TOY, Config(order=3, smoothing="laplace"), TOY_CLOSED)
    # V = 7: i love cats dogs chase mice </s>
    assert probability(lm, [I_, LOVE, MICE]) == pytest.approx(3 / 10 * 3 / 9 * 1 / 9 * 1 / 7)
    lm = model_of(TOY, Config(order=3, smoothing="laplace"), TOY_WORDS)
    # V = 8 with <unk>
    assert probability(lm, [I_, LOVE, MICE]) == pytest.approx(9 / 8800)


def test_witten_bell_worked_by_hand() -> None:
    lm = model_of(TOY, Config(order=2, smoothing="witten-bell"), TOY_WORDS)
    # Unigrams: 12 tokens of 7 types; p(love) = 2/19 + 7/19 · 1/8 = 23/152.
    # After i: c = 2, one type: p(love | i) = 2/3 + 1/3 · 23/152.
    assert np.exp(lm.step(lm.start(1), np.array([I_]))[0][0, LOVE]) == pytest.approx(2 / 3 + 23 / 456)


def test_kneser_ney_worked_by_hand() -> None:
    lm = model_of(TOY, Config(order=2, smoothing="kneser-ney", discount=0.5), TOY_WORDS)
    # Continuation counts: i 1, love 1, cats 2, dogs 1, chase 1, mice 1, </s> 3: 10 in all. 7 types are discounted
    # by 1/2 each: p(cats) = (2 − 1/2)/10 + (7/2)/10 · 1/8 = 0.19375. After love, cats and dogs once each: p(cats |
    # love) = (1 − 1/2)/2 + (2 · 1/2)/2 · 0.19375.
    log_p, _ = lm.step(lm.start(1), np.array([LOVE]))
    assert np.exp(log_p[0, CATS]) == pytest.approx(0.25 + 0.5 * 0.19375)


def test_cut_offs_drop_rare_ngrams_and_keep_the_sum() -> None:
    lm = model_of(TOY, Config(order=3, smoothing="kneser-ney", prune=(0, 0, 1)), TOY_WORDS)
    # Count 2: (<s> i love). All other trigrams have count 1.
    assert [len(level) for level in lm.tables.levels] == [9, 10, 1]
    log_p, _ = lm.step(lm.start(1), np.array([7]))
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-6)
    whole = model_of(TOY, Config(order=3, smoothing="kneser-ney"), TOY_WORDS)
    assert probability(lm, [I_, LOVE, CATS]) < probability(whole, [I_, LOVE, CATS])


@settings(max_examples=30, deadline=None)
@given(lines=LINES, method=st.sampled_from(METHODS))
def test_pruned_models_sum_to_one(lines: list[list[int]], method: str) -> None:
    ended = [[*line, EOS] for line in lines]
    lm = model_of(ended, Config(order=3, smoothing=method, prune=(0, 1, 2)))
    for h in contexts(lines):
        total = distribution(lm, h).sum()
        assert total == pytest.approx(1, abs=1e-6) or method == "stupid-backoff"


def test_stupid_backoff_is_not_normalized() -> None:
    lm = model_of(TOY, Config(order=2, smoothing="stupid-backoff"), TOY_WORDS)
    p = distribution_toy(lm, LOVE)
    assert p[CATS] == pytest.approx(1 / 2)
    assert p[MICE] == pytest.approx(0.4 / 12)
    assert p.sum() > 1  # 1 + 0.4 · 9/12


def distribution_toy(lm: NgramModel, word: int) -> Floats:
    return np.asarray(np.exp(lm.step(lm.start(1), np.array([word]))[0][0]))
