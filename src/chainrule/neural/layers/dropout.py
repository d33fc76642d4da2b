"""Four kinds of dropout: of units, variational, of weights (DropConnect), of embedding rows.

A process or micro-batch that computes a part of a batch on the CPU draws the masks of the whole batch and takes its
rows, so that the result does not depend on how the batch is divided. On a GPU it draws its own masks.
"""

import torch
from torch import Tensor

from chainrule.neural.config import ModelConfig
from chainrule.training.batches import current_part


def rate(p: float | None, config: ModelConfig) -> float:
    """Return the dropout rate `p`, or the general one if it is not set."""
    return config.dropout if p is None else p


def apply(x: Tensor, config: ModelConfig, is_on: bool, p: float | None = None, time: int = 1) -> Tensor:
    """Apply dropout with one mask for all steps along the axis `time` if `config.locked`, else one per step."""
    p = rate(p, config)
    return locked(x, p, is_on, time) if config.locked else units(x, p, is_on, rows=1 - time)


def keep_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Mask that is 0 with probability p and 1/(1-p) otherwise, which preserves the mean."""
    return torch.empty(shape, device=like.device, dtype=like.dtype).bernoulli_(1 - p).div_(1 - p)


def is_sliced(x: Tensor) -> bool:
    """Whether masks are drawn for a larger batch of which `x` has a part of the rows."""
    return not x.is_cuda and current_part() is not None


def row_mask(like: Tensor, shape: tuple[int, ...], p: float, rows: int) -> Tensor:
    """Mask of a tensor whose axis `rows` has the rows of the current part of a batch."""
    part = None if like.is_cuda else current_part()  # not read by a compiled network on a GPU
    if part is None:
        return keep_mask(like, shape, p)
    whole = tuple(part.total_rows if axis == rows else size for axis, size in enumerate(shape))
    return keep_mask(like, whole, p).index_select(rows, torch.from_numpy(part.rows))


def units(x: Tensor, p: float, is_on: bool, rows: int = 0) -> Tensor:
    """Standard dropout of single values (Srivastava et al. 2014); `rows` is the axis of the rows of the batch.

    torch draws in memory order: with a contiguous `x`, the masks of the parts of a batch are those of the whole.
    """
    if p and is_on and is_sliced(x):
        return x * row_mask(x, tuple(x.shape), p, rows)
    return torch.nn.functional.dropout(x, p, training=is_on) if p else x


def locked(x: Tensor, p: float, is_on: bool, time: int = 1) -> Tensor:
    """Variational dropout (Gal & Ghahramani 2016): one mask per row for all steps along the axis `time`."""
    if not (is_on and p):
        return x
    shape = tuple(1 if axis == time else size for axis, size in enumerate(x.shape))
    return x * row_mask(x, shape, p, rows=1 - time)


def drop_connect(W: Tensor, p: float, is_on: bool) -> Tensor:
    """DropConnect (Wan et al. 2013) on a recurrent matrix, with the same mask at every time step."""
    return W * keep_mask(W, tuple(W.shape), p) if is_on and p else W


def embedding_rows(E: Tensor, p: float, is_on: bool) -> Tensor:
    """Embedding dropout: drop whole rows of the (V, D) embedding, so that a word is dropped at all positions."""
    return E * keep_mask(E, (E.shape[0], 1), p) if is_on and p else E
