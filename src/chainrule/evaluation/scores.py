"""Log-probability of every token of a text, by any model; what evaluation, mixing and scoring are made of."""

from collections.abc import Iterator

import numpy as np

from chainrule.data.batches import TOKENS_PER_BATCH, line_batches, stream_batches
from chainrule.data.encoded import Encoded
from chainrule.lm import AnyModel, Batch, Floats
from chainrule.progress import Progress, silent


def token_log_probs(
    lm: AnyModel, text: Encoded, progress: Progress = silent, tokens_per_batch: int = TOKENS_PER_BATCH
) -> Floats:
    """Log p(w_t | w_<t) in nats, (N,), by the model's own context rule; the same whatever the batch size."""
    log_probs = np.empty(len(text.ids))
    bos = lm.vocabulary.bos
    done = 0
    batches = line_batches if lm.context == "line" else stream_batches
    state = lm.start(1)
    for batch, positions in batches(text, bos, tokens_per_batch):
        if lm.context == "line":
            state = lm.start(len(batch.inputs))
        for cut in _columns(batch, tokens_per_batch):
            piece = Batch(batch.inputs[:, cut], batch.targets[:, cut], batch.mask[:, cut])
            scores, state = lm.score(piece, state)
            log_probs[positions[:, cut][piece.mask]] = scores[piece.mask]
        done += int(batch.mask.sum())
        progress("scoring", done, len(text.ids))
    return log_probs


def _columns(batch: Batch, width: int) -> Iterator[slice]:
    """The columns of a batch, piece by piece where a line is longer than what is read at once."""
    for first in range(0, batch.inputs.shape[1], width):
        yield slice(first, first + width)
