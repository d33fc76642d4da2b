"""The scheduler's batch: which requests are in it and for how long, and isolation of failures."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from chainrule.decoding import sample as sampling
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleError, ConfigError, InputError
from chainrule.lm import Batch, Floats, Ids
from chainrule.server import worker as workers
from chainrule.server.errors import ApiError
from chainrule.server.slots import Job, TokenResult
from chainrule.server.worker import TARGET_SECONDS, ChunkSize, Scheduler
from laws.tiny import tiny
from server.concurrent_requests import (
    LSTM,
    NGRAM,
    RecordingModel,
    collect,
    make_job,
    never_ending,
    open_scheduler,
    run_async,
    with_lm,
)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("model")]


def test_concurrent_requests_are_stepped_together() -> None:
    """The first step waits until the later requests have arrived."""
    model = tiny(LSTM)
    is_stepping, gate = threading.Event(), threading.Event()

    class Gated(RecordingModel):
        def step(self, state: Any, ids: Ids) -> tuple[Floats, Any]:
            is_stepping.set()
            assert gate.wait(20)
            return super().step(state, ids)

    lm = Gated(never_ending(model))
    job = make_job(model, "the", Decoding(max_tokens=30, repetition_penalty=1.0, seed=0), samples=1)

    async def ask() -> None:
        async with open_scheduler(with_lm(model, lm)) as scheduler:
            first = asyncio.create_task(collect(scheduler, replace(job, samples=8)))
            assert await asyncio.to_thread(is_stepping.wait, 20)
            others = [asyncio.create_task(collect(scheduler, job)) for _ in range(8)]
            await asyncio.sleep(0)  # each has submitted its request
            gate.set()
            await asyncio.gather(first, *others)

    run_async(ask())
    # Eight rows in the first step, all 16 in the next 29, the last eight alone in one more.
    assert lm.stepped == [8] + [16] * 29 + [8]


def test_rows_leave_when_the_generator_is_closed() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(never_ending(model), pause=0.001)
    endless = Job((), Decoding(max_tokens=100_000, seed=0), 5)

    async def ask() -> int:
        async with open_scheduler(with_lm(model, lm)) as scheduler:
            ends = replace(endless, settings=replace(endless.settings, max_tokens=40))
            drawing = scheduler.generate(endless)
            await anext(drawing)
            await drawing.aclose()
            cancelled = asyncio.create_task(collect(scheduler, endless))
            stepped = len(lm.stepped)
            while len(lm.stepped) < stepped + 5:
                await asyncio.sleep(0)
            cancelled.cancel()
            reading = asyncio.create_task(scheduler.score([5] * 200_000, 2))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(cancelled, reading, return_exceptions=True)
            before = len(lm.stepped)
            await collect(scheduler, replace(ends, samples=1))
            return before

    before = run_async(ask())
    assert set(lm.stepped[before + 3 :]) <= {1}


def test_full_batch_takes_turns_without_starvation() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(never_ending(model), pause=0.001)
    long, short = Decoding(max_tokens=5000, seed=0), Decoding(max_tokens=3, seed=1)

    steps: list[int] = []  # model steps when the short request was submitted and at each of its tokens

    def note_step(id_: int) -> bool:
        steps.append(len(lm.stepped))
        return False

    async def ask() -> None:
        async with open_scheduler(with_lm(model, lm), rows=2) as scheduler:
            others = [asyncio.create_task(collect(scheduler, Job((), long, 2))) for _ in range(2)]
            while not lm.stepped:
                await asyncio.sleep(0)
            steps.append(len(lm.stepped))
            await collect(scheduler, Job((), short, stop_checks=lambda: note_step))
            assert not any(other.done() for other in others)
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    run_async(ask())
    assert len(steps) == 4
    assert steps[-1] - steps[0] < 5000  # about two turns of 32 steps; the others have 10,000 to go
    assert max(lm.stepped) == 2


def test_turns_do_not_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STEPS_PER_TURN", 2)
    model = tiny(NGRAM)
    model = with_lm(model, never_ending(model))
    jobs = [Job((5,), Decoding(max_tokens=20, seed=seed), 3) for seed in range(3)]

    async def ask() -> list[list[list[TokenResult]]]:
        async with open_scheduler(model, rows=2) as scheduler:
            return await asyncio.gather(*(collect(scheduler, job) for job in jobs))

    for job, actual in zip(jobs, run_async(ask()), strict=True):
        expected: list[list[int]] = [[], [], []]
        prompt = Prompt(job.prompt, model.lm.vocabulary)
        for drawn in sampling.sample(model.lm, prompt, job.settings, num=3):
            expected[drawn.sample].append(drawn.id)
        assert [[drawn.id for drawn in sample] for sample in actual] == expected


def test_long_prompt_is_read_in_chunks_while_others_continue() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(model.lm)
    ids = np.random.default_rng(0).choice(np.flatnonzero(lm.vocabulary.predictable), 3000).tolist()

    async def ask() -> Any:
        async with open_scheduler(with_lm(model, lm)) as scheduler:
            return await asyncio.gather(
                scheduler.score(ids), collect(scheduler, Job((), Decoding(max_tokens=5, seed=0)))
            )

    reading, _ = run_async(ask())
    whole = np.array([lm.vocabulary.bos, *ids])[None]
    expected, _ = model.lm.score(Batch(whole[:, :-1], whole[:, 1:], np.ones((1, 3000), bool)), lm.start(1))
    assert_array_equal(reading.log_probs, expected[0])
    assert len(lm.scored) > 2


def test_chunk_size_adapts_to_its_time() -> None:
    pace = ChunkSize(1000)
    pace.update(256, TARGET_SECONDS / 10)
    assert pace.tokens == 512
    pace.update(10, TARGET_SECONDS / 10)  # not full, so it says nothing
    pace.update(512, TARGET_SECONDS)
    assert pace.tokens == 512
    pace.update(512, TARGET_SECONDS * 3)
    assert pace.tokens == 256
    for _ in range(5):
        pace.update(pace.tokens, 0)
    assert pace.tokens == 1000


@pytest.mark.parametrize("place", ["first", "last", "drawn"])
def test_error_affects_its_own_job_only(place: str) -> None:
    model = tiny(LSTM)
    v = model.lm.vocabulary
    poison, good = np.flatnonzero(v.predictable)[[4, 5]].tolist()
    lm = RecordingModel(model.lm, fails_at=poison)
    prompt = {"first": (poison, good), "last": (good, poison), "drawn": (good,)}[place]
    stop_checks = None
    if place == "drawn":

        def is_stopped_by(id_: int) -> bool:
            raise ChainruleError("this id is poison")

        def stop_checks() -> Callable[[int], bool]:
            return is_stopped_by

    bad = Job(prompt, Decoding(max_tokens=5, seed=0), 2, 0, stop_checks)
    fine = [Job((good, good), Decoding(max_tokens=5, strategy="greedy", top_k=1), 1)] * 3

    async def ask() -> list[Any]:
        async with open_scheduler(with_lm(model, lm)) as scheduler:
            jobs = [collect(scheduler, job) for job in [fine[0], bad, *fine[1:]]]
            reads = [scheduler.score([good, good, good], 1), scheduler.score([good, poison, good], 1)]
            return await asyncio.gather(*jobs, *reads, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:  # greedy may draw the failing id by itself
        patch.setattr(workers, "draw_tokens", lambda log_p, rngs: np.full(len(rngs), good))
        first, failed, *rest, reading, refused = run_async(ask())
    assert isinstance(failed, ChainruleError)
    assert str(failed) == "this id is poison"
    assert [len(actual[0]) for actual in (first, *rest)] == [5, 5, 5]
    assert len(reading.log_probs) == 3
    assert isinstance(refused, ChainruleError)


def test_invalid_jobs_are_rejected() -> None:
    model = tiny(NGRAM)
    V = model.lm.vocabulary.size

    async def ask() -> None:
        async with open_scheduler(model) as scheduler:
            with pytest.raises(InputError, match=f"{V} is not a token id"):
                await scheduler.score([0, V])
            with pytest.raises(InputError, match="-1 is not a token id"):
                await collect(scheduler, Job((-1,), Decoding()))
            with pytest.raises(ConfigError, match="beam"):
                await collect(scheduler, Job((), Decoding(strategy="beam")))
            with pytest.raises(ConfigError, match="num is 0"):
                await collect(scheduler, Job((), Decoding(), 0))

    run_async(ask())


def test_closing_ends_the_thread_and_waiting_requests() -> None:
    model = tiny(NGRAM)
    before = threading.active_count()
    lm = RecordingModel(never_ending(model), pause=0.001)
    served = with_lm(model, lm)

    async def ask() -> Any:
        scheduler = Scheduler(served)
        waiting = asyncio.create_task(collect(scheduler, Job((), Decoding(max_tokens=100_000))))
        while not lm.stepped:
            await asyncio.sleep(0)
        await scheduler.close()
        await scheduler.close()
        with pytest.raises(ApiError, match="shutting down"):
            await scheduler.next_log_probs([])
        return await asyncio.gather(waiting, return_exceptions=True)

    (error,) = run_async(ask())
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (503, "shutting_down")
    assert threading.active_count() == before


def test_next_takes_one_pass_over_the_prompt_and_one_step() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(model.lm)

    async def ask() -> None:
        async with open_scheduler(with_lm(model, lm)) as scheduler:
            for _ in range(20):
                await scheduler.next_log_probs([3, 4, 5])

    run_async(ask())
    assert lm.stepped == [1] * 20
    assert lm.scored == [(1, 3)] * 20
