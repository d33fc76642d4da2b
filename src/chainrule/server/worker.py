"""Worker thread of a model: continuous batching of all requests (prefill, decode steps, eviction).

A slot joins the batch at the next step and leaves it when it finishes or its request is cancelled. The joined state
is rebuilt only when slots join or leave. If more slots are ready than fit into the batch, they take turns.
Shapes: K slots in the batch, V vocabulary.
"""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from chainrule.decoding.sample import draw_tokens
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import apply_filters
from chainrule.lm import AnyModel, Floats
from chainrule.server.errors import shutting_down
from chainrule.server.post import RequestQueue, ResponseBatcher
from chainrule.server.reading import MAX_LOGITS, Prefill, join_states
from chainrule.server.work import SampleSlot, Slot, Task

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
