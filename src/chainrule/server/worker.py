"""The thread that owns a model: all rows of all requests are stepped together, whoever asked.

Lives here: who reads, who is stepped, who leaves. Not here: reading (reading.py), how requests come (post.py).
Letters: K rows in the batch, V vocabulary.

A row comes into the batch at the next step and leaves it the moment it ends or nobody waits for it. The joined
state is put together anew only when rows come or go. Where more wait than there is room for, rows take turns.
"""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from chainrule.decoding.sample import draw
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import shape
from chainrule.lm import AnyModel, Floats
from chainrule.server.errors import shutting_down
from chainrule.server.post import Inbox, Post
from chainrule.server.reading import CELLS, Reader, joined
from chainrule.server.work import Row, Sample, Task

TURN: Final = 32
"""Steps after which a row makes room for one that waits."""

WAITING: Final = 4
"""How many times as many rows as are in the batch may take turns with them; each has a state in memory."""

SHAPED_AT_ONCE: Final = 1 << 16
"""Numbers of the distributions that are shaped at a time: as many as stay in the cache of a processor."""


class Worker:
    """Works off what is in the inbox until that is closed."""

    def __init__(self, lm: AnyModel, rows: int, inbox: Inbox) -> None:
        self._lm, self._inbox, self._post = lm, inbox, Post()
        # A model that cannot join states has one row at a time.
        self._most = max(1, min(rows, CELLS // lm.vocabulary.size)) if hasattr(lm, "join") else 1
        self._reader = Reader(lm, self._most)
        self._new: deque[Task] = deque()  # nothing of it is read
        self._reading: list[Task] = []
        self._ready: deque[Row] = deque()  # read, with a state of its own
        self._running: list[Row] = []
        self._state: Any = None  # (K, …) of the running rows
        self._shaped_at_once = max(1, SHAPED_AT_ONCE // lm.vocabulary.size)

    def run(self) -> None:
        """The life of the thread."""
        try:
            while self._collect():
                self._read()
                self._change_rows()
                self._step()
                self._post.hand_over()
        finally:
            self._inbox.close()
            self._fail_all()

    def _collect(self) -> bool:
        """Take in what has come, waiting for it where there is nothing else to do; False when it is over."""
        is_idle = not (self._new or self._reading or self._ready or self._running)
        if is_idle:
            self._post.hand_over(is_due=True)
        while True:
            try:
                task = self._inbox.take(waits=is_idle)
            except queue.Empty:
                return True
            if task is None:
                return False
            self._new.append(task)
            is_idle = False

    def _read(self) -> None:
        """One piece of what is to be read; who has read all but the last token is ready."""
        while self._new and len(self._reading) < self._most and len(self._ready) < WAITING * self._most:
            task = self._new.popleft()
            if not task.is_over:
                task.state = self._lm.start(1)
                self._reading.append(task)
        todo = [task for task in self._reading if task.rest and not task.is_over]
        chosen = set(self._reader.read(todo, self._post)) if todo else set()
        self._reading.sort(key=lambda task: task in chosen)  # stable: next time it is the turn of the others
        for task in self._reading:
            if not task.rest and not task.is_over:
                self._ready.extend(task.rows())
                task.state = None  # the rows have it
        self._reading = [task for task in self._reading if task.rest and not task.is_over]

    def _change_rows(self) -> None:
        """Rows that are over leave, rows that wait come in."""
        stay = [k for k, row in enumerate(self._running) if not row.is_over]
        stay = self._take_turns(stay)
        new: list[Row] = []
        while self._ready and len(stay) + len(new) < self._most:
            row = self._ready.popleft()
            if not row.is_over:
                row.steps = 0
                new.append(row)
        if len(stay) < len(self._running):  # a state may be large: copy it only where rows go
            self._state = self._state.select(np.array(stay)) if stay else None
        if new:
            old = [self._state] if stay else []
            self._state = joined(self._lm, [*old, *(row.state for row in new)])
        self._running = [*(self._running[k] for k in stay), *new]
        for row in new:
            row.state = None

    def _take_turns(self, stay: list[int]) -> list[int]:
        """Without the rows that make room, the longest in the batch first; they wait behind those that wait."""
        wanted = len(stay) + len(self._ready) - self._most
        tired = [k for k in stay if self._running[k].steps >= TURN] if wanted > 0 else []
        tired = sorted(tired, key=lambda k: -self._running[k].steps)[:wanted]
        for k in tired:
            self._running[k].state = self._state.select(np.array([k]))
            self._ready.append(self._running[k])
        gone = set(tired)
        return [k for k in stay if k not in gone]

    def _step(self) -> None:
        """Every row reads its token and is told what comes next."""
        if not self._running:
            return
        ids = np.array([row.id for row in self._running])
        try:
            log_p, self._state = self._lm.step(self._state, ids)
        except Exception:
            self._step_apart()
            return
        self._answer(self._running, log_p)

    def _step_apart(self) -> None:
        """A step has failed: the rows whose own step fails end with that error, the others go on."""
        states, rows = [], []
        for k, row in enumerate(self._running):
            try:
                log_p, state = self._lm.step(self._state.select(np.array([k])), np.array([row.id]))
            except Exception as error:
                row.task.fail(error, self._post)
                continue
            self._answer([row], log_p)
            rows.append(row)
            states.append(state)
        self._running, self._state = rows, joined(self._lm, states) if rows else None

    def _answer(self, rows: Sequence[Row], log_p: Floats) -> None:
        """Rows that are shaped alike draw together, each with its own generator; (K, V)."""
        for row in rows:
            row.steps += 1
        for places in self._alike(rows):
            own = [rows[k] for k in places]
            own_log_p = log_p if len(places) == len(rows) else log_p[places]
            try:
                drawn = _draw(own, own_log_p, self._lm)
            except Exception as error:
                if len(own) == 1:
                    own[0].task.fail(error, self._post)
                for k in places if len(own) > 1 else ():
                    self._answer_alone(rows[k], log_p[k : k + 1])
                continue
            for row, its_log_p, id_ in zip(own, own_log_p, drawn, strict=True):
                self._tell(row, its_log_p, id_)

    def _answer_alone(self, row: Row, log_p: Floats) -> None:
        try:
            id_ = _draw([row], log_p, self._lm)[0]
        except Exception as error:
            row.task.fail(error, self._post)
            return
        self._tell(row, log_p[0], id_)

    def _tell(self, row: Row, log_p: Floats, id_: int | None) -> None:
        """A row whose stop rule fails ends with that error."""
        if row.task.is_over:
            return
        try:
            row.answer(log_p, id_, self._post)
        except Exception as error:
            row.task.fail(error, self._post)

    def _alike(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        """Places of rows that draw from distributions shaped alike, so few as are shaped at a time."""
        groups: dict[Decoding | None, list[int]] = {}
        for k, row in enumerate(rows):
            groups.setdefault(row.shaping, []).append(k)
        for places in groups.values():
            for first in range(0, len(places), self._shaped_at_once):
                yield places[first : first + self._shaped_at_once]

    def _fail_all(self) -> None:
        """Who still waits is told that it is over."""
        tasks = {*self._new, *self._reading, *(row.task for row in (*self._ready, *self._running))}
        while (task := self._left()) is not None:
            tasks.add(task)
        for task in tasks:
            if not task.is_over:
                task.fail(shutting_down(), self._post)
        self._post.hand_over(is_due=True)

    def _left(self) -> Task | None:
        try:
            left: Task | None = self._inbox.take(waits=False)
        except queue.Empty:
            return None
        return left


def _draw(rows: Sequence[Row], log_p: Floats, lm: AnyModel) -> list[int | None]:
    """One id a row from (K, V), all shaped alike; None for rows that draw nothing.

    What is drawn depends on the row's seed and its own distribution. In a batch a network's products are added up
    in another order, so that these differ from those of the row alone in the last bits of single precision; of an
    n-gram model they are the same to the last bit.
    """
    samples = [row for row in rows if isinstance(row, Sample)]
    if not samples:
        return [None] * len(rows)
    allowed = shape(log_p, [row.text for row in samples], samples[0].shaping, lm.vocabulary)
    return [int(i) for i in draw(allowed, [row.rng for row in samples])]
