"""Continuous neural cache (Grave et al. 2017): boost words that followed similar hidden states.

    p(w) = (1 − λ) p_model(w) + λ p_cache(w),  p_cache(w) ∝ Σ_i exp(θ h_t·h_i) 1{w = x_{i+1}}, i the last N tokens

θ and λ are tuned on validation text. The cache spans line boundaries, although a `line` model is reset there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText
from chainrule.lm import Floats
from chainrule.neural.model import LARGEST_PIECE, NeuralModel
from chainrule.neural.probes.hidden_states import hidden_states
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference

SIZE = 2000  # N
BLOCK = 512  # query tokens per batch
SHARPNESS = (0.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0, 40.0)  # θ · mean |h|²: independent of the scale of h
WEIGHTS = (0.0, 0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3)  # λ


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Hidden states and model scores of a text."""

    hidden: Tensor  # (N, D)
    targets: Tensor  # (N,)  next token of each position
    is_cached: Tensor  # (N,)  whether the target is predictable and so enters the cache
    log_p: Tensor  # (N,)  log p of the model alone


def score_text(model: NeuralModel, text: EncodedText) -> ScoredText:
    """Compute hidden states and model scores of a text on the model's device."""
    hidden = hidden_states(model, text)
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    predictable = torch.from_numpy(model.vocabulary.predictable).to(model.device)
    rows = max(1, LARGEST_PIECE // model.vocabulary.size)
    with exact_inference():
        log_p = torch.cat(
            [
                model.network.output.log_probs(h).gather(1, t[:, None])[:, 0]
                for h, t in zip(hidden.split(rows), targets.split(rows), strict=True)
            ]
        )
    return ScoredText(hidden, targets, predictable[targets], log_p.double())


def cache_log_probs(
    text: ScoredText, thetas: Sequence[float], size: int = SIZE, progress: Progress = silent
) -> Tensor:
    """(K, N) log p_cache of each token for each θ; NaN where the cache is empty."""
    N = len(text.targets)
    log_probs = text.log_p.new_empty(len(thetas), N)
    for first in range(0, N, BLOCK):
        last, oldest = min(first + BLOCK, N), max(0, first - size)
        with exact_inference():
            log_probs[:, first:last] = _block(text, slice(first, last), slice(oldest, last), thetas, size)
        progress("reading the cache", last, N)
    return log_probs


def _block(text: ScoredText, now: slice, past: slice, thetas: Sequence[float], size: int) -> Tensor:
    """Query t of `now` sees the entries i of `past` with t − N ≤ i < t: (K, n)."""
    t = torch.arange(now.start, now.stop, device=text.targets.device)[:, None]  # (n, 1)
    i = torch.arange(past.start, past.stop, device=text.targets.device)  # (M,)
    is_visible = (i < t) & (i >= t - size) & text.is_cached[past]  # (n, M)
    is_same = is_visible & (text.targets[now, None] == text.targets[past])  # 1{w = x_{i+1}}
    dots = text.hidden[now] @ text.hidden[past].t()  # h_t·h_i
    log_probs = []
    for theta in thetas:
        e = (theta * dots).masked_fill(~is_visible, -torch.inf).double()
        log_probs.append(torch.logsumexp(e.masked_fill(~is_same, -torch.inf), 1) - torch.logsumexp(e, 1))
    return torch.stack(log_probs)  # empty cache: −inf − (−inf) = NaN


def interpolate(log_p: Tensor, log_cache: Tensor, weight: float) -> Tensor:
    """log[(1 − λ) p + λ p_cache], (N,); log p of the model alone where the cache is empty."""
    if weight == 0:
        return log_p
    log_mix = torch.logaddexp(log_p + np.log1p(-weight), log_cache + np.log(weight))
    return torch.where(log_cache.isnan(), log_p, log_mix)


def cached_log_probs(
    model: NeuralModel,
    text: EncodedText,
    theta: float,
    weight: float,
    size: int = SIZE,
    progress: Progress = silent,
) -> Floats:
    """(N,) log p of each token, with a cache of the preceding tokens."""
    states = score_text(model, text)
    scores: Floats = (
        interpolate(states.log_p, cache_log_probs(states, [theta], size, progress)[0], weight).cpu().numpy()
    )
    return check_outputs(scores, model.network)


def tune(
    model: NeuralModel, valid: EncodedText, size: int = SIZE, progress: Progress = silent
) -> tuple[float, float]:
    """Return the θ and λ with the highest likelihood on a validation text."""
    states = score_text(model, valid)
    scale = float(states.hidden.square().sum(1).mean().clamp(min=1e-12))
    thetas = [sharpness / scale for sharpness in SHARPNESS]
    log_caches = cache_log_probs(states, thetas, size, progress)
    possible = states.log_p > -torch.inf
    totals = {
        (theta, weight): float(interpolate(states.log_p, log_cache, weight)[possible].sum())
        for theta, log_cache in zip(thetas, log_caches, strict=True)
        for weight in WEIGHTS
    }
    return max(totals, key=lambda choice: totals[choice])
