"""Strided evaluation: overlapping windows give each token at least W − stride tokens of context.

The cost is W / stride times that of disjoint windows.
"""

import numpy as np
import torch

from chainrule.data.encoded import EncodedText
from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.neural.device import exact_inference
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes.hidden_states import iter_hidden_states
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent


def strided_log_probs(model: NeuralModel, text: EncodedText, stride: int, progress: Progress = silent) -> Floats:
    """(N,) log p of each token, with windows starting every `stride` tokens."""
    window = model.network.window
    if window is None:
        raise UsageError("--stride slides the window of a Transformer; this model has no window")
    if not 1 <= stride <= window:
        raise UsageError(f"--stride is {stride}; choose 1 to {window}, the model's window")
    log_probs = np.empty(text.tokens)
    targets = torch.from_numpy(text.ids.astype(np.int64)).to(model.device)
    done = 0
    for positions, hidden in iter_hidden_states(model, text, stride):
        with exact_inference():
            log_p = model.network.output.log_probs(hidden).gather(1, targets[positions, None])[:, 0]
        log_probs[positions.cpu().numpy()] = log_p.double().cpu().numpy()
        done += len(positions)
        progress("sliding the window", done, text.tokens)
    return check_outputs(log_probs, model.network)
