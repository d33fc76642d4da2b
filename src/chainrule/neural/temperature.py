"""The softmax temperature: log p_T = log softmax(z / T), z the log-probabilities the model gives.

Lives here: the scores at several temperatures in one pass, and the choice of one on validation text. A model that
is too sure of itself is better above 1. Not here: temperature in generation (decoding/filters.py).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chainrule.data.encoded import Encoded
from chainrule.lm import Floats
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import exact
from chainrule.neural.hidden import hidden_pieces
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent

LOWEST, HIGHEST = 80, 130  # hundredths
COARSE = 5


def log_probs_at(
    model: NeuralModel, text: Encoded, temperatures: Sequence[float], progress: Progress = silent
) -> Floats:
    """Log p_T of each token at each of K temperatures, (K, N)."""
    found = np.empty((len(temperatures), text.tokens))
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    done = 0
    for positions, hidden in hidden_pieces(model, text):
        with exact():
            log_p = model.network.output.log_probs(hidden)  # (n, V)
            wanted = log_p.gather(1, targets[positions, None])[:, 0]
            scores = torch.stack([heated(log_p, wanted, T) for T in temperatures])  # (K, n)
        found[:, positions.cpu().numpy()] = scores.double().cpu().numpy()
        done += len(positions)
        progress("scoring by temperature", done, text.tokens)
    return check_outputs(found, model.network)


def heated(log_p: Tensor, wanted: Tensor, T: float) -> Tensor:
    """log p_T(w) = z_w / T − log Σ_v exp(z_v / T): all of (n, V), w's (n,) -> (n,).

    Some z is −log V or more and none above 0: near T = 1 the sum needs no largest term taken out.
    """
    return wanted / T - (log_p / T).exp_().sum(dim=-1).log_()


def tune(model: NeuralModel, valid: Encoded, progress: Progress = silent) -> float:
    """The hundredth that is best for a validation text.

    Its log-probability is concave in 1/T and so has one peak: within a coarse step of the best coarse one.
    """
    coarse = _best(model, valid, list(range(LOWEST, HIGHEST + 1, COARSE)), progress)
    near = range(max(LOWEST, coarse - COARSE + 1), min(HIGHEST, coarse + COARSE - 1) + 1)
    return _best(model, valid, list(near), progress) / 100


def _best(model: NeuralModel, valid: Encoded, hundredths: list[int], progress: Progress) -> int:
    log_p = log_probs_at(model, valid, [T / 100 for T in hundredths], progress)
    possible = log_p[:, ~np.isneginf(log_p).any(axis=0)]
    return hundredths[int(possible.sum(axis=1).argmax())]
