import math

import pytest
import torch
from torch import Tensor, nn

from chainrule.lm import Vocabulary
from chainrule.neural.layers.output import TOTAL, NoiseContrastive, Sampled, SampledSoftmax, Softmax, noise_edges

V, D = 6, 3
VOCABULARY = Vocabulary(size=V, bos=2, eos=5, unk=None)
# Word 2 is <s>: frequent but impossible. Counts^.75: 1, 8, –, 27, 0.5^.75 (unseen), 64.
COUNTS = torch.tensor([1.0, 16, 500, 81, 0, 256])
WEIGHTS = torch.tensor([1, 8, 0, 27, 0.5**0.75, 64], dtype=torch.float64)
Q = WEIGHTS / WEIGHTS.sum()
KINDS = (SampledSoftmax, NoiseContrastive)


def layer_of(kind: type[Sampled], samples: int, seed: int = 0) -> Sampled:
    torch.manual_seed(seed)
    layer = kind(D, VOCABULARY, None, 1.0, COUNTS, samples)
    layer.double()
    with torch.no_grad():
        layer.bias.normal_()
    return layer


def rows(targets: list[int]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(len(targets), D, dtype=torch.float64), torch.tensor(targets)


def exact_loss(layer: Softmax, hidden: Tensor, targets: Tensor) -> Tensor:
    return -layer.log_probs(hidden)[torch.arange(len(targets)), targets].mean()


def fix_noise(layer: Sampled, words: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "draw", lambda: torch.tensor(words))


@pytest.mark.parametrize("kind", KINDS)
def test_noise_distribution_worked_by_hand(kind: type[Sampled]) -> None:
    layer = layer_of(kind, samples=10)
    possible = torch.tensor([0, 1, 3, 4, 5])
    torch.testing.assert_close(layer.log_expected(possible).exp(), 10 * Q[possible])


def test_noise_of_a_large_vocabulary_covers_every_word() -> None:
    counts = 3e7 / torch.arange(1, 33_001)
    counts[20_000:] = 0
    impossible = torch.zeros(33_000, dtype=torch.bool)
    impossible[[0, 77, 32_999]] = True
    edges = noise_edges(counts, impossible)
    assert (edges[0].item(), edges[-1].item()) == (0, TOTAL)
    assert torch.equal(edges.diff() == 0, impossible)
    # q(1) / q(30,000) = (1.5e7 / 0.5)^.75, although the counts differ by eight orders of magnitude
    assert (edges.diff()[1] / edges.diff()[30_000]).item() == pytest.approx(3e7**0.75, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_frequencies_match_the_distribution(kind: type[Sampled]) -> None:
    n = 200_000
    layer = layer_of(kind, samples=n)
    drawn_counts = torch.bincount(layer.draw(), minlength=V)
    assert drawn_counts[2].item() == 0
    deviation = (drawn_counts - n * Q) / (n * Q * (1 - Q) + 1e-9).sqrt()
    assert deviation.abs().max() < 5  # standard deviations of a binomial count


@pytest.mark.parametrize("point", [0, 1, TOTAL // 2, TOTAL - 1])
def test_noise_never_draws_an_impossible_word(point: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary(size=4, bos=0, eos=1, unk=3, closed=True)  # both ends are impossible
    layer = SampledSoftmax(D, vocabulary, None, 0.1, torch.ones(4), 1)
    monkeypatch.setattr(torch, "randint", lambda *args, **kwargs: torch.tensor([point]))
    assert layer.draw().tolist() == [1 if point < TOTAL // 2 else 2]


@pytest.mark.parametrize("kind", KINDS)
def test_noise_uses_the_global_generator_only_in_loss(kind: type[Sampled]) -> None:
    layer, (hidden, targets) = layer_of(kind, samples=4), rows([0, 1, 5])
    state = torch.get_rng_state()
    layer.log_probs(hidden)
    assert torch.equal(torch.get_rng_state(), state)
    first, second = layer.loss(hidden, targets), layer.loss(hidden, targets)
    assert first.item() != second.item()
    torch.set_rng_state(state)
    assert torch.equal(layer.loss(hidden, targets), first)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_layers_predict_like_the_full_softmax(kind: type[Sampled]) -> None:
    layer, (hidden, _) = layer_of(kind, samples=4), rows([0, 1, 5])
    full = Softmax(D, VOCABULARY, layer.weight, 1.0).double()
    full.bias = layer.bias
    assert torch.equal(layer.log_probs(hidden), full.log_probs(hidden))


@pytest.mark.parametrize("target", [0, 3, 4, 5])
def test_sampled_normaliser_is_unbiased(target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # exp(loss) = Ẑ / exp s(t). Its mean over all noise words, by their q, must be Z / exp s(t) = 1 / p(t).
    layer, (hidden, targets) = layer_of(SampledSoftmax, samples=1), rows([target])
    mean = 0.0
    for word in (0, 1, 3, 4, 5):
        fix_noise(layer, [word], monkeypatch)
        mean += Q[word].item() * layer.loss(hidden, targets).exp().item()
    assert mean == pytest.approx(exact_loss(layer, hidden, targets).exp().item())


def test_accidental_hits_are_removed_from_their_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, (hidden, _) = layer_of(SampledSoftmax, samples=2), rows([3, 1])
    targets = torch.tensor([3, 1])
    fix_noise(layer, [3, 3], monkeypatch)
    s = hidden @ layer.weight.t() + layer.bias
    # Row 0: only the target remains, so p = 1 and ℓ = 0. Row 1: word 3 twice, each exp s / (2 q).
    row = math.log(1 + (s[1, 3] - s[1, 1]).exp().item() / Q[3].item())
    loss = layer.loss(hidden, targets)
    assert loss.item() == pytest.approx(row / 2)
    alone = layer.loss(hidden[:1], targets[:1])
    alone.backward()
    assert alone.item() == 0
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()  # not NaN


def test_sampled_softmax_gradient_approaches_the_exact_one() -> None:
    layer, (hidden, targets) = layer_of(SampledSoftmax, samples=4_000), rows([0, 1, 3, 4, 5, 5, 3])
    hidden.requires_grad_()
    learnt = (hidden, layer.weight, layer.bias)
    exact = torch.autograd.grad(exact_loss(layer, hidden, targets), learnt)
    draws = [torch.autograd.grad(layer.loss(hidden, targets), learnt) for _ in range(60)]
    for place, expected in enumerate(exact):
        mean = torch.stack([grads[place] for grads in draws]).mean(dim=0)
        # The rarest noise word (q = 0.6 %) occurs 24 times per batch: the remaining bias is of the order of 1 / S
        # q = 4 %.
        assert (mean - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize(("samples", "expected"), [(1, 2 * math.log(2)), (3, math.log(4) + 3 * math.log(4 / 3))])
def test_nce_loss_worked_by_hand(samples: int, expected: float) -> None:
    # Two equally frequent words: s = b = log ½ and q = ½, so exp s / (S q) = 1/S for any sample. S = 1: σ(0) = ½
    # twice. S = 3: σ(−log 3) = 1/4 for the target, σ(log 3) = 3/4 for each of three noise words.
    layer = NoiseContrastive(D, Vocabulary(size=3, bos=0, eos=1, unk=None), None, 0.1, torch.ones(3), samples)
    assert layer.loss(torch.zeros(5, D), torch.tensor([1, 2, 2, 1, 1])).item() == pytest.approx(expected)


def test_nce_scores_are_initially_normalised() -> None:
    layer = NoiseContrastive(D, VOCABULARY, None, 0.1, COUNTS, 4)
    # With h = 0 the scores are the biases: the unigram distribution 1, 16, 81, ½, 256 out of 354.5.
    p = layer.masked_bias().exp()
    assert p.tolist() == pytest.approx([1 / 354.5, 16 / 354.5, 0, 81 / 354.5, 0.5 / 354.5, 256 / 354.5])
    assert layer.bias.isfinite().all()


def test_nce_recovers_a_distribution() -> None:
    torch.manual_seed(0)
    p = [0.05, 0.2, 0.0, 0.5, 0.1, 0.15]
    targets = torch.arange(V).repeat_interleave(torch.tensor([round(200 * x) for x in p]))
    layer = NoiseContrastive(D, VOCABULARY, None, 0.1, torch.ones(V), 1_000)
    hidden = torch.ones(len(targets), D)  # a single context
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, 200)
    for _ in range(200):
        optimizer.zero_grad()
        layer.loss(hidden, targets).backward()
        optimizer.step()
        schedule.step()
    scores = (hidden[:1] @ layer.weight.t() + layer.masked_bias())[0]
    assert layer.log_probs(hidden[:1])[0].exp().tolist() == pytest.approx(p, abs=0.01)
    assert scores.exp().tolist() == pytest.approx(p, abs=0.02)  # without normalisation


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_sampled_layer_keeps_its_noise_distribution(kind: type[Sampled]) -> None:
    saved = layer_of(kind, samples=4).state_dict()
    loaded = kind(D, VOCABULARY, None, 0.1, torch.ones(V), 10).float()
    loaded.load_state_dict(saved)
    torch.testing.assert_close(loaded.log_expected(torch.tensor([1, 5])).exp().double(), 10 * Q[[1, 5]])


@pytest.mark.parametrize("kind", KINDS)
def test_module_precision_does_not_change_the_noise(kind: type[Sampled]) -> None:
    layer = layer_of(kind, samples=50)
    edges = layer.edges.clone()
    assert torch.equal(layer.half().double().edges, edges)


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_loss_in_fp32_agrees_with_fp64(kind: type[Sampled]) -> None:
    layer, (hidden, targets) = layer_of(kind, samples=20), rows([0, 1, 5])
    torch.manual_seed(4)
    double = layer.loss(hidden, targets)
    torch.manual_seed(4)
    single = layer.float().loss(hidden.float(), targets)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(double.item(), rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_loss_can_be_captured_in_a_cuda_graph(kind: type[Sampled]) -> None:
    tied = nn.Parameter(torch.randn(V, D))
    layer = kind(D, VOCABULARY, tied, 0.1, COUNTS, 64).cuda()
    hidden, targets = torch.randn(5, D, device="cuda"), torch.tensor([0, 1, 3, 4, 5], device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        layer.loss(hidden, targets)
        with torch.cuda.graph(graph):
            loss = layer.loss(hidden, targets)
    graph.replay()
    first = loss.item()
    graph.replay()
    assert math.isfinite(first)
    assert loss.item() != first  # new noise at every replay
