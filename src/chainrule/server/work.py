"""What is asked of a model, what it answers, and how far each request has come.

Lives here: jobs, answers, tasks and the rows stepped for them. Not here: which of them runs when (worker.py).
Letters: T tokens of a text, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from chainrule.decoding.filters import TokenHistory
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.sample import generators
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import history
from chainrule.lm import Floats, Vocabulary
from chainrule.server.post import Outlet, Post

Top = tuple[tuple[int, float], ...]
"""Ids and their log p, the most probable first."""

Needs = Literal["nothing", "scores", "all"]
"""What a task is told of the tokens it reads: the state after them alone, the log p of each, or of every word."""


@dataclass(frozen=True, slots=True)
class Job:
    """Continuations of a prompt."""

    prompt: tuple[int, ...]  # without <s>
    settings: Decoding
    samples: int = 1
    top: int = 0  # alternatives told with each token
    stop_checks: Callable[[], Callable[[int], bool]] | None = None  # makes a sample's: does this id complete it?


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token of one sample."""

    sample: int
    id: int
    log_prob: float  # nats, the model's own, before any filter
    top: Top
    finish: Literal["stop", "length"] | None  # None: the sample goes on


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the model sees it."""

    log_probs: Floats  # (T,) log p of each id given those before
    top: list[Top]  # by position; the very same number as in log_probs where it is the same token
    after: Floats  # (V,) log p of what comes next


class Task:
    """A request: all but the last of its tokens are read in pieces, the last one is stepped."""

    needs: Needs = "nothing"

    def __init__(self, ids: Sequence[int], vocabulary: Vocabulary, outlet: Outlet) -> None:
        self.tokens = np.array([vocabulary.bos, *ids], dtype=np.int64)
        self.done = 0  # tokens that are in the state
        self.state: Any = None
        self.outlet = outlet

    @property
    def rest(self) -> int:
        """Tokens still to be read before the last."""
        return len(self.tokens) - 1 - self.done

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.outlet.is_closed

    def note(self, log_p: Floats) -> None:
        """Told of the next tokens' log p, (n,), or where it needs them of all words', (n, V)."""

    def rows(self) -> "list[Row]":
        """What is stepped, once all but the last token is read."""
        raise NotImplementedError

    def fail(self, error: Exception, post: Post) -> None:
        """It ends with this error, and no other task with it."""
        post.send(self.outlet, error, is_last=True)
        self.outlet.is_closed = True


class Row:
    """One text that is stepped token by token."""

    shaping: Decoding | None = None  # what is drawn from; None: nothing is drawn

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state = task.state  # while it is not in the batch
        self.id = int(task.tokens[-1])  # to be read next
        self.steps = 0  # since it came into the batch
        self.is_ended = False

    @property
    def is_over(self) -> bool:
        """Whether it has no further token to read, or nobody waits for it."""
        return self.is_ended or self.task.is_over

    def answer(self, log_p: Floats, id_: int | None, post: Post) -> None:
        """Told of the next distribution, (V,), and of the id drawn from it."""
        raise NotImplementedError


class Continuing(Task):
    """The samples of a job."""

    def __init__(self, job: Job, vocabulary: Vocabulary, outlet: Outlet) -> None:
        super().__init__(job.prompt, vocabulary, outlet)
        self.job = job
        self.prompt = Prompt(job.prompt, vocabulary)
        self.shaping = replace(job.settings, seed=None, max_tokens=0, stop=())  # equal where rows are shaped alike

    def rows(self) -> list[Row]:
        """One a sample; the i-th generator depends on the seed and on i alone."""
        rngs = generators(self.job.settings.seed, self.job.samples)
        words = history(self.prompt.words, self.shaping)
        return [Sample(self, i, rng, words.fork()) for i, rng in enumerate(rngs)]


class Sample(Row):
    """One continuation."""

    def __init__(self, task: Continuing, index: int, rng: np.random.Generator, text: TokenHistory) -> None:
        super().__init__(task)
        self.job, self.prompt = task.job, task.prompt
        self.shaping: Decoding = task.shaping
        self.index, self.rng = index, rng
        self.drawn = 0
        self.is_stopped_by = task.job.stop_checks() if task.job.stop_checks is not None else None
        self.text = text  # the prompt, and what was drawn

    def answer(self, log_p: Floats, id_: int | None, post: Post) -> None:
        """Tell the token, and whether it is the last."""
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
        top = tops(log_p[None], self.job.top)[0]
        drawn = Drawn(self.index, id_, float(log_p[id_]), top, finish)
        post.send(self.task.outlet, drawn, is_last=self.is_ended)


class Scoring(Task):
    """A text that is read, nothing drawn; without `top` only what comes after it is told."""

    def __init__(self, ids: Sequence[int], top: int | None, vocabulary: Vocabulary, outlet: Outlet) -> None:
        super().__init__(ids, vocabulary, outlet)
        self.log_probs = np.full(len(ids), np.nan)  # as long as it is not known
        self.top: list[Top] = []
        self.width = top or 0
        self.needs = "nothing" if top is None else "all" if top else "scores"

    def note(self, log_p: Floats) -> None:
        """Keep the log p of the text's tokens, and the alternatives."""
        first, n = self.done, len(log_p)
        if self.needs == "all":
            self.top += tops(log_p, self.width)
            log_p = log_p[np.arange(n), self.tokens[first + 1 : first + 1 + n]]
        else:
            self.top += [()] * n
        self.log_probs[first : first + n] = log_p

    def rows(self) -> list[Row]:
        """One step tells what comes after."""
        return [After(self)]


class After(Row):
    """The end of a text that is read."""

    def answer(self, log_p: Floats, id_: int | None, post: Post) -> None:
        """Tell all there is to tell of the text."""
        assert isinstance(self.task, Scoring)
        reading = Reading(self.task.log_probs, self.task.top, np.array(log_p))
        post.send(self.task.outlet, reading, is_last=True)
        self.is_ended = True


def tops(log_p: Floats, k: int) -> list[Top]:
    """(n, V) -> the k most probable words of each row, the lowest id first among equals; none that is impossible.

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
        found = (np.flatnonzero(row >= least) for row, least in zip(log_p, kth, strict=True))
        rows = [ids[np.argsort(-row[ids], kind="stable")][:k] for row, ids in zip(log_p, found, strict=True)]
    return [
        tuple((int(i), float(row[i])) for i in ids if row[i] > -np.inf)
        for row, ids in zip(log_p, rows, strict=True)
    ]
