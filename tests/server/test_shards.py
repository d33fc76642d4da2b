"""Shard servers: a sharded model scored over HTTP, and the faults of servers."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from starlette.testclient import TestClient

import chainrule
from chainrule.applications.convert import split_model
from chainrule.errors import ChainruleError, ConfigError, ShardError
from chainrule.ngram.remote_shards import RemoteShards, pack_ids
from chainrule.ngram.sharded import ShardedModel
from chainrule.server.app import create_app
from chainrule.text.corpus import Corpus
from server.conftest import LOCAL
from server.running_server import RunningServer, run_server

TEXT = ["the mouse sees a bird", "a fish likes the dog today", "", "today the cat"]
SHARDS = 4


def copy_with(folder: Path, target: Path, shards: range) -> Path:
    """Copy a sharded folder with these shards only."""
    shutil.copytree(folder, target)
    for path in (target / "shards").iterdir():
        if int(path.name[:5]) not in shards:
            path.unlink()
    return target


@pytest.fixture(scope="module")
def folder(ngram_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trigram model in four shards."""
    path = tmp_path_factory.mktemp("sharded") / "parts"
    split_model(chainrule.load(ngram_folder), SHARDS).save(path)
    return path


@pytest.fixture(scope="module")
def front(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder without any shard."""
    return copy_with(folder, tmp_path_factory.mktemp("front") / "parts", range(0))


@contextmanager
def running(*folders: Path, **options: Any) -> Iterator[list[RunningServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(run_server(create_app([path], **options))) for path in folders]


@pytest.fixture(scope="module")
def servers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Addresses of two servers that have three shards and one shard."""
    root = tmp_path_factory.mktemp("servers")
    first, second = copy_with(folder, root / "a", range(3)), copy_with(folder, root / "b", range(3, 4))
    with running(first, second) as started:
        yield [server.url for server in started]


def test_scores_and_distributions_equal_the_unsharded_model(
    ngram_folder: Path, front: Path, servers: list[str]
) -> None:
    whole, remote = chainrule.load(ngram_folder), chainrule.load(front, shard_servers=servers)
    corpus = Corpus.from_lines(TEXT)
    assert [s.log_probs for s in remote.scores(TEXT)] == [s.log_probs for s in whole.scores(TEXT)]
    assert remote.evaluate(corpus).nats == whole.evaluate(corpus).nats
    assert remote.next("the", top=30) == whole.next("the", top=30)
    assert remote.generate("a", seed=2, max_tokens=8).text == whole.generate("a", seed=2, max_tokens=8).text


def test_stream_model_and_a_local_shard(text_file: Path, folder: Path, tmp_path: Path) -> None:
    whole = chainrule.train("ngram", text_file, order=4, context="stream", smoothing="witten-bell")
    split_model(whole, 2).save(tmp_path / "parts")
    local, other = (copy_with(tmp_path / "parts", tmp_path / f"{s}", range(s, s + 1)) for s in range(2))
    with running(other) as (server,):
        mixed = chainrule.load(local, shard_servers=[server.url])
        assert [s.log_probs for s in mixed.scores(TEXT)] == [s.log_probs for s in whole.scores(TEXT)]
        assert mixed.next("cat", top=9) == whole.next("cat", top=9)


def test_one_message_for_each_position(front: Path, servers: list[str]) -> None:
    """A line of 5 words has 7 positions, counting `<s>` and `</s>`; each server gets one request."""
    model = chainrule.load(front, shard_servers=servers)
    sources = [cast(RemoteShards, source) for source in cast(ShardedModel, model.lm).sources]
    model.score("the cat")  # asks once whether <s> <s> is stored
    before = [(source.requests, source.bytes_sent) for source in sources]
    model.score("the mouse sees a cat")
    assert sum(source.requests for source in sources) - sum(requests for requests, _ in before) <= len(sources)
    sent = sum(source.bytes_sent for source in sources) - sum(size for _, size in before)
    assert sent <= 7 * 16 + 100 * len(sources)  # a trigram has 12 bytes, 16 in base64


def test_front_server_answers_like_the_server_of_the_whole_model(
    ngram_folder: Path, front: Path, servers: list[str]
) -> None:
    requests = {
        "/v1/score": {"input": TEXT[:2]},
        "/v1/next": {"prompt": "the", "top": 5},
        "/v1/completions": {"prompt": "the cat", "max_tokens": 6, "seed": 1},
        "/v1/beam": {"prompt": "a", "max_tokens": 3},
        "/v1/context": {"text": "the cat sees"},
    }
    with (
        TestClient(create_app([ngram_folder]), base_url=LOCAL) as whole,
        TestClient(create_app([front], shard_servers=servers), base_url=LOCAL) as client,
    ):
        for path, body in requests.items():
            expected, response = (sender.post(path, json=body) for sender in (whole, client))
            assert response.status_code == 200, response.text
            for name in set(expected.json()) - {"id", "created", "model", "views", "family", "system_fingerprint"}:
                assert response.json()[name] == expected.json()[name], (path, name)
        assert client.get("/v1/shards").json()["data"] == [{"model": "parts", "order": 3, "shards": []}]


def test_missing_shard_is_a_503_without_the_path(folder: Path, tmp_path: Path) -> None:
    half = copy_with(folder, tmp_path / "half", range(1))
    with TestClient(create_app([half]), base_url=LOCAL) as client:
        response = client.post("/v1/score", json={"input": TEXT})
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "shard_unavailable"
        assert str(tmp_path) not in response.text
        assert [item["shard"] for item in client.get("/v1/shards").json()["data"][0]["shards"]] == [0]


def closed_address() -> str:
    """An address at which no server listens any more."""
    from chainrule.server import http

    with http.bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_servers_that_cannot_be_used(
    folder: Path, front: Path, ngram_folder: Path, servers: list[str], tmp_path: Path
) -> None:
    def error_of(*urls: str, path: Path = front, kind: type[ChainruleError] = ShardError) -> str:
        with pytest.raises(kind) as raised:
            chainrule.load(path, shard_servers=urls)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "no shard server has shards/00003-of-00004.ngram" in error_of(servers[0])
    address = closed_address()
    message = error_of(*servers, address)
    assert message.startswith(f"the shard server {address} cannot be reached (Connection refused); start it")
    for url in ("127.0.0.1:80", "ftp://a", "http://", "http://h:port"):
        assert "is not the address of a server" in error_of(url, kind=ConfigError)
    assert "omit them" in error_of(servers[0], path=ngram_folder, kind=ConfigError)
    other = chainrule.train(
        "ngram", Corpus.from_lines(TEXT), order=2, smoothing="witten-bell", tokenizer=ngram_folder
    )
    split_model(other, SHARDS).save(tmp_path / "other")
    with running(tmp_path / "other", ngram_folder, front) as started:
        for server, reason in zip(
            started, ("shards of another model", "has no shards", "has no shards"), strict=True
        ):
            assert f"{server.url} has" in error_of(server.url)
            assert f"{reason}; serve a copy of {front}" in error_of(server.url)


def test_server_that_stops(folder: Path, front: Path) -> None:
    with running(folder) as (server,):
        model = chainrule.load(front, shard_servers=[server.url])
        score = model.score("the cat")
    with pytest.raises(ShardError, match="cannot be reached"):
        model.score("the cat")
    assert score.log_prob < 0


def test_api_key_of_shard_servers(folder: Path, front: Path) -> None:
    with running(folder, api_key="s3cret") as (server,):
        model = chainrule.load(front, shard_servers=[server.url], shard_server_key="s3cret")
        assert model.score("the cat").log_prob < 0
        with pytest.raises(ShardError, match=r"answered 401: .*; give its key with --shard-server-key-file"):
            chainrule.load(front, shard_servers=[server.url])


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("prefixes", {"words": "!"}, "words: it is not base64"),
        ("prefixes", {"words": pack_ids(np.array([1, 2]))}, "words: it has 8 bytes, which are not rows of 3"),
        ("prefixes", {"words": pack_ids(np.array([1, 2, 10**6]))}, "the ids of the model are 0 to"),
        ("prefixes", {"words": pack_ids(np.array([1, -2, 1]))}, "the ids of the model are 0 to"),
        ("prefixes", {"words": pack_ids(np.array([-1, -1, -1]))}, "words has an empty row"),
        ("extensions", {"contexts": pack_ids(np.array([1, 1, 1]))}, "a context has at most 2 words"),
        ("extensions", {"contexts": pack_ids(np.full((65, 3), -1))}, "there are 65 contexts; send at most 64"),
        ("extensions", {}, "contexts"),
    ],
)
def test_invalid_requests(folder: Path, path: str, body: dict[str, str], reason: str) -> None:
    with TestClient(create_app([folder]), base_url=LOCAL) as client:
        response = client.post(f"/v1/shards/{path}", json=body)
        assert response.status_code == 400, response.text
        assert reason in response.json()["error"]["message"]


def test_requests_for_other_models_and_shards(folder: Path, ngram_folder: Path, tmp_path: Path) -> None:
    last = copy_with(folder, tmp_path / "last", range(3, 4))
    with TestClient(create_app([ngram_folder, last]), base_url=LOCAL) as client:
        row = {"words": pack_ids(np.array([0, 1, 2]))}
        message = client.post("/v1/shards/prefixes", json=row).json()["error"]["message"]
        assert message == "'ngram' has no shards on this server; see GET /v1/shards"
        response = client.post("/v1/shards/prefixes", json={"model": "last", **row})
        assert "words has words of shard 0, which is not on this server" in response.json()["error"]["message"]


class TamperedShards(RemoteShards):
    """A client whose responses are cut short or are not JSON."""

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        status, content = super()._exchange(method, path, body)
        if method == "GET":
            return status, content
        return status, content[:-1] + b"" if path.endswith("prefixes") else content + b"0"


def test_damaged_responses(folder: Path) -> None:
    lm = cast(ShardedModel, chainrule.load(folder).lm)
    with running(folder) as (server,):
        client = TamperedShards(server.url)
        client.connect(lm)
        with pytest.raises(ShardError, match="sent a response of another size"):
            client.prefixes(np.array([[1, 2, -1]]))
        with pytest.raises(ShardError, match="sent a response of another size"):
            client.extensions([np.array([1])])


@pytest.mark.parametrize("content", [b"<html>", json.dumps({"data": [{"model": 1}]}).encode()])
def test_other_web_servers(content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteShards, "_exchange", lambda *_: (200, content))
    with pytest.raises(ShardError, match=r"is it chainrule serve\?"):
        RemoteShards("http://h").connect(cast(ShardedModel, chainrule.load(folder).lm))
