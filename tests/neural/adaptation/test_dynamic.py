"""Dynamic evaluation: the update rule worked parameter by parameter, and causality."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context, Floats, Ids
from chainrule.neural import adaptation
from chainrule.neural.adaptation import DynamicEvaluator, tune_dynamic
from chainrule.neural.model import NeuralModel
from neural.adaptation_models import CLOSED, FAMILIES, WINDOW, WORDS, encoded, make, some_ids

UNK = 2  # in both vocabularies


def measured(model: NeuralModel, tokens: int = 60) -> DynamicEvaluator:
    evaluator = DynamicEvaluator(model)
    evaluator.measure_rms(encoded(some_ids(tokens, seed=8)))
    return evaluator


def gradients(network: torch.nn.Module, ids: Tensor, targets: Tensor, state: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients of the mean −log p by `autograd.grad`, one per parameter."""
    hidden = network(ids, state)[0]
    log_p = network.output.log_probs(hidden.flatten(0, 1))
    loss = torch.nn.functional.nll_loss(log_p, targets.flatten())
    return list(torch.autograd.grad(loss, list(network.parameters())))


def test_dynamic_update_rule_worked_parameter_by_parameter() -> None:
    model, rate, decay, epsilon = make(), 0.03, 0.8, 2e-5
    evaluator = measured(model)
    ids = some_ids(10)
    evaluator.score(ids, rate, decay)
    network = copy.deepcopy(model.network)
    names = [name for name, _ in network.named_parameters()]
    rms = {name: part.clone() for name, part in evaluator.flat.named_slices(evaluator.rms)}
    mean = torch.cat([rms[name] for name in names]).mean()
    first = [p.detach().clone() for p in network.parameters()]
    read = torch.from_numpy(np.concatenate([[WORDS.eos], ids[:-1]]).astype(np.int64))[None]
    state = network.start(1)
    for cut in (slice(0, 5), slice(5, 10)):
        targets = torch.from_numpy(ids[cut].astype(np.int64))
        grads = gradients(network, read[:, cut], targets, state)
        state = tuple(s.detach() for s in network(read[:, cut], state)[1])  # with the weights that scored it
        with torch.no_grad():
            for name, p, p0, g in zip(names, network.parameters(), first, grads, strict=True):
                r = rms[name].view_as(p)
                p += -rate * g / (r + epsilon) + decay * torch.minimum(r / mean, torch.tensor(1 / decay)) * (p0 - p)
    for p, q in zip(network.parameters(), evaluator.network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_statistics_are_the_rms_gradient() -> None:
    # 1,003 tokens: 1,003 // (5 · 100) = 2 columns of 500 tokens, so 100 batches of 2 x 5 with carried states.
    model, ids = make(), some_ids(1003)
    evaluator = DynamicEvaluator(model)
    evaluator.measure_rms(encoded(ids))
    network = copy.deepcopy(model.network)
    targets = torch.from_numpy(ids[:1000].astype(np.int64)).view(2, 500)
    read = torch.cat([torch.tensor([WORDS.eos]), targets.flatten()[:-1]]).view(2, 500)
    squares: list[Tensor] = [torch.zeros_like(p) for p in network.parameters()]
    state = network.start(2)
    for t in range(0, 500, 5):
        measured_rms = gradients(network, read[:, t : t + 5], targets[:, t : t + 5], state)
        squares = [s + g.square() for s, g in zip(squares, measured_rms, strict=True)]
        state = tuple(s.detach() for s in network(read[:, t : t + 5], state)[1])
    for (_, rms), square in zip(evaluator.flat.named_slices(evaluator.rms), squares, strict=True):
        torch.testing.assert_close(rms, (square.flatten() / 100).sqrt(), rtol=1e-4, atol=1e-7)


def test_statistics_of_lines_ignore_padding() -> None:
    # Two lines of 2 and 3 tokens make one batch of 5 tokens; their gradients are weighted by length.
    model = make(context="line")
    evaluator = DynamicEvaluator(model)
    evaluator.measure_rms(encoded(np.array([5, 1, 7, 8, 1], np.int32)))
    first_line = gradients(model.network, torch.tensor([[0, 5]]), torch.tensor([[5, 1]]), model.network.start(1))
    two = gradients(model.network, torch.tensor([[0, 7, 8]]), torch.tensor([[7, 8, 1]]), model.network.start(1))
    for (_, rms), g, h in zip(evaluator.flat.named_slices(evaluator.rms), first_line, two, strict=True):
        torch.testing.assert_close(rms, ((2 * g + 3 * h) / 5).abs().flatten(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("family", FAMILIES)
def test_dynamic_evaluation_at_rate_zero_is_static(family: str, context: Context) -> None:
    # Lines of 17 tokens exceed a window of 6; 41 is not a multiple of 5 or 6.
    model, ids = make(family, context), some_ids(41, lines=17)
    static = token_log_probs(model, encoded(ids))
    np.testing.assert_allclose(measured(model).score(ids, 0.0, 3e-3), static, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "first"), [("lstm", 5), ("feedforward", 5), ("transformer", WINDOW)])
def test_segment_is_scored_before_it_is_learned(family: str, first: int) -> None:
    model, ids = make(family), some_ids(24)
    static = token_log_probs(model, encoded(ids))
    dynamic = measured(model).score(ids, 0.01, 3e-3)
    np.testing.assert_allclose(dynamic[:first], static[:first], rtol=1e-4, atol=1e-5)
    assert np.abs(dynamic[first:] - static[first:]).min() > 1e-4


def test_line_is_scored_before_it_is_learned() -> None:
    model, ids = make(context="line"), some_ids(27)
    static = token_log_probs(model, encoded(ids))
    dynamic = measured(model).score(ids, 0.01, 3e-3)
    np.testing.assert_allclose(dynamic[:9], static[:9], rtol=1e-4, atol=1e-5)
    assert np.abs(dynamic[9:] - static[9:]).min() > 1e-4


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_dynamic_evaluation_is_causal(family: str, context: Context) -> None:
    ids = some_ids(30)
    changed = ids.copy()
    changed[13:] = some_ids(17, seed=5)
    evaluator = measured(make(family, context))
    first, second = evaluator.score(ids, 1e-3, 3e-3), evaluator.score(changed, 1e-3, 3e-3)
    np.testing.assert_allclose(first[:13], second[:13], rtol=1e-5, atol=1e-6)
    assert np.abs(first[13:] - second[13:]).max() > 0.1


def test_dynamic_evaluation_leaves_the_model_unchanged() -> None:
    model, ids = make(), some_ids(30)
    before = [p.detach().clone() for p in model.network.parameters()]
    evaluator = measured(model)
    first = evaluator.score(ids, 0.01, 3e-3)
    np.testing.assert_array_equal(evaluator.score(ids, 0.01, 3e-3), first)
    for p, old in zip(model.network.parameters(), before, strict=True):
        assert torch.equal(p, old)
        assert p.grad is None


def test_impossible_tokens_are_not_learned() -> None:
    model, ids = make(words=CLOSED), some_ids(30)
    ids[7] = UNK
    dynamic = measured(model).score(ids, 0.01, 3e-3)
    assert np.flatnonzero(np.isneginf(dynamic)).tolist() == [7]
    assert np.isfinite(np.delete(dynamic, 7)).all()


def test_impossible_last_token_does_not_change_the_update() -> None:
    evaluator, ids = measured(make(words=CLOSED)), some_ids(5)
    ids[4] = UNK
    evaluator.score(ids[:4], 0.01, 3e-3)
    expected = evaluator.flat.weights.clone()
    evaluator.score(ids, 0.01, 3e-3)
    torch.testing.assert_close(evaluator.flat.weights, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(expected, evaluator.first, atol=1e-3)


@pytest.mark.parametrize("context", ["stream", "line"])
def test_dynamic_evaluation_learns_repetitions(context: Context) -> None:
    model = make(context=context)
    ids = np.tile(np.array([7, 7, 4, 7, 1], np.int32), 40)
    static = token_log_probs(model, encoded(ids)).mean()
    assert measured(model).score(ids, 1e-2, 1e-3).mean() > static + 0.5


class Peaked:
    """An evaluator with an optimum at one rate, then one decay, that fails at the highest rate."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def score(self, ids: Ids, rate: float, decay: float, progress: object = None) -> Floats:
        self.asked.append((rate, decay))
        score = -abs(rate - 1e-4) * 1e4 - abs(decay - 1e-2) * 1e2
        return np.full(len(ids), np.nan if rate == 2e-4 else score)


def test_dynamic_tuning_selects_rate_then_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "TUNING_TOKENS", 20)
    peaked = Peaked()
    assert tune_dynamic(peaked, encoded(some_ids(30))) == (1e-4, 1e-2)  # type: ignore[arg-type]
    rates = [(rate, 1e-3) for rate in (1.2e-5, 2.5e-5, 5e-5, 1e-4, 2e-4)]  # down, back to the start, then up
    assert peaked.asked == [*rates, *((1e-4, decay) for decay in (3e-4, 3e-3, 1e-2, 3e-2))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("family", FAMILIES)
def test_dynamic_evaluation_on_gpu_equals_cpu(family: str) -> None:
    ids = some_ids(203)
    plain = measured(make(family), 1200).score(ids, 1e-3, 3e-3)
    model = make(family)
    model.network.cuda()
    np.testing.assert_allclose(measured(model, 1200).score(ids, 1e-3, 3e-3), plain, rtol=1e-3, atol=1e-3)
