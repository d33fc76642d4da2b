"""Bayes' rule by hand, and classes that are easy to tell apart."""

import math
from pathlib import Path

import numpy as np
import pytest

import chainrule
from chainrule.applications.identify import Identifier
from chainrule.errors import ChainruleWarning, UsageError
from chainrule.model import Model

pytestmark = pytest.mark.native


def trained(folder: Path, name: str, text: str, **settings: object) -> Model:
    path = folder / f"{name}.txt"
    path.write_text(text)
    chosen = {"order": 3, "smoothing": "witten-bell"} | settings
    return chainrule.train("ngram", path, **chosen)  # type: ignore[arg-type]


@pytest.fixture
def closed(tmp_path: Path) -> dict[str, Model]:
    """Two maximum likelihood unigrams without unknown words: tokens a, b and </s>."""
    settings = {"order": 1, "smoothing": "mle", "closed": True}
    return {
        "one": trained(tmp_path, "one", "a a b\n", **settings),
        "two": trained(tmp_path, "two", "a b b b\n", **settings),
    }


def test_by_hand(closed: dict[str, Model]) -> None:
    # one: a 2/4, b 1/4, </s> 1/4; two: a 1/5, b 3/5, </s> 1/5.
    identifier = Identifier.of(closed)
    a, b = 1 / 2 * 1 / 4, 1 / 5 * 1 / 5  # of the line "a"
    result = identifier.probabilities(["a", "b b"])
    assert result[0] == pytest.approx([a / (a + b), b / (a + b)], rel=1e-6)
    assert identifier.identify(["a", "b b"]) == ["one", "two"]
    assert identifier.log_joint(["a"])[0] == pytest.approx([math.log(a / 2), math.log(b / 2)], rel=1e-6)
    believed = Identifier.of(closed, [1, 9])
    assert believed.prior == (0.1, 0.9)
    assert believed.probabilities(["a"])[0] == pytest.approx([a / (a + 9 * b), 9 * b / (a + 9 * b)], rel=1e-6)
    assert believed.identify(["a"]) == ["two"]


def test_lines_impossible_for_every_model(closed: dict[str, Model]) -> None:
    identifier = Identifier.of(closed, [1, 3])
    assert identifier.probabilities(["zebra"])[0] == pytest.approx([0.25, 0.75])
    assert identifier.probabilities([]).shape == (0, 2)
    assert identifier.identify([]) == []


@pytest.mark.parametrize("tokenizer", ["char", "word", "byte"])
def test_languages(tmp_path: Path, tokenizer: str) -> None:
    texts = {
        "en": "the cat sees the dog\nthe dog is in the house\nwhere is the cat\n",
        "de": "die katze sieht den hund\nder hund ist im haus\nwo ist die katze\n",
    }
    models = {name: trained(tmp_path, name, text * 3, tokenizer=tokenizer) for name, text in texts.items()}
    identifier = Identifier.of(models)
    lines = ["the house sees the cat", "das haus sieht die katze", "where", "hund und haus"]
    assert identifier.identify(lines) == ["en", "de", "en", "de"]
    p = identifier.probabilities([*lines, "", "日本"])
    assert np.isfinite(p).all()
    assert p.sum(axis=1) == pytest.approx(1)
    of_text = [m.score(lines[1]).log_prob_with_spelling for m in models.values()]
    assert p[1, 1] == pytest.approx(1 / (1 + math.exp(of_text[0] - of_text[1])), rel=1e-5)


def test_wrong_usage(closed: dict[str, Model], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two or more"):
        Identifier.of({"one": closed["one"]})
    with pytest.raises(UsageError, match="3 numbers for 2 models"):
        Identifier.of(closed, [1, 1, 1])
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="not above 0"):
            Identifier.of(closed, [1, wrong])
    backoff = trained(tmp_path, "three", "a b\n", smoothing="stupid-backoff")
    with pytest.raises(UsageError, match="three gives scores, not probabilities"):
        Identifier.of(closed | {"three": backoff})
    with pytest.warns(ChainruleWarning, match="blanks or capitals"):
        Identifier.of(closed | {"chars": trained(tmp_path, "chars", "a b\n", tokenizer="char")})
