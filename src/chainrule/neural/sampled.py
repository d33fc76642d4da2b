"""Output layers trained on a few noise words: sampled softmax and noise-contrastive estimation.

The noise words are drawn once per batch and shared by its rows, so that a step costs an (N, S) product instead of
(N, V). Prediction uses the exact softmax.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.output import Softmax
from chainrule.neural.precision import cast

POWER = 0.75  # flattens the unigram distribution (Mikolov et al. 2013)
FLOOR = 0.5  # count of unseen words, so that every possible word can be drawn
TOTAL = 1 << 52  # denominator of q: integers are exact under any module precision


def noise_edges(counts: Tensor, impossible: Tensor) -> Tensor:
    """(V,), (V,) -> (V + 1,) cumulative noise distribution q as integers in [0, TOTAL]."""
    weights = counts.double().clamp(min=FLOOR).pow(POWER).masked_fill(impossible, 0)  # (V,)
    ends = weights.cumsum(0)
    return functional.pad((ends / ends[-1] * TOTAL).round().long(), (1, 0))


class Sampled(Softmax):
    """Softmax with S noise words drawn from q ∝ count^0.75."""

    edges: Tensor  # (V + 1,) int64; saved with the weights

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        tied: nn.Parameter | None,
        init_range: float,
        counts: Tensor,
        samples: int,
    ) -> None:
        super().__init__(width, vocabulary, tied, init_range)
        self.samples = samples
        self.register_buffer("edges", noise_edges(counts, self.impossible))

    def has_valid_buffers(self) -> bool:
        """Whether the edges ascend from 0 to TOTAL."""
        edges = self.edges
        return bool(edges[0] == 0 and edges[-1] == TOTAL and (edges[1:] >= edges[:-1]).all())

    def draw(self) -> Tensor:
        """(S,) noise words, drawn with replacement from torch's global generator."""
        points = torch.randint(TOTAL, (self.samples,), device=self.edges.device)
        return torch.searchsorted(self.edges, points, right=True) - 1

    def log_expected(self, words: Tensor) -> Tensor:
        """log(S · q(w)), the log of the expected count of a word among the noise."""
        parts = self.edges[words + 1] - self.edges[words]
        return (parts.double() * (self.samples / TOTAL)).log().to(self.bias.dtype)

    def scores(self, hidden: Tensor, targets: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(N, D), (N,), (S,) -> (N,) logits of the targets, (N, S) logits of the noise words."""
        words = torch.cat([targets, noise])
        h, W = cast(hidden, functional.embedding(words, self.weight))  # one lookup, hence one dense gradient
        b = self.bias[words]
        N = len(targets)
        of_target = (h * W[:N]).sum(dim=-1).to(b.dtype) + b[:N]
        of_noise = (h @ W[N:].t()).to(b.dtype) + b[N:]
        return of_target, of_noise


class SampledSoftmax(Sampled):
    """Estimate Σ_w exp s(w) by importance sampling (Bengio & Senécal 2008; Jean et al. 2015)."""

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log exp s(t) / Ẑ, where Ẑ = exp s(t) + Σ_{noise w ≠ t} exp(s(w) − log S q(w)).

        Accidental draws of the target are excluded, so that E Ẑ is the true sum.
        """
        noise = self.draw()
        s_t, s = self.scores(hidden, targets, noise)  # (N,), (N, S)
        s = (s - self.log_expected(noise)).masked_fill(noise == targets[:, None], -torch.inf)
        s = torch.cat([s_t[:, None], s], dim=1)  # (N, 1 + S)  target first
        return functional.cross_entropy(s, torch.zeros_like(targets))


class NoiseContrastive(Sampled):
    """Noise-contrastive estimation (Gutmann & Hyvärinen 2010; Mnih & Teh 2012), with log Z fixed at 0."""

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        tied: nn.Parameter | None,
        init_range: float,
        counts: Tensor,
        samples: int,
    ) -> None:
        super().__init__(width, vocabulary, tied, init_range, counts, samples)
        smoothed = counts.double().clamp(min=FLOOR).masked_fill(self.impossible, 0)
        unigram = (smoothed / smoothed.sum()).log().masked_fill(self.impossible, 0)
        # b = log unigram: with small W, Σ exp s(w) ≈ 1 at the start, and log Z stays fixed at 0
        with torch.no_grad():
            self.bias.copy_(unigram)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log σ(s(t) − log S q(t)) − Σ_{noise w} log σ(log S q(w) − s(w))."""
        noise = self.draw()
        s_t, s = self.scores(hidden, targets, noise)  # (N,), (N, S)
        true = functional.logsigmoid(s_t - self.log_expected(targets)).mean()
        false = functional.logsigmoid(self.log_expected(noise) - s).sum(dim=1).mean()
        return -(true + false)
