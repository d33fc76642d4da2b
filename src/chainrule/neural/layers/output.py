"""Output layers: from hidden states to a distribution over the vocabulary.

Each has a training `loss`, which may be an estimate, and exact `log_probs`.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.functional import pad

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.config import ModelConfig
from chainrule.training.device import cast, compute_dtype, use_all_threads

PIECE_ON_CPU = 1 << 22  # logits per chunk: fits the CPU cache, yet large enough for efficient products
PIECE_ON_GPU = 1 << 27
MOST_HALF_ROWS = 4096  # sums over more rows could overflow fp16
ALIGNMENT = 64  # half-precision matrix products are fastest at multiples of this


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """(N, D), (V, D), (V,), (N,) -> mean of −log softmax(W h + b)[target]; a bias of `-inf` excludes a word."""
    dtype = compute_dtype(hidden.device)
    # Dtypes are chosen explicitly below.
    with torch.autocast(hidden.device.type, enabled=False), use_all_threads(hidden.numel() * len(weight)):
        is_learning = torch.is_grad_enabled()
        loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, targets, dtype, is_learning)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Forward computes the gradients; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        dtype: torch.dtype,
        is_learning: bool,
    ) -> Tensor:
        N, V = len(hidden), len(weight)
        is_half = dtype in (torch.float16, torch.bfloat16)
        dtype = dtype if is_half else hidden.dtype
        extra = -V % ALIGNMENT if is_half else 0
        h, W = hidden.to(dtype), pad(weight.to(dtype), (0, 0, 0, extra))  # (N, D), (V', D)
        b = pad(bias.to(dtype), (0, extra), value=-torch.inf)  # (V',)
        needs = [is_learning and tensor.requires_grad for tensor in (hidden, weight, bias)]
        dh = torch.empty_like(h) if needs[0] else None
        dW = torch.zeros_like(W, dtype=torch.float32 if is_half else dtype) if needs[1] else None
        db = torch.zeros(V + extra, dtype=torch.float32 if is_half else dtype, device=h.device)
        rows = max(1, (PIECE_ON_GPU if h.is_cuda else PIECE_ON_CPU) // (V + extra))
        rows = min(rows, MOST_HALF_ROWS) if is_half else rows
        pieces = torch.empty(min(rows, N), V + extra, dtype=dtype, device=h.device)  # buffer reused by all chunks
        nats = torch.zeros((), dtype=db.dtype, device=h.device)
        for first in range(0, N, rows):
            cut = slice(first, min(first + rows, N))
            z = torch.addmm(b, h[cut], W.t(), out=pieces[: cut.stop - first])  # (n, V')
            t = targets[cut, None]
            z_t, z_top = (part.to(nats.dtype) for part in (z.gather(1, t), z.amax(dim=-1, keepdim=True)))
            p = torch.softmax(z, dim=-1, out=z)
            # log Σ exp z = z_top − log p_top: accurate, since p_top is never tiny, unlike p_target.
            nats += (z_top - p.amax(dim=-1, keepdim=True).to(nats.dtype).log() - z_t).sum()
            if any(needs):
                p.scatter_add_(1, t, torch.full_like(t, -1, dtype=dtype))  # p − y
                if dh is not None:
                    torch.mm(p, W, out=dh[cut])
                if dW is not None:
                    _ = dW.add_(p.t() @ h[cut]) if is_half else dW.addmm_(p.t(), h[cut])
                db += p.sum(dim=0, dtype=db.dtype)
        ctx.save_for_backward(dh, None if dW is None else dW[:V], db[:V])
        ctx.rows, ctx.dtypes, ctx.needs = N, (hidden.dtype, weight.dtype, bias.dtype), needs
        return nats / N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale = grads[0] / ctx.rows
        gradients = [
            None if g is None or not needed else (g.to(scale.dtype) * scale).to(dtype)
            for g, dtype, needed in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs, strict=True)
        ]
        return (*gradients, None, None, None)


class Output(nn.Module):
    """p(w | hidden) over V ids; `<s>`, and `<unk>` of a closed vocabulary, have probability 0."""

    is_capturable = True  # by a CUDA graph: shapes in `loss` do not depend on the targets

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """(N, D), (N,) -> mean of −log p(target), or of its training estimate."""
        raise NotImplementedError

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, V) exact log p, `-inf` for impossible ids."""
        raise NotImplementedError

    def has_valid_buffers(self) -> bool:
        """Whether loaded buffers, such as word classes, have valid values."""
        return True


class Softmax(Output):
    """p = softmax(W h + b) over all words; W may be tied to the embedding (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: Vocabulary, tied: nn.Parameter | None, init_range: float) -> None:
        super().__init__()
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary.size, width))
        if tied is None:
            nn.init.uniform_(self.weight, -init_range, init_range)
        self.bias = nn.Parameter(torch.zeros(vocabulary.size))
        self.register_buffer("impossible", torch.from_numpy(~vocabulary.predictable), persistent=False)

    def masked_bias(self) -> Tensor:
        """(V,) b, `-inf` for impossible words."""
        return self.bias.masked_fill(self.impossible, -torch.inf)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log p(target), computed in chunks so that the N x V logits never exist at once."""
        return linear_cross_entropy(hidden, self.weight, self.masked_bias(), targets)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log softmax over all words."""
        return torch.log_softmax(torch.addmm(self.masked_bias(), hidden, self.weight.t()), dim=-1)


def make_output(
    config: ModelConfig, width: int, vocabulary: Vocabulary, embedding: nn.Parameter, counts: Floats | None
) -> Output:
    """Create the configured output layer; `counts` (V,) are training word counts, None if they will be loaded."""
    tied = embedding if config.tie else None
    if tied is not None and tied.shape[1] != width:
        raise ConfigError(
            f"model.tie needs the last layer as wide as the embedding, not {width} and {tied.shape[1]}; "
            "set them alike, or --no-tie"
        )
    numbers = torch.ones(vocabulary.size) if counts is None else torch.from_numpy(np.asarray(counts, np.float32))
    if config.output in ("sampled", "nce"):
        kind = SampledSoftmax if config.output == "sampled" else NoiseContrastive
        return kind(width, vocabulary, tied, config.init_range, numbers, config.samples)
    if config.output == "adaptive":
        if tied is not None:
            raise ConfigError("an adaptive softmax cannot be tied to the embedding: add --no-tie")
        return AdaptiveSoftmax(width, vocabulary, numbers, config.cutoffs)
    return Softmax(width, vocabulary, tied, config.init_range)


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
        self.initialize_bias(counts)

    def initialize_bias(self, counts: Tensor) -> None:
        """Set the initial bias, 0 by default."""

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

    def initialize_bias(self, counts: Tensor) -> None:
        """b = log unigram: with small W, Σ exp s(w) ≈ 1 at the start, and log Z stays fixed at 0."""
        smoothed = counts.double().clamp(min=FLOOR).masked_fill(self.impossible, 0)
        unigram = (smoothed / smoothed.sum()).log().masked_fill(self.impossible, 0)
        with torch.no_grad():
            self.bias.copy_(unigram)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log σ(s(t) − log S q(t)) − Σ_{noise w} log σ(log S q(w) − s(w))."""
        noise = self.draw()
        s_t, s = self.scores(hidden, targets, noise)  # (N,), (N, S)
        true = functional.logsigmoid(s_t - self.log_expected(targets)).mean()
        false = functional.logsigmoid(self.log_expected(noise) - s).sum(dim=1).mean()
        return -(true + false)


USUAL_CUTOFFS = (2_000, 10_000, 50_000)
NARROWING = 4  # ratio between the widths of successive clusters


def choose_cutoffs(classes: int) -> tuple[int, ...]:
    """Return the default cutoffs that leave at least half of the words in the clusters, or the midpoint.

    >>> choose_cutoffs(9), choose_cutoffs(9_999), choose_cutoffs(33_000)
    ((4,), (2000,), (2000, 10000))
    """
    return tuple(cut for cut in USUAL_CUTOFFS if 2 * cut <= classes) or (classes // 2,)


def check_cutoffs(cutoffs: tuple[int, ...], classes: int) -> None:
    """Raise ConfigError unless the cutoffs ascend from 1 to below the number of words."""
    if classes < 2:
        raise ConfigError(f"an adaptive softmax needs 2 words or more, not {classes}: choose --output softmax")
    for before, cut in zip((0, *cutoffs), cutoffs, strict=False):
        if cut <= before:
            raise ConfigError(f"model.cutoffs must ascend from 1, but {cut} follows {before}; sort them")
    if cutoffs and cutoffs[-1] >= classes:
        raise ConfigError(
            f"model.cutoffs ends with {cutoffs[-1]}, but only {classes} words can be predicted; "
            f"choose {classes - 1} or less, or leave it empty"
        )


def by_frequency(counts: Tensor, impossible: Tensor) -> Tensor:
    """(V,) counts, (V,) bool -> (V,) class of each id: 0 is the most frequent, ties by id, impossible ids last."""
    order = counts.double().masked_fill(impossible, -1).argsort(descending=True, stable=True)
    return order.argsort()  # the inverse permutation


class AdaptiveSoftmax(Output):
    """log p(w) = log p(cluster of w) + log p(w | cluster); a frequent word is a class of the head."""

    is_capturable = False  # the rows of a cluster depend on the targets

    def __init__(self, width: int, vocabulary: Vocabulary, counts: Tensor, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        self.predictable = vocabulary.predictable
        impossible = torch.from_numpy(~vocabulary.predictable)
        C = vocabulary.size - int(impossible.sum())
        check_cutoffs(cutoffs, C)
        cutoffs = cutoffs or choose_cutoffs(C)
        # The last cluster needs a width of at least 1: reduce the ratio for a narrow layer.
        narrowing = max(n for n in range(1, NARROWING + 1) if n ** len(cutoffs) <= width)
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(width, C, cutoffs, div_value=narrowing, head_bias=True)
        # (V,) id -> class, C for impossible ids; saved because it defines the meaning of the weight rows
        self.register_buffer("classes", by_frequency(counts, impossible).clamp(max=C))

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log p(target), in fp32, since the torch layer does not support mixed precision."""
        with torch.autocast(hidden.device.type, enabled=False):
            nats: Tensor = self.layer(hidden.to(self.layer.head.weight.dtype), self.classes[targets]).loss
        return nats

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, V) log p, reordered from frequency classes to ids."""
        with torch.autocast(hidden.device.type, enabled=False):
            by_class = self.layer.log_prob(hidden.to(self.layer.head.weight.dtype))  # (N, C)
        return functional.pad(by_class, (0, 1), value=-torch.inf)[:, self.classes]  # (N, V)

    def has_valid_buffers(self) -> bool:
        """Whether the possible words map one-to-one to the classes 0 … C − 1 and the others to C."""
        C = self.layer.n_classes
        expected = torch.arange(len(self.classes)).clamp(max=C)
        is_possible = torch.from_numpy(self.predictable)
        classes = self.classes.cpu()
        return bool(torch.equal(classes.sort().values, expected) and ((classes < C) == is_possible).all())
