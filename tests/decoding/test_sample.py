"""Samples follow the model's distribution and are independent of each other."""

import itertools

import numpy as np
import pytest

from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.sample import draw_tokens, sample, spawn_generators
from chainrule.decoding.settings import Decoding
from chainrule.lm import Batch, Vocabulary
from decoding.toy import Markov, Script, Trigram, log, random_markov


def texts(lm: Markov, settings: Decoding, num: int = 1, ids: tuple[int, ...] = ()) -> list[list[int]]:
    """The ids of each sample."""
    out: list[list[int]] = [[] for _ in range(num)]
    for drawn in sample(lm, Prompt(ids, lm.vocabulary), settings, num=num):
        out[drawn.sample].append(drawn.id)
    return out


def test_draw_inverts_the_cumulative_distribution() -> None:
    # cumulative (0, .5, .5, .8, 1): u < .5 gives 1, u < .8 gives 3, else 4; 0 and 2 never
    log_p = log((0, 0.5, 0, 0.3, 0.2))
    for seed in range(50):
        u = np.random.default_rng(seed).random()
        expected = 1 if u < 0.5 else 3 if u < 0.8 else 4
        assert draw_tokens(log_p, [np.random.default_rng(seed)]).tolist() == [expected]


class Constant(np.random.Generator):
    """A generator that always returns one number."""

    def __init__(self, u: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.u = u

    def random(self, *args: object, **kwargs: object) -> float:  # type: ignore[override]
        return self.u


def test_extreme_random_numbers_draw_possible_tokens() -> None:
    # a row that sums to one half is normalised
    log_p = log((0, 0.25, 0.25, 0))
    assert draw_tokens(log_p, [Constant(0.0)]).tolist() == [1]
    assert draw_tokens(log_p, [Constant(0.49)]).tolist() == [1]
    assert draw_tokens(log_p, [Constant(1 - 2**-53)]).tolist() == [2]


def test_sample_frequencies_match_the_model() -> None:
    # 3000 samples of one token: chi-square with V - 2 = 3 degrees of freedom exceeds 16.3 once in a thousand
    lm = random_markov(3)
    ids = [text[0] for text in texts(lm, Decoding(max_tokens=1, seed=0), num=3000)]
    observed = np.bincount(ids, minlength=5)
    expected = 3000 * np.exp(lm.table[lm.vocabulary.bos])
    assert observed[0] == 0
    assert np.sum((observed[1:] - expected[1:]) ** 2 / expected[1:]) < 16.3


def test_sampled_transitions_match_the_model() -> None:
    lm = random_markov(4)
    pairs = np.zeros((5, 5))
    for text in texts(lm, Decoding(max_tokens=20, seed=1), num=2000):
        for first, second in itertools.pairwise(text):
            pairs[first, second] += 1
    assert pairs[lm.vocabulary.eos].sum() == 0  # nothing follows </s>
    for row in (2, 3, 4):
        expected = pairs[row].sum() * np.exp(lm.table[row, 1:])
        assert np.sum((pairs[row, 1:] - expected) ** 2 / expected) < 16.3


def test_samples_do_not_depend_on_each_other() -> None:
    # one token in five is </s>: samples end one by one while others continue
    lm, settings = Trigram(0, eos=0.2), Decoding(max_tokens=30, seed=7)
    many = texts(lm, settings, num=16)
    assert [texts(lm, settings, num=num) for num in (1, 3, 9)] == [many[:1], many[:3], many[:9]]
    assert len({len(text) for text in many}) > 4
    for text, rng in zip(many, spawn_generators(7, 16), strict=True):  # each drawn alone, with its own generator
        alone = [0, 0]
        while alone[-1] != 1 and len(alone) < 32:
            alone.append(int(draw_tokens(lm.cube[None, alone[-2], alone[-1]], [rng])[0]))
        assert text == alone[2:]
    assert texts(lm, Decoding(max_tokens=30, seed=8), num=16) != many


def test_samples_without_a_seed_differ() -> None:
    lm, settings = random_markov(5), Decoding(max_tokens=30)
    assert texts(lm, settings, num=16) != texts(lm, settings, num=16)


def test_finished_samples_are_not_stepped() -> None:
    lm = random_markov(6)
    lengths = [len(text) for text in texts(lm, Decoding(max_tokens=50, seed=0), num=10)]
    # the first call reads <s>; the call after t tokens steps the samples longer than t
    assert lm.calls == [1] + [sum(n > t for n in lengths) for t in range(1, max(lengths))]


@pytest.mark.parametrize("same", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-300}])
@pytest.mark.parametrize("seed", range(5))
def test_limits_of_sampling_are_greedy(same: dict[str, float], seed: int) -> None:
    lm = random_markov(seed)
    greedy = texts(lm, Decoding(strategy="greedy", max_tokens=20), num=2)
    expected, last = list[int](), 0
    while len(expected) < 20 and last != 1:
        last = int(np.argmax(lm.table[last]))
        expected.append(last)
    assert greedy == [expected, expected]
    assert texts(lm, Decoding(max_tokens=20, **same), num=2) == greedy  # type: ignore[arg-type]


def test_greedy_breaks_ties_by_lowest_id() -> None:
    lm = Markov(log([(0, 0.2, 0.4, 0.4)] * 4))
    assert texts(lm, Decoding(strategy="greedy", temperature=1e300, max_tokens=2)) == [[2, 2]]


def test_extreme_temperatures_give_valid_samples() -> None:
    lm = Markov(log([(0, 0.1, 0.9, 0)] * 4))
    hot = texts(lm, Decoding(temperature=1e300, max_tokens=1, seed=0), num=400)
    assert 150 < sum(text == [1] for text in hot) < 250  # two possible tokens, equally likely
    assert texts(lm, Decoding(temperature=1e-300, max_tokens=1, seed=0), num=9) == [[2]] * 9


def test_bos_and_closed_unk_are_never_sampled() -> None:
    lm = Markov(log([(0.9, 0.01, 0.08, 0.01)] * 4))
    lm.vocabulary = Vocabulary(4, 0, 1, 2, closed=True)
    drawn = {i for text in texts(lm, Decoding(max_tokens=1, seed=0), num=200) for i in text}
    assert drawn == {1, 3}


def test_unnormalised_scores_are_sampled_in_proportion() -> None:
    # (.8, .8) of a row that sums to 1.6: equally likely
    lm = Markov(log([(0, 0.8, 0.8)] * 3), is_normalized=False)
    drawn = list(sample(lm, Prompt((), lm.vocabulary), Decoding(max_tokens=1, seed=0), num=400))
    assert 150 < sum(d.id == 1 for d in drawn) < 250
    assert [d.log_prob for d in drawn] == pytest.approx([np.log(0.8)] * 400)  # as `score` returns it


def test_no_repeat_applies_to_the_prompt() -> None:
    lm = Markov(log([(0, 0.1, 0.2, 0.3, 0.4)] * 5))
    settings = Decoding(strategy="greedy", no_repeat_ngram=1, max_tokens=9)
    assert texts(lm, settings, ids=(4,)) == [[3, 2, 1]]
    assert texts(lm, settings, ids=(4, 1, 3)) == [[2, 1]]  # </s> ends a line of the prompt and is not banned


def test_max_tokens_zero_gives_empty_samples() -> None:
    assert texts(random_markov(0), Decoding(max_tokens=0), num=2) == [[], []]


def test_read_prompt_equals_stepwise_reading() -> None:
    lm = random_markov(1)
    log_p, state = read_prompt(lm, Prompt((2, 3, 4), lm.vocabulary))
    assert state.ids.tolist() == [[0, 2, 3, 4]]
    assert np.array_equal(log_p, lm.table[[4]])


def test_spawned_generators_depend_on_seed_and_index() -> None:
    assert [g.random() for g in spawn_generators(3, 2)] == [g.random() for g in spawn_generators(3, 5)][:2]
    assert spawn_generators(3, 1)[0].random() != spawn_generators(4, 1)[0].random()


def test_toy_model_score_agrees_with_its_table() -> None:
    lm = random_markov(2)
    batch = Batch(np.array([[0, 2, 3]]), np.array([[2, 3, 1]]), np.ones((1, 3), dtype=bool))
    assert lm.score(batch, lm.start(1))[0][0] == pytest.approx([lm.table[0, 2], lm.table[2, 3], lm.table[3, 1]])
    assert texts(Script([3, 2, 1], 4), Decoding()) == [[3, 2, 1]]
