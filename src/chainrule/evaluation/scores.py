"""Log-probability of every token of a text, by any model; what evaluation, mixing and scoring are made of."""

import numpy as np

from chainrule.data.batches import TOKENS_PER_BATCH, line_batches, stream_batches
from chainrule.data.encoded import Encoded
from chainrule.lm import AnyModel, Floats
from chainrule.progress import Progress, silent


def token_log_probs(
    lm: AnyModel, text: Encoded, progress: Progress = silent, tokens_per_batch: int = TOKENS_PER_BATCH
) -> Floats:
    """Log p(w_t | w_<t) in nats, (N,), by the model's own context rule; the same whatever the batch size."""
    log_probs = np.empty(len(text.ids))
    bos = lm.vocabulary.bos
    done = 0
    if lm.context == "line":
        for batch, positions in line_batches(text, bos, tokens_per_batch):
            scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
            log_probs[positions[batch.mask]] = scores[batch.mask]
            done += int(batch.mask.sum())
            progress("scoring", done, len(text.ids))
    else:
        state = lm.start(1)
        for batch, positions in stream_batches(text, bos, tokens_per_batch):
            scores, state = lm.score(batch, state)
            log_probs[positions] = scores
            done += scores.size
            progress("scoring", done, len(text.ids))
    return log_probs
