"""POST /v1/completions: against the model in process, and by hand."""

import json
import math
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import chainrule
from chainrule.decoding.detokenizer import StopStrings
from chainrule.decoding.settings import Decoding
from chainrule.model import Model
from chainrule.server.app import create_app
from chainrule.server.errors import Limits
from chainrule.server.slots import Job, TokenResult
from chainrule.server.worker import Scheduler
from chainrule.text.corpus import Corpus
from server.http_client import KINDS, open_client, post_error, post_ok, train_trigram
from server.running_server import get, post, run_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("completions")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    for kind in KINDS:
        train_trigram(folder, kind)
    return {kind: chainrule.load(folder / kind) for kind in KINDS}


@pytest.fixture(scope="module")
def client(models: dict[str, Model], folder: Path) -> Iterator[TestClient]:
    with open_client(*(folder / kind for kind in models), limits=Limits(tokens=100, prompts=4)) as client_:
        yield client_


def complete(client: TestClient, **fields: Any) -> dict[str, Any]:
    return post_ok(client, "/v1/completions", **fields)


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_completions_equal_generate(models: dict[str, Model], client: TestClient, kind: str) -> None:
    fields: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "max_tokens": 12, "stop": ["e d"]}
    choices = complete(client, model=kind, prompt="the", n=4, **fields)["choices"]
    expected = models[kind].generate_several("the", 4, **fields)
    assert [choice["text"] for choice in choices] == [generation.text for generation in expected]
    assert [choice["finish_reason"] for choice in choices] == [g.finish_reason for g in expected]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_echoed_prompt_has_its_score(models: dict[str, Model], client: TestClient, kind: str) -> None:
    tokenizer = models[kind].tokenizer
    prompt = "the dög\na 🐭"
    score = models[kind].score(prompt)
    (choice,) = complete(client, model=kind, prompt=prompt, echo=True, logprobs=1, max_tokens=1, temperature=0)[
        "choices"
    ]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith(prompt)
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    np.testing.assert_allclose(logprobs["token_logprobs"][1:-1], score.log_probs[1:-1], rtol=1e-6)
    # Exactly one token more than the prompt; score also counts the final </s>.
    assert len(logprobs["tokens"]) == len(score.tokens)
    begun = tokenizer.bos, *post_ok(client, "/tokenize", model=kind, prompt=prompt)["tokens"]
    (choice,) = complete(client, model=kind, prompt=list(begun), echo=True, logprobs=1, max_tokens=1)["choices"]
    np.testing.assert_allclose(choice["logprobs"]["token_logprobs"][1:-1], score.log_probs[:-1], rtol=1e-6)
    assert choice["logprobs"]["tokens"][0] == "<s>"
    assert len(choice["logprobs"]["tokens"]) == len(begun) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_text_offsets_are_token_starts(client: TestClient, kind: str) -> None:
    fields: dict[str, Any] = {
        "prompt": "the dög  🐭",
        "max_tokens": 20,
        "temperature": 0,
        "echo": True,
        "logprobs": 0,
    }
    (choice,) = complete(client, model=kind, **fields)["choices"]
    text, logprobs = choice["text"], choice["logprobs"]
    assert logprobs["top_logprobs"] is None
    ends = [*logprobs["text_offset"][1:], len(text)]
    for token, begin, end in zip(logprobs["tokens"], logprobs["text_offset"], ends, strict=True):
        if "\\x" not in token and token not in ("</s>", "<unk>"):
            assert text[begin:end].split() == token.split()


def test_text_offsets_of_bytes_worked_by_hand(client: TestClient) -> None:
    # ö is two bytes and begins at character 1.
    fields: dict[str, Any] = {"model": "byte", "echo": True, "logprobs": 1, "max_tokens": 0}
    (choice,) = complete(client, prompt="dög", **fields)["choices"]
    assert choice["logprobs"]["tokens"] == ["d", "\\xc3", "\\xb6", "g"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]
    assert choice["finish_reason"] == "length"


def test_top_logprob_of_the_drawn_token_is_identical(client: TestClient) -> None:
    fields: dict[str, Any] = {"echo": True, "logprobs": 3, "max_tokens": 4, "temperature": 0}
    for kind in KINDS:
        (choice,) = complete(client, model=kind, prompt="the cat sees the", **fields)["choices"]
        logprobs = choice["logprobs"]
        drawn = range(-4, 0) if choice["finish_reason"] == "length" else range(-1, 0)
        for token, log_prob, top in list(
            zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
        )[1:]:
            assert top[token] == log_prob
            assert len(top) in (3, 4)
        for place in drawn:
            assert logprobs["token_logprobs"][place] == max(logprobs["top_logprobs"][place].values())


def test_prompt_formats_are_equivalent(models: dict[str, Model], client: TestClient) -> None:
    ids = models["word"].tokenizer.encode("the cat").tolist()
    bos = models["word"].tokenizer.bos
    fields: dict[str, Any] = {"model": "word", "seed": 3, "max_tokens": 6}
    texts = [
        [choice["text"] for choice in complete(client, prompt=prompt, **fields)["choices"]]
        for prompt in ("the cat", ["the cat"], ids, [ids], [bos, *ids], ["the cat", "the cat"], [ids, [bos, *ids]])
    ]
    assert {len(prompt_texts) for prompt_texts in texts} == {1, 2}
    assert len({text for prompt_texts in texts for text in prompt_texts}) == 1


def test_choices_are_ordered_by_prompt_then_sample(models: dict[str, Model], client: TestClient) -> None:
    fields: dict[str, Any] = {"seed": 1, "max_tokens": 5}
    answer = complete(client, model="char", prompt=["the ", "a "], n=2, **fields)
    expected = [g.text for prompt in ("the ", "a ") for g in models["char"].generate_several(prompt, 2, **fields)]
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    counts = answer["usage"]
    assert counts["prompt_tokens"] == 4 + 2
    assert counts["completion_tokens"] <= 20
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]


def test_completion_has_the_openai_fields(client: TestClient) -> None:
    answer = complete(
        client, model="word", prompt="the", user="somebody", best_of=1, logit_bias={}, presence_penalty=0
    )
    assert list(answer) == ["id", "object", "created", "model", "system_fingerprint", "choices", "usage"]
    assert answer["object"] == "text_completion"
    assert answer["model"] == "word"
    assert answer["system_fingerprint"].startswith("sha256:")
    assert list(answer["choices"][0]) == ["index", "text", "logprobs", "finish_reason"]
    other = complete(client, model="char", prompt="the")
    assert other["system_fingerprint"] != answer["system_fingerprint"]


def test_default_max_tokens_is_sixteen(client: TestClient) -> None:
    answer = complete(client, model="byte", prompt="the", stop=None, temperature=None, n=None, top_p=None)
    (choice,) = answer["choices"]
    drawn = answer["usage"]["completion_tokens"]
    assert drawn == 16 or (drawn < 16 and choice["finish_reason"] == "stop")


def test_end_of_line_is_a_token_without_text(client: TestClient) -> None:
    (choice,) = complete(client, model="word", prompt="the fish today", temperature=0, logprobs=1, max_tokens=9)[
        "choices"
    ]
    assert choice["text"] == ""
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"] == ["</s>"]
    assert choice["logprobs"]["text_offset"] == [0]


def test_tokens_of_a_stop_string_are_omitted(client: TestClient) -> None:
    fields: dict[str, Any] = {
        "model": "byte",
        "prompt": "the cat s",
        "temperature": 0,
        "max_tokens": 30,
        "logprobs": 0,
    }
    (choice,) = complete(client, stop="the", **fields)["choices"]
    assert choice["text"] == "ees "
    assert choice["logprobs"]["tokens"] == list("ees ")
    assert choice["finish_reason"] == "stop"
    (cut,) = complete(client, stop=["s", "the"], **fields)["choices"]
    assert cut["text"] == "ee"


def test_impossible_tokens_have_a_finite_logprob(folder: Path) -> None:
    train_trigram(folder / "mle", "char", smoothing="mle")
    with open_client(folder / "mle" / "char") as client:
        (choice,) = complete(client, prompt="ttt", echo=True, logprobs=0, max_tokens=0)["choices"]
        assert choice["logprobs"]["token_logprobs"] == [None, -9999.0, -9999.0]


def test_logprobs_are_those_of_the_unfiltered_model(models: dict[str, Model], client: TestClient) -> None:
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 0.5, "top_k": 2, "seed": 2}
    (choice,) = complete(client, model="word", prompt="the", logprobs=0, **fields)["choices"]
    expected = models["word"].generate("the", **fields)
    np.testing.assert_allclose(choice["logprobs"]["token_logprobs"], expected.log_probs, rtol=1e-6)
    assert math.fsum(choice["logprobs"]["token_logprobs"]) < 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "end"),
        ("best_of", 2),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("logit_bias", {"5": 1}),
        ("stream_options", {"include_usage": True}),
        ("max_tokens", 101),
        ("max_tokens", -1),
        ("logprobs", 101),
        ("n", 65),
        ("n", 0),
        ("n", True),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", 0),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("stop", [""]),
        ("stop", ["x"] * 65),
        ("seed", 1.5),
        ("seed", 2**64),
        ("prompt", [1, 10**6]),
        ("prompt", [[1], "the"]),
        ("prompt", ["the"] * 5),
        ("prompt", {"text": "the"}),
        ("echo", 1),
        ("unknown", 1),
    ],
)
def test_unsupported_completion_fields_are_rejected_by_name(client: TestClient, field: str, value: Any) -> None:
    error = post_error(client, "/v1/completions", **{"prompt": "the", field: value})
    assert error["param"] == field
    assert error["type"] == "invalid_request_error"


def test_boundary_values_are_accepted(client: TestClient) -> None:
    for fields in ({"temperature": 1e300}, {"temperature": 1e-300}, {"top_p": 1}, {"top_k": 10**9}, {"seed": -1}):
        complete(client, model="word", prompt="the", max_tokens=2, **fields)


def test_too_long_prompt_is_rejected(folder: Path, models: dict[str, Model]) -> None:
    with open_client(folder / "char", limits=Limits(prompt_tokens=5)) as client:
        complete(client, prompt="abcde")
        error = post_error(client, "/v1/completions", prompt="abcdef")
        assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
        assert "6" in error["message"]


def test_too_large_logprobs_response_is_rejected(client: TestClient) -> None:
    error = post_error(client, "/v1/completions", model="byte", prompt="a" * 6000, echo=True, logprobs=100)
    assert error["param"] == "logprobs"


def test_unknown_model_is_not_found(client: TestClient) -> None:
    answer = client.post("/v1/completions", json={"model": "other", "prompt": "the"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "model"


def test_too_large_response_is_rejected(client: TestClient) -> None:
    # 4 prompts · 60 samples · 100 tokens · (1 + 50 alternatives) = 1,224,000 > 2^20
    fields = {"prompt": ["a"] * 4, "n": 60, "max_tokens": 100, "logprobs": 50}
    error = post_error(client, "/v1/completions", **fields)
    assert error["param"] == "max_tokens"
    assert "1224000" in error["message"]


def test_other_requests_are_served_during_endless_generation(
    folder: Path, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token source that never waits: only a request that yields to the event loop leaves room for others."""
    begun, closed = threading.Event(), threading.Event()

    async def endless(self: Scheduler, job: Job) -> AsyncGenerator[TokenResult]:
        begun.set()
        try:
            while True:
                yield TokenResult(sample=0, id=3, log_prob=-1.0, top=(), finish=None)
        finally:
            closed.set()

    monkeypatch.setattr(Scheduler, "generate", endless)
    stops = ["\u0000" * 1024, *(chr(1 + number) * 1024 for number in range(63))]
    body = json.dumps({"prompt": "the", "max_tokens": 4096, "stop": stops}).encode()
    with run_server(create_app([folder / "word"])) as server, server.connect() as connection:
        connection.sendall(post("/v1/completions", body))
        assert begun.wait(10)
        assert server.ask(get("/health")).status == 200
        assert not closed.is_set()
        connection.close()
        assert closed.wait(10)


def test_all_choices_share_one_stop_automaton(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    original = StopStrings.__init__

    def counted_init(self: StopStrings, strings: Sequence[str] = ()) -> None:
        built.append(len(strings))
        original(self, strings)

    monkeypatch.setattr(StopStrings, "__init__", counted_init)
    complete(client, model="word", prompt=["the", "a"], n=8, max_tokens=4, stop=["cat", "dög"])
    assert built == [2]


@pytest.mark.parametrize("is_stream", [False, True], ids=["complete", "stream"])
def test_body_is_parsed_and_settings_are_validated_once(
    client: TestClient, is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"model": "word", "prompt": ["the", "a", ""], "n": 2, "max_tokens": 3, "seed": 1, "stream": is_stream}
    complete(client, model="word", max_tokens=1)  # loads the model, which reads JSON files
    counts: Counter[str] = Counter()
    loads, validate = json.loads, Decoding.__post_init__

    def count_parse(*arguments: Any, **options: Any) -> Any:
        counts["parses"] += 1
        return loads(*arguments, **options)

    def count_settings(self: Decoding) -> None:
        counts["settings"] += 1
        validate(self)

    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", count_parse)
        patch.setattr(Decoding, "__post_init__", count_settings)
        assert client.post("/v1/completions", json=fields).status_code == 200
    assert counts == {"parses": 1, "settings": 1}


@pytest.fixture(scope="module")
def rare_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Model]]:
    """A unigram of `cat`, `<unk>` and `</s>`, of which `<unk>` is the most probable."""
    folder = tmp_path_factory.mktemp("rare")
    lines = ["cat lion", "cat tiger puma", "lynx ocelot jaguar", "cougar caracal serval"]
    text = Corpus.from_lines(lines)
    chainrule.train("ngram", text, order=1, smoothing="laplace", min_count=2).save(folder / "rare")
    with open_client(folder / "rare", limits=Limits()) as client:
        yield client, chainrule.load(folder / "rare")


def test_unknown_words_are_drawn_only_if_kept(rare_words: tuple[TestClient, Model]) -> None:
    client, model = rare_words
    fields: dict[str, Any] = {"prompt": "cat", "n": 8, "seed": 2, "max_tokens": 20}
    excluded = complete(client, **fields, logprobs=3)["choices"]
    assert "<unk>" not in "".join(choice["text"] for choice in excluded)
    with_unk = complete(client, **fields, unk="keep")["choices"]
    assert "<unk>" in "".join(choice["text"] for choice in with_unk)
    # the log-probabilities are the model's, with `<unk>` among the alternatives
    probabilities = dict(model.next("cat", 3))
    top = excluded[0]["logprobs"]["top_logprobs"][0]
    assert {token.strip(): math.exp(p) for token, p in top.items()} == {
        token: pytest.approx(p) for token, p in probabilities.items()
    }
    assert " <unk>" in top


def test_unknown_words_are_spelled_like_generate(rare_words: tuple[TestClient, Model]) -> None:
    client, model = rare_words
    fields: dict[str, Any] = {"seed": 2, "max_tokens": 20, "unk": "spell"}
    expected = model.generate_several("cat", 8, **fields)
    choices = complete(client, prompt="cat", n=8, logprobs=2, **fields)["choices"]
    assert [choice["text"] for choice in choices] == [generation.text for generation in expected]
    assert any("<unk>" in generation.tokens for generation in expected)
    assert "<unk>" not in "".join(choice["text"] for choice in choices)
    for choice, generation in zip(choices, expected, strict=True):
        logprobs = choice["logprobs"]
        words = [token for token in logprobs["tokens"] if token != "</s>"]
        assert "".join(words) == choice["text"]
        assert logprobs["token_logprobs"] == pytest.approx(generation.log_probs)
        for token, log_prob, top in zip(
            logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
        ):
            assert top[token] == log_prob
    events = client.post("/v1/completions", json={"prompt": "cat", "stream": True, **fields}).text.removesuffix(
        "data: [DONE]\n\n"
    )
    parts = [json.loads(event.removeprefix("data: ")) for event in events.strip().split("\n\n")]
    assert "".join(part["choices"][0]["text"] for part in parts) == expected[0].text


def test_stop_string_inside_a_spelled_word_ends_the_text(rare_words: tuple[TestClient, Model]) -> None:
    client, model = rare_words
    fields: dict[str, Any] = {"seed": 2, "max_tokens": 20, "unk": "spell"}
    text = next(
        results.text for results in model.generate_several("cat", 8, **fields) if len(results.text.split()) > 3
    )
    stop = next(word for word in text.split() if word != "cat")[1:]
    expected = model.generate_several("cat", 8, stop=stop, **fields)
    choices = complete(client, prompt="cat", n=8, stop=stop, **fields)
    results = [(choice["text"], choice["finish_reason"]) for choice in choices["choices"]]
    assert results == [(generation.text, generation.finish_reason) for generation in expected]
    whole = complete(client, prompt="cat", n=8, **fields)["usage"]["completion_tokens"]
    assert choices["usage"]["completion_tokens"] < whole  # tokens after the stop string are not counted
    whole_texts = [generation.text for generation in model.generate_several("cat", 8, **fields)]
    unstopped = complete(client, prompt="cat", n=8, stop="<", **fields)[
        "choices"
    ]  # the name <unk> is not text here
    assert [choice["text"] for choice in unstopped] == whole_texts
    unseeded = complete(client, prompt="cat", n=8, stop=["e"], unk="spell", max_tokens=20)["choices"]
    assert all("e" not in choice["text"] for choice in unseeded)


def test_spelling_without_a_speller_is_rejected(rare_words: tuple[TestClient, Model], tmp_path: Path) -> None:
    replace(rare_words[1], speller=None).save(tmp_path / "speechless")
    with open_client(tmp_path / "speechless", limits=Limits()) as client:
        error = post_error(client, "/v1/completions", prompt="cat", unk="spell")
        assert error["param"] == "unk"
        assert error["message"] == "unk is 'spell', but this model has no speller; choose exclude or keep"


def test_next_and_beam_with_unknown_words(rare_words: tuple[TestClient, Model]) -> None:
    client, _ = rare_words
    listed = post_ok(client, "/v1/next", prompt="cat")["next"]
    unknown = next(entry for entry in listed if entry["is_unknown"])
    assert unknown["token"] == "<unk>"
    assert unknown["shaped_probability"] == pytest.approx(unknown["probability"]) != 0
    nodes = post_ok(client, "/v1/beam", prompt="cat")["nodes"]
    assert "<unk>" not in {node["token"] for node in nodes}


def test_opening_mark_is_continued_without_a_space(tmp_path: Path) -> None:
    lines = Corpus.from_lines(['He said (as he did) that "the cat" was here.'])
    chainrule.train("ngram", lines, order=3, smoothing="witten-bell").save(tmp_path / "marks")
    with open_client(tmp_path / "marks", limits=Limits()) as client:
        for prompt, text in (("He said (", "as he did)"), ('He said "', 'the cat" was')):
            (choice,) = complete(client, prompt=prompt, temperature=0, max_tokens=4)["choices"]
            assert choice["text"] == text
            assert post_ok(client, "/v1/next", prompt=prompt)["next"][0]["text"] == text.split()[0]
        logprobs = complete(client, prompt="He said (", echo=True, logprobs=0, max_tokens=0)["choices"][0][
            "logprobs"
        ]
        scored = post_ok(client, "/v1/score", input="He said (")["results"][0]["log_probs"]
        assert logprobs["token_logprobs"][1:] == pytest.approx(
            scored[1:-1]
        )  # an echoed prompt is scored as any text
