"""A beam as a tree, and what a model went by, against the search and the model themselves."""

import asyncio
import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from chainrule import api
from chainrule.decoding import beam
from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.prompt import Prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning
from chainrule.model import Model
from chainrule.server.routes import context
from chainrule.server.threads import run_cancellable
from chainrule.text.corpus import Corpus

LINES = ["the cat sees the dog", "the dog sees the mouse", "a cat loves the mouse", "the mouse runs"] * 6


def made(family: str, tokenizer: str = "word", **settings: Any) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        return api.train(family, Corpus.from_lines(LINES), tokenizer=tokenizer, seed=1, **settings)


@pytest.fixture(scope="module")
def trigram() -> Model:
    return made("ngram", order=3)


@pytest.fixture(scope="module")
def transformer() -> Model:
    return made("transformer", hidden=8, heads=2, layers=2, epochs=1, batch_size=8)


@pytest.mark.parametrize(("size", "length"), [(1, 4), (3, 6), (5, 2)])
def test_the_tree_holds_the_very_search(trigram: Model, size: int, length: int) -> None:
    prompt = Prompt(Continuation(trigram.tokenizer, "the").prompt_ids, trigram.lm.vocabulary)
    settings = Decoding(strategy="beam", beam_size=size, max_tokens=length, unk="keep")
    trace = beam.BeamTrace(size)
    hypotheses = beam.search(trigram.lm, prompt, settings, num=size, observer=trace)
    assert hypotheses == beam.search(trigram.lm, prompt, settings, num=size)
    for hypothesis in hypotheses:  # each of them is a path of nodes that were not pruned
        node = trace.nodes[trace.index(hypothesis.ids)]
        assert node.score == pytest.approx(math.fsum(hypothesis.log_probs), rel=1e-6)
        while True:
            assert node.status != "pruned"
            if node.parent is None:
                break
            parent = trace.nodes[node.parent]
            assert (parent.status, parent.ids) == ("kept", node.ids[:-1])
            assert node.score == pytest.approx(parent.score + node.log_prob, rel=1e-6)
            node = parent
    by_length = [[node for node in trace.nodes if len(node.ids) == n] for n in range(1, length + 1)]
    for nodes in filter(None, by_length):
        stayed = [node.score for node in nodes if node.status != "pruned"]
        assert 1 <= len(stayed) <= size
        assert all(node.score <= min(stayed) for node in nodes if node.status == "pruned")


@pytest.mark.parametrize("text", ["the cat  sees a dog", "the zebra runs\na cat\n", " the\tdog ", ""])
@pytest.mark.parametrize("tokenizer", ["word", "char", "byte"])
def test_pieces_are_the_text_and_bits_are_the_models(tokenizer: str, text: str) -> None:
    model = made("ngram", tokenizer, order=2)
    found = context.describe_context(model, text)
    assert "".join(token["piece"] for token in found["tokens"]) == text
    score = list(model.scores(context.split_lines(text)))
    log_probs = [each for line in score for each in line.log_probs]
    assert [token["log_prob"] for token in found["tokens"]] == pytest.approx(log_probs, rel=1e-6)
    spelt = sum(token.get("spelling_log_prob", 0.0) for token in found["tokens"])
    assert spelt == pytest.approx(sum(line.log_prob_of_spellings for line in score), rel=1e-6)


def test_a_character_of_several_bytes_is_one_piece() -> None:
    tokens = context.describe_context(made("ngram", "byte", order=2), "aé")["tokens"]
    assert [token["piece"] for token in tokens] == ["a", "é", "", ""]  # é is C3 A9; then </s>


def test_rank_and_depth_of_a_trigram(trigram: Model) -> None:
    found = context.describe_context(trigram, "the cat runs")
    (view,) = found["views"]
    assert (view["kind"], view["order"]) == ("depth", 3)
    # <s> the: a bigram at a line's start; <s> the cat: a trigram; "cat runs" never stood there, "runs" did
    assert view["found"][:3] == [2, 3, 1]
    assert view["reasons"][view["reason"][0]] == "beginning of the line: no more words before it"
    # three lines of four begin with "the", one with "a"
    assert found["tokens"][0]["rank"] == 1
    assert [each["token"] for each in found["tokens"][0]["top"][:2]] == ["the", "a"]
    # "runs" never came after "cat", "sees" and "loves" did: at best it is the third guess
    assert found["tokens"][2]["rank"] >= 3
    assert {each["token"] for each in found["tokens"][2]["top"][:2]} == {"sees", "loves"}


def test_attention_has_a_row_for_every_token_that_sums_to_one(transformer: Model) -> None:
    found = context.describe_context(transformer, "the cat sees the dog\nthe mouse runs")
    (view,) = found["views"]
    assert view["kind"] == "attention"
    firsts = [row["first"] for row in view["rows"]]
    assert firsts == [0] * 6 + [6] * 4  # five words and </s>, then a line that starts anew
    for place, row in enumerate(view["rows"]):
        weights = np.array(row["weights"])
        assert weights.shape == (2, 2, place + 1 - row["first"])  # layers, heads, what was read
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=2e-3)


def test_looking_leaves_the_network_as_it_was(transformer: Model) -> None:
    network: Any = transformer.lm.network
    context.describe_context(transformer, "the cat")
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_a_network_without_attention_shows_nothing_and_a_mixture_all_its_parts(
    trigram: Model, transformer: Model
) -> None:
    lstm = made("lstm", hidden=8, epochs=1)
    assert context.describe_context(lstm, "the cat")["views"] == []
    mixed = api.mix([trigram, transformer, lstm], held_out=Corpus.from_lines(LINES[:4]))
    assert [view["kind"] for view in context.describe_context(mixed, "the cat")["views"]] == ["depth", "attention"]


def test_long_texts_are_cut_and_said_so(trigram: Model) -> None:
    found = context.describe_context(trigram, "the cat " * 400)
    assert len(found["tokens"]) == context.MAX_TOKENS
    assert found["left_out"] == 801 - context.MAX_TOKENS  # 800 words and </s>


def test_attention_of_a_long_text_is_bounded(transformer: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MAX_WEIGHTS", 200)
    found = context.describe_context(transformer, "the cat sees the dog and the mouse " * 4)
    (view,) = found["views"]
    assert len(view["rows"]) == 10  # four heads, a triangle of T²/2 each: T = √(2 · 200 / 4)
    assert len(found["tokens"]) > 10


def test_the_routes_answer(client: TestClient) -> None:
    found = client.post("/v1/beam", json={"prompt": "the cat", "beam_size": 2, "max_tokens": 3}).json()
    assert (found["object"], found["model"], found["prompt"]) == ("beam", "ngram", "the cat")
    assert [node["parent"] for node in found["nodes"][:2]] == [None, None]
    best = found["best"][0]
    texts, at = [], best["node"]
    while at is not None:
        texts.append(found["nodes"][at]["text"])
        at = found["nodes"][at]["parent"]
    assert "".join(reversed(texts)) == best["text"]
    found = client.post("/v1/context", json={"model": "ngram", "text": "the cat"}).json()
    assert [token["piece"] for token in found["tokens"]] == ["the", " cat", ""]
    assert found["bytes"] == 8  # seven letters and the line's end


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("beam", {"model": "nobody"}, 404, "model"),
        ("beam", {"beam_size": 17}, 400, "beam_size"),
        ("beam", {"beam_size": "2"}, 400, "beam_size"),
        ("beam", {"max_tokens": 0}, 400, "max_tokens"),
        ("beam", {"length_penalty": -1}, 400, "length_penalty"),
        ("beam", {"temperature": 1}, 400, "temperature"),
        ("context", {}, 400, "text"),
        ("context", {"text": 3}, 400, "text"),
        ("context", {"text": "a" * ((1 << 16) + 1)}, 400, "text"),
        ("context", {"text": "a", "at": 1}, 400, "at"),
    ],
)
def test_wrong_requests_are_told_by_field(
    client: TestClient, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_work_ends_when_nobody_waits_for_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(check: Callable[[], None]) -> None:
        begun.set()
        try:
            while True:
                check()
        finally:
            ended.set()

    async def abandon() -> None:
        task = asyncio.create_task(run_cancellable(work))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(abandon())
