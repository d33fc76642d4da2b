"""Scheduler: concurrent requests give the same results as separate ones."""

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.server.slots import Job, TokenResult, top_tokens
from laws.tiny import Case, tiny
from server.concurrent_requests import (
    NGRAM,
    collect,
    make_job,
    model_cases,
    open_scheduler,
    run_async,
)

PROMPTS = ["the cat", "", "a dog sees the mouse and the dog", "the"]
SETTINGS = [
    Decoding(max_tokens=12, seed=3),
    Decoding(max_tokens=9, seed=4, temperature=0.7, top_k=4),
    Decoding(max_tokens=15, strategy="greedy"),
    Decoding(max_tokens=7, seed=5, top_p=0.8, repetition_penalty=1.5, no_repeat_ngram=2),
]


CASES = pytest.mark.parametrize("case", model_cases(), ids=str)


@CASES
@pytest.mark.parametrize("rows", [256, 3, 1])
def test_concurrent_jobs_draw_what_they_draw_alone(case: Case, rows: int) -> None:
    model = tiny(case)

    async def together() -> list[list[list[TokenResult]]]:
        async with open_scheduler(model, rows) as scheduler:
            jobs = [make_job(model, p, s) for p, s in zip(PROMPTS, SETTINGS, strict=True)]
            return await asyncio.gather(*(collect(scheduler, job) for job in jobs))

    for prompt, settings, actual in zip(PROMPTS, SETTINGS, run_async(together()), strict=True):
        names = {name: getattr(settings, name) for name in Decoding.__slots__}
        expected = model.generate_several(prompt, 3, **names)
        assert [[drawn.id for drawn in sample] for sample in actual] == [alone.ids for alone in expected]
        assert [sample[-1].finish for sample in actual] == [alone.finish_reason for alone in expected]
        assert all(drawn.finish is None for sample in actual for drawn in sample[:-1])
        for sample, alone in zip(actual, expected, strict=True):
            log_probs = [drawn.log_prob for drawn in sample]
            if model.family == "ngram":
                assert log_probs == alone.log_probs
            assert_allclose(log_probs, alone.log_probs, rtol=1e-5)


def test_tokens_have_alternatives_and_stop_texts_end_generation() -> None:
    model = tiny(NGRAM)
    continuation = Continuation(model.tokenizer, "the", ["cat"])
    job = Job(continuation.prompt_ids, Decoding(max_tokens=40, seed=1), 4, 3, continuation.stop_check)

    async def ask() -> list[list[TokenResult]]:
        async with open_scheduler(model) as scheduler:
            return await collect(scheduler, job)

    expected = model.generate_several("the", 4, max_tokens=40, seed=1, stop="cat")
    tokens_by_sample = run_async(ask())
    assert [[drawn.id for drawn in sample] for sample in tokens_by_sample] == [alone.ids for alone in expected]
    assert any("cat" in alone.tokens for alone in expected)
    log_p, state = read_prompt(model.lm, Prompt(continuation.prompt_ids, model.lm.vocabulary))
    for drawn in tokens_by_sample[0]:
        best = np.argsort(-log_p[0], kind="stable")[:3]
        assert drawn.top == tuple((int(i), float(log_p[0, i])) for i in best)
        assert drawn.log_prob == log_p[0, drawn.id]
        log_p, state = model.lm.step(state, np.array([drawn.id]))


def test_max_tokens_zero_draws_nothing() -> None:
    model = tiny(NGRAM)

    async def ask() -> list[list[TokenResult]]:
        async with open_scheduler(model) as scheduler:
            return await collect(scheduler, make_job(model, "the", Decoding(max_tokens=0), samples=1))

    assert run_async(ask()) == [[]]


@CASES
def test_scored_prompt_equals_model_steps(case: Case) -> None:
    model = tiny(case)
    lm, v = model.lm, model.lm.vocabulary
    ids = [
        *model.tokenizer.encode("the cat sees a dog and the mouse").tolist(),
        v.eos,
        *model.tokenizer.encode("a"),
    ]

    async def ask() -> Any:
        async with open_scheduler(model) as scheduler:
            return await asyncio.gather(
                scheduler.score(ids),
                scheduler.score(ids, 2),
                scheduler.score(ids[:3], 1),
                scheduler.score([], 5),
                scheduler.next_log_probs(ids),
            )

    plain, full, short, empty, after = run_async(ask())
    state, expected = lm.start(1), []
    for id_ in [v.bos, *ids]:
        log_p, state = lm.step(state, np.array([id_]))
        expected.append(log_p[0])
    own = [row[id_] for row, id_ in zip(expected, ids, strict=False)]
    for reading in (plain, full):
        assert_allclose(reading.log_probs, own, rtol=1e-5)
        assert_allclose(reading.next_log_probs, expected[-1], rtol=1e-5)
    assert_allclose(after, expected[-1], rtol=1e-5)
    assert plain.top == [()] * len(ids)
    for t, top in enumerate(full.top):
        assert len(top) == 2
        assert [log_p for _, log_p in top] == sorted((log_p for _, log_p in top), reverse=True)
        assert_allclose(top[0][1], expected[t].max(), rtol=1e-5)
        for id_, log_p in top:  # identical numbers, because clients compare with ==
            assert id_ != ids[t] or log_p == full.log_probs[t]
    assert_allclose(short.log_probs, own[:3], rtol=1e-5)
    assert len(empty.log_probs) == len(empty.top) == 0
    assert_allclose(empty.next_log_probs, expected[0], rtol=1e-5)


def test_top_tokens_are_sorted_without_impossible_ones() -> None:
    with np.errstate(divide="ignore"):
        log_p = np.log([[0.1, 0.3, 0.3, 0.0, 0.3], [0.0, 0.0, 1.0, 0.0, 0.0]])
    expected = {2: [[1, 2], [2]], 9: [[1, 2, 4, 0], [2]], 1: [[1], [2]], 0: [[], []]}
    for k, ids in expected.items():
        assert [[i for i, _ in top_tokens(row, k)] for row in log_p] == ids
