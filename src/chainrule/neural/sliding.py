"""A window that slides: each token predicted with at least W − stride tokens of context, at W / stride the cost.

Lives here: the scores of a text so read. Not here: the contract's own rule, which starts anew every W tokens.
"""

import numpy as np
import torch

from chainrule.data.encoded import Encoded
from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import exact
from chainrule.neural.hidden import hidden_pieces
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent


def sliding_log_probs(model: NeuralModel, text: Encoded, stride: int, progress: Progress = silent) -> Floats:
    """Log p of each token (N,), windows starting every `stride` tokens."""
    window = model.network.window
    if window is None:
        raise UsageError("--stride slides the window of a Transformer; this model has none and reads all that came")
    if not 1 <= stride <= window:
        raise UsageError(f"--stride is {stride}; choose 1 to {window}, the model's window")
    found = np.empty(text.tokens)
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    done = 0
    for positions, hidden in hidden_pieces(model, text, stride):
        with exact():
            log_p = model.network.output.log_probs(hidden).gather(1, targets[positions, None])[:, 0]
        found[positions.cpu().numpy()] = log_p.double().cpu().numpy()
        done += len(positions)
        progress("sliding the window", done, text.tokens)
    return check_outputs(found, model.network)
