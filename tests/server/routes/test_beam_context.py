"""Beam traces and context descriptions against the search and the model."""

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


def train_small(family: str, tokenizer: str = "word", **settings: Any) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        return api.train(family, Corpus.from_lines(LINES), tokenizer=tokenizer, seed=1, **settings)


@pytest.fixture(scope="module")
def trigram() -> Model:
    return train_small("ngram", order=3)


@pytest.fixture(scope="module")
def transformer() -> Model:
    return train_small("transformer", hidden=8, heads=2, layers=2, epochs=1, batch_size=8)


@pytest.mark.parametrize(("size", "length"), [(1, 4), (3, 6), (5, 2)])
def test_beam_trace_contains_the_search_hypotheses(trigram: Model, size: int, length: int) -> None:
    prompt = Prompt(Continuation(trigram.tokenizer, "the").prompt_ids, trigram.lm.vocabulary)
    settings = Decoding(strategy="beam", beam_size=size, max_tokens=length, unk="keep")
    trace = beam.BeamTrace(size)
    hypotheses = beam.search(trigram.lm, prompt, settings, num=size, observer=trace)
    assert hypotheses == beam.search(trigram.lm, prompt, settings, num=size)
    for hypothesis in hypotheses:  # each is a path of nodes that were not pruned
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
def test_context_pieces_concatenate_to_the_text_with_model_bits(tokenizer: str, text: str) -> None:
    model = train_small("ngram", tokenizer, order=2)
    description = context.describe_context(model, text)
    assert "".join(token["piece"] for token in description["tokens"]) == text
    score = list(model.scores(context.split_lines(text)))
    log_probs = [item for line in score for item in line.log_probs]
    assert [token["log_prob"] for token in description["tokens"]] == pytest.approx(log_probs, rel=1e-6)
    spelt = sum(token.get("spelling_log_prob", 0.0) for token in description["tokens"])
    assert spelt == pytest.approx(sum(line.log_prob_of_spellings for line in score), rel=1e-6)


def test_multi_byte_character_is_one_piece() -> None:
    tokens = context.describe_context(train_small("ngram", "byte", order=2), "aé")["tokens"]
    assert [token["piece"] for token in tokens] == ["a", "é", "", ""]  # é is C3 A9; then </s>


def test_rank_and_backoff_depth_of_a_trigram(trigram: Model) -> None:
    description = context.describe_context(trigram, "the cat runs")
    (view,) = description["views"]
    assert (view["kind"], view["order"]) == ("depth", 3)
    # <s> the: a bigram at the line start; <s> the cat: a trigram; "cat runs" is unseen, "runs" is known
    assert view["found"][:3] == [2, 3, 1]
    assert view["reasons"][view["reason"][0]] == "beginning of the line: no more words before it"
    # three of four lines begin with "the", one with "a"
    assert description["tokens"][0]["rank"] == 1
    assert [item["token"] for item in description["tokens"][0]["top"][:2]] == ["the", "a"]
    # "runs" never followed "cat", "sees" and "loves" did: at best it is the third guess
    assert description["tokens"][2]["rank"] >= 3
    assert {item["token"] for item in description["tokens"][2]["top"][:2]} == {"sees", "loves"}


def test_attention_rows_sum_to_one_per_token(transformer: Model) -> None:
    description = context.describe_context(transformer, "the cat sees the dog\nthe mouse runs")
    (view,) = description["views"]
    assert view["kind"] == "attention"
    firsts = [row["first"] for row in view["rows"]]
    assert firsts == [0] * 6 + [6] * 4  # five words and </s>, then a line that restarts
    for place, row in enumerate(view["rows"]):
        weights = np.array(row["weights"])
        assert weights.shape == (2, 2, place + 1 - row["first"])  # layers, heads, tokens read
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=2e-3)


def test_describe_context_leaves_no_hooks(transformer: Model) -> None:
    network: Any = transformer.lm.network
    context.describe_context(transformer, "the cat")
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_views_of_networks_without_attention_and_mixtures(trigram: Model, transformer: Model) -> None:
    lstm = train_small("lstm", hidden=8, epochs=1)
    assert context.describe_context(lstm, "the cat")["views"] == []
    mixed = api.mix([trigram, transformer, lstm], held_out=Corpus.from_lines(LINES[:4]))
    assert [view["kind"] for view in context.describe_context(mixed, "the cat")["views"]] == ["depth", "attention"]


def test_long_texts_are_truncated_with_a_count(trigram: Model) -> None:
    description = context.describe_context(trigram, "the cat " * 400)
    assert len(description["tokens"]) == context.MAX_TOKENS
    assert description["left_out"] == 801 - context.MAX_TOKENS  # 800 words and </s>


def test_attention_of_a_long_text_is_limited(transformer: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MAX_WEIGHTS", 200)
    description = context.describe_context(transformer, "the cat sees the dog and the mouse " * 4)
    (view,) = description["views"]
    assert len(view["rows"]) == 10  # four heads, a triangle of T²/2 each: T = √(2 · 200 / 4)
    assert len(description["tokens"]) > 10


def test_beam_and_context_routes(client: TestClient) -> None:
    document = client.post("/v1/beam", json={"prompt": "the cat", "beam_size": 2, "max_tokens": 3}).json()
    assert (document["object"], document["model"], document["prompt"]) == ("beam", "ngram", "the cat")
    assert [node["parent"] for node in document["nodes"][:2]] == [None, None]
    best = document["best"][0]
    texts, at = [], best["node"]
    while at is not None:
        texts.append(document["nodes"][at]["text"])
        at = document["nodes"][at]["parent"]
    assert "".join(reversed(texts)) == best["text"]
    document = client.post("/v1/context", json={"model": "ngram", "text": "the cat"}).json()
    assert [token["piece"] for token in document["tokens"]] == ["the", " cat", ""]
    assert document["bytes"] == 8  # seven letters and the line end


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
def test_invalid_beam_and_context_requests_name_the_field(
    client: TestClient, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_abandoned_work_is_cancelled() -> None:
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
