"""Held-out text of Jelinek–Mercer, and the start of a stream."""

import dataclasses
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import chainrule
from chainrule import kenlm
from chainrule.applications.convert import change_layout, merge_mixture, prune
from chainrule.applications.identify import Identifier
from chainrule.applications.rerank import score_texts
from chainrule.applications.spelling.corrector import Corrector
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.lm import Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.family import train
from chainrule.ngram.model import NgramModel
from chainrule.text.corpus import Corpus
from ngram.reference import TableModel

WORDS = Vocabulary(size=6, bos=4, eos=5, unk=0)
# A deterministic chain; nine lines in ten follow it, every tenth does not.
TRAIN = np.array(([1, 2, 5] * 9 + [1, 3, 5]) * 4)
CONFIG = Config(order=2, smoothing="jelinek-mercer")


def encoded(ids: Ids) -> EncodedText:
    return EncodedText(ids=ids, eos=5, unk=0, words=1, characters=1, bytes=1)


def p_of_two_after_one(valid: Ids | None) -> float:
    data = TrainingData(train=encoded(TRAIN), valid=None if valid is None else encoded(valid), vocabulary=WORDS)
    lm = train(data, CONFIG)
    log_p, _ = lm.step(lm.start(1), np.array([1]))
    return float(np.exp(log_p[0, 2]))


def test_jelinek_mercer_weights_follow_the_validation_text() -> None:
    # A validation text like the training text favours the bigram; one that contradicts it does not.
    assert p_of_two_after_one(np.array([1, 2, 5] * 20)) > 0.85
    assert p_of_two_after_one(np.array([1, 1, 5] * 20)) < 0.5


def test_jelinek_mercer_without_validation_holds_out_lines() -> None:
    # Every tenth line is "1 3", which the other nine never contain: weights fitted on it distrust the bigram.
    with pytest.warns(ChainruleWarning, match="one line in 10"):
        held_out = p_of_two_after_one(None)
    assert held_out < 0.5
    with pytest.warns(ChainruleWarning, match="one line in 10"):
        assert p_of_two_after_one(np.zeros(0, dtype=np.int64)) == held_out


FIRST = "bat ran off"  # the only line of the stream that begins with "bat"
OTHERS = ["cat ran off", "cat sat up", "rat sat up"]


def p_of_first_words(lines: list[str], order: int) -> dict[str, float]:
    model = chainrule.train("ngram", Corpus.from_lines(lines), order=order, smoothing="mle", context="stream")
    return {token: round(p, 6) for token, p in model.next("", top=10) if p > 0}


@pytest.mark.parametrize("order", [2, 3, 5])
def test_stream_model_starts_as_after_eos(order: int) -> None:
    # </s> is followed by cat, cat and rat; <s> is followed by bat, once.
    assert p_of_first_words([FIRST, *OTHERS], order) == pytest.approx({"cat": 2 / 3, "rat": 1 / 3}, abs=1e-6)
    # The training text starts with a blank line: <s> </s> is followed by bat; </s> by bat, cat, cat and rat.
    assert p_of_first_words(["", FIRST, *OTHERS], order) == {"cat": 0.5, "bat": 0.25, "rat": 0.25}
    # Two blank lines in the middle: </s> </s> is followed by rat, but a text starts after one </s>.
    lines = [FIRST, *OTHERS[:2], "", OTHERS[2]]
    assert p_of_first_words(lines, order) == {"cat": 0.5, "</s>": 0.25, "rat": 0.25}


def additive_stream(order: int, smoothing: str = "laplace", **settings: Any) -> chainrule.Model:
    text = Corpus.from_lines([FIRST, *OTHERS])
    return chainrule.train("ngram", text, order=order, smoothing=smoothing, context="stream", **settings)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize(("smoothing", "k"), [("laplace", 1.0), ("add-k", 0.1)])
def test_additive_stream_model_starts_as_after_eos(order: int, smoothing: str, k: float) -> None:
    # V = 9 with <unk> and </s>. </s> is followed by cat, cat and rat; </s> cat by ran and sat.
    model = additive_stream(order, smoothing)
    p = dict(model.next("", top=9))
    assert p["cat"] == pytest.approx((2 + k) / (3 + 9 * k))
    assert p["rat"] == pytest.approx((1 + k) / (3 + 9 * k))
    assert p["bat"] == pytest.approx(k / (3 + 9 * k))
    assert sum(p.values()) == pytest.approx(1)
    p = dict(model.next("cat", top=9))
    assert p["ran"] == p["sat"] == pytest.approx((1 + k) / (2 + 9 * k))
    assert p["up"] == pytest.approx(k / (2 + 9 * k))
    assert model.score("cat sat").log_probs[:2] == pytest.approx(
        [math.log((2 + k) / (3 + 9 * k)), math.log((1 + k) / (2 + 9 * k))], rel=1e-5
    )


def test_additive_stream_model_matches_the_formula() -> None:
    model = additive_stream(3)
    lm, known, eos = model.lm, model.tokenizer.vocab, model.lm.vocabulary.eos

    def p_after(*context: int) -> dict[str, float]:
        state = lm.start(1)
        for i in (lm.vocabulary.bos, *context):
            log_p, state = lm.step(state, np.array([i], dtype=np.int32))
        return {word: float(np.exp(log_p[0, i])) for word, i in known.items()}

    p = p_after(known["cat"], known["off"], eos)  # off </s> is followed by cat twice, and by nothing else
    assert (p["cat"], p["rat"]) == pytest.approx((3 / 11, 1 / 11))
    p = p_after(known["cat"], known["ran"], eos)  # ran </s> is unseen
    assert (p["cat"], p["rat"]) == pytest.approx((1 / 9, 1 / 9))


def test_additive_stream_start_is_the_same_in_every_format(tmp_path: Path) -> None:
    model = additive_stream(3)
    model.save(tmp_path / "m")
    lm = cast(NgramModel, model.lm)
    forms = {
        "loaded": chainrule.load(tmp_path / "m"),
        "small": change_layout(model, layout="small"),
        "tables": dataclasses.replace(model, lm=TableModel(lm.tables, lm.vocabulary, "stream")),
        "mixed": merge_mixture(chainrule.mix([model, model], held_out=Corpus.from_lines(OTHERS))),
        "pruned": prune(model, 1e-12),
    }
    for form in forms.values():
        assert dict(form.next("", top=9)) == pytest.approx(dict(model.next("", top=9)), rel=1e-5)
        assert form.score("cat sat up").log_probs == pytest.approx(model.score("cat sat up").log_probs, rel=1e-5)
    other = chainrule.train(
        "ngram",
        Corpus.from_lines(OTHERS),
        tokenizer=tmp_path / "m",
        context="stream",
        order=3,
        smoothing="witten-bell",
    )
    with pytest.raises(ConfigError, match="add-k"):
        merge_mixture(chainrule.mix([model, other], held_out=Corpus.from_lines(OTHERS)))


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, chainrule.Model]:
    """A stream n-gram: trained, loaded, in the small layout with 8 bits, and mixed with a line n-gram."""
    folder = tmp_path_factory.mktemp("stream")
    text = Corpus.from_lines([FIRST, *OTHERS * 10])
    settings: dict[str, Any] = {"order": 3, "smoothing": "witten-bell"}
    stream = chainrule.train("ngram", text, context="stream", **settings)
    stream.save(folder / "m")
    small = chainrule.train("ngram", text, context="stream", layout="small", bits=8, **settings)
    line = chainrule.train("ngram", text, context="line", tokenizer=folder / "m", **settings)
    mixed = chainrule.mix([stream, line], held_out=Corpus.from_lines(OTHERS))
    return {"trained": stream, "loaded": chainrule.load(folder / "m"), "small": small, "mixed": mixed}


@pytest.mark.parametrize("kind", ["trained", "loaded", "small", "mixed"])
def test_stream_start_is_the_same_in_every_operation(streams: dict[str, chainrule.Model], kind: str) -> None:
    model = streams[kind]
    p = dict(model.next("", top=20))
    assert p["cat"] > 0.5 > 0.1 > p["bat"]
    assert str(model.generate("", strategy="greedy", max_tokens=1)) == "cat"
    cat, bat = model.score("cat ran off"), model.score("bat ran off")
    assert cat.log_probs[0] == pytest.approx(math.log(p["cat"]), rel=1e-5)
    assert score_texts(model, ["cat ran off", "bat ran off"]) == pytest.approx([cat.log_prob, bat.log_prob])
    assert Corrector(model).correct("zat ran off").corrected == "cat ran off"
    joint = Identifier.of({"a": model, "b": model}).log_joint(["cat ran off"])
    assert joint[0, 0] == pytest.approx(cat.log_prob + math.log(1 / 2))


def test_kenlm_api_of_a_stream_model_starts_as_after_eos(
    streams: dict[str, chainrule.Model], tmp_path: Path
) -> None:
    streams["trained"].save(tmp_path / "m")
    log10_prob = kenlm.Model(str(tmp_path / "m")).score("cat", bos=True, eos=False)
    assert log10_prob == pytest.approx(streams["trained"].score("cat").log_probs[0] / math.log(10), rel=1e-5)
