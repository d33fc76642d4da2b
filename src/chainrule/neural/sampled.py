"""Output layers that learn from a few noise words instead of all V: sampled softmax, noise-contrastive estimation.

Lives here: the noise and the two losses. Each noise word is drawn once a batch and shared by its rows, so that a
step costs one (N, S) product in place of (N, V). Predicting is the softmax's own (output.py), exact.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.lm import Vocabulary
from chainrule.neural.output import Softmax
from chainrule.neural.precision import cast

POWER = 0.75  # flattens the unigram distribution (Mikolov et al. 2013): rare words serve as noise more often
FLOOR = 0.5  # the count of a word that was never seen, so that every possible word can be drawn
TOTAL = 1 << 52  # q is kept in parts of this: whole numbers stay what they are in a module of any precision


def noise_edges(counts: Tensor, impossible: Tensor) -> Tensor:
    """(V,), (V,) -> (V + 1,) the noise as edges of [0, TOTAL]: word w owns edge w up to edge w + 1, its q."""
    weights = counts.double().clamp(min=FLOOR).pow(POWER).masked_fill(impossible, 0)  # (V,)
    ends = weights.cumsum(0)
    return functional.pad((ends / ends[-1] * TOTAL).round().long(), (1, 0))


class Sampled(Softmax):
    """A softmax that can draw S noise words from q ∝ count^0.75 and score rows against them."""

    edges: Tensor  # (V + 1,) int64; saved with the weights, so that a loaded layer draws the same noise

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
        """(S,) noise words, with replacement, by torch's global generator."""
        points = torch.randint(TOTAL, (self.samples,), device=self.edges.device)
        return torch.searchsorted(self.edges, points, right=True) - 1

    def log_expected(self, words: Tensor) -> Tensor:
        """Log of S · q(w): how often a word is expected among the noise."""
        parts = self.edges[words + 1] - self.edges[words]
        return (parts.double() * (self.samples / TOTAL)).log().to(self.bias.dtype)

    def scores(self, hidden: Tensor, targets: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(N, D), (N,), (S,) -> (N,) W h + b of each row's target, (N, S) of the noise words."""
        words = torch.cat([targets, noise])
        h, W = cast(hidden, functional.embedding(words, self.weight))  # one look-up: one dense gradient
        b = self.bias[words]
        N = len(targets)
        of_target = (h * W[:N]).sum(dim=-1).to(b.dtype) + b[:N]
        of_noise = (h @ W[N:].t()).to(b.dtype) + b[N:]
        return of_target, of_noise


class SampledSoftmax(Sampled):
    """Σ_w exp s(w) is estimated by importance sampling (Bengio & Senécal 2008; Jean et al. 2015)."""

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean of −log exp s(t) / Ẑ, where Ẑ = exp s(t) + Σ_{noise w ≠ t} exp(s(w) − log S q(w)).

        The target is there for certain and its accidental draws are left out, so that E Ẑ is the true sum.
        """
        noise = self.draw()
        s_t, s = self.scores(hidden, targets, noise)  # (N,), (N, S)
        s = (s - self.log_expected(noise)).masked_fill(noise == targets[:, None], -torch.inf)
        s = torch.cat([s_t[:, None], s], dim=1)  # (N, 1 + S)  the target stands first
        return functional.cross_entropy(s, torch.zeros_like(targets))


class NoiseContrastive(Sampled):
    """Tell the true word from noise (Gutmann & Hyvärinen 2010; Mnih & Teh 2012); exp s(w) learns to sum to 1."""

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
        seen = counts.double().clamp(min=FLOOR).masked_fill(self.impossible, 0)
        unigram = (seen / seen.sum()).log().masked_fill(self.impossible, 0)
        # b = log unigram: with small W, Σ exp s(w) ≈ 1 at the start, and log Z stays fixed at 0
        with torch.no_grad():
            self.bias.copy_(unigram)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean of −log σ(s(t) − log S q(t)) − Σ_{noise w} log σ(log S q(w) − s(w))."""
        noise = self.draw()
        s_t, s = self.scores(hidden, targets, noise)  # (N,), (N, S)
        true = functional.logsigmoid(s_t - self.log_expected(targets)).mean()
        false = functional.logsigmoid(self.log_expected(noise) - s).sum(dim=1).mean()
        return -(true + false)
