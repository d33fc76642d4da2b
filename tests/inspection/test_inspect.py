"""Every section on models of every family and on unusual input: one complete, small and clean page each."""

import json
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.inspection.report import Inspection, render
from chainrule.inspection.run import SECTIONS, inspect
from chainrule.model import Model
from chainrule.text.corpus import Corpus
from cli.command import english
from inspection.browser_page import NAMESPACES, Outline, browse, widths

TEXT = Corpus.from_lines(english(60).splitlines())
HEBREW = Corpus.from_lines(['שלום "עולם" (אחד)', "", "שלום שלום <b>&amp;\x1b\x00"] * 20)
SMALL: dict[str, Any] = {"hidden": 8, "epochs": 1, "batch_size": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "rnn": {"layers": 2},
    "lstm": {"layers": 2, "context": "stream"},
    "gru": {"attention": "additive"},
    "transformer": {"layers": 2, "heads": 2, "window": 16},
    "feedforward": {"order": 3},
}


@cache
def network(family: str, **chosen: Any) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # diagnostics about the short training
        return chainrule.train(family, TEXT, **{**SMALL, **SETTINGS[family], **chosen})


@cache
def ngram(order: int = 3) -> Model:
    return chainrule.train("ngram", TEXT, order=order, smoothing="witten-bell")


def checked(inspection: Inspection) -> str:
    """The page, after checking what holds for every page."""
    page = render(inspection)
    outline = Outline(page)
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"https?://[^\s\"'<>)]+", page)) <= NAMESPACES
    assert "url(" not in page
    assert "src" not in {name for name, _ in outline.attributes}
    assert not re.search(r"(?<![\w-])(nan|NaN|None)(?![\w-])", outline.text)
    assert page.count("<svg ") == page.count("<desc>") == len(re.findall('<svg [^>]*role="img"', page))
    for figure in re.findall(r"<figure.*?</figure>", page, re.DOTALL):
        assert re.search(r"<figcaption>.{20,}</figcaption>", figure, re.DOTALL)
    assert len(page.encode()) < 3_000_000
    json.dumps(inspection.to_json(), allow_nan=False)
    return page


@cache
def every_family() -> Inspection:
    mixture = chainrule.mix([ngram(), ngram(2)], held_out=TEXT)
    return inspect([*map(network, SETTINGS), ngram(), mixture], TEXT, lags=20, positions=8)


@pytest.mark.slow
def test_every_family_on_one_page() -> None:
    inspection = every_family()
    assert list(inspection) == list(SECTIONS)
    checked(inspection)
    assert [paragraph.model for paragraph in inspection.verdict if paragraph.model] == list(inspection.names)
    for paragraph in inspection.verdict:
        assert len(re.findall(r"[.!?](?= [A-Z]|$)", paragraph.text)) <= 5
    for section in inspection.sections:
        assert section.findings
        assert section.figures
        assert section.data


@pytest.mark.slow
def test_browser_shows_the_page_without_overflow(tmp_path: Path) -> None:
    page = checked(every_family())
    done = browse(tmp_path, page, "--dump-dom")
    assert b"CONSOLE" not in done.stderr
    assert "Top predictions" in done.stdout.decode()
    assert widths(tmp_path, page) == (360, 360)


@pytest.mark.slow
@pytest.mark.parametrize("family", SETTINGS)
@pytest.mark.parametrize("odd", ["one token", "one line", "nothing but ends", "other letters"])
def test_inspection_of_unusual_texts(family: str, odd: str) -> None:
    texts = {
        "one token": TEXT,
        "one line": Corpus.from_lines(["the cat"]),
        "nothing but ends": Corpus.from_lines([""] * 5),
    }
    tokens = 1 if odd == "one token" else 1000
    inspection = inspect([network(family), ngram()], texts.get(odd, HEBREW), tokens=tokens, lags=5, positions=4)
    assert "probability" in inspection
    checked(inspection)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rnn", "lstm", "gru", "transformer"])
@pytest.mark.parametrize("tokenizer", ["byte", "char"])
def test_inspection_of_narrow_networks_and_small_tokens(family: str, tokenizer: str) -> None:
    width = 2 if family == "transformer" else 1  # rotary positions need pairs
    others: dict[str, dict[str, Any]] = {"transformer": {"heads": 1}, "gru": {"attention": "none"}}
    model = network(family, hidden=width, layers=1, tokenizer=tokenizer, **others.get(family, {}))
    checked(inspect(model, HEBREW, tokens=200, lags=10, positions=4))


@pytest.mark.slow
def test_inspection_of_a_unigram_model() -> None:
    inspection = inspect(ngram(1), TEXT)
    assert list(inspection) == ["probability"]
    checked(inspection)


@pytest.mark.slow
def test_hostile_model_name_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / '<script>alert(1)<&">'
    network("lstm").save(folder)
    page = checked(inspect([folder, ngram()], TEXT, lags=5, positions=4))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
