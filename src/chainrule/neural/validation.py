"""Validation loss during training: a fast approximation of the exact evaluation.

A stream is read as parallel columns, each from an empty state, instead of one sequential stream.
"""

import dataclasses

import numpy as np

from chainrule.data.encoded import EncodedText
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Batch, Context
from chainrule.neural.model import NeuralModel

COLUMNS = 16
SHORTEST = 1024  # minimum tokens per column; fewer columns for a short text
TOKENS_AT_ONCE = 512


def subsample(text: EncodedText, tokens: int, context: Context) -> EncodedText:
    """Subsample about `tokens` tokens evenly from a text; 0: all of it.

    Takes whole lines, or as many pieces of a stream as `mean_nats` reads columns.
    """
    if not 0 < tokens < text.tokens:
        return text
    if context == "stream":
        pieces = max(1, min(COLUMNS, tokens // SHORTEST))
        starts = np.arange(pieces) * (text.tokens // pieces)
        ids = np.concatenate([text.ids[start : start + tokens // pieces] for start in starts])
    else:
        ends = np.flatnonzero(text.ids == text.eos) + 1
        selected = np.linspace(0, len(ends) - 1, max(1, round(len(ends) * tokens / text.tokens))).astype(int)
        starts = np.concatenate([[0], ends[:-1]])
        ids = np.concatenate([text.ids[starts[i] : ends[i]] for i in selected])
    return dataclasses.replace(text, ids=ids)


def mean_nats(model: NeuralModel, text: EncodedText) -> float:
    """Mean −log p per token over possible tokens, i.e. without `<unk>` of a closed vocabulary."""
    is_predictable = model.vocabulary.predictable
    if model.context == "line":
        return float(-token_log_probs(model, text)[is_predictable[text.ids]].mean())
    B = max(1, min(COLUMNS, text.tokens // SHORTEST))
    L = text.tokens // B
    targets = text.ids[: B * L].reshape(B, L)
    first = np.concatenate([[model.vocabulary.bos], targets[:-1, -1]])
    inputs = np.concatenate([first[:, None], targets[:, :-1]], axis=1)
    counts = is_predictable[targets]  # (B, L)
    state, nats = model.start(B), 0.0
    for t in range(0, L, TOKENS_AT_ONCE):
        cut = slice(t, t + TOKENS_AT_ONCE)
        piece = Batch(inputs[:, cut], targets[:, cut], np.ones(targets[:, cut].shape, dtype=bool))
        scores, state = model.score(piece, state)
        nats -= scores[counts[:, cut]].sum()
    return float(nats / counts.sum())
