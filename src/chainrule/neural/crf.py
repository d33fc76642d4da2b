"""A linear-chain conditional random field over a row's tags (Lafferty et al. 2001), and its twin without a chain.

p(y | s) = exp(score(y)) / Z,   score(y) = start[y_1] + Σ_t s_t(y_t) + Σ_t A[y_{t−1}, y_t] + end[y_n]

Lives here: −log p of a path, log Z, the best path and p(y_t = k). Not here: what makes the scores, what the tags
mean and which may follow which. Letters: B rows, T words, K tags, n a row's own length. Every row has at least one
word; its mask (B, T) is True for its first n places, and what stands in the other places changes nothing.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Allowed = tuple[Tensor, Tensor, Tensor]
"""Which tag may follow which (K, K), which may come first (K,), which last (K,); all bool."""


class CRF(nn.Module):
    """A[i, j], the score of tag j right after tag i, with scores to start and to end by; zero before learning.

    What is not allowed scores `-inf` whatever was learnt, and its parameter gets no gradient. Where a row has no
    allowed path at all, every path has p = 0: nats `inf`, best path's log p `-inf`, marginals zero.
    """

    def __init__(self, tags: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        shapes = {"transitions": (tags, tags), "start": (tags,), "end": (tags,)}
        for place, (name, shape) in enumerate(shapes.items()):
            is_allowed = torch.ones(shape, dtype=torch.bool) if allowed is None else allowed[place]
            assert is_allowed.shape == shape, f"allowed {name} are {tuple(is_allowed.shape)}, not {shape}"
            setattr(self, name, nn.Parameter(torch.zeros(shape)))
            self.register_buffer(f"forbidden_{name}", ~is_allowed, persistent=False)

    def nats(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T), (B, T) -> (B,) −log p(tags | scores) = log Z − score(tags).

        A path that is not allowed has `inf` nats and passes no gradient on.
        """
        s = _small(scores, mask)
        A, start, end = self._chain()
        path = _path_score(s, A, start, end, tags, mask)
        return torch.where(torch.isneginf(path), torch.inf, _LogZ.apply(s, A, start, end, mask) - path)

    def log_z(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B,) log Z = log Σ_y exp(score(y)) over all allowed paths y."""
        log_z: Tensor = _LogZ.apply(_seen(scores, mask), *self._chain(), mask)
        return log_z

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best path (B, T), 0 on padding, and its log p (B,), by Viterbi.

        Among equals the lowest last tag is taken, and from there back the lowest tag at each step.
        """
        s = _seen(scores, mask)
        A, start, end = self._chain()
        into, K = A.t().contiguous(), A.shape[0]
        stay = torch.arange(K, device=s.device)
        delta, origins = start + s[:, 0], []
        for s_t, is_word in zip(s.unbind(1)[1:], mask[:, :, None].unbind(1)[1:], strict=True):
            top, origin = (delta[:, None] + into).max(dim=-1)  # (B, K)  over the tag before, the first of equals
            delta = torch.where(is_word, s_t + top, delta)
            origins.append(torch.where(is_word, origin, stay))
        tag = (delta + end).argmax(dim=-1, keepdim=True)  # (B, 1)
        best = [tag]
        for origin in reversed(origins):
            tag = origin.gather(1, tag)
            best.append(tag)
        path = torch.cat(best[::-1], dim=1).masked_fill(~mask, 0)
        return path, -self.nats(scores, path, mask).clamp(min=0)  # rounding must not give p > 1

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B, T, K) p(y_t = k | scores), zero on padding; no gradient passes."""
        s = _small(scores, mask)
        A, start, end = self._chain()
        alpha, _ = _forward(s, A, start, end, mask)
        beta = [beta_t for _, beta_t in _backward(s, A, end, mask)]
        return _posterior(alpha, torch.stack(beta[::-1], dim=1), mask)

    def _chain(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, start and end as they count: `-inf` where not allowed."""
        A = _wide(self.transitions).masked_fill(self.forbidden_transitions, -torch.inf)
        start = _wide(self.start).masked_fill(self.forbidden_start, -torch.inf)
        return A, start, _wide(self.end).masked_fill(self.forbidden_end, -torch.inf)


class Independent(nn.Module):
    """Each word's tag for itself, p(y | s) = Π_t softmax(s_t)[y_t]: a CRF whose transitions are all zero."""

    def nats(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T), (B, T) -> (B,) −log p(tags | scores), summed over the row's words."""
        log_p = _small(scores, mask).gather(2, tags.masked_fill(~mask, 0)[:, :, None]).squeeze(2)  # (B, T)
        return -log_p.masked_fill(~mask, 0).sum(dim=1)

    def log_z(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B,) log Z = Σ_t log Σ_k exp(s_t(k))."""
        return _seen(scores, mask).logsumexp(dim=-1).masked_fill(~mask, 0).sum(dim=1)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best tags (B, T), the lowest among equals and 0 on padding, and their log p (B,)."""
        best = _seen(scores, mask).argmax(dim=-1).masked_fill(~mask, 0)
        return best, -self.nats(scores, best, mask)

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B, T, K) softmax at each word, zero on padding; no gradient passes."""
        return _small(scores, mask).exp().masked_fill(~mask[:, :, None], 0)


def _wide(x: Tensor) -> Tensor:
    """At least fp32: sums over a whole row lose too much in half precision."""
    return x if x.dtype == torch.float64 else x.float()


def _seen(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores of words, zero on padding whatever stood there."""
    return torch.where(mask[:, :, None], _wide(scores), 0.0)


def _small(scores: Tensor, mask: Tensor) -> Tensor:
    """Each word's scores less their log-sum: no p changes, and sums over a long row stay small and round less."""
    return torch.log_softmax(_seen(scores, mask), dim=-1)


def _path_score(s: Tensor, A: Tensor, start: Tensor, end: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
    """(B,) score(tags), by the equation at the top of this file."""
    y = tags.masked_fill(~mask, 0)  # what stands on padding need not be a tag
    words = s.gather(2, y[:, :, None]).squeeze(2).masked_fill(~mask, 0)  # (B, T)
    steps = A[y[:, :-1], y[:, 1:]].masked_fill(~mask[:, 1:], 0)  # (B, T − 1)
    last = y.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)  # (B,)
    return start[y[:, 0]] + words.sum(dim=1) + steps.sum(dim=1) + end[last]


def _forward(s: Tensor, A: Tensor, start: Tensor, end: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """α_1 = start + s_1, α_t(j) = s_t(j) + log Σ_i exp(α_{t−1}(i) + A[i, j]), (B, T, K); log Z (B,)."""
    into = A.t().contiguous()  # (j, i): what is summed lies side by side
    alpha = [start + s[:, 0]]
    for s_t in s.unbind(1)[1:]:
        alpha.append(s_t + (alpha[-1][:, None] + into).logsumexp(dim=-1))
    alphas = torch.stack(alpha, dim=1)
    rows = torch.arange(len(s), device=s.device)
    return alphas, (alphas[rows, mask.sum(dim=1) - 1] + end).logsumexp(dim=-1)


def _backward(s: Tensor, A: Tensor, end: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """From t = T down to 1: A[i, j] + s_{t+1}(j) + β_{t+1}(j), (B, K, K), and β_t, its log-sum over j, (B, K).

    β is `end` at a row's last word and behind it; nothing follows T, and what stands in its place is `-inf`.
    """
    B, _, K = s.shape
    beta = end.expand(B, K)
    yield s.new_full((1, 1, 1), -torch.inf).expand(B, K, K), beta
    for s_t, is_word in zip(s.unbind(1)[:0:-1], mask[:, :, None].unbind(1)[:0:-1], strict=True):
        ahead = A + (s_t + beta)[:, None]
        beta = torch.where(is_word, ahead.logsumexp(dim=-1), end)
        yield ahead.masked_fill(~is_word[..., None], -torch.inf), beta


def _posterior(alpha: Tensor, beta: Tensor, mask: Tensor) -> Tensor:
    """(B, T, K) p(y_t = k) = exp(α_t(k) + β_t(k) − log Z), zero on padding."""
    joint = alpha + beta
    return (joint - _log_z(joint)).exp().masked_fill(~mask[:, :, None], 0)


def _log_z(joint: Tensor) -> Tensor:
    """(…, K) α_t + β_t -> (…, 1) the log Z found at word t.

    These differ in rounding alone, and each makes its own word's p sum to one. Where a row has no path it is `inf`,
    so that p is 0 and not 0 / 0.
    """
    log_z = joint.logsumexp(dim=-1, keepdim=True)
    return log_z.masked_fill(torch.isneginf(log_z), torch.inf)


class _LogZ(torch.autograd.Function):
    """Log Z, whose gradient is a probability: ∂ log Z / ∂s_t(k) = p(y_t = k), likewise for A, start and end.

    The gradient of a logsumexp over nothing but `-inf` would be 0 / 0; probabilities have no such place.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, A: Tensor, start: Tensor, end: Tensor, mask: Tensor) -> Tensor:
        alpha, log_z = _forward(s, A, start, end, mask)
        ctx.save_for_backward(s, A, end, mask, alpha)
        return log_z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        s, A, end, mask, alpha = ctx.saved_tensors
        dA, betas = s.new_zeros(len(s), *A.shape), []  # (B, K, K): summed as β is made, not held for every t
        for alpha_t, (ahead, beta_t) in zip(alpha.unbind(1)[::-1], _backward(s, A, end, mask), strict=True):
            # p(y_t = i, y_{t+1} = j) = exp(α_t(i) − log Z + A[i, j] + s_{t+1}(j) + β_{t+1}(j))
            dA += ((alpha_t - _log_z(alpha_t + beta_t))[:, :, None] + ahead).exp_()
            betas.append(beta_t)
        by = grads[0][:, None, None]
        ds = _posterior(alpha, torch.stack(betas[::-1], dim=1), mask) * by
        last = torch.arange(len(s), device=s.device), mask.sum(dim=1) - 1
        # sums stay fp32, a matrix product may not
        return ds, (dA * by).sum(dim=0), ds[:, 0].sum(dim=0), ds[last].sum(dim=0), None
