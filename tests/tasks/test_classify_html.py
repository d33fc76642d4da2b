"""Weighted spans of explained texts and their HTML page."""

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning
from chainrule.tasks import classify
from chainrule.tasks.classify import Classifier
from chainrule.tasks.classify_report import LEGENDS, Explanation, WeightedSpan, merge_token_weights, render_page
from chainrule.text.labelled import LabelledTexts

DATA = LabelledTexts(["good film über alles", "a bad film"] * 4, ["pos", "neg"] * 4)
TEXT = "GOOD  Film,\r\nÜBER\tİx 漢z "
KINDS = ("word", "char", "byte", "bpe", "wordpiece")
SIZES = {"bpe": 300, "wordpiece": 600}


def explained(*pieces: tuple[str, float]) -> Explanation:
    """A text of these pieces, a blank between them."""
    text = " ".join(piece for piece, _ in pieces)
    starts = np.cumsum([0, *(len(piece) + 1 for piece, _ in pieces)]).tolist()
    weighted = [WeightedSpan(p, w, at, at + len(p), True) for (p, w), at in zip(pieces, starts, strict=False)]
    return Explanation(text, "<b>", 0.9, weighted)


def test_page_escapes_text() -> None:
    page = render_page([explained(("<script>", 2.0), ("x\x07", -1.0)), explained()])
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<b>" not in page
    assert "\x07" not in page
    assert 'rgba(0,114,178,0.62)" title="+2.0000"' in page  # the largest: the full colour, 0.62
    assert 'rgba(213,94,0,0.31)" title="-1.0000"' in page  # half of it, against
    assert explained(("w", -math.inf), ("v", 3.0)).shades == [("w", -1.0), ("v", 0.0)]
    assert explained(("w", 0.0)).shades == [("w", 0.0)]


def test_overlapping_tokens_are_merged() -> None:
    # 漢 in two tokens, of which one is unknown; " b" without its blank; a blank of its own; the end.
    spans = [(0, 1), (0, 1), (1, 3), (3, 4), (4, 4)]
    merged = merge_token_weights("漢 b ", spans, [1.0, 0.5, 2.0, 3.0, 4.0], [True, False, True, True, True], "</s>")
    assert merged == [
        ("漢", 1.5, 0, 1, False),
        ("b", 2.0, 2, 3, True),
        (" ", 3.0, 3, 4, True),
        ("</s>", 4.0, 4, 4, True),
    ]


def train_small(family: str, kind: str) -> Classifier:
    small: dict[str, Any] = {} if family == "ngram" else {"hidden": 4, "embedding": 4, "epochs": 1, "clip": 0.0}
    return classify.train(
        family, DATA, tokenizer=kind, vocab_size=SIZES.get(kind), options=RunOptions(device="cpu"), **small
    )


@pytest.mark.parametrize("family", ["ngram", "lstm"])
@pytest.mark.parametrize("kind", KINDS)
def test_spans_cover_the_text_as_typed(family: str, kind: str) -> None:
    classifier = train_small(family, kind)
    pieces = classifier.weighted_spans(TEXT)
    for piece in pieces:
        assert piece.text == (TEXT[piece.start : piece.end] or "</s>")
    inner = [piece for piece in pieces if piece.start < piece.end]
    assert all(before.end <= after.start for before, after in itertools.pairwise(inner))
    assert "".join("".join(piece.text.split()) for piece in inner) == "".join(TEXT.split())  # all of it, once
    label, other = np.argsort(-classifier.posterior.log_posteriors([TEXT])[0])[:2].tolist()
    _, spans, weights = classifier.posterior.explain(TEXT, label, other, classifier.posterior.default_explanation)
    assert sum(piece.weight for piece in pieces) == pytest.approx(weights.sum())
    assert len(spans) == len(weights)
    assert classifier.explain(TEXT) == [(piece.text, piece.weight) for piece in pieces]
    shown = re.sub("<[^>]*>", "", render_page([Explanation(TEXT, "", 1.0, pieces)]).partition("<article>")[2])
    shown = re.sub("&lt;/s&gt;|[␍␊␉]", "", shown)  # signs for blanks that have a weight of their own
    assert "".join(shown.split()) == "1.000" + "".join(TEXT.split())


def test_unknown_words_are_marked_as_typed() -> None:
    pieces = train_small("ngram", "word").weighted_spans("Good\r\nGRIEF film\n")
    assert [(piece.text, piece.is_known) for piece in pieces] == [
        ("Good", True),
        ("</s>", True),
        ("GRIEF", False),
        ("film", True),
        ("</s>", True),
    ]
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 4), (4, 4), (6, 11), (12, 16), (16, 16)]
    assert [piece.text for piece in train_small("ngram", "word").weighted_spans("")] == ["</s>"]
    page = render_page([Explanation("GRIEF", "pos", 1.0, [WeightedSpan("GRIEF", 1.0, 0, 5, False)])])
    assert re.search(r'<span class="unknown" [^>]* title="\+1\.0000, unknown">GRIEF</span>', page)


def test_truncated_text_is_marked_as_unread() -> None:
    with pytest.warns(ChainruleWarning, match="longer than 5 tokens"):
        classifier = classify.train("gru", DATA, hidden=4, embedding=4, epochs=1, longest=5, device="cpu")
    with pytest.warns(ChainruleWarning, match="longer than 5 tokens"):
        pieces = classifier.weighted_spans("a good film indeed ")  # <s>, three words, </s>
    assert [piece.text for piece in pieces] == ["a", "good", "film", "</s>"]
    page = render_page([Explanation("a good film indeed ", "pos", 1.0, pieces)])
    assert re.search(r'<span class="unread" [^>]*> indeed </span></div>', page)


@pytest.mark.parametrize(("way", "is_signed"), [("gradient", True), ("evidence", True), ("attention", False)])
def test_legend_matches_the_explanation_method(way: str, is_signed: bool) -> None:
    page = render_page([Explanation("a", "x", 1.0, [WeightedSpan("a", 1.0, 0, 1, True)], way)])
    assert ("orange tokens the second most probable one" in page) == is_signed
    assert ("does not show which label a token supports" in page) == (not is_signed)
    assert set(LEGENDS) == {"gradient", "evidence", "attention"}


def test_default_explanation_method() -> None:
    assert train_small("ngram", "word").posterior.default_explanation == "evidence"
    for pooling, way in (("mean", "gradient"), ("attention", "attention")):
        classifier = classify.train(
            "gru", DATA, hidden=4, embedding=4, epochs=1, clip=0.0, pooling=pooling, device="cpu"
        )
        assert classifier.posterior.default_explanation == way
        assert classifier.explain("good") == classifier.explain("good", by=way)
