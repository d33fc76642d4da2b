"""Four kinds of dropout: of units, variational, of weights (DropConnect), of embedding rows."""

import torch
from torch import Tensor

from chainrule.neural.config import ModelConfig


def rate(p: float | None, config: ModelConfig) -> float:
    """Return the dropout rate `p`, or the general one if it is not set."""
    return config.dropout if p is None else p


def apply(x: Tensor, config: ModelConfig, is_on: bool, p: float | None = None, time: int = 1) -> Tensor:
    """Apply dropout with one mask for all steps along the axis `time` if `config.locked`, else one per step."""
    return locked(x, rate(p, config), is_on, time) if config.locked else units(x, rate(p, config), is_on)


def keep_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Mask that is 0 with probability p and 1/(1-p) otherwise, which preserves the mean."""
    return torch.empty(shape, device=like.device, dtype=like.dtype).bernoulli_(1 - p).div_(1 - p)


def units(x: Tensor, p: float, is_on: bool) -> Tensor:
    """Standard dropout of single values (Srivastava et al. 2014)."""
    return torch.nn.functional.dropout(x, p, training=is_on) if p else x


def locked(x: Tensor, p: float, is_on: bool, time: int = 1) -> Tensor:
    """Variational dropout (Gal & Ghahramani 2016): one mask per row for all steps along the axis `time`."""
    if not (is_on and p):
        return x
    shape = tuple(1 if axis == time else size for axis, size in enumerate(x.shape))
    return x * keep_mask(x, shape, p)


def drop_connect(W: Tensor, p: float, is_on: bool) -> Tensor:
    """DropConnect (Wan et al. 2013) on a recurrent matrix, with the same mask at every time step."""
    return W * keep_mask(W, tuple(W.shape), p) if is_on and p else W


def embedding_rows(E: Tensor, p: float, is_on: bool) -> Tensor:
    """Embedding dropout: drop whole rows of the (V, D) embedding, so that a word is dropped at all positions."""
    return E * keep_mask(E, (E.shape[0], 1), p) if is_on and p else E
