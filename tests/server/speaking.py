"""Small models of every kind of token, of a text with characters of one to four bytes, and a server of them."""

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
from chainrule.server.limits import Limits

TEXT: Final = "the cat sees the dög\na dög likes the 猫\nthe fish sees a 🐭\na 🐭 likes the fish today\n" * 8
KINDS: Final = ("word", "char", "byte", "bpe", "wordpiece", "unigram")


def trained(folder: Path, kind: str, **settings: Any) -> Model:
    """A trigram of these tokens, saved under their name."""
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
def serving(*folders: Path, limits: Limits | None = None) -> Iterator[TestClient]:
    """A client of a server of these models, in process."""
    with TestClient(create_app(folders, limits=limits), base_url="http://127.0.0.1") as client:
        yield client


def ask(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """The answer to a request that is right."""
    answer = client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return dict(json.loads(answer.text))


def refused(client: TestClient, path: str, **fields: Any) -> dict[str, Any]:
    """The error that a wrong request gets."""
    answer = client.post(path, json=fields)
    assert answer.status_code == 400, answer.text
    return dict(answer.json()["error"])


def events(client: TestClient, **fields: Any) -> list[dict[str, Any]]:
    """The documents of a stream, which must be closed by [DONE]."""
    answer = client.post("/v1/completions", json={**fields, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, last = answer.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]
