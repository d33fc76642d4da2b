"""Fixtures of the server tests: a tiny model and an in-process client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import chainrule
from chainrule.server.app import create_app

TEXT = "the cat sees the dog\na dog likes the cat\nthe fish sees a mouse\na mouse likes the fish today\n" * 8
LOCAL = "http://127.0.0.1"  # accepted by the Host check


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small training text."""
    path = tmp_path_factory.mktemp("text") / "train.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def ngram_folder(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder `ngram` of a word trigram model."""
    folder = tmp_path_factory.mktemp("models") / "ngram"
    chainrule.train("ngram", text_file, order=3, smoothing="witten-bell").save(folder)
    return folder


@pytest.fixture
def client(ngram_folder: Path) -> Iterator[TestClient]:
    """In-process client of a server of the n-gram model."""
    with TestClient(create_app([ngram_folder]), base_url=LOCAL) as test_client:
        yield test_client
