import copy
import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chainrule.neural.layers.crf import CRF, Allowed, IndependentTags

K, T, LENGTHS = 3, 4, [4, 1, 3, 2]
MASK = torch.arange(T) < torch.tensor(LENGTHS)[:, None]

# 2 never starts, 0 never ends, 0 -> 1 and 2 -> 2 are forbidden.
STEPS = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 1, 0]], dtype=torch.bool)
SOME: Allowed = (STEPS, torch.tensor([True, True, False]), torch.tensor([False, True, True]))
TAGS = torch.tensor([[1, 2, 1, 1], [1, 0, 0, 0], [0, 2, 1, 0], [0, 2, 0, 0]])  # allowed in each row


def random_crf(allowed: Allowed | None, seed: int = 0) -> CRF:
    torch.manual_seed(seed)
    crf: CRF = CRF(K, allowed).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def random_scores(seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return 2 * torch.randn(len(LENGTHS), T, K, dtype=torch.float64)


class Row(NamedTuple):
    """All K^n paths of one row with their scores."""

    score: dict[tuple[int, ...], float]

    @property
    def log_z(self) -> float:
        return math.log(sum(map(math.exp, self.score.values())))

    def log_p(self, path: tuple[int, ...]) -> float:
        return self.score[path] - self.log_z

    @property
    def best(self) -> tuple[int, ...]:
        return max(self.score, key=self.score.__getitem__)

    def marginal(self, t: int, k: int) -> float:
        return sum(math.exp(self.log_p(path)) for path in self.score if path[t] == k)


def enumerate_paths(crf: CRF, s: Tensor, length: int, allowed: Allowed | None) -> Row:
    steps, starts, ends = (x.tolist() for x in allowed) if allowed else ([[1] * K] * K, [1] * K, [1] * K)
    score = {}
    for path in itertools.product(range(K), repeat=length):
        pairs, words = list(itertools.pairwise(path)), list(enumerate(path))
        chain = [crf.start[path[0]], crf.end[path[-1]], *(crf.transitions[i, j] for i, j in pairs)]
        is_allowed = starts[path[0]] and ends[path[-1]] and all(steps[i][j] for i, j in pairs)
        score[path] = sum(x.item() for x in [*chain, *(s[t, k] for t, k in words)]) if is_allowed else -math.inf
    return Row(score)


def rows_of(crf: CRF, s: Tensor, allowed: Allowed | None) -> list[Row]:
    return [enumerate_paths(crf, s[b], n, allowed) for b, n in enumerate(LENGTHS)]


def padded(path: tuple[int, ...]) -> list[int]:
    return [*path] + [0] * (T - len(path))


either = pytest.mark.parametrize("allowed", [None, SOME], ids=["all", "some"])
both = pytest.mark.parametrize("layer", [random_crf(SOME), IndependentTags()], ids=["crf", "independent"])


def test_crf_of_two_words_worked_by_hand() -> None:
    # Two tags, s = ln [[1, 2], [3, 1]], A[1, 0] = ln 2, start[0] = ln 2, end[1] = ln 4, all else ln 1.
    # exp(score): 00: 2·1·3 = 6, 01: 2·1·1·4 = 8, 10: 2·2·3 = 12, 11: 2·1·4 = 8; Z = 34.
    crf = CRF(2)
    with torch.no_grad():
        crf.transitions[1, 0], crf.start[0], crf.end[1] = math.log(2), math.log(2), math.log(4)
    s, mask = torch.tensor([[[1.0, 2.0], [3.0, 1.0]]]).log(), torch.ones(1, 2, dtype=torch.bool)
    assert crf.log_z(s, mask).item() == pytest.approx(math.log(34))
    assert crf.nats(s, torch.tensor([[0, 1]]), mask).item() == pytest.approx(math.log(34 / 8))
    best, log_p = crf.decode(s, mask)
    assert best.tolist() == [[1, 0]]
    assert log_p.item() == pytest.approx(math.log(12 / 34))
    expected = torch.tensor([[[14 / 34, 20 / 34], [18 / 34, 16 / 34]]])
    torch.testing.assert_close(crf.marginals(s, mask), expected)


@either
def test_log_z_is_the_sum_over_all_paths(allowed: Allowed | None) -> None:
    crf, s = random_crf(allowed), random_scores()
    assert crf.log_z(s, MASK).tolist() == pytest.approx([row.log_z for row in rows_of(crf, s, allowed)])


@either
def test_nats_of_every_path_equal_enumeration(allowed: Allowed | None) -> None:
    crf, s = random_crf(allowed), random_scores()
    for b, row in enumerate(rows_of(crf, s, allowed)):
        paths = list(row.score)
        tags = torch.tensor([padded(path) for path in paths])
        nats = crf.nats(s[b].expand(len(paths), -1, -1), tags, MASK[b].expand(len(paths), -1))
        assert nats.tolist() == pytest.approx([-row.log_p(path) for path in paths])
        assert (-nats).exp().sum().item() == pytest.approx(1)


@either
@pytest.mark.parametrize("seed", range(5))
def test_viterbi_path_is_the_best_of_all(allowed: Allowed | None, seed: int) -> None:
    crf, s = random_crf(allowed, seed), random_scores(seed + 9)
    best, log_p = crf.decode(s, MASK)
    rows = rows_of(crf, s, allowed)
    assert best.dtype == torch.long
    assert best.tolist() == [padded(row.best) for row in rows]
    assert log_p.tolist() == pytest.approx([row.log_p(row.best) for row in rows])


@either
def test_marginals_are_sums_over_paths(allowed: Allowed | None) -> None:
    crf, s = random_crf(allowed), random_scores()
    marginals = crf.marginals(s, MASK)
    for b, row in enumerate(rows_of(crf, s, allowed)):
        for t in range(T):
            expected = [row.marginal(t, k) if t < LENGTHS[b] else 0.0 for k in range(K)]
            assert marginals[b, t].tolist() == pytest.approx(expected, abs=1e-12)


def test_marginals_are_the_gradient_of_log_z() -> None:
    crf, s = random_crf(None), random_scores().requires_grad_()
    alpha = crf.start + s[0, 0]  # the first row has all T words
    for t in range(1, T):
        alpha = s[0, t] + (alpha[:, None] + crf.transitions).logsumexp(dim=0)
    (alpha + crf.end).logsumexp(dim=0).backward()
    torch.testing.assert_close(crf.marginals(s, MASK)[0], s.grad[0])


@either
def test_crf_gradients_pass_gradcheck(allowed: Allowed | None) -> None:
    crf, s = random_crf(allowed), random_scores().requires_grad_()

    def both_values(s: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return crf.nats(s, TAGS, MASK), crf.log_z(s, MASK)

    assert torch.autograd.gradcheck(both_values, (s, *crf.parameters()))  # it perturbs each number in place


def test_forbidden_transitions_get_no_gradient() -> None:
    crf, s = random_crf(SOME), random_scores().requires_grad_()
    crf.nats(s, TAGS, MASK).sum().backward()
    steps, starts, ends = SOME
    for parameter, is_allowed in ((crf.transitions, steps), (crf.start, starts), (crf.end, ends)):
        assert parameter.isfinite().all()
        assert (parameter.grad[~is_allowed] == 0).all()
        assert (parameter.grad[is_allowed] != 0).all()
    assert s.grad.isfinite().all()


def test_forbidden_path_has_infinite_nats_and_no_gradient() -> None:
    crf, s = random_crf(SOME), random_scores().requires_grad_()
    tags = torch.tensor([[1, 2, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [2, 1, 0, 0]])  # 0 ends; 0 -> 1; 2 starts
    nats = crf.nats(s, tags, MASK)
    assert nats.isinf().tolist() == [False, True, True, True]
    nats.sum().backward()
    assert s.grad[0].abs().sum() > 0
    assert (s.grad[1:] == 0).all()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


def test_unreachable_tag_gives_no_nan() -> None:
    # Only 0 starts and 0 -> 1 -> 2 -> 2 is the only path, so each word has one tag and p = 1.
    steps = torch.tensor([[0, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=torch.bool)
    crf = random_crf((steps, torch.tensor([True, False, False]), torch.ones(K, dtype=torch.bool)))
    s, tags = random_scores().requires_grad_(), torch.tensor([[0, 1, 2, 2]]).expand(4, T)
    nats = crf.nats(s, tags, MASK)
    (nats.sum() + crf.log_z(s, MASK).sum()).backward()
    torch.testing.assert_close(nats, torch.zeros(4, dtype=torch.float64))
    expected = torch.nn.functional.one_hot(tags, K).double() * MASK[:, :, None]
    torch.testing.assert_close(s.grad, expected)  # gradient of log Z; the nats cannot decrease
    torch.testing.assert_close(crf.marginals(s, MASK), expected)
    assert crf.decode(s, MASK)[0].tolist() == (tags * MASK).tolist()
    # 0 -> 1 occurs in the three rows of two or more words, 1 -> 2 in two, 2 -> 2 in one.
    torch.testing.assert_close(crf.transitions.grad, torch.tensor([[0.0, 3, 0], [0, 0, 2], [0, 0, 1]]).double())


def test_row_without_any_path_gives_no_nan() -> None:
    # Only 0 starts, only 1 ends: no path of one word.
    crf = random_crf((torch.ones(K, K, dtype=torch.bool), torch.arange(K) == 0, torch.arange(K) == 1))
    s, tags = (
        random_scores().requires_grad_(),
        torch.tensor([[0, 1, 2, 1], [0, 0, 0, 0], [0, 2, 1, 0], [0, 1, 0, 0]]),
    )
    assert crf.log_z(s, MASK).isneginf().tolist() == [False, True, False, False]
    nats = crf.nats(s, tags, MASK)
    assert nats.isinf().tolist() == [False, True, False, False]
    (nats.sum() + crf.log_z(s, MASK).sum()).backward()
    assert s.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())
    assert crf.decode(s, MASK)[1].isneginf().tolist() == [False, True, False, False]
    has_path = MASK & (MASK.sum(dim=1) > 1)[:, None]
    torch.testing.assert_close(crf.marginals(s, MASK).sum(dim=2), has_path.double())


def results(layer: CRF | IndependentTags, s: Tensor, tags: Tensor, mask: Tensor) -> list[Tensor]:
    best, log_p = layer.decode(s, mask)
    return [layer.nats(s, tags, mask), layer.log_z(s, mask), log_p, best, layer.marginals(s, mask)]


@both
@pytest.mark.parametrize("filler", [0.0, 50.0, math.inf, -math.inf, math.nan])
def test_tag_layers_ignore_padding(layer: CRF | IndependentTags, filler: float) -> None:
    s, wide = random_scores(), torch.full((4, T + 3, K), filler, dtype=torch.float64)
    wide[:, :T] = torch.where(MASK[:, :, None], s, filler)
    mask = torch.nn.functional.pad(MASK, (0, 3))
    tags = torch.nn.functional.pad(TAGS, (0, 3)).masked_fill(~mask, -100)
    wide.requires_grad_()
    short, long = results(layer, s, TAGS, MASK), results(layer, wide, tags, mask)
    for padded_result, result in zip(short[:3], long[:3], strict=True):
        torch.testing.assert_close(padded_result, result)
    for padded_result, result in zip(short[3:], long[3:], strict=True):
        torch.testing.assert_close(padded_result, result[:, :T])
        assert (result[~mask] == 0).all()
    long[0].sum().backward()
    assert (wide.grad[~mask] == 0).all()
    assert wide.grad.isfinite().all()


@both
def test_tag_layers_treat_rows_independently(layer: CRF | IndependentTags) -> None:
    s = random_scores()
    together = results(layer, s, TAGS, MASK)
    for b, n in enumerate(LENGTHS):
        alone = results(layer, s[b : b + 1, :n], TAGS[b : b + 1, :n], MASK[b : b + 1, :n])
        for row_result, all_rows in zip(alone, together, strict=True):
            torch.testing.assert_close(row_result[0], all_rows[b, :n] if row_result.ndim > 1 else all_rows[b])


def test_crf_without_transitions_equals_independent_tags() -> None:
    chained, apart = (results(layer, random_scores(), TAGS, MASK) for layer in (CRF(K), IndependentTags()))
    for crf_result, independent_result in zip(chained, apart, strict=True):
        torch.testing.assert_close(crf_result, independent_result)


def test_independent_tags_worked_by_hand() -> None:
    # softmax(ln [1, 3]) = [1/4, 3/4], softmax(ln [2, 3]) = [2/5, 3/5]; Z = 4 · 5.
    s, mask = torch.tensor([[[1.0, 3.0], [2.0, 3.0], [9.0, 1.0]]]).log(), torch.tensor([[True, True, False]])
    layer = IndependentTags()
    assert layer.nats(s, torch.tensor([[1, 0, 1]]), mask).item() == pytest.approx(-math.log(3 / 4 * 2 / 5))
    assert layer.log_z(s, mask).item() == pytest.approx(math.log(20))
    best, log_p = layer.decode(s, mask)
    assert best.tolist() == [[1, 1, 0]]
    assert log_p.item() == pytest.approx(math.log(9 / 20))
    torch.testing.assert_close(layer.marginals(s, mask), torch.tensor([[[0.25, 0.75], [0.4, 0.6], [0.0, 0.0]]]))


@pytest.mark.parametrize("layer", [CRF(K), IndependentTags()], ids=["crf", "independent"])
def test_decode_breaks_ties_by_lowest_tag(layer: CRF | IndependentTags) -> None:
    s = torch.zeros(1, 3, K)
    s[0, 1] = torch.tensor([0.0, 1.0, 1.0])
    assert layer.decode(s, torch.ones(1, 3, dtype=torch.bool))[0].tolist() == [[0, 1, 0]]


def test_decode_breaks_path_ties_from_the_end() -> None:
    # 0 -> 1 and 1 -> 0 score 1, all other steps 0: both are best, and 1 -> 0 has the lower last tag.
    crf = CRF(2)
    with torch.no_grad():
        crf.transitions[0, 1] = crf.transitions[1, 0] = 1
    assert crf.decode(torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool))[0].tolist() == [[1, 0]]


@both
def test_half_precision_scores_are_summed_in_fp32(layer: CRF | IndependentTags) -> None:
    layer, half = copy.deepcopy(layer).float(), random_scores().bfloat16()
    exact = results(layer, half.float(), TAGS, MASK)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        computed = results(layer, half, TAGS, MASK)
    for half_result, exact_result in zip(computed, exact, strict=True):
        assert half_result.dtype == exact_result.dtype
        assert torch.equal(half_result, exact_result)


def test_crf_precision_on_a_long_row() -> None:
    # fp32 against float64; the scores alone sum to more than 500 · 100, where fp32 has steps of 0.004.
    torch.manual_seed(4)
    s, tags = torch.randn(1, 500, K) + 100, torch.randint(K, (1, 500))
    s = s.scatter_add(2, tags[:, :, None], torch.full((1, 500, 1), 12.0))
    mask, crf = torch.ones(1, 500, dtype=torch.bool), random_crf(None)
    exact, p = crf.nats(s.double(), tags, mask).item(), crf.marginals(s.double(), mask)
    assert 0 < exact < 1
    crf.float()
    assert crf.nats(s, tags, mask).item() == pytest.approx(exact, abs=5e-4)
    assert (crf.marginals(s, mask) - p).abs().max() < 1e-5
    assert (crf.marginals(s, mask).sum(dim=2) - 1).abs().max() < 1e-5


def test_crf_constraints_are_not_saved() -> None:
    assert set(CRF(K, SOME).state_dict()) == {"transitions", "start", "end"}
    crf = CRF(K, SOME)
    crf.load_state_dict(random_crf(None).state_dict())
    best, _ = crf.decode(random_scores().float(), MASK)
    assert [row[n - 1] > 0 for row, n in zip(best.tolist(), LENGTHS, strict=True)] == [True] * 4  # 0 never ends
