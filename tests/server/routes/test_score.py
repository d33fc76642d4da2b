"""POST /v1/score and POST /v1/next: against the model in process."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import chainrule
from chainrule.model import Model
from chainrule.server.errors import Limits
from chainrule.text.corpus import Corpus
from server.http_client import KINDS, open_client, post_error, post_ok, train_trigram


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asking")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    for kind in KINDS:
        train_trigram(folder, kind)
    train_trigram(folder / "streams", "word", context="stream").save(folder / "stream")
    return {kind: chainrule.load(folder / kind) for kind in (*KINDS, "stream")}


@pytest.fixture(scope="module")
def client(models: dict[str, Model], folder: Path) -> Iterator[TestClient]:
    with open_client(*(folder / kind for kind in models), limits=Limits(prompts=4, prompt_tokens=100)) as client_:
        yield client_


@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_scores_equal_the_model(models: dict[str, Model], client: TestClient, kind: str) -> None:
    texts = ["the cat sees a 🐭", "a zebra\r\nthe  fish ", ""]
    results = post_ok(client, "/v1/score", model=kind, input=texts)["results"]
    for text, result, score in zip(texts, results, models[kind].scores(texts), strict=True):
        assert result["text"] == text
        assert result["tokens"] == list(score.tokens)
        assert result["oov"] == score.oov
        assert result["infinite"] is False
        assert result["unit"] == "nats"
        np.testing.assert_allclose(result["log_probs"], score.log_probs, rtol=1e-5)
        assert result["log_prob"] == pytest.approx(score.log_prob, rel=1e-5)
        assert result["log_prob_of_spellings"] == pytest.approx(score.log_prob_of_spellings, rel=1e-9)
        assert result["log_prob_with_spelling"] == pytest.approx(score.log_prob_with_spelling, rel=1e-5)
        assert "".join(result["pieces"]) == text
        assert len(result["pieces"]) == len(result["ids"]) == len(score.tokens)
        if kind != "stream":
            figures = models[kind].evaluate(Corpus.from_lines([text]))
            assert result["bytes"] == figures.bytes
            assert result["bits_per_byte"] == pytest.approx(figures.bits_per_byte, rel=1e-5)


def test_single_text_is_scored_in_the_requested_unit(models: dict[str, Model], client: TestClient) -> None:
    (bits,) = post_ok(client, "/v1/score", model="word", input="the cat", unit="bits")["results"]
    (log10,) = post_ok(client, "/v1/score", model="word", input="the cat", unit="log10")["results"]
    nats = models["word"].score("the cat").log_prob
    assert bits["log_prob"] == pytest.approx(nats / math.log(2), rel=1e-6)
    assert log10["log_prob"] == pytest.approx(nats / math.log(10), rel=1e-6)


def test_impossible_token_scores_null(folder: Path) -> None:
    train_trigram(folder / "mle", "word", smoothing="mle")
    with open_client(folder / "mle" / "word") as client:
        (result,) = post_ok(client, "/v1/score", input="the the")["results"]
    assert result["log_prob"] is None
    assert result["infinite"] is True
    assert result["log_probs"][1] is None
    assert result["log_probs"][0] is not None
    assert result["bits_per_byte"] is None


def test_too_large_score_requests_are_rejected(client: TestClient) -> None:
    assert post_error(client, "/v1/score", model="word", input=["the"] * 5)["param"] == "input"
    assert post_error(client, "/v1/score", model="char", input="x" * 100)["code"] == "context_length_exceeded"
    assert post_error(client, "/v1/score", model="word", input=1)["param"] == "input"
    assert post_error(client, "/v1/score", model="word", input="the", unit="yards")["param"] == "unit"
    assert post_ok(client, "/v1/score", model="word", input=[])["results"] == []


@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_next_tokens_equal_the_model(models: dict[str, Model], client: TestClient, kind: str) -> None:
    for context in ("", "the", "the cat\na "):
        answer = post_ok(client, "/v1/next", model=kind, prompt=context, top=5)
        expected = models[kind].next(context, 5)
        assert [item["token"] for item in answer["next"]] == [token for token, _ in expected]
        np.testing.assert_allclose([i["probability"] for i in answer["next"]], [p for _, p in expected], rtol=1e-6)
        assert all(i["shaped_probability"] == pytest.approx(i["probability"], rel=1e-6) for i in answer["next"])
        everything = np.array([p for _, p in models[kind].next(context, models[kind].tokenizer.vocab_size)])
        positive = everything[everything > 0]
        assert answer["entropy_bits"] == pytest.approx(-(positive * np.log2(positive)).sum(), rel=1e-6)


def test_filtered_tokens_have_no_shaped_probability(client: TestClient) -> None:
    own = post_ok(client, "/v1/next", model="word", prompt="the", top=4)["next"]
    answer = post_ok(client, "/v1/next", model="word", prompt="the", top=4, top_k=2)
    first, second, *rest = [item["shaped_probability"] for item in answer["next"]]
    both = own[0]["probability"] + own[1]["probability"]
    assert first == pytest.approx(own[0]["probability"] / both)
    assert first + second == pytest.approx(1)
    assert rest == [0, 0]
    assert answer["kept"] == 2
    assert [item["probability"] for item in answer["next"]] == [item["probability"] for item in own]
    # At temperature 0 one token remains: 0 bits.
    answer = post_ok(client, "/v1/next", model="word", prompt="the", temperature=0)
    assert (answer["kept"], answer["shaped_entropy_bits"]) == (1, 0)


def test_next_token_text_includes_its_space(client: TestClient) -> None:
    answer = post_ok(client, "/v1/next", model="word", prompt="the", top=1)
    assert answer["next"][0]["text"] == " " + answer["next"][0]["token"]
    answer = post_ok(client, "/v1/next", model="word", prompt="the\n", top=1)
    assert answer["next"][0]["text"] == answer["next"][0]["token"]


@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_end_of_line_adds_a_line_break(models: dict[str, Model], client: TestClient, kind: str) -> None:
    eos = models[kind].tokenizer.eos
    entries = post_ok(client, "/v1/next", model=kind, prompt="the fish today", top=100)["next"]
    (text,) = [item["text"] for item in entries if item["id"] == eos]
    assert text == "\n"
    # The prompt with it is the prompt whose last token is `</s>`.
    ids = models[kind].tokenizer.encode("the fish today").tolist()
    by_text = post_ok(client, "/v1/next", model=kind, prompt="the fish today" + text)
    assert by_text == post_ok(client, "/v1/next", model=kind, prompt=[*ids, eos])


@pytest.mark.parametrize(("kind", "unit"), [("char", "characters"), ("byte", "bytes")])
def test_prefix_is_rejected_for_character_tokenizers(client: TestClient, kind: str, unit: str) -> None:
    error = post_error(client, "/v1/next", model=kind, prompt="the ", prefix="c")
    assert error["param"] == "prefix"
    assert f"single {unit}; leave it out, and append it to prompt" in error["message"]
    assert post_ok(client, "/v1/next", model=kind, prompt="the ", prefix="")["prefix_probability"] == 1


def test_prefix_completes_words(models: dict[str, Model], client: TestClient) -> None:
    answer = post_ok(client, "/v1/next", model="word", prompt="the", prefix="d")
    assert [item["token"] for item in answer["next"]] == ["dög"]
    assert answer["prefix_probability"] == pytest.approx(dict(models["word"].next("the", 100))["dög"])
    answer = post_ok(client, "/v1/next", model="word", prompt="the cat", prefix="se")
    assert [item["token"] for item in answer["next"]] == ["sees"]
    answer = post_ok(client, "/v1/next", model="word", prompt="the", prefix="q")
    assert (answer["next"], answer["prefix_probability"]) == ([], 0)
    # Sub-words include the space before them.
    entries = post_ok(client, "/v1/next", model="bpe", prompt="the cat", prefix="s")["next"]
    assert entries[0]["token"] == " sees"


def test_prompt_may_be_ids(models: dict[str, Model], client: TestClient) -> None:
    ids = models["char"].tokenizer.encode("the c").tolist()
    by_text = post_ok(client, "/v1/next", model="char", prompt="the c")
    assert post_ok(client, "/v1/next", model="char", prompt=ids) == by_text
    assert post_ok(client, "/v1/next", model="char", prompt=[models["char"].tokenizer.bos, *ids]) == by_text


def test_next_rejects_numbers_out_of_range(client: TestClient) -> None:
    for field, value in {
        "top": 0,
        "top_k": 0,
        "top_p": 0,
        "temperature": -1,
        "min_p": 2,
        "prompt": [10**6],
    }.items():
        assert post_error(client, "/v1/next", **{"model": "word", field: value})["param"] == field
    assert post_error(client, "/v1/next", model="word", top=101)["param"] == "top"
    assert post_error(client, "/v1/next", model="char", prompt="x" * 101)["param"] == "prompt"


def test_next_agrees_with_score_for_an_unnormalised_model(tmp_path: Path) -> None:
    text = Corpus.from_lines(["the cat sees a dog", "the dog sees", "a cat"])
    model = chainrule.train("ngram", text, order=3, smoothing="stupid-backoff")
    model.save(tmp_path / "backoff")
    with open_client(tmp_path / "backoff") as client:
        (entry,) = post_ok(client, "/v1/next", model="backoff", prompt="the cat sees a", top=1)["next"]
        (result,) = post_ok(client, "/v1/score", model="backoff", input=f"the cat sees a {entry['token']}")[
            "results"
        ]
    assert entry["probability"] == pytest.approx(math.exp(result["log_probs"][-2]), rel=1e-5)
    assert entry["probability"] == pytest.approx(dict(model.next("the cat sees a", top=1))[entry["token"]])
