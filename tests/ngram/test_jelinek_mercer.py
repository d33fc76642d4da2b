import numpy as np
import pytest

from chainrule.lm import Batch, Floats, Ids, Vocabulary
from chainrule.ngram import smoothing
from chainrule.ngram.config import Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Counts, estimate
from ngram.reference import count

WORDS = Vocabulary(size=6, bos=4, eos=5, unk=0)
RNG = np.random.default_rng(11)


def text(lines: int) -> Ids:
    """A small Markov chain: w is mostly followed by w + 1."""
    ids: list[int] = []
    for _ in range(lines):
        w = int(RNG.integers(1, 4))
        for _ in range(int(RNG.integers(1, 7))):
            ids.append(w)
            w = w % 3 + 1 if RNG.random() < 0.8 else int(RNG.integers(1, 4))
        ids.append(WORDS.eos)
    return np.array(ids)


TRAIN, HELD_OUT = text(40), text(40)


def log_likelihood(counts: Counts, weights: Floats, b: bool) -> float:
    config = Config(order=counts.order, smoothing="jelinek-mercer", buckets=b)
    lm = NgramModel.from_tables(estimate(counts, config, smoothing.expand_lambdas(counts, weights, b)), WORDS)
    inputs = np.concatenate([[WORDS.bos], HELD_OUT[:-1]])[None]
    scores, _ = lm.score(Batch(inputs, HELD_OUT[None], np.ones(inputs.shape, bool)), lm.start(1))
    return float(scores.sum())


@pytest.mark.parametrize("is_bucketed", [False, True])
def test_jelinek_mercer_weights_maximise_held_out_likelihood(is_bucketed: bool) -> None:
    counts = count(TRAIN, 2, WORDS)
    weights = smoothing.estimate_lambdas(counts, HELD_OUT, "line", is_bucketed, iterations=500)
    best = log_likelihood(counts, weights, is_bucketed)
    for place in zip(*np.nonzero(weights > -1), strict=True):
        for step in (-0.05, 0.05):
            perturbed = weights.copy()
            perturbed[place] = np.clip(perturbed[place] + step, 0, 1)
            assert log_likelihood(counts, perturbed, is_bucketed) <= best + 0.02  # tolerance: uncertainty of each λ


def test_jelinek_mercer_weight_worked_by_hand() -> None:
    # Train: one line "1 1 1 2". Unigrams: 1 3/5, 2 1/5, </s> 1/5. Held out: "1 2", so 1, 2, </s>; V = 5.
    # λ maximises log(.6λ + .2(1−λ)) + 2 log(.2): increasing in λ, so λ = 1.
    counts = count(np.array([1, 1, 1, 2, 5]), 1, WORDS)
    weights = smoothing.estimate_lambdas(counts, np.array([1, 2, 5]), "line", False, iterations=5000)
    assert weights[0, 0] == pytest.approx(1, abs=0.03)
    # Held out: "3", unseen: log((1−λ)/5) + log(.2): λ = 0.
    weights = smoothing.estimate_lambdas(counts, np.array([3, 5]), "line", False, iterations=5000)
    assert weights[0, 0] == pytest.approx(0, abs=0.03)


def test_jelinek_mercer_buckets_are_powers_of_two() -> None:
    totals = np.array([0, 1, 2, 3, 4, 7, 8, 1e9])
    assert smoothing._bucket(totals, True).tolist() == [0, 0, 1, 1, 2, 2, 3, 23]


def test_jelinek_mercer_buckets_improve_held_out_likelihood() -> None:
    counts = count(TRAIN, 3, WORDS)
    likelihoods = [
        log_likelihood(counts, smoothing.estimate_lambdas(counts, HELD_OUT, "line", b, iterations=300), b)
        for b in (False, True)
    ]
    assert likelihoods[1] >= likelihoods[0] - 1e-6


def test_jelinek_mercer_leaves_no_word_impossible() -> None:
    # 1 is always followed by 2, in training and held out: λ approaches 1 but must stay below it.
    ids = np.array([1, 2, 5] * 50)
    counts = count(ids, 2, WORDS)
    for is_bucketed in (False, True):
        weights = smoothing.estimate_lambdas(counts, ids, "line", is_bucketed)
        assert 0 < weights.min() <= weights.max() < 1
        config = Config(order=2, smoothing="jelinek-mercer")
        lm = NgramModel.from_tables(
            estimate(counts, config, smoothing.expand_lambdas(counts, weights, is_bucketed)), WORDS
        )
        log_p, _ = lm.step(lm.start(1), np.array([1]))
        assert np.isfinite(log_p[0, WORDS.predictable]).all()
