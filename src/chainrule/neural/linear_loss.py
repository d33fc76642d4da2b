"""Fused linear layer and cross-entropy, −log softmax(W h + b)[target], with the gradient computed in forward.

The (N, V) probabilities are the largest tensor of a word model. They are computed in chunks of rows; since ∂ℓ/∂z =
p − y depends on nothing upstream, each chunk contributes its gradient at once and is discarded.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from chainrule.neural.precision import compute_dtype
from chainrule.training.threads import use_all_threads

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
