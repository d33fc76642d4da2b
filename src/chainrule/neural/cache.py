"""The continuous cache (Grave et al. 2017): words that followed a state like this one may come again.

    p(w) = (1 − λ) p_model(w) + λ p_cache(w),  p_cache(w) ∝ Σ_i exp(θ h_t·h_i) 1{w = x_{i+1}}, i the last N tokens

Lives here: the mixture and the choice of θ and λ on validation text. The cache is of the text, not of the state: it
runs on over lines that start anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import Encoded
from chainrule.lm import Floats
from chainrule.neural.adapter import LARGEST_PIECE, NeuralModel
from chainrule.neural.device import exact
from chainrule.neural.hidden import all_hidden
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent

SIZE = 2000  # N
BLOCK = 512  # tokens that look at the cache at once
SHARPNESS = (0.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)  # θ · mean |h|²: no unit, so that any network's h will do
WEIGHTS = (0.0, 0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3)  # λ


@dataclass(frozen=True, slots=True)
class Read:
    """A text as the model read it."""

    hidden: Tensor  # (N, D)
    targets: Tensor  # (N,)  what followed each
    is_kept: Tensor  # (N,)  what may come again: a word the model never predicts has no place in the cache
    log_p: Tensor  # (N,)  of the model alone


def read(model: NeuralModel, text: Encoded) -> Read:
    """The hidden vectors and the model's own scores, on its device."""
    hidden = all_hidden(model, text)
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    predictable = torch.from_numpy(model.vocabulary.predictable).to(model.device)
    rows = max(1, LARGEST_PIECE // model.vocabulary.size)
    with exact():
        log_p = torch.cat(
            [
                model.network.output.log_probs(h).gather(1, t[:, None])[:, 0]
                for h, t in zip(hidden.split(rows), targets.split(rows), strict=True)
            ]
        )
    return Read(hidden, targets, predictable[targets], log_p.double())


def cache_log_probs(text: Read, thetas: Sequence[float], size: int = SIZE, progress: Progress = silent) -> Tensor:
    """Log p_cache of each token for each θ, (K, N); NaN where there is nothing in the cache."""
    N = len(text.targets)
    found = text.log_p.new_empty(len(thetas), N)
    for first in range(0, N, BLOCK):
        last, oldest = min(first + BLOCK, N), max(0, first - size)
        with exact():
            found[:, first:last] = _block(text, slice(first, last), slice(oldest, last), thetas, size)
        progress("looking into the cache", last, N)
    return found


def _block(text: Read, now: slice, past: slice, thetas: Sequence[float], size: int) -> Tensor:
    """The t-th of `now` sees the i of `past` with t − N ≤ i < t: (K, n)."""
    t = torch.arange(now.start, now.stop, device=text.targets.device)[:, None]  # (n, 1)
    i = torch.arange(past.start, past.stop, device=text.targets.device)  # (M,)
    is_seen = (i < t) & (i >= t - size) & text.is_kept[past]  # (n, M)
    is_same = is_seen & (text.targets[now, None] == text.targets[past])  # 1{w = x_{i+1}}
    dots = text.hidden[now] @ text.hidden[past].t()  # h_t·h_i
    found = []
    for theta in thetas:
        e = (theta * dots).masked_fill(~is_seen, -torch.inf).double()
        found.append(torch.logsumexp(e.masked_fill(~is_same, -torch.inf), 1) - torch.logsumexp(e, 1))
    return torch.stack(found)  # an empty cache: −inf − (−inf)


def mixed(log_p: Tensor, log_cache: Tensor, weight: float) -> Tensor:
    """log[(1 − λ) p + λ p_cache], (N,); the model alone where the cache is empty."""
    if weight == 0:
        return log_p
    both = torch.logaddexp(log_p + np.log1p(-weight), log_cache + np.log(weight))
    return torch.where(log_cache.isnan(), log_p, both)


def cached_log_probs(
    model: NeuralModel, text: Encoded, theta: float, weight: float, size: int = SIZE, progress: Progress = silent
) -> Floats:
    """Log p of each token (N,), the cache filled by those before it."""
    made = read(model, text)
    scores: Floats = mixed(made.log_p, cache_log_probs(made, [theta], size, progress)[0], weight).cpu().numpy()
    return check_outputs(scores, model.network)


def tune(model: NeuralModel, valid: Encoded, size: int = SIZE, progress: Progress = silent) -> tuple[float, float]:
    """θ and λ best for a validation text."""
    made = read(model, valid)
    scale = float(made.hidden.square().sum(1).mean().clamp(min=1e-12))
    thetas = [sharpness / scale for sharpness in SHARPNESS]
    found = cache_log_probs(made, thetas, size, progress)
    possible = made.log_p > -torch.inf
    totals = {
        (theta, weight): float(mixed(made.log_p, log_cache, weight)[possible].sum())
        for theta, log_cache in zip(thetas, found, strict=True)
        for weight in WEIGHTS
    }
    return max(totals, key=lambda choice: totals[choice])
