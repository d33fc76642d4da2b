"""Worker thread of a model: continuous batching of all requests (prefill, decode steps, eviction).

A slot joins the batch at the next step and leaves it when it finishes or its request is cancelled. The joined state
is rebuilt only when slots join or leave. If more slots are ready than fit into the batch, they take turns.
Shapes: K slots in the batch, V vocabulary.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import numpy as np

from chainrule.decoding.filters import TokenHistory, apply_filters, make_history
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.sample import draw_tokens, spawn_generators
from chainrule.decoding.settings import Decoding, check_range
from chainrule.errors import ConfigError, InputError
from chainrule.lm import Advancing, AnyModel, Batch, Distributing, Floats, Vocabulary
from chainrule.model import Model
from chainrule.server.errors import shutting_down
from chainrule.server.queue import RequestQueue, ResponseBatcher, ResponseChannel

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

    >>> top_tokens(np.log([[0.1, 0.4, 0.1, 0.4]]), 2)[0] == ((1, np.log(0.4)), (3, np.log(0.4)))
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


TARGET_SECONDS: Final = 0.05
"""Target duration of a chunk."""

MAX_LOGITS: Final = 1 << 22
"""Maximum number of (B, T, V) or (K, V) log-probabilities in memory."""

FIRST_CHUNK, MIN_CHUNK, MAX_CHUNK, MIN_TOKENS_PER_TEXT = (
    256,
    128,
    1 << 15,
    4,
)  # tokens of a piece at first, at least, at most; of one text


class ChunkSize:
    """Chunk size in tokens, adapted to the measured duration."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.tokens = min(FIRST_CHUNK, self.most)

    def update(self, tokens: int, seconds: float) -> None:
        """Halve the size after a slow chunk; double it after a fast and full one."""
        if seconds > 2 * TARGET_SECONDS:
            self.tokens = max(min(MIN_CHUNK, self.most), self.tokens // 2)
        elif seconds < TARGET_SECONDS / 2 and 2 * tokens > self.tokens:
            self.tokens = min(self.most, 2 * self.tokens)


class Prefill:
    """Processes the prompts of tasks."""

    def __init__(self, lm: AnyModel, rows: int) -> None:
        self._lm, self._rows = lm, rows
        self._chunk_sizes: dict[Outputs, ChunkSize] = {
            "nothing": ChunkSize(MAX_CHUNK),
            "scores": ChunkSize(MAX_CHUNK),
            "all": ChunkSize(min(MAX_CHUNK, MAX_LOGITS // lm.vocabulary.size)),
        }

    def run(self, tasks: Sequence[Task], responses: ResponseBatcher) -> list[Task]:
        """Process one chunk of the tasks that need the same outputs as the first; return these tasks."""
        outputs = tasks[0].outputs
        chunk_size = self._chunk_sizes[outputs]
        compatible = [task for task in tasks if task.outputs == outputs]
        rows = self._rows if outputs != "all" or hasattr(self._lm, "distributions") else 1
        batch = compatible[: max(1, min(rows, chunk_size.most // MIN_TOKENS_PER_TEXT))]
        share = max(min(MIN_TOKENS_PER_TEXT, chunk_size.most), chunk_size.tokens // len(batch))
        start = time.perf_counter()
        try:
            token_count = self._run_chunk(batch, share)
        except Exception as error:
            if len(batch) == 1:
                batch[0].fail(error, responses)
            for task in batch if len(batch) > 1 else ():  # find the tasks that fail; the others go on
                self._run_alone(task, share, responses)
            return batch
        chunk_size.update(token_count, time.perf_counter() - start)
        return batch

    def _run_alone(self, task: Task, share: int, responses: ResponseBatcher) -> None:
        try:
            self._run_chunk([task], share)
        except Exception as error:
            task.fail(error, responses)

    def _run_chunk(self, tasks: Sequence[Task], share: int) -> int:
        """Process up to `share` tokens of each task; return the total number."""
        lengths = [min(task.remaining, share) for task in tasks]
        shape = (len(tasks), max(lengths))
        inputs, targets = (np.full(shape, self._lm.vocabulary.eos) for _ in range(2))
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            inputs[b, :n] = task.tokens[task.done : task.done + n]
            targets[b, :n] = task.tokens[task.done + 1 : task.done + 1 + n]
        mask = np.arange(shape[1]) < np.array(lengths)[:, None]
        state = join_states(self._lm, [task.state for task in tasks])
        log_p, after = score_batch(self._lm, Batch(inputs, targets, mask), state, tasks[0].outputs)
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            if log_p is not None:
                task.record(log_p[b, :n])
            task.state = after.select(np.array([b])) if len(tasks) > 1 else after
            task.done += n
        return sum(lengths)


def join_states(lm: AnyModel, states: Sequence[Any]) -> Any:
    """Join states along the batch axis; models that cannot join are only called with one."""
    return states[0] if len(states) == 1 else cast("Any", lm).join(states)


def score_batch(lm: AnyModel, batch: Batch, state: Any, outputs: Outputs) -> tuple[Floats | None, Any]:
    """Process a batch; return the requested outputs, None, (B, T) or (B, T, V), and the new state."""
    if outputs == "all":
        return distributions(lm, batch, state)
    if outputs == "nothing" and hasattr(lm, "advance"):
        return None, cast("Advancing[Any]", lm).advance(batch, state)
    scores, after = lm.score(batch, state)
    return (scores if outputs == "scores" else None), after


def distributions(lm: AnyModel, batch: Batch, state: Any) -> tuple[Floats, Any]:
    """Return the (B, T, V) log-probabilities and the new state; models without `distributions` are stepped."""
    if hasattr(lm, "distributions"):
        return cast("Distributing[Any]", lm).distributions(batch, state)
    assert len(batch.inputs) == 1
    log_probs = []
    for id_ in batch.inputs[0]:
        log_p, state = lm.step(state, np.array([id_]))
        log_probs.append(log_p)
    return np.stack(log_probs, axis=1), state


STEPS_PER_TURN: Final = 32
"""Steps after which a slot yields its place to a waiting one."""

READY_FACTOR: Final = 4
"""Maximum number of ready slots, as a multiple of the batch size; each holds a state in memory."""

SHAPED_NUMBERS: Final = 1 << 16
"""Log-probabilities filtered at a time, so that they fit into the CPU cache."""


class Worker:
    """Processes the requests of a queue until it is closed."""

    def __init__(self, lm: AnyModel, rows: int, requests: RequestQueue) -> None:
        self._lm, self._queue, self._responses = lm, requests, ResponseBatcher()
        # A model that cannot join states has a batch size of 1.
        self._max_slots = max(1, min(rows, MAX_LOGITS // lm.vocabulary.size)) if hasattr(lm, "join") else 1
        self._prefill = Prefill(lm, self._max_slots)
        self._new: deque[Task] = deque()  # not started
        self._prefilling: list[Task] = []
        self._ready: deque[Slot] = deque()  # prompt processed, not in the batch
        self._running: list[Slot] = []
        self._state: Any = None  # (K, …) joined state of the running slots
        self._shaped_at_once = max(1, SHAPED_NUMBERS // lm.vocabulary.size)

    def run(self) -> None:
        """Process requests until the queue is closed (target of the thread)."""
        try:
            while self._collect():
                self._run_prefill()
                self._update_batch()
                self._step()
                self._responses.flush()
        finally:
            self._queue.close()
            self._fail_all()

    def _collect(self) -> bool:
        """Accept new requests, blocking if there is nothing else to do; return False once the queue is closed."""
        is_idle = not (self._new or self._prefilling or self._ready or self._running)
        if is_idle:
            self._responses.flush(is_due=True)
        while True:
            try:
                task = self._queue.get(waits=is_idle)
            except queue.Empty:
                return True
            if task is None:
                return False
            self._new.append(task)
            is_idle = False

    def _run_prefill(self) -> None:
        """Process one chunk of the prompts; tasks whose prompt is done become ready slots."""
        while (
            self._new
            and len(self._prefilling) < self._max_slots
            and len(self._ready) < READY_FACTOR * self._max_slots
        ):
            task = self._new.popleft()
            if not task.is_finished:
                task.state = self._lm.start(1)
                self._prefilling.append(task)
        pending = [task for task in self._prefilling if task.remaining and not task.is_finished]
        processed = set(self._prefill.run(pending, self._responses)) if pending else set()
        self._prefilling.sort(
            key=lambda task: task in processed
        )  # stable sort: the other tasks come first next time
        for task in self._prefilling:
            if not task.remaining and not task.is_finished:
                self._ready.extend(task.rows())
                task.state = None  # now held by the slots
        self._prefilling = [task for task in self._prefilling if task.remaining and not task.is_finished]

    def _update_batch(self) -> None:
        """Evict finished slots and admit ready ones."""
        staying = [k for k, slot in enumerate(self._running) if not slot.is_finished]
        staying = self._take_turns(staying)
        joining: list[Slot] = []
        while self._ready and len(staying) + len(joining) < self._max_slots:
            slot = self._ready.popleft()
            if not slot.is_finished:
                slot.steps = 0
                joining.append(slot)
        if len(staying) < len(self._running):  # avoid copying a large state
            self._state = self._state.select(np.array(staying)) if staying else None
        if joining:
            old = [self._state] if staying else []
            self._state = join_states(self._lm, [*old, *(slot.state for slot in joining)])
        self._running = [*(self._running[k] for k in staying), *joining]
        for slot in joining:
            slot.state = None

    def _take_turns(self, stay: list[int]) -> list[int]:
        """Move slots that used up their turn to the end of the ready queue; return those that stay."""
        excess = len(stay) + len(self._ready) - self._max_slots
        yielding = [k for k in stay if self._running[k].steps >= STEPS_PER_TURN] if excess > 0 else []
        yielding = sorted(yielding, key=lambda k: -self._running[k].steps)[:excess]
        for k in yielding:
            self._running[k].state = self._state.select(np.array([k]))
            self._ready.append(self._running[k])
        evicted = set(yielding)
        return [k for k in stay if k not in evicted]

    def _step(self) -> None:
        """Run one decode step for all slots of the batch."""
        if not self._running:
            return
        ids = np.array([slot.id for slot in self._running])
        try:
            log_p, self._state = self._lm.step(self._state, ids)
        except Exception:
            self._step_separately()
            return
        self._sample(self._running, log_p)

    def _step_separately(self) -> None:
        """Step every slot alone after a failed batch step; only the slots that fail again get the error."""
        states, slots = [], []
        for k, slot in enumerate(self._running):
            try:
                log_p, state = self._lm.step(self._state.select(np.array([k])), np.array([slot.id]))
            except Exception as error:
                slot.task.fail(error, self._responses)
                continue
            self._sample([slot], log_p)
            slots.append(slot)
            states.append(state)
        self._running, self._state = slots, join_states(self._lm, states) if slots else None

    def _sample(self, slots: Sequence[Slot], log_p: Floats) -> None:
        """Sample the next tokens from (K, V); slots with equal filters are sampled together."""
        for slot in slots:
            slot.steps += 1
        for indices in self._groups(slots):
            group = [slots[k] for k in indices]
            group_log_p = log_p if len(indices) == len(slots) else log_p[indices]
            try:
                drawn = _draw(group, group_log_p, self._lm)
            except Exception as error:
                if len(group) == 1:
                    group[0].task.fail(error, self._responses)
                for k in indices if len(group) > 1 else ():
                    self._sample_alone(slots[k], log_p[k : k + 1])
                continue
            for slot, slot_log_p, id_ in zip(group, group_log_p, drawn, strict=True):
                self._deliver(slot, slot_log_p, id_)

    def _sample_alone(self, slot: Slot, log_p: Floats) -> None:
        try:
            id_ = _draw([slot], log_p, self._lm)[0]
        except Exception as error:
            slot.task.fail(error, self._responses)
            return
        self._deliver(slot, log_p[0], id_)

    def _deliver(self, slot: Slot, log_p: Floats, id_: int | None) -> None:
        """Pass the result to the slot; an exception of its stop check ends its task."""
        if slot.task.is_finished:
            return
        try:
            slot.advance(log_p, id_, self._responses)
        except Exception as error:
            slot.task.fail(error, self._responses)

    def _groups(self, slots: Sequence[Slot]) -> Iterator[list[int]]:
        """Yield indices of slots with equal filter settings, in groups of limited size."""
        groups: dict[Decoding | None, list[int]] = {}
        for k, slot in enumerate(slots):
            groups.setdefault(slot.shaping, []).append(k)
        for indices in groups.values():
            for first in range(0, len(indices), self._shaped_at_once):
                yield indices[first : first + self._shaped_at_once]

    def _fail_all(self) -> None:
        """End all unfinished tasks with the shutdown error."""
        tasks = {*self._new, *self._prefilling, *(slot.task for slot in (*self._ready, *self._running))}
        while (task := self._next_queued()) is not None:
            tasks.add(task)
        for task in tasks:
            if not task.is_finished:
                task.fail(shutting_down(), self._responses)
        self._responses.flush(is_due=True)

    def _next_queued(self) -> Task | None:
        try:
            task: Task | None = self._queue.get(waits=False)
        except queue.Empty:
            return None
        return task


def _draw(slots: Sequence[Slot], log_p: Floats, lm: AnyModel) -> list[int | None]:
    """Sample one id per slot from (K, V); None for slots that only score.

    A sample depends only on the slot's seed and distribution. The distributions of a neural model depend on the
    batch size in the last bits of single precision; those of an n-gram model are identical bit for bit.
    """
    samples = [slot for slot in slots if isinstance(slot, SampleSlot)]
    if not samples:
        return [None] * len(slots)
    allowed = apply_filters(log_p, [slot.text for slot in samples], samples[0].shaping, lm.vocabulary)
    return [int(i) for i in draw_tokens(allowed, [slot.rng for slot in samples])]


__all__ = ["Job", "Scheduler", "ScoreResult", "TokenResult", "Top"]


class Scheduler:
    """Schedules the requests of one model; `rows` is the maximum batch size."""

    def __init__(self, model: Model, *, rows: int = 256) -> None:
        self._vocabulary = model.lm.vocabulary
        self._queue = RequestQueue()
        worker = Worker(model.lm, rows, self._queue)
        self._thread = threading.Thread(target=worker.run, name=f"model {model.name}".strip(), daemon=True)
        self._thread.start()

    async def generate(self, job: Job) -> AsyncGenerator[TokenResult, None]:
        """Yield the tokens of all samples as they are generated; closing the generator cancels the request.

        The i-th sample equals that of `generate_several` with the same seed, whatever else is in the batch; for a
        neural model up to rounding, which depends on the batch size.
        """
        if job.settings.strategy == "beam":
            raise ConfigError("beam search is not supported here; choose the strategy sample or greedy")
        check_range("num", job.samples)
        self._check(job.prompt)
        if job.settings.max_tokens == 0:
            return
        channel = ResponseChannel(asyncio.get_running_loop())
        self._queue.put(GenerationTask(job, self._vocabulary, channel))
        try:
            running = job.samples
            while running:
                token = await channel.queue.get()
                if isinstance(token, Exception):
                    raise token
                running -= token.finish is not None
                yield token
        finally:
            channel.is_closed = True

    async def score(self, ids: Sequence[int], top: int = 0) -> ScoreResult:
        """Return log p of every id, with `top` alternatives each, and the distribution after the last."""
        return await self._score(ids, top)

    async def next_log_probs(self, ids: Sequence[int]) -> Floats:
        """Return the (V,) log-probabilities of the next token."""
        return (await self._score(ids, None)).next_log_probs

    def stop(self) -> None:
        """Let the thread end after its current step; unfinished requests end with a 503 error."""
        self._queue.close()

    async def close(self) -> None:
        """Stop the thread and wait for its end."""
        self.stop()
        await asyncio.to_thread(self._thread.join)

    async def _score(self, ids: Sequence[int], top: int | None) -> ScoreResult:
        self._check(ids)
        channel = ResponseChannel(asyncio.get_running_loop())
        self._queue.put(ScoringTask(ids, top, self._vocabulary, channel))
        try:
            result = await channel.queue.get()
        finally:
            channel.is_closed = True
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, ScoreResult)
        return result

    def _check(self, ids: Sequence[int]) -> None:
        invalid = next((i for i in ids if not 0 <= i < self._vocabulary.size), None)
        if invalid is not None:
            raise InputError(f"{invalid} is not a token id of this model; choose 0 to {self._vocabulary.size - 1}")
