"""Scheduler and worker thread of a model: continuous batching of all its requests.

One thread per model calls the model; the event loop only submits tasks and awaits results. A request passes these
stages, which are also the steps of the loop in `Worker.run`:

    Scheduler.generate, .score, .next_log_probs     event loop: a `Task` is put into the `RequestQueue`
      -> Worker._collect      worker thread: new tasks are taken from the queue
      -> Worker._run_prefill  a chunk of the prompts is processed; a task whose prompt is done becomes ready `Slot`s
      -> Worker._update_batch finished slots leave the batch, ready slots join it, long ones yield their turn
      -> Worker._step         one decode step of all slots of the batch; the next tokens are sampled
      -> Slot.advance         the result goes to the `ResponseBatcher`, which wakes the event loop

A slot leaves the batch when it finishes or when its request is cancelled, which closes its `ResponseChannel`. The
joined state of the batch is rebuilt only when slots join or leave. Prompts are processed in chunks of about
`TARGET_SECONDS` between decode steps, so that a long prompt does not stall the other requests. If more slots are
ready than fit into the batch, they take turns of `STEPS_PER_TURN` steps. When a call of the model or of a filter
raises for a batch, it is repeated for each row alone, and only the rows that fail again end with the error.
Shapes: B prompts, T tokens, K slots in the batch, V vocabulary.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

import numpy as np

from chainrule.decoding.filters import apply_filters
from chainrule.decoding.sample import draw_tokens
from chainrule.decoding.settings import check_range
from chainrule.errors import ConfigError, InputError
from chainrule.lm import AnyModel, Batch, Floats
from chainrule.model import Model
from chainrule.server.errors import shutting_down
from chainrule.server.queue import RequestQueue, ResponseBatcher, ResponseChannel
from chainrule.server.slots import (
    GenerationTask,
    Job,
    Outputs,
    SampleSlot,
    ScoreResult,
    ScoringTask,
    Slot,
    Task,
    TokenResult,
)

TARGET_SECONDS: Final = 0.05
"""Target duration of a prefill chunk."""

FIRST_CHUNK: Final = 256
MIN_CHUNK: Final = 128
MAX_CHUNK: Final = 1 << 15
"""Tokens of a prefill chunk: the first, the smallest and the largest."""

MIN_TOKENS_PER_TEXT: Final = 4
"""Smallest share of one text in a chunk."""

MAX_LOGITS: Final = 1 << 22
"""Maximum number of (B, T, V) or (K, V) log-probabilities in memory."""

STEPS_PER_TURN: Final = 32
"""Steps after which a slot yields its place to a waiting one."""

READY_FACTOR: Final = 4
"""Maximum number of ready slots, as a multiple of the batch size; each holds a state in memory."""

MAX_FILTERED_LOGITS: Final = 1 << 16
"""Log-probabilities filtered at a time, so that they fit into the CPU cache."""


class Scheduler:
    """Submits the requests of one model to its worker thread; `rows` is the maximum batch size."""

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

    async def score(self, ids: Sequence[int], top: int | None = 0) -> ScoreResult:
        """Return log p of every id, with `top` alternatives each, and the distribution after the last.

        With `top=None`, only the distribution is computed.
        """
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

    async def next_log_probs(self, ids: Sequence[int]) -> Floats:
        """Return the (V,) log-probabilities of the next token."""
        return (await self.score(ids, None)).next_log_probs

    def stop(self) -> None:
        """Let the thread end after its current step; unfinished requests end with a 503 error."""
        self._queue.close()

    async def close(self) -> None:
        """Stop the thread and wait for its end."""
        self.stop()
        await asyncio.to_thread(self._thread.join)

    def _check(self, ids: Sequence[int]) -> None:
        invalid = next((i for i in ids if not 0 <= i < self._vocabulary.size), None)
        if invalid is not None:
            raise InputError(f"{invalid} is not a token id of this model; choose 0 to {self._vocabulary.size - 1}")


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
        batch = compatible[: max(1, min(self._rows, chunk_size.most // MIN_TOKENS_PER_TEXT))]
        share = max(min(MIN_TOKENS_PER_TEXT, chunk_size.most), chunk_size.tokens // len(batch))
        start = time.perf_counter()
        token_count = self._run_isolated(batch, share, responses)
        if token_count:
            chunk_size.update(token_count, time.perf_counter() - start)
        return batch

    def _run_isolated(self, batch: Sequence[Task], share: int, responses: ResponseBatcher) -> int:
        """Run a chunk; if it fails, run every task alone, end those that fail again, and return 0."""
        try:
            return self._run_chunk(batch, share)
        except Exception as error:
            if len(batch) == 1:
                batch[0].fail(error, responses)
            for task in batch if len(batch) > 1 else ():
                self._run_isolated([task], share, responses)
        return 0

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
    """Join states along the batch axis."""
    return states[0] if len(states) == 1 else lm.join(states)


def score_batch(lm: AnyModel, batch: Batch, state: Any, outputs: Outputs) -> tuple[Floats | None, Any]:
    """Process a batch; return the requested outputs, None, (B, T) or (B, T, V), and the new state."""
    if outputs == "all":
        return lm.distributions(batch, state)
    if outputs == "nothing":
        return None, lm.advance(batch, state)
    return lm.score(batch, state)


class Worker:
    """Processes the requests of a queue until it is closed."""

    def __init__(self, lm: AnyModel, rows: int, requests: RequestQueue) -> None:
        self._lm, self._queue, self._responses = lm, requests, ResponseBatcher()
        self._max_slots = max(1, min(rows, MAX_LOGITS // lm.vocabulary.size))
        self._prefill = Prefill(lm, self._max_slots)
        self._new: deque[Task] = deque()  # not started
        self._prefilling: list[Task] = []
        self._ready: deque[Slot] = deque()  # prompt processed, not in the batch
        self._running: list[Slot] = []
        self._state: Any = None  # (K, …) joined state of the running slots
        self._rows_filtered = max(1, MAX_FILTERED_LOGITS // lm.vocabulary.size)

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
        self._new.extend(self._queue.take_all(waits=is_idle))
        return not self._queue.is_closed

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
        self._prefilling.sort(key=lambda task: task in processed)  # stable: the other tasks come first next time
        for task in self._prefilling:
            if not task.remaining and not task.is_finished:
                self._ready.extend(task.make_slots())
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
        for rows in self._groups(slots):
            self._sample_group([slots[k] for k in rows], log_p if len(rows) == len(slots) else log_p[rows])

    def _sample_group(self, group: Sequence[Slot], log_p: Floats) -> None:
        """Sample a group of slots; if that fails, sample every slot alone and end those that fail again."""
        try:
            ids = _draw(group, log_p, self._lm)
        except Exception as error:
            if len(group) == 1:
                group[0].task.fail(error, self._responses)
            for k, slot in enumerate(group if len(group) > 1 else ()):
                self._sample_group([slot], log_p[k : k + 1])
            return
        for slot, slot_log_p, id_ in zip(group, log_p, ids, strict=True):
            self._deliver(slot, slot_log_p, id_)

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
        groups: dict[tuple[Any, ...] | None, list[int]] = {}
        for k, slot in enumerate(slots):
            groups.setdefault(slot.filters, []).append(k)
        for indices in groups.values():
            for first in range(0, len(indices), self._rows_filtered):
                yield indices[first : first + self._rows_filtered]

    def _fail_all(self) -> None:
        """End all unfinished tasks with the shutdown error."""
        queued = [*self._new, *self._queue.take_all(waits=False)]
        for task in {*queued, *self._prefilling, *(slot.task for slot in (*self._ready, *self._running))}:
            if not task.is_finished:
                task.fail(shutting_down(), self._responses)
        self._responses.flush(is_due=True)


def _draw(slots: Sequence[Slot], log_p: Floats, lm: AnyModel) -> list[int | None]:
    """Sample one id per slot from (K, V); None for slots that only score.

    A sample depends only on the slot's seed and distribution. The distributions of a neural model depend on the
    batch size in the last bits of single precision; those of an n-gram model are identical bit for bit.
    """
    samples = [slot for slot in slots if isinstance(slot, SampleSlot)]
    if not samples:
        return [None] * len(slots)
    histories = [slot.history for slot in samples]
    allowed = apply_filters(log_p, histories, samples[0].job.settings, lm.vocabulary)
    return [int(i) for i in draw_tokens(allowed, [slot.rng for slot in samples])]
