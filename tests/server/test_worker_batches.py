"""The scheduler's batch: who is in it and for how long, and that one request cannot harm another."""

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


def test_requests_of_many_are_stepped_together_and_new_ones_join() -> None:
    """The first step waits until the later requests have come."""
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
        async with open_scheduler(with_lm(model, lm)) as made:
            first = asyncio.create_task(collect(made, replace(job, samples=8)))
            assert await asyncio.to_thread(is_stepping.wait, 20)
            others = [asyncio.create_task(collect(made, job)) for _ in range(8)]
            await asyncio.sleep(0)  # each has handed in its request
            gate.set()
            await asyncio.gather(first, *others)

    run_async(ask())
    # Eight rows in the first step, all 16 in the next 29, the last eight alone in one more.
    assert lm.stepped == [8] + [16] * 29 + [8]


def test_rows_leave_as_soon_as_the_generator_is_closed() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(never_ending(model), pause=0.001)
    endless = Job((), Decoding(max_tokens=100_000, seed=0), 5)

    async def ask() -> int:
        async with open_scheduler(with_lm(model, lm)) as made:
            ends = replace(endless, settings=replace(endless.settings, max_tokens=40))
            drawing = made.generate(endless)
            await anext(drawing)
            await drawing.aclose()
            cancelled = asyncio.create_task(collect(made, endless))
            stepped = len(lm.stepped)
            while len(lm.stepped) < stepped + 5:
                await asyncio.sleep(0)
            cancelled.cancel()
            reading = asyncio.create_task(made.score([5] * 200_000, 2))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(cancelled, reading, return_exceptions=True)
            before = len(lm.stepped)
            await collect(made, replace(ends, samples=1))
            return before

    before = run_async(ask())
    assert set(lm.stepped[before + 3 :]) <= {1}


def test_a_full_batch_takes_turns_and_nobody_starves() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(never_ending(model), pause=0.001)
    long, short = Decoding(max_tokens=5000, seed=0), Decoding(max_tokens=3, seed=1)

    steps: list[int] = []  # of the model, when the short request was handed in and at each of its tokens

    def note_step(id_: int) -> bool:
        steps.append(len(lm.stepped))
        return False

    async def ask() -> None:
        async with open_scheduler(with_lm(model, lm), rows=2) as made:
            others = [asyncio.create_task(collect(made, Job((), long, 2))) for _ in range(2)]
            while not lm.stepped:
                await asyncio.sleep(0)
            steps.append(len(lm.stepped))
            await collect(made, Job((), short, stop_checks=lambda: note_step))
            assert not any(other.done() for other in others)
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    run_async(ask())
    assert len(steps) == 4
    assert steps[-1] - steps[0] < 5000  # about two turns of 32 steps; the others have 10,000 before them
    assert max(lm.stepped) == 2


def test_turns_do_not_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STEPS_PER_TURN", 2)
    model = tiny(NGRAM)
    model = with_lm(model, never_ending(model))
    jobs = [Job((5,), Decoding(max_tokens=20, seed=seed), 3) for seed in range(3)]

    async def ask() -> list[list[list[TokenResult]]]:
        async with open_scheduler(model, rows=2) as made:
            return await asyncio.gather(*(collect(made, job) for job in jobs))

    for job, found in zip(jobs, run_async(ask()), strict=True):
        expected: list[list[int]] = [[], [], []]
        prompt = Prompt(job.prompt, model.lm.vocabulary)
        for drawn in sampling.sample(model.lm, prompt, job.settings, num=3):
            expected[drawn.sample].append(drawn.id)
        assert [[drawn.id for drawn in sample] for sample in found] == expected


def test_a_long_prompt_is_read_in_pieces_while_others_go_on() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(model.lm)
    ids = np.random.default_rng(0).choice(np.flatnonzero(lm.vocabulary.predictable), 3000).tolist()

    async def ask() -> Any:
        async with open_scheduler(with_lm(model, lm)) as made:
            return await asyncio.gather(made.score(ids), collect(made, Job((), Decoding(max_tokens=5, seed=0))))

    reading, _ = run_async(ask())
    whole = np.array([lm.vocabulary.bos, *ids])[None]
    expected, _ = model.lm.score(Batch(whole[:, :-1], whole[:, 1:], np.ones((1, 3000), bool)), lm.start(1))
    assert_array_equal(reading.log_probs, expected[0])
    assert len(lm.scored) > 2


def test_pieces_grow_and_shrink_with_the_time_they_take() -> None:
    pace = ChunkSize(1000)
    pace.update(256, TARGET_SECONDS / 10)
    assert pace.tokens == 512
    pace.update(10, TARGET_SECONDS / 10)  # it was not full, so it says nothing
    pace.update(512, TARGET_SECONDS)
    assert pace.tokens == 512
    pace.update(512, TARGET_SECONDS * 3)
    assert pace.tokens == 256
    for _ in range(5):
        pace.update(pace.tokens, 0)
    assert pace.tokens == 1000


@pytest.mark.parametrize("place", ["first", "last", "drawn"])
def test_an_error_is_its_own_jobs_alone(place: str) -> None:
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
        async with open_scheduler(with_lm(model, lm)) as made:
            jobs = [collect(made, job) for job in [fine[0], bad, *fine[1:]]]
            reads = [made.score([good, good, good], 1), made.score([good, poison, good], 1)]
            return await asyncio.gather(*jobs, *reads, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:  # greedy may draw the poison by itself; then it would be to blame
        patch.setattr(workers, "draw_tokens", lambda log_p, rngs: np.full(len(rngs), good))
        first, failed, *rest, reading, refused = run_async(ask())
    assert isinstance(failed, ChainruleError)
    assert str(failed) == "this id is poison"
    assert [len(found[0]) for found in (first, *rest)] == [5, 5, 5]
    assert len(reading.log_probs) == 3
    assert isinstance(refused, ChainruleError)


def test_what_cannot_be_asked_is_refused() -> None:
    model = tiny(NGRAM)
    V = model.lm.vocabulary.size

    async def ask() -> None:
        async with open_scheduler(model) as made:
            with pytest.raises(InputError, match=f"{V} is not a token id"):
                await made.score([0, V])
            with pytest.raises(InputError, match="-1 is not a token id"):
                await collect(made, Job((-1,), Decoding()))
            with pytest.raises(ConfigError, match="beam"):
                await collect(made, Job((), Decoding(strategy="beam")))
            with pytest.raises(ConfigError, match="num is 0"):
                await collect(made, Job((), Decoding(), 0))

    run_async(ask())


def test_closing_ends_the_thread_and_tells_who_waits() -> None:
    model = tiny(NGRAM)
    before = threading.active_count()
    lm = RecordingModel(never_ending(model), pause=0.001)
    served = with_lm(model, lm)

    async def ask() -> Any:
        made = Scheduler(served)
        waiting = asyncio.create_task(collect(made, Job((), Decoding(max_tokens=100_000))))
        while not lm.stepped:
            await asyncio.sleep(0)
        await made.close()
        await made.close()
        with pytest.raises(ApiError, match="shutting down"):
            await made.next_log_probs([])
        return await asyncio.gather(waiting, return_exceptions=True)

    (error,) = run_async(ask())
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (503, "shutting_down")
    assert threading.active_count() == before


def test_what_comes_next_takes_one_pass_over_the_prompt_and_one_step() -> None:
    model = tiny(NGRAM)
    lm = RecordingModel(model.lm)

    async def ask() -> None:
        async with open_scheduler(with_lm(model, lm)) as made:
            for _ in range(20):
                await made.next_log_probs([3, 4, 5])

    run_async(ask())
    assert lm.stepped == [1] * 20
    assert lm.scored == [(1, 3)] * 20
