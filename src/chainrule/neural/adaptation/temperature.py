"""Softmax temperature scaling: log p_T = log softmax(z / T), where z are the model's log-probabilities.

The temperature is chosen on validation text; an overconfident model needs T > 1.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import EncodedText
from chainrule.lm import Floats
from chainrule.neural.device import exact_inference
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes.hidden_states import iter_hidden_states
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent

LOWEST, HIGHEST = 80, 130  # hundredths
COARSE = 5


def log_probs_at(
    model: NeuralModel, text: EncodedText, temperatures: Sequence[float], progress: Progress = silent
) -> Floats:
    """(K, N) log p_T of each token at each of K temperatures."""
    log_probs = np.empty((len(temperatures), text.tokens))
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    done = 0
    for positions, hidden in iter_hidden_states(model, text):
        with exact_inference():
            log_p = model.network.output.log_probs(hidden)  # (n, V)
            target_log_p = log_p.gather(1, targets[positions, None])[:, 0]
            scores = torch.stack([scaled_log_probs(log_p, target_log_p, T) for T in temperatures])  # (K, n)
        log_probs[:, positions.cpu().numpy()] = scores.double().cpu().numpy()
        done += len(positions)
        progress("scoring by temperature", done, text.tokens)
    return check_outputs(log_probs, model.network)


def scaled_log_probs(log_p: Tensor, target_log_p: Tensor, T: float) -> Tensor:
    """log p_T(w) = z_w / T − log Σ_v exp(z_v / T): (n, V) log p, (n,) target log p -> (n,).

    The largest z lies between −log V and 0, so near T = 1 the sum is stable without subtracting the maximum.
    """
    return target_log_p / T - (log_p / T).exp_().sum(dim=-1).log_()


def tune(model: NeuralModel, valid: EncodedText, progress: Progress = silent) -> float:
    """Return the best temperature in steps of 0.01 on a validation text.

    The log-likelihood is concave in 1/T, so its peak lies within one coarse step of the best coarse temperature.
    """
    coarse = _best(model, valid, list(range(LOWEST, HIGHEST + 1, COARSE)), progress)
    candidates = range(max(LOWEST, coarse - COARSE + 1), min(HIGHEST, coarse + COARSE - 1) + 1)
    return _best(model, valid, list(candidates), progress) / 100


def _best(model: NeuralModel, valid: EncodedText, hundredths: list[int], progress: Progress) -> int:
    log_p = log_probs_at(model, valid, [T / 100 for T in hundredths], progress)
    possible = log_p[:, ~np.isneginf(log_p).any(axis=0)]
    return hundredths[int(possible.sum(axis=1).argmax())]
