"""The validation loss while a network learns: quick, and close to what evaluation will say exactly.

A stream is read in columns side by side, each from an empty state; evaluation reads it as the one stream it is.
"""

import dataclasses

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.evaluation.scores import token_log_probs
from chainrule.lm import Batch, Context
from chainrule.neural.adapter import NeuralModel

COLUMNS = 16
SHORTEST = 1024  # tokens: fewer columns where they would be shorter
TOKENS_AT_ONCE = 512


def sample(text: Encoded, tokens: int, context: Context) -> Encoded:
    """About `tokens` tokens of a text, spread evenly over it; 0: all of it.

    Of lines whole lines, of a stream as many pieces as `mean_nats` reads columns.
    """
    if not 0 < tokens < text.tokens:
        return text
    if context == "stream":
        pieces = max(1, min(COLUMNS, tokens // SHORTEST))
        starts = np.arange(pieces) * (text.tokens // pieces)
        ids = np.concatenate([text.ids[start : start + tokens // pieces] for start in starts])
    else:
        ends = np.flatnonzero(text.ids == text.eos) + 1
        chosen = np.linspace(0, len(ends) - 1, max(1, round(len(ends) * tokens / text.tokens))).astype(int)
        starts = np.concatenate([[0], ends[:-1]])
        ids = np.concatenate([text.ids[starts[i] : ends[i]] for i in chosen])
    return dataclasses.replace(text, ids=ids)


def mean_nats(model: NeuralModel, text: Encoded) -> float:
    """Mean −log p a token, of those that are possible: an unknown word of a closed vocabulary is none."""
    possible = model.vocabulary.predictable
    if model.context == "line":
        return float(-token_log_probs(model, text)[possible[text.ids]].mean())
    B = max(1, min(COLUMNS, text.tokens // SHORTEST))
    L = text.tokens // B
    targets = text.ids[: B * L].reshape(B, L)
    first = np.concatenate([[model.vocabulary.bos], targets[:-1, -1]])
    inputs = np.concatenate([first[:, None], targets[:, :-1]], axis=1)
    counts = possible[targets]  # (B, L)
    state, nats = model.start(B), 0.0
    for t in range(0, L, TOKENS_AT_ONCE):
        cut = slice(t, t + TOKENS_AT_ONCE)
        piece = Batch(inputs[:, cut], targets[:, cut], np.ones(targets[:, cut].shape, dtype=bool))
        scores, state = model.score(piece, state)
        nats -= scores[counts[:, cut]].sum()
    return float(nats / counts.sum())
