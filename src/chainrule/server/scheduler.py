"""A model that many ask at the same time: their requests run in one batch.

Lives here: what a request looks like from an event loop. Not here: HTTP, and the thread that does the work
(worker.py).
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence

from chainrule.decoding.ranges import check
from chainrule.errors import ConfigError, InputError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.server.post import Inbox, Outlet
from chainrule.server.work import Continuing, Drawn, Job, Reading, Scoring, Top
from chainrule.server.worker import Worker

__all__ = ["Drawn", "Job", "Reading", "Scheduler", "Top"]


class Scheduler:
    """One a model; `rows` texts are stepped together at most."""

    def __init__(self, model: Model, *, rows: int = 256) -> None:
        self._vocabulary = model.lm.vocabulary
        self._inbox = Inbox()
        worker = Worker(model.lm, rows, self._inbox)
        self._thread = threading.Thread(target=worker.run, name=f"model {model.name}".strip(), daemon=True)
        self._thread.start()

    async def generate(self, job: Job) -> AsyncGenerator[Drawn, None]:
        """The tokens of all samples, each as it is drawn; closed early, its rows are not stepped again.

        The i-th sample of a seed is what `generate_several` draws with that seed, whatever runs beside it; of a
        network up to the rounding of its arithmetic, which differs with the size of the batch.
        """
        if job.settings.strategy == "beam":
            raise ConfigError("a beam is searched and not drawn; choose the strategy sample or greedy")
        check("num", job.samples)
        self._check(job.prompt)
        if job.settings.max_tokens == 0:
            return
        outlet = Outlet(asyncio.get_running_loop())
        self._inbox.put(Continuing(job, self._vocabulary, outlet))
        try:
            going = job.samples
            while going:
                drawn = await outlet.queue.get()
                if isinstance(drawn, Exception):
                    raise drawn
                going -= drawn.finish is not None
                yield drawn
        finally:
            outlet.is_closed = True

    async def read(self, ids: Sequence[int], top: int = 0) -> Reading:
        """The log p of every id, with `top` alternatives at each, and the distribution after the last."""
        return await self._read(ids, top)

    async def after(self, ids: Sequence[int]) -> Floats:
        """(V,) log p of what comes next."""
        return (await self._read(ids, None)).after

    def stop(self) -> None:
        """Let the thread end after its current step; requests that still wait end with the error 503."""
        self._inbox.close()

    async def close(self) -> None:
        """Stop the thread and wait for its end."""
        self.stop()
        await asyncio.to_thread(self._thread.join)

    async def _read(self, ids: Sequence[int], top: int | None) -> Reading:
        self._check(ids)
        outlet = Outlet(asyncio.get_running_loop())
        self._inbox.put(Scoring(ids, top, self._vocabulary, outlet))
        try:
            reading = await outlet.queue.get()
        finally:
            outlet.is_closed = True
        if isinstance(reading, Exception):
            raise reading
        assert isinstance(reading, Reading)
        return reading

    def _check(self, ids: Sequence[int]) -> None:
        wrong = next((i for i in ids if not 0 <= i < self._vocabulary.size), None)
        if wrong is not None:
            raise InputError(f"the id {wrong} is no token of this model; choose 0 to {self._vocabulary.size - 1}")
