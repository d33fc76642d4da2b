"""Helpers of the scheduler tests: tiny models, wrappers that record calls, and concurrent requests."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleError
from chainrule.lm import AnyModel, Batch, Floats, Ids
from chainrule.model import Model
from chainrule.server.slots import Job, TokenResult
from chainrule.server.worker import Scheduler
from laws.tiny import Case, cases
from sequential_model import SequentialModel


def model_cases() -> list[Case]:
    """One model of each family and context rule, and every kind of network state."""
    cases_by_key: dict[tuple[str, str, str], Case] = {}
    for case in cases():
        if case.variant in ("", "window=4-heads=2-layers=2", "attention=dot-attention_use=sum-memory=3"):
            cases_by_key.setdefault((case.family, case.context, case.variant), case)
    return [*cases_by_key.values(), NGRAM]


NGRAM = next(case for case in cases() if case.family == "ngram" and case.config.order == 3)
LSTM = next(case for case in cases() if case.family == "lstm")


@asynccontextmanager
async def open_scheduler(model: Model, rows: int = 256) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(model, rows=rows)
    try:
        yield scheduler
    finally:
        await scheduler.close()


def run_async(awaited: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(awaited, 20))


def make_job(model: Model, prompt: str, settings: Decoding, samples: int = 3, top: int = 0) -> Job:
    return Job(Continuation(model.tokenizer, prompt).prompt_ids, settings, samples, top)


async def collect(scheduler: Scheduler, job: Job) -> list[list[TokenResult]]:
    """Run a job and return its tokens by sample."""
    tokens: list[list[TokenResult]] = [[] for _ in range(job.samples)]
    async for drawn in scheduler.generate(job):
        tokens[drawn.sample].append(drawn)
    return tokens


def with_lm(model: Model, lm: Any) -> Model:
    return replace(model, lm=lm)


class RecordingModel(SequentialModel):
    """Wrapper that records batch sizes, and can be slow or fail at one id."""

    def __init__(self, lm: AnyModel, pause: float = 0.0, fails_at: int | None = None) -> None:
        self.lm, self.pause, self.fails_at = lm, pause, fails_at
        self.vocabulary, self.context, self.is_normalized = lm.vocabulary, lm.context, lm.is_normalized
        self.stepped: list[int] = []
        self.scored: list[tuple[int, ...]] = []

    def start(self, rows: int) -> Any:
        return self.lm.start(rows)

    def join(self, states: Sequence[Any]) -> Any:
        return self.lm.join(states)

    def step(self, state: Any, ids: Ids) -> tuple[Floats, Any]:
        time.sleep(self.pause)
        self.stepped.append(len(ids))
        self._check(ids)
        return self.lm.step(state, ids)

    def score(self, batch: Batch, state: Any) -> tuple[Floats, Any]:
        self.scored.append(batch.inputs.shape)
        self._check(batch.inputs[batch.mask])
        return self.lm.score(batch, state)

    def distributions(self, batch: Batch, state: Any) -> tuple[Floats, Any]:
        self._check(batch.inputs[batch.mask])
        return self.lm.distributions(batch, state)

    def _check(self, ids: Ids) -> None:
        if self.fails_at in ids.tolist():
            raise ChainruleError("this id is poison")


def never_ending(model: Model) -> AnyModel:
    """Wrap a model so that `</s>` has probability 0."""

    class NeverEnding(RecordingModel):
        def step(self, state: Any, ids: Ids) -> tuple[Floats, Any]:
            log_p, state = super().step(state, ids)
            log_p = np.array(log_p)
            log_p[:, self.vocabulary.eos] = -np.inf
            return log_p, state

    return NeverEnding(model.lm)
