"""A real Chromium and a real server of small models."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

if os.environ.get("CI") != "true":  # in CI it is required
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
from playwright.sync_api import Browser, Page, sync_playwright

import chainrule
from browser.page_actions import TIMEOUT_MS, Visit
from chainrule.errors import ChainruleWarning
from chainrule.server.app import create_app
from chainrule.text.corpus import Corpus
from server.running_server import run_server

CHROMIUM: Final = shutil.which("chromium")
SWITCHES: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LINES: Final = ["the cat sees the dog", "the dog sees the mouse", "a cat loves the mouse", "the mouse runs"] * 6


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A word trigram, a character bigram, a Transformer."""
    whole = tmp_path_factory.mktemp("page")
    corpus = Corpus.from_lines(LINES)
    network: dict[str, Any] = {"hidden": 8, "heads": 2, "layers": 2, "epochs": 1, "batch_size": 8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        chainrule.train("ngram", corpus, order=3).save(whole / "trigram")
        chainrule.train("ngram", corpus, order=2, tokenizer="char").save(whole / "letters")
        chainrule.train("transformer", corpus, seed=1, **network).save(whole / "transformer")
    return [whole / name for name in ("trigram", "letters", "transformer")]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        words = "chromium is not installed; apt-get install chromium"
        pytest.fail(words) if os.environ.get("CI") == "true" else pytest.skip(words)
    with sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def url(folders: list[Path]) -> Iterator[str]:
    with run_server(create_app(folders)) as server:
        yield server.url


@pytest.fixture
def visit(browser: Browser, url: str) -> Visit:
    """Open the page; afterwards check that there were no external requests and no errors."""

    @contextmanager
    def open_page(address: str = url, **settings: Any) -> Iterator[Page]:
        context = browser.new_context(**settings)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        requested_urls: list[str] = []
        failed: list[str] = []
        page.on("request", lambda request: requested_urls.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on(
            "console",
            lambda console_message: (
                failed.append(console_message.text) if "Content Security" in console_message.text else None
            ),
        )
        page.goto(address)
        yield page
        context.close()
        assert requested_urls
        assert {urlsplit(item).netloc for item in requested_urls} == {urlsplit(address).netloc}
        assert failed == []

    return open_page
