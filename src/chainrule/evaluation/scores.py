"""Score every token of a text with any LanguageModel."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from chainrule.data.batches import TOKENS_PER_BATCH, line_batches, long_lines, stream_batches
from chainrule.data.encoded import EncodedText
from chainrule.lm import AnyModel, Batch, Floats, Ids
from chainrule.progress import Progress, silent


class TokenScorer:
    """Score a text piece by piece with a running state, in constant memory."""

    def __init__(self, lm: AnyModel, tokens_at_once: int = TOKENS_PER_BATCH) -> None:
        self._lm = lm
        self._tokens_at_once = tokens_at_once
        self._reset()

    def log_probs(self, ids: Ids) -> Floats:
        """Return log p(w_t | w_<t) in nats, (N,), of the next ids of the text; `</s>` ends a line."""
        log_probs = np.empty(len(ids))
        first = 0
        for last in self._ends(ids):
            log_probs[first:last] = self._read(ids[first:last])
            if self._lm.context == "line" and ids[last - 1] == self._lm.vocabulary.eos:
                self._reset()
            first = last
        return log_probs

    def _reset(self) -> None:
        self._state: Any = self._lm.start(1)
        self._previous = self._lm.vocabulary.bos

    def _ends(self, ids: Ids) -> Iterator[int]:
        """Yield the ends of the pieces: line ends if the model resets there, and every `tokens_at_once` tokens."""
        is_line = self._lm.context == "line"
        breaks = np.flatnonzero(ids == self._lm.vocabulary.eos) + 1 if is_line else np.zeros(0, dtype=int)
        first = 0
        for last in [*breaks.tolist(), len(ids)]:
            yield from range(first + self._tokens_at_once, last, self._tokens_at_once)
            if last > first:
                yield last
            first = last

    def _read(self, ids: Ids) -> Floats:
        row = np.concatenate([np.array([self._previous], dtype=ids.dtype), ids])[None, :]  # (1, N + 1)
        batch = Batch(row[:, :-1], row[:, 1:], np.ones((1, len(ids)), dtype=bool))
        scores, self._state = self._lm.score(batch, self._state)
        self._previous = int(ids[-1])
        return np.asarray(scores[0])


def token_log_probs(
    lm: AnyModel, text: EncodedText, progress: Progress = silent, tokens_per_batch: int = TOKENS_PER_BATCH
) -> Floats:
    """Return log p(w_t | w_<t) in nats, (N,), with the model's context rule; independent of the batch size."""
    log_probs = np.empty(len(text.ids))
    done = 0
    score_text = _score_lines if lm.context == "line" else _score_stream
    for scored in score_text(lm, text, tokens_per_batch, log_probs):
        done += scored
        progress("scoring", done, len(text.ids))
    return log_probs


def _score_stream(lm: AnyModel, text: EncodedText, tokens: int, log_probs: Floats) -> Iterator[int]:
    """Fill in the log-probabilities of a stream; yield the number of tokens scored at each step."""
    state = lm.start(1)
    for batch, positions in stream_batches(text, lm.vocabulary.bos, tokens):
        scores, state = lm.score(batch, state)
        log_probs[positions[0]] = scores[0]
        yield positions.shape[1]


def _score_lines(lm: AnyModel, text: EncodedText, tokens: int, log_probs: Floats) -> Iterator[int]:
    """Fill in the log-probabilities of lines in batches, long lines in pieces; yield as `_score_stream`."""
    for batch, positions in line_batches(text, lm.vocabulary.bos, tokens, longest=tokens):
        scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
        log_probs[positions[batch.mask]] = scores[batch.mask]
        yield int(batch.mask.sum())
    for line in long_lines(text, tokens):
        scorer = TokenScorer(lm, tokens)
        for first in range(line.start, line.stop, tokens):
            piece = slice(first, min(first + tokens, line.stop))
            log_probs[piece] = scorer.log_probs(text.ids[piece])
            yield piece.stop - piece.start
