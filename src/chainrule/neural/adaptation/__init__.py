"""Test-time adaptation of a trained network: temperature, neural cache, dynamic evaluation, strided windows.

Every hyperparameter is chosen on validation text, never on the test text. The model itself is not changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText
from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.neural.adaptation import cache, dynamic
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes.hidden_states import iter_hidden_states
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent
from chainrule.training.device import exact_inference

Kind = Literal["temperature", "cache", "dynamic", "stride"]


@dataclass(frozen=True, slots=True)
class AdaptedScores:
    """Log-probabilities (N,) of a text and the settings used to compute them."""

    log_probs: Floats
    settings: dict[str, float]


def adapt(
    model: NeuralModel,
    text: EncodedText,
    valid: EncodedText | None,
    kind: Kind,
    *,
    train: EncodedText | None = None,
    stride: int | None = None,
    progress: Progress = silent,
) -> AdaptedScores:
    """Tune the adaptation on `valid`, then score `text`; `stride` has nothing to tune and needs no `valid`.

    Dynamic evaluation collects gradient statistics on `train`, or on `valid` if there is no training text.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"there is no adaptation '{kind}'; choose one of {', '.join(get_args(Kind))}")
    if kind == "stride":
        if stride is None:
            raise UsageError("a sliding window needs a stride: the number of tokens between two windows")
        return AdaptedScores(strided_log_probs(model, text, stride, progress), {"stride": stride})
    if valid is None or not valid.tokens:
        raise UsageError(
            f"--{kind} chooses its settings on validation text, never on the test text: add --valid FILE"
        )
    if kind == "temperature":
        T = tune_temperature(model, valid, progress)
        return AdaptedScores(log_probs_at(model, text, [T], progress)[0], {"temperature": T})
    if kind == "cache":
        theta, weight = cache.tune(model, valid, progress=progress)
        log_p = cache.cached_log_probs(model, text, theta, weight, progress=progress)
        return AdaptedScores(log_p, {"theta": theta, "lambda": weight, "size": cache.SIZE})
    return _dynamic(model, text, valid, valid if train is None or not train.tokens else train, progress)


def _dynamic(
    model: NeuralModel, text: EncodedText, valid: EncodedText, statistics: EncodedText, progress: Progress
) -> AdaptedScores:
    evaluator = dynamic.DynamicEvaluator(model)
    evaluator.measure_rms(statistics, progress)
    rate, decay = dynamic.tune(evaluator, valid, progress)
    log_p = check_outputs(evaluator.score(text.ids, rate, decay, progress), model.network)
    settings = {"rate": rate, "decay": decay, "segment": evaluator.segment, "epsilon": evaluator.epsilon}
    return AdaptedScores(log_p, settings)


def strided_log_probs(model: NeuralModel, text: EncodedText, stride: int, progress: Progress = silent) -> Floats:
    """(N,) log p of each token, with windows starting every `stride` tokens."""
    window = model.network.window
    if window is None:
        raise UsageError("--stride slides the window of a Transformer; this model has no window")
    if not 1 <= stride <= window:
        raise UsageError(f"--stride is {stride}; choose 1 to {window}, the model's window")
    what = "sliding the window"
    scores = _score_text(model, text, 1, lambda log_p, target: target[None], what, progress, stride)
    return np.asarray(scores[0])


def _score_text(
    model: NeuralModel,
    text: EncodedText,
    rows: int,
    score: Callable[[Tensor, Tensor], Tensor],
    what: str,
    progress: Progress,
    stride: int | None = None,
) -> Floats:
    """(K, N) scores of the tokens, K = `rows`; `score` maps log p (n, V) and that of the targets (n,) to (K, n)."""
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    scores, done = np.empty((rows, text.tokens)), 0
    for positions, hidden in iter_hidden_states(model, text, stride):
        with exact_inference():
            log_p = model.network.output.log_probs(hidden)  # (n, V)
            values = score(log_p, log_p.gather(1, targets[positions, None])[:, 0])
        scores[:, positions.cpu().numpy()] = values.double().cpu().numpy()
        done += len(positions)
        progress(what, done, text.tokens)
    return check_outputs(scores, model.network)


LOWEST, HIGHEST = 80, 130  # hundredths
COARSE = 5


def log_probs_at(
    model: NeuralModel, text: EncodedText, temperatures: Sequence[float], progress: Progress = silent
) -> Floats:
    """(K, N) log p_T of each token at each of K temperatures."""

    def score(log_p: Tensor, target_log_p: Tensor) -> Tensor:
        return torch.stack([scaled_log_probs(log_p, target_log_p, T) for T in temperatures])

    return _score_text(model, text, len(temperatures), score, "scoring by temperature", progress)


def scaled_log_probs(log_p: Tensor, target_log_p: Tensor, T: float) -> Tensor:
    """log p_T(w) = z_w / T − log Σ_v exp(z_v / T): (n, V) log p, (n,) target log p -> (n,).

    The largest z lies between −log V and 0, so near T = 1 the sum is stable without subtracting the maximum.
    """
    return target_log_p / T - (log_p / T).exp_().sum(dim=-1).log_()


def tune_temperature(model: NeuralModel, valid: EncodedText, progress: Progress = silent) -> float:
    """Return the best temperature in steps of 0.01 on a validation text.

    The log-likelihood is concave in 1/T, so its peak lies within one coarse step of the best coarse temperature.
    """
    coarse = _best_temperature(model, valid, list(range(LOWEST, HIGHEST + 1, COARSE)), progress)
    candidates = range(max(LOWEST, coarse - COARSE + 1), min(HIGHEST, coarse + COARSE - 1) + 1)
    return _best_temperature(model, valid, list(candidates), progress) / 100


def _best_temperature(model: NeuralModel, valid: EncodedText, hundredths: list[int], progress: Progress) -> int:
    log_p = log_probs_at(model, valid, [T / 100 for T in hundredths], progress)
    possible = log_p[:, ~np.isneginf(log_p).any(axis=0)]
    return hundredths[int(possible.sum(axis=1).argmax())]
