"""Asynchronous interface to a model whose concurrent requests run in one batch (see `worker`)."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence

from chainrule.decoding.ranges import check_range
from chainrule.errors import ConfigError, InputError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.server.post import RequestQueue, ResponseChannel
from chainrule.server.work import GenerationTask, Job, ScoreResult, ScoringTask, TokenResult, Top
from chainrule.server.worker import Worker

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
