"""Beam search against exhaustive search and hand-worked examples."""

import itertools
from typing import Any

import numpy as np
import pytest

from chainrule.decoding.beam import _top_indices, search
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Floats
from decoding.toy import Markov, Trigram, log, random_markov

L = 4  # greatest length searched exhaustively: 3 words, so at most 3 + 9 + 27 + 81 unfinished texts


def beam(**settings: float) -> Decoding:
    """Settings of a beam search over at most L tokens."""
    return Decoding(**{"strategy": "beam", "max_tokens": L, **settings})  # type: ignore[arg-type]


def exhaustive(lm: Trigram, p: float) -> list[tuple[tuple[int, ...], float]]:
    """All finished texts of at most L tokens with their scores, sorted by rank, then by ids."""
    finished = []
    for length in range(L):
        for words in itertools.product((2, 3, 4), repeat=length):
            ids = (*words, 1)
            score = sum(lm.cube[a, b, c] for a, b, c in zip((0, 0, *ids), (0, *ids), ids, strict=False))
            finished.append((ids, float(score)))
    return sorted(finished, key=lambda item: (-item[1] / len(item[0]) ** p, item[0]))


@pytest.mark.parametrize("p", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(12))
def test_wide_beam_equals_exhaustive_search(seed: int, p: float) -> None:
    lm = Trigram(seed, eos=0.1 + 0.05 * seed)
    hypotheses = search(lm, Prompt((), lm.vocabulary), beam(beam_size=400, length_penalty=p), num=5)
    expected = exhaustive(lm, p)[:5]
    assert [h.ids for h in hypotheses] == [ids for ids, _ in expected]
    assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected])
    assert [sum(h.log_probs) for h in hypotheses] == pytest.approx([h.score for h in hypotheses])
    assert all(h.is_finished for h in hypotheses)


def test_beam_search_stops_when_no_hypothesis_can_win() -> None:
    # </s> at once: .6; everything else begins at .4 or less, so no second step is taken
    lm = Markov(log([(0, 0.6, 0.4), (0, 1, 0), (0, 0.5, 0.5)]))
    assert search(lm, Prompt((), lm.vocabulary), beam())[0].ids == (1,)
    assert lm.calls == [1]
    # p = 1: log .4 / 4 = -.23 and log .2 / 4 = -.40 might still beat log .6 = -.51, log .1 / 4 = -.58 cannot
    search(lm, Prompt((), lm.vocabulary), beam(length_penalty=1))
    assert lm.calls[1:] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(8))
def test_beam_of_one_is_greedy(seed: int) -> None:
    lm = random_markov(seed)
    expected, last = list[int](), 0
    while len(expected) < L and last != 1:
        last = int(np.argmax(lm.table[last]))
        expected.append(last)
    hypothesis = search(lm, Prompt((), lm.vocabulary), beam(beam_size=1))[0]
    assert list(hypothesis.ids) == expected
    assert hypothesis.is_finished == (last == 1)


def test_beam_finds_what_greedy_misses() -> None:
    # greedy: 2 (.6) then its best, </s> at .3 or 2/3 at .35: 2 3 ... ; beam: 3 (.4) then </s> (.9) = .36
    lm = Markov(log([(0, 0, 0.6, 0.4), (0, 1, 0, 0), (0, 0.3, 0.35, 0.35), (0, 0.9, 0.05, 0.05)]))
    hypothesis = search(lm, Prompt((), lm.vocabulary), beam(beam_size=2))[0]
    assert hypothesis.ids == (3, 1)
    assert hypothesis.score == pytest.approx(np.log(0.36))


def test_length_penalty_prefers_longer_texts() -> None:
    # </s> at once: p = .3; 2 then </s>: .7 · .4 = .28. log .3 = -1.204; log .28 / 2 = -.636
    lm = Markov(log([(0, 0.3, 0.7), (0, 1, 0), (0, 0.4, 0.6)]))
    start = Prompt((), lm.vocabulary)
    assert search(lm, start, beam(beam_size=9))[0].ids == (1,)
    best = search(lm, start, beam(beam_size=9, length_penalty=1))[0]
    assert best.normalized_score(1) == pytest.approx(best.score / len(best.ids))
    # longer still: 2 2 2 </s>: log(.7 · .36 · .4) / 4 = -.574
    assert best.ids == (2, 2, 2, 1)


def test_unfinished_hypotheses_only_fill_up_the_result() -> None:
    lm = Markov(log([(0, 0, 0.6, 0.4), (0, 1, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0)]))
    hypotheses = search(lm, Prompt((), lm.vocabulary), beam(beam_size=3), num=3)
    # 3 </s> (.4) is finished and comes first, although 2 2 2 2 (.6) is more probable
    assert [(h.ids, h.is_finished) for h in hypotheses] == [((3, 1), True), ((2, 2, 2, 2), False)]


def test_beam_search_returns_unfinished_hypotheses_if_none_finished() -> None:
    lm = Markov(log([(0, 0, 0.6, 0.4)] * 4))
    hypothesis = search(lm, Prompt((), lm.vocabulary), beam())[0]
    assert (hypothesis.ids, hypothesis.is_finished) == ((2, 2, 2, 2), False)
    assert search(lm, Prompt((), lm.vocabulary), beam(max_tokens=0, length_penalty=1))[0].ids == ()


def test_beam_breaks_ties_by_lowest_ids() -> None:
    lm = Markov(
        log([(0, 0, 0.25, 0.25, 0.5), (0, 1, 0, 0, 0), (0, 1, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0.5, 0.5, 0)])
    )
    # 2 </s>, 3 </s>, 4 2 </s>, 4 3 </s> all have probability 1/4, exactly
    hypotheses = search(lm, Prompt((), lm.vocabulary), beam(beam_size=4), num=4)
    assert [h.ids for h in hypotheses] == [(2, 1), (3, 1), (4, 2, 1), (4, 3, 1)]
    assert [h.ids for h in search(lm, Prompt((), lm.vocabulary), beam(beam_size=2), num=2)] == [
        (2, 1),
        (4, 2, 1),
    ]


def test_unfinished_hypothesis_can_win_a_tie_by_ids() -> None:
    # 3 </s> is finished at 1/2 while 2 4, also 1/2, continues to </s> with certainty: a tie, and 2 < 3
    rows = [(0, 0, 0.5, 0.5, 0), (0, 1, 0, 0, 0), (0, 0, 0, 0, 1), (0, 1, 0, 0, 0), (0, 1, 0, 0, 0)]
    lm = Markov(log(rows))
    assert search(lm, Prompt((), lm.vocabulary), beam())[0].ids == (2, 4, 1)


def test_beam_search_applies_filters() -> None:
    lm = Markov(log([(0, 0.1, 0.6, 0.3)] * 4))
    start = Prompt((2,), lm.vocabulary)
    assert search(lm, start, beam(beam_size=1, no_repeat_ngram=1))[0].ids == (3, 1)
    assert search(lm, start, beam(top_k=1))[0].ids == (2, 2, 2, 2)
    # 2 is in the prompt: .6^5 = .078 falls below .3
    assert search(lm, start, beam(beam_size=1, repetition_penalty=5.0, max_tokens=1))[0].ids == (3,)


def test_stop_rule_finishes_a_hypothesis() -> None:
    lm = Markov(log([(0, 0.1, 0.6, 0.3)] * 4))
    start = Prompt((), lm.vocabulary, stop_rule=lambda ids: list(ids[-2:]) == [2, 2])
    hypothesis = search(lm, start, beam())[0]
    assert (hypothesis.ids, hypothesis.is_finished) == ((2, 2), True)


def test_beam_search_normalises_scores() -> None:
    # rows sum to 2: the shares of </s> are .25 at first and .5 after 2, so 2 </s> is worth .75 · .5 = .375
    lm = Markov(log([(0, 0.5, 1.5), (0, 2, 0), (0, 1, 1)]), is_normalized=False)
    hypothesis = search(lm, Prompt((), lm.vocabulary), beam())[0]
    assert hypothesis.ids == (2, 1)
    assert hypothesis.score == pytest.approx(np.log(0.375))


def test_more_results_than_beam_size_are_rejected() -> None:
    lm = random_markov(0)
    with pytest.raises(ConfigError, match="beam_size is 2; choose at least 3"):
        search(lm, Prompt((), lm.vocabulary), beam(beam_size=2), num=3)


@pytest.mark.parametrize("seed", range(30))
def test_top_candidates_equal_a_full_sort(seed: int) -> None:
    """Few distinct values, so that ties are common, and some impossible ones."""
    rng = np.random.default_rng(seed)
    K, V, B = (int(n) for n in rng.integers(1, 9, 3))
    totals = rng.integers(-3, 1, (K, V)).astype(float)
    totals[rng.random((K, V)) < 0.3] = -np.inf
    flat = totals.ravel().tolist()
    expected = sorted((i for i in range(K * V) if flat[i] > -np.inf), key=lambda i: (-flat[i], i))[:B]
    assert _top_indices(totals, B).tolist() == sorted(expected)


def test_beam_step_sorts_few_of_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The B-th highest of one row bounds the rest: of 3 · 5,000 words only those that reach it are sorted."""
    sizes, real = list[int](), np.argsort

    def recorded_argsort(values: Floats, **kind: Any) -> Any:
        sizes.append(values.size)
        return real(values, **kind)

    monkeypatch.setattr(np, "argsort", recorded_argsort)
    _top_indices(np.random.default_rng(1).normal(size=(3, 5000)), 4)
    assert 4 <= sizes[0] <= 50
