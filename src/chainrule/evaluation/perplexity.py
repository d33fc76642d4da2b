"""Perplexity, bits per byte and the other metrics of `chainrule evaluate`, from token log-probabilities.

Per-token metrics use p(`<unk>`) without the spelling. Bits per byte, bits per character and perplexity per word
include the spellings of unknown words and are comparable across tokenizers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.data.encoded import (
    TOKENS_PER_BATCH,
    EncodedText,
    line_batches,
    line_chunks,
    long_lines,
    stream_batches,
)
from chainrule.lm import AnyModel, Batch, Floats, Ids
from chainrule.progress import Progress, silent

LN2 = float(np.log(2))
UNITS: Final = {"nats": 1.0, "bits": 1 / math.log(2), "log10": 1 / math.log(10)}
"""Factors that convert natural logarithms to base e, 2 and 10."""
CHUNK_BATCHES = 32
"""Batches' worth of tokens given to `score_lines` at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Metrics of a model on a text, unrounded; infinite if a token has probability 0."""

    sentences: int
    tokens: int  # predicted tokens: </s> counted, <s> not
    oov: int
    words: int
    characters: int
    bytes: int
    nats: float  # −log p(tokens)
    nats_known: float  # −log p of the tokens other than <unk>
    nats_of_spellings: float  # −log p(spellings)
    seconds: float
    cause: str | None = None  # the first token with probability 0 and its position
    replaced: int = 0  # invalid UTF-8 sequences replaced
    is_upper_bound: bool = False  # only one of several possible segmentations was scored

    @property
    def nats_per_token(self) -> float:
        """Cross-entropy in nats."""
        return self.nats / self.tokens

    @property
    def bits_per_token(self) -> float:
        """Cross-entropy in bits."""
        return self.nats_per_token / LN2

    @property
    def perplexity(self) -> float:
        """P(w_1…w_N)^(−1/N)."""
        return _exp(self.nats_per_token)

    @property
    def perplexity_excluding_oov(self) -> float:
        """Perplexity over the in-vocabulary tokens."""
        known = self.tokens - self.oov
        return _exp(self.nats_known / known) if known else float("nan")

    @property
    def perplexity_per_word(self) -> float:
        """Perplexity per word including spellings; a line break counts as a word."""
        return _exp(self._nats_of_text / (self.words + self.sentences))

    @property
    def bits_per_character(self) -> float:
        """Bits per character including spellings; a line break counts as a character."""
        return self._nats_of_text / LN2 / self.characters

    @property
    def bits_per_byte(self) -> float:
        """−log₂[p(tokens) p(spellings)] / bytes, comparable across all models."""
        return self._nats_of_text / LN2 / self.bytes

    @property
    def infinite(self) -> bool:
        """Whether some token has probability 0."""
        return bool(np.isinf(self.nats))

    @property
    def tokens_per_second(self) -> float:
        """Scoring speed."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def _nats_of_text(self) -> float:
        return self.nats + self.nats_of_spellings


def summarize(
    text: EncodedText,
    log_probs: Floats,
    spelling_log_probs: Floats,
    *,
    seconds: float,
    cause: str | None = None,
    is_upper_bound: bool = False,
) -> Evaluation:
    """Compute the metrics of a text from log p of its tokens (N,) and of the spellings of its unknown words."""
    known = log_probs[text.ids != text.unk] if text.unk is not None else log_probs
    # 0.0 - x rather than -x: a text with probability 1 has 0 nats, not -0.
    return Evaluation(
        sentences=text.lines,
        tokens=text.tokens,
        oov=text.oov,
        words=text.words,
        characters=text.characters,
        bytes=text.bytes,
        nats=float(0.0 - log_probs.sum()),
        nats_known=float(0.0 - known.sum()),
        nats_of_spellings=float(0.0 - spelling_log_probs.sum()),
        seconds=seconds,
        cause=cause,
        replaced=text.replaced,
        is_upper_bound=is_upper_bound,
    )


def first_impossible(text: EncodedText, log_probs: Floats) -> tuple[int, int, int] | None:
    """Return the id, line and position in the line (from 1) of the first token with probability 0."""
    impossible = np.flatnonzero(np.isneginf(log_probs))
    if not len(impossible):
        return None
    position = int(impossible[0])
    ends = np.flatnonzero(text.ids[:position] == text.eos)
    start = int(ends[-1]) + 1 if len(ends) else 0
    return int(text.ids[position]), len(ends) + 1, position - start + 1


def perplexity(log_probs: Floats) -> float:
    """Return exp(−mean log p) of (N,) log-probabilities in nats; inf if a token is impossible.

    >>> round(perplexity(np.log([0.5, 0.5, 0.5])), 6)
    2.0
    """
    return _exp(-float(log_probs.mean()))


def _exp(nats: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


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
    """Fill in the log-probabilities of lines, in batches if the model needs them; yield as `_score_stream`."""
    for chunk in line_chunks(text, CHUNK_BATCHES * tokens):
        scores = lm.score_lines(text.ids[chunk])
        if scores is None:
            break
        log_probs[chunk] = scores
        yield len(scores)
    else:
        return
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
