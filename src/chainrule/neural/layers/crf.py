"""Linear-chain conditional random field over tag sequences (Lafferty et al. 2001), and independent softmaxes.

p(y | s) = exp(score(y)) / Z,   score(y) = start[y_1] + Σ_t s_t(y_t) + Σ_t A[y_{t−1}, y_t] + end[y_n]

Notation: B rows, T words, K tags, n length of a row. Every row has at least one word; its mask (B, T) is True for
the first n positions, and padding has no effect on the result.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Allowed = tuple[Tensor, Tensor, Tensor]
"""Allowed transitions (K, K), first tags (K,) and last tags (K,); all bool."""


class CRF(nn.Module):
    """Linear-chain CRF with transition scores A[i, j] from tag i to tag j and start and end scores, initially zero.

    Forbidden transitions score `-inf`, and their parameters get no gradient. If a row has no allowed path, every
    path has p = 0: nats `inf`, log p of the best path `-inf`, marginals zero.
    """

    def __init__(self, tags: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        shapes = {"transitions": (tags, tags), "start": (tags,), "end": (tags,)}
        for index, (name, shape) in enumerate(shapes.items()):
            is_allowed = torch.ones(shape, dtype=torch.bool) if allowed is None else allowed[index]
            assert is_allowed.shape == shape, f"allowed {name} are {tuple(is_allowed.shape)}, not {shape}"
            setattr(self, name, nn.Parameter(torch.zeros(shape)))
            self.register_buffer(f"forbidden_{name}", ~is_allowed, persistent=False)

    def nats(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T), (B, T) -> (B,) −log p(tags | scores) = log Z − score(tags).

        A forbidden path has `inf` nats and no gradient.
        """
        s = _normalize(scores, mask)
        A, start, end = self._chain()
        path = _path_score(s, A, start, end, tags, mask)
        return torch.where(torch.isneginf(path), torch.inf, _LogZ.apply(s, A, start, end, mask) - path)

    def log_z(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B,) log Z = log Σ_y exp(score(y)) over all allowed paths y."""
        log_z: Tensor = _LogZ.apply(_mask_padding(scores, mask), *self._chain(), mask)
        return log_z

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Viterbi decoding: the best path (B, T), 0 on padding, and its log p (B,).

        Ties are broken in favour of the lowest tag, from the last word backwards.
        """
        s = _mask_padding(scores, mask)
        A, start, end = self._chain()
        A_T, K = A.t().contiguous(), A.shape[0]
        identity = torch.arange(K, device=s.device)
        delta, origins = start + s[:, 0], []
        for s_t, is_word in zip(s.unbind(1)[1:], mask[:, :, None].unbind(1)[1:], strict=True):
            best_score, origin = (delta[:, None] + A_T).max(dim=-1)  # (B, K)  best previous tag, the lowest on ties
            delta = torch.where(is_word, s_t + best_score, delta)
            origins.append(torch.where(is_word, origin, identity))
        tag = (delta + end).argmax(dim=-1, keepdim=True)  # (B, 1)
        best = [tag]
        for origin in reversed(origins):
            tag = origin.gather(1, tag)
            best.append(tag)
        path = torch.cat(best[::-1], dim=1).masked_fill(~mask, 0)
        return path, -self.nats(scores, path, mask).clamp(min=0)  # rounding must not yield p > 1

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B, T, K) p(y_t = k | scores), zero on padding; not differentiable."""
        s = _normalize(scores, mask)
        A, start, end = self._chain()
        alpha, _ = _forward(s, A, start, end, mask)
        beta = [beta_t for _, beta_t in _backward(s, A, end, mask)]
        return _posterior(alpha, torch.stack(beta[::-1], dim=1), mask)

    def _chain(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, start and end scores with `-inf` for forbidden transitions."""
        A = _to_fp32(self.transitions).masked_fill(self.forbidden_transitions, -torch.inf)
        start = _to_fp32(self.start).masked_fill(self.forbidden_start, -torch.inf)
        return A, start, _to_fp32(self.end).masked_fill(self.forbidden_end, -torch.inf)


class IndependentTags(nn.Module):
    """Independent tags, p(y | s) = Π_t softmax(s_t)[y_t]: a CRF whose transition scores are all zero."""

    def nats(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T), (B, T) -> (B,) −log p(tags | scores), summed over the words of a row."""
        log_p = _normalize(scores, mask).gather(2, tags.masked_fill(~mask, 0)[:, :, None]).squeeze(2)  # (B, T)
        return -log_p.masked_fill(~mask, 0).sum(dim=1)

    def log_z(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B,) log Z = Σ_t log Σ_k exp(s_t(k))."""
        return _mask_padding(scores, mask).logsumexp(dim=-1).masked_fill(~mask, 0).sum(dim=1)

    @torch.no_grad()
    def decode(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best tags (B, T), lowest on ties and 0 on padding, and their log p (B,)."""
        best = _mask_padding(scores, mask).argmax(dim=-1).masked_fill(~mask, 0)
        return best, -self.nats(scores, best, mask)

    @torch.no_grad()
    def marginals(self, scores: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T) -> (B, T, K) softmax at each word, zero on padding; not differentiable."""
        return _normalize(scores, mask).exp().masked_fill(~mask[:, :, None], 0)


def _to_fp32(x: Tensor) -> Tensor:
    """Convert to at least fp32: sums over a row are too inaccurate in half precision."""
    return x if x.dtype == torch.float64 else x.float()


def _mask_padding(scores: Tensor, mask: Tensor) -> Tensor:
    """Set the scores of padding to zero."""
    return torch.where(mask[:, :, None], _to_fp32(scores), 0.0)


def _normalize(scores: Tensor, mask: Tensor) -> Tensor:
    """Normalize the scores of each word by log-softmax, which changes no probability and reduces rounding."""
    return torch.log_softmax(_mask_padding(scores, mask), dim=-1)


def _path_score(s: Tensor, A: Tensor, start: Tensor, end: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
    """(B,) score(tags)."""
    y = tags.masked_fill(~mask, 0)  # padding may hold any value
    words = s.gather(2, y[:, :, None]).squeeze(2).masked_fill(~mask, 0)  # (B, T)
    steps = A[y[:, :-1], y[:, 1:]].masked_fill(~mask[:, 1:], 0)  # (B, T − 1)
    last = y.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)  # (B,)
    return start[y[:, 0]] + words.sum(dim=1) + steps.sum(dim=1) + end[last]


def _forward(s: Tensor, A: Tensor, start: Tensor, end: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """α_1 = start + s_1, α_t(j) = s_t(j) + log Σ_i exp(α_{t−1}(i) + A[i, j]), (B, T, K); log Z (B,)."""
    A_T = A.t().contiguous()  # (j, i): contiguous along the summed axis
    alpha = [start + s[:, 0]]
    for s_t in s.unbind(1)[1:]:
        alpha.append(s_t + (alpha[-1][:, None] + A_T).logsumexp(dim=-1))
    alphas = torch.stack(alpha, dim=1)
    rows = torch.arange(len(s), device=s.device)
    return alphas, (alphas[rows, mask.sum(dim=1) - 1] + end).logsumexp(dim=-1)


def _backward(s: Tensor, A: Tensor, end: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, from t = T down to 1, A[i, j] + s_{t+1}(j) + β_{t+1}(j) (B, K, K) and its log-sum over j, β_t (B, K).

    β is `end` at the last word of a row and on padding; the first tensor is `-inf` at t = T.
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
    """(…, K) α_t + β_t -> (…, 1) log Z as computed at word t.

    The values for different t differ only by rounding; with the value computed at word t, the marginals of word t
    sum to 1. If a row has no path, the result is `inf`, so that p is 0 instead of 0 / 0.
    """
    log_z = joint.logsumexp(dim=-1, keepdim=True)
    return log_z.masked_fill(torch.isneginf(log_z), torch.inf)


class _LogZ(torch.autograd.Function):
    """Log Z with an analytic gradient: ∂ log Z / ∂s_t(k) = p(y_t = k), and likewise for A, start and end.

    This avoids the 0 / 0 in the gradient of a logsumexp whose arguments are all `-inf`.
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
        dA, betas = s.new_zeros(len(s), *A.shape), []  # (B, K, K): accumulated, not stored for every t
        for alpha_t, (ahead, beta_t) in zip(alpha.unbind(1)[::-1], _backward(s, A, end, mask), strict=True):
            # p(y_t = i, y_{t+1} = j) = exp(α_t(i) − log Z + A[i, j] + s_{t+1}(j) + β_{t+1}(j))
            dA += ((alpha_t - _log_z(alpha_t + beta_t))[:, :, None] + ahead).exp_()
            betas.append(beta_t)
        grad = grads[0][:, None, None]
        ds = _posterior(alpha, torch.stack(betas[::-1], dim=1), mask) * grad
        last = torch.arange(len(s), device=s.device), mask.sum(dim=1) - 1
        # sums stay in fp32; a matrix product might not
        return ds, (dA * grad).sum(dim=0), ds[:, 0].sum(dim=0), ds[last].sum(dim=0), None
