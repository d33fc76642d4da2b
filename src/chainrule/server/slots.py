"""Tasks and slots: the work of a request, and the sequences that the worker decodes for it.

A route submits a `Job` or a text to score. It becomes a `Task`, which is prefilled and then split into `Slot`s, one
per sequence; each decode step of the worker advances every slot of the batch by one token and sends its result.
Shapes: T tokens of a text, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np

from chainrule.decoding.filters import TokenHistory, make_history, top_indices
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.sample import spawn_generators
from chainrule.decoding.settings import Decoding
from chainrule.lm import Floats, Vocabulary
from chainrule.server.queue import ResponseBatcher, ResponseChannel

Top = tuple[tuple[int, float], ...]
"""Token ids and log-probabilities, the most probable first."""

Outputs = Literal["nothing", "scores", "all"]
"""Output of prefill: only the state, the log-probability of each token, or whole distributions."""

FinishReason = Literal["stop", "length"]


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
    finish: FinishReason | None  # None: not finished


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """Scores of a text."""

    log_probs: Floats  # (T,) log p of each token given the previous ones
    top: list[Top]  # alternatives by position
    next_log_probs: Floats  # (V,) distribution after the last token


class Task:
    """A queued request; all tokens but the last are prefilled, the last is the first input of its slots."""

    outputs: Outputs = "nothing"

    def __init__(self, ids: Sequence[int], vocabulary: Vocabulary, channel: ResponseChannel) -> None:
        self.tokens = np.array([vocabulary.bos, *ids], dtype=np.int64)
        self.done = 0  # tokens prefilled
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

    def make_slots(self) -> "list[Slot]":
        """Return the decode slots of the task after prefill."""
        raise NotImplementedError

    def fail(self, error: Exception, responses: ResponseBatcher) -> None:
        """End the task with an error."""
        responses.send(self.channel, error, is_last=True)
        self.channel.is_closed = True


class Slot:
    """A sequence that is decoded token by token."""

    filters: tuple[Any, ...] | None = None  # equal for slots with equal filters; None: nothing is sampled

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

    def make_slots(self) -> list[Slot]:
        """Return one slot per sample; the i-th generator depends only on the seed and i."""
        rngs = spawn_generators(self.job.settings.seed, self.job.samples)
        history = make_history(self.prompt.words, self.job.settings)
        return [SampleSlot(self, i, rng, history.fork()) for i, rng in enumerate(rngs)]


_filter_settings: Final = attrgetter(
    *(field.name for field in fields(Decoding) if field.name not in ("seed", "max_tokens", "stop"))
)


class SampleSlot(Slot):
    """A slot that samples one continuation."""

    def __init__(self, task: GenerationTask, index: int, rng: np.random.Generator, history: TokenHistory) -> None:
        super().__init__(task)
        self.job, self.eos = task.job, task.prompt.vocabulary.eos
        self.filters = _filter_settings(task.job.settings)
        self.index, self.rng = index, rng
        self.drawn = 0
        self.is_stopped_by = task.job.stop_checks() if task.job.stop_checks is not None else None
        self.history = history  # prompt and generated tokens

    def advance(self, log_p: Floats, id_: int | None, responses: ResponseBatcher) -> None:
        """Send the token and the finish reason, if any."""
        assert id_ is not None
        self.id = id_
        self.drawn += 1
        self.history.append(id_)
        finish: FinishReason | None = None
        is_stopped = self.is_stopped_by is not None and self.is_stopped_by(id_)
        if is_stopped or id_ == self.eos:
            finish = "stop"
        elif self.drawn == self.job.settings.max_tokens:
            finish = "length"
        self.is_ended = finish is not None
        token = TokenResult(self.index, id_, float(log_p[id_]), top_tokens(log_p, self.job.top), finish)
        responses.send(self.task.channel, token, is_last=self.is_ended)


class ScoringTask(Task):
    """Scores a text; with `top=None`, only the distribution after it is returned."""

    def __init__(
        self, ids: Sequence[int], top: int | None, vocabulary: Vocabulary, channel: ResponseChannel
    ) -> None:
        super().__init__(ids, vocabulary, channel)
        self.log_probs = np.full(len(ids), np.nan)  # NaN until scored
        self.top: list[Top] = []
        self.top_size = top or 0
        self.outputs = "nothing" if top is None else "all" if top else "scores"

    def record(self, log_p: Floats) -> None:
        """Store the log-probabilities of the tokens and the alternatives."""
        first, n = self.done, len(log_p)
        if self.outputs == "all":
            self.top += [top_tokens(row, self.top_size) for row in log_p]
            log_p = log_p[np.arange(n), self.tokens[first + 1 : first + 1 + n]]
        else:
            self.top += [()] * n
        self.log_probs[first : first + n] = log_p

    def make_slots(self) -> list[Slot]:
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


def top_tokens(log_p: Floats, k: int) -> Top:
    """Return the k most probable tokens of (V,), ties by lowest id, without impossible tokens.

    >>> top_tokens(np.log([0.1, 0.4, 0.1, 0.4]), 2) == ((1, np.log(0.4)), (3, np.log(0.4)))
    True
    """
    return tuple((int(i), float(log_p[i])) for i in top_indices(log_p, k) if log_p[i] > -np.inf) if k else ()
