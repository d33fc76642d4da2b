"""Degenerate texts: no crash, and a warning about default discounts."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule import api
from chainrule.errors import ChainruleWarning, InputError
from chainrule.model import Model
from chainrule.ngram.config import SMOOTHINGS
from chainrule.text.corpus import Corpus

CORPORA = {
    "one word": ["word"],
    "one line": ["a line of some words and a line of more words"],
    "every word once": ["a b c d", "e f g", "h i"],
    "all words the same": ["a a a a a", "a a a"],
    "mostly empty lines": ["", "", "a", "", ""],
    "a thousand copies of a line": ["the same line again"] * 1000,
    "ten words": ["a b c d e", "f g h i j"],
    "the unknown word alone": ["<unk>", "<unk> <unk>"],
}
FALL_BACKS = {
    "modified-kneser-ney": "using default discounts 0.5, 1, 1.5:",
    "kneser-ney": "using the default discount 0.5:",
    "absolute": "using the default discount 0.5:",
    "katz": "using no discount:",
}


def train(lines: list[str], **settings: Any) -> tuple[Model, list[str]]:
    """The model and the warnings raised in training."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = api.train("ngram", Corpus.from_lines(lines), **settings)
    assert all(issubclass(warning.category, ChainruleWarning) for warning in caught), caught
    return model, [str(warning.message) for warning in caught]


def held_out(smoothing: str, lines: list[str]) -> dict[str, Any]:
    """A validation text for Jelinek–Mercer on one line, which has no line to hold out."""
    return {"valid": Corpus.from_lines(lines)} if smoothing == "jelinek-mercer" and len(lines) == 1 else {}


@pytest.mark.parametrize("order", [1, 2, 10])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("name", CORPORA)
def test_degenerate_texts_give_distributions_with_every_smoothing(name: str, smoothing: str, order: int) -> None:
    lines = CORPORA[name]
    model, messages = train(lines, order=order, smoothing=smoothing, **held_out(smoothing, lines))
    for h in (model.tokenizer.bos, 0, 1):
        log_p, _ = model.lm.step(model.lm.start(1), np.array([h]))
        assert not np.isnan(log_p).any()
        total = float(np.exp(log_p).sum())
        # Maximum likelihood gives probability 0 to words that never came first.
        assert not model.lm.is_normalized or math.isclose(total, 1, abs_tol=1e-5)
    log_prob = model.score(lines[0]).log_prob
    assert math.isfinite(log_prob)
    # None of these texts has n-grams with counts 1, 2, 3 and 4 in every order.
    assert smoothing != "modified-kneser-ney" or any(FALL_BACKS[smoothing] in words for words in messages)


@pytest.mark.parametrize(("smoothing", "default"), FALL_BACKS.items())
def test_default_discounts_are_reported_per_order(smoothing: str, default: str) -> None:
    # Every n-gram has count 1000, or one predecessor only: n_2 … n_4 are 0 in every order.
    lines = CORPORA["a thousand copies of a line"]
    _, messages = train(lines, order=3, smoothing=smoothing)
    assert len(messages) == 3
    assert all(words.startswith(f"order {n}: {default}") for n, words in enumerate(messages, start=1))


def test_katz_reports_when_no_discount_is_used() -> None:
    # Each word once: n_1 = 4 and </s>, n_2 = 0, so c* = 2 n_2 / n_1 = 0 for count 1: no estimate.
    _, messages = train(["a b c d"], order=1, smoothing="katz")
    counts_of_counts = "n1=5, n2=0, n3=0, n4=0, n5=0, n6=0"
    assert messages == [
        f"order 1: using no discount: discounts cannot be estimated from this text ({counts_of_counts})"
    ]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("lines", [[], [""], ["", " \t", ""]])
def test_text_without_words_is_rejected(smoothing: str, lines: list[str]) -> None:
    with pytest.raises(InputError, match="no words"):
        api.train("ngram", Corpus.from_lines(lines), smoothing=smoothing)


def test_jelinek_mercer_on_one_line_requires_a_validation_text() -> None:
    with pytest.raises(InputError, match="give --valid"):
        api.train("ngram", Corpus.from_lines(["one line"]), smoothing="jelinek-mercer")


@pytest.mark.parametrize("smoothing", [s for s in SMOOTHINGS if s not in ("jelinek-mercer", "stupid-backoff")])
@pytest.mark.parametrize("name", CORPORA)
def test_pruned_models_of_degenerate_texts_sum_to_one(name: str, smoothing: str) -> None:
    settings: dict[str, Any] = {"order": 4, "smoothing": smoothing, "prune": "0,0,1", "entropy_prune": 1e-3}
    model, _ = train(CORPORA[name], **settings)
    log_p, _ = model.lm.step(model.lm.start(1), np.array([model.tokenizer.bos]))
    assert float(np.exp(log_p).sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", CORPORA)
def test_models_of_degenerate_texts_round_trip_through_arpa(name: str, tmp_path: Path) -> None:
    from chainrule.applications import convert

    model, _ = train(CORPORA[name], order=10)
    model.save(tmp_path / "model")
    convert.export_arpa(tmp_path / "model", tmp_path / "m.arpa")
    back = convert.import_arpa(tmp_path / "m.arpa")
    for line in CORPORA[name][:3]:
        assert back.score(line).log_prob == pytest.approx(model.score(line).log_prob, rel=1e-4, abs=1e-4)
