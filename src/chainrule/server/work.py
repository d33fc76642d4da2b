"""Requests to a model and their state: jobs, results, tasks and decode slots.

Shapes: T tokens of a text, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from chainrule.decoding.filters import TokenHistory
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.sample import spawn_generators
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import make_history
from chainrule.lm import Floats, Vocabulary
from chainrule.server.post import ResponseBatcher, ResponseChannel

Top = tuple[tuple[int, float], ...]
"""Token ids and log-probabilities, the most probable first."""

Outputs = Literal["nothing", "scores", "all"]
"""Output of prefill: only the state, the log-probability of each token, or whole distributions."""


@dataclass(frozen=True, slots=True)
class Job:
    """A generation request: samples that continue a prompt."""

    prompt: tuple[int, ...]  # without <s>
    settings: Decoding
    samples: int = 1
    top: int = 0  # alternatives per token
    stop_checks: Callable[[], Callable[[int], bool]] | None = None  # factory of stop checks, one per sample


@dataclass(frozen=True, slots=True)
class TokenResult:
    """A generated token of one sample."""

    sample: int
    id: int
    log_prob: float  # nats, of the model, before any filter
    top: Top
    finish: Literal["stop", "length"] | None  # None: not finished


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Scores of a text."""

    log_probs: Floats  # (T,) log p of each token given the previous ones
    top: list[Top]  # alternatives by position
    next_log_probs: Floats  # (V,) distribution after the last token


class Task:
    """A queued request: all tokens but the last are prefilled in chunks, the last one is stepped."""

    outputs: Outputs = "nothing"

    def __init__(self, ids: Sequence[int], vocabulary: Vocabulary, channel: ResponseChannel) -> None:
        self.tokens = np.array([vocabulary.bos, *ids], dtype=np.int64)
        self.done = 0  # tokens processed
        self.state: Any = None
        self.channel = channel

    @property
    def remaining(self) -> int:
        """Number of tokens left to prefill."""
        return len(self.tokens) - 1 - self.done

    @property
    def is_finished(self) -> bool:
        """Whether the task has failed or its client no longer waits."""
        return self.channel.is_closed

    def record(self, log_p: Floats) -> None:
        """Store the prefill output of the next n tokens: (n,) scores or (n, V) distributions."""

    def rows(self) -> "list[Slot]":
        """Return the decode slots of the task after prefill."""
        raise NotImplementedError

    def fail(self, error: Exception, responses: ResponseBatcher) -> None:
        """End the task with an error."""
        responses.send(self.channel, error, is_last=True)
        self.channel.is_closed = True


class Slot:
    """A sequence that is decoded token by token."""

    shaping: Decoding | None = None  # filter settings; None: nothing is sampled

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state = task.state  # None while it is in the batch
        self.id = int(task.tokens[-1])  # next input token
        self.steps = 0  # since it joined the batch
        self.is_ended = False

    @property
    def is_finished(self) -> bool:
        """Whether the sequence has ended or its task is finished."""
        return self.is_ended or self.task.is_finished

    def advance(self, log_p: Floats, id_: int | None, responses: ResponseBatcher) -> None:
        """Process the next distribution, (V,), and the token sampled from it."""
        raise NotImplementedError


class GenerationTask(Task):
    """The samples of a generation job."""

    def __init__(self, job: Job, vocabulary: Vocabulary, channel: ResponseChannel) -> None:
        super().__init__(job.prompt, vocabulary, channel)
        self.job = job
        self.prompt = Prompt(job.prompt, vocabulary)
        self.shaping = replace(job.settings, seed=None, max_tokens=0, stop=())  # equal for slots with equal filters

    def rows(self) -> list[Slot]:
        """Return one slot per sample; the i-th generator depends only on the seed and i."""
        rngs = spawn_generators(self.job.settings.seed, self.job.samples)
        words = make_history(self.prompt.words, self.shaping)
        return [SampleSlot(self, i, rng, words.fork()) for i, rng in enumerate(rngs)]


class SampleSlot(Slot):
    """A slot that samples one continuation."""

    def __init__(self, task: GenerationTask, index: int, rng: np.random.Generator, text: TokenHistory) -> None:
        super().__init__(task)
        self.job, self.prompt = task.job, task.prompt
        self.shaping: Decoding = task.shaping
        self.index, self.rng = index, rng
        self.drawn = 0
        self.is_stopped_by = task.job.stop_checks() if task.job.stop_checks is not None else None
        self.text = text  # prompt and generated tokens

    def advance(self, log_p: Floats, id_: int | None, responses: ResponseBatcher) -> None:
        """Send the token and the finish reason, if any."""
        assert id_ is not None
        self.id = id_
        self.drawn += 1
        self.text.append(id_)
        finish: Literal["stop", "length"] | None = None
        is_stopped = self.is_stopped_by is not None and self.is_stopped_by(id_)
        if is_stopped or id_ == self.prompt.vocabulary.eos:
            finish = "stop"
        elif self.drawn == self.job.settings.max_tokens:
            finish = "length"
        self.is_ended = finish is not None
        top = top_tokens(log_p[None], self.job.top)[0]
        token = TokenResult(self.index, id_, float(log_p[id_]), top, finish)
        responses.send(self.task.channel, token, is_last=self.is_ended)


class ScoringTask(Task):
    """Scores a text; with `top=None`, only the distribution after it is returned."""

    def __init__(
        self, ids: Sequence[int], top: int | None, vocabulary: Vocabulary, channel: ResponseChannel
    ) -> None:
        super().__init__(ids, vocabulary, channel)
        self.log_probs = np.full(len(ids), np.nan)  # NaN until scored
        self.top: list[Top] = []
        self.width = top or 0
        self.outputs = "nothing" if top is None else "all" if top else "scores"

    def record(self, log_p: Floats) -> None:
        """Store the log-probabilities of the tokens and the alternatives."""
        first, n = self.done, len(log_p)
        if self.outputs == "all":
            self.top += top_tokens(log_p, self.width)
            log_p = log_p[np.arange(n), self.tokens[first + 1 : first + 1 + n]]
        else:
            self.top += [()] * n
        self.log_probs[first : first + n] = log_p

    def rows(self) -> list[Slot]:
        """Return the slot whose single step gives the next distribution."""
        return [ScoringSlot(self)]


class ScoringSlot(Slot):
    """A slot that computes the distribution after a scored text."""

    def advance(self, log_p: Floats, id_: int | None, responses: ResponseBatcher) -> None:
        """Send the result."""
        assert isinstance(self.task, ScoringTask)
        result = ScoreResult(self.task.log_probs, self.task.top, np.array(log_p))
        responses.send(self.task.channel, result, is_last=True)
        self.is_ended = True


def top_tokens(log_p: Floats, k: int) -> list[Top]:
    """Return the k most probable tokens of each row of (n, V), ties by lowest id, without impossible tokens.

    >>> tops(np.log([[0.1, 0.4, 0.1, 0.4]]), 2)[0] == ((1, np.log(0.4)), (3, np.log(0.4)))
    True
    """
    V = log_p.shape[-1]
    if k < 1:
        return [()] * len(log_p)
    if k == 1:
        rows = list(log_p.argmax(axis=-1)[:, None])
    else:
        kth = np.partition(log_p, max(V - k, 0), axis=-1)[:, max(V - k, 0)]
        candidates = (np.flatnonzero(row >= threshold) for row, threshold in zip(log_p, kth, strict=True))
        rows = [ids[np.argsort(-row[ids], kind="stable")][:k] for row, ids in zip(log_p, candidates, strict=True)]
    return [
        tuple((int(i), float(row[i])) for i in ids if row[i] > -np.inf)
        for row, ids in zip(log_p, rows, strict=True)
    ]
