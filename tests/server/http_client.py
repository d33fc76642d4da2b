"""Small models of every tokenizer, on a text with characters of one to four bytes, and an in-process client."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from starlette.testclient import TestClient

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.model import Model
from chainrule.server.app import create_app
from chainrule.server.errors import Limits

TEXT: Final = "the cat sees the dög\na dög likes the 猫\nthe fish sees a 🐭\na 🐭 likes the fish today\n" * 8
KINDS: Final = ("word", "char", "byte", "bpe", "wordpiece", "unigram")


def train_trigram(folder: Path, kind: str, **settings: Any) -> Model:
    """Train a trigram model with this tokenizer and save it under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    if kind in ("bpe", "wordpiece", "unigram"):
        settings = {"vocab_size": 540, **settings}
    chosen = {"order": 3, "smoothing": "witten-bell", "tokenizer": kind, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        model = chainrule.train("ngram", text, **chosen)
    model.save(folder / kind)
    return model


@contextmanager
def open_client(*folders: Path, limits: Limits | None = None) -> Iterator[TestClient]:
    """Yield an in-process client of a server of these models."""
    with TestClient(create_app(folders, limits=limits), base_url="http://127.0.0.1") as client:
        yield client


def post_ok(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """Send a request that must succeed; return the JSON response."""
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return dict(json.loads(response.text))


def post_error(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """Send a request that must fail with 400; return the error."""
    response = client.post(path, json=fields)
    assert response.status_code == 400, response.text
    return dict(response.json()["error"])


def events(client: TestClient, **fields: Any) -> list[dict[str, Any]]:
    """Return the documents of a streamed completion, which must end with [DONE]."""
    response = client.post("/v1/completions", json={**fields, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last = response.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]
