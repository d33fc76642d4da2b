"""Compiled scoring of plain text and of states against the NumPy model, step by step."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ChainruleError
from chainrule.lm import Floats, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.config import Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.tables import BackoffTables
from chainrule.tokenizers.tokenizer import split_words
from ngram.query_pairs import SMALL, WORDS, Pair, tables_of
from ngram.reference import TableModel

pytestmark = pytest.mark.native


@pytest.mark.parametrize("layout", ["fast", "small"])
def test_states_by_hand(layout: str) -> None:
    engine = engines.from_tables(SMALL, WORDS, layout=layout, names=["<s>", "</s>", "a", "b"])
    state, out = engine.begin_state(), engine.null_state()
    assert state != out
    assert engine.advance(state, "a", out) == (-1.75, 1, False)
    one = out.copy()
    assert one == out
    assert hash(one) == hash(out)
    assert engine.advance(one, 3, out) == (-4.75, 2, False)
    assert one != out
    assert engine.advance(out, "a", out) == (-0.0625, 3, False)  # in place
    log_prob, length, is_unknown = engine.advance(out, "zebra", out)
    assert (log_prob, length, is_unknown) == (-np.inf, 0, True)  # this model has no <unk>
    # After a word that cannot be no context is stored: −1.25 of "a", −4 for each of the two that are missing.
    assert engine.advance(out, "a", one) == (-1.25 - 8, 1, False)


SENTENCES = [
    "",
    "a",
    " b\ta  c ",
    "c c c c",
    "a zebra b",
    "a\u00a0b a",
    "b a c a b" * 3,
    "日本 a",
    " " * 99,
    "a " * 70,
]


@pytest.fixture(scope="module", params=["fast", "small"])
def named(request: pytest.FixtureRequest) -> Pair:
    """Over the words a, b, c, d and 日本, whose text is random."""
    rng = np.random.default_rng(5)
    vocabulary = Vocabulary(8, bos=6, eos=7, unk=0)
    ids = rng.choice([0, 1, 2, 3, 4, 5, 7], 3000, p=[0.1, 0.3, 0.2, 0.2, 0.05, 0.05, 0.1])
    ids[-1] = 7
    tables = tables_of(ids, Config(order=4), vocabulary, "line")
    names = ["<unk>", "a", "b", "c", "d", "日本", "<s>", "</s>"]
    engine = engines.from_tables(tables, vocabulary, names=names, layout=request.param)
    return Pair(NgramModel(engine, vocabulary), TableModel(tables, vocabulary), rng)


def by_steps(pair: Pair, sentence: str, bos: bool, eos: bool) -> tuple[list[float], int]:
    """Log p of every token of a sentence, and how many words are unknown, one `step` at a time."""
    names = pair.compiled.engine.names()
    ids = [names.index(word) if word in names else 0 for word in split_words(sentence)]
    targets = [*ids, pair.vocabulary.eos] if eos else ids
    if not bos:  # from nothing at all: no n-gram that reaches back beyond the first word
        found = [scored_alone(pair, targets[:t], targets[t]) for t in range(len(targets))]
        return found, ids.count(0)
    state, log_probs, last = pair.readable.start(1), [], pair.vocabulary.bos
    for target in targets:
        log_p, state = pair.readable.step(state, np.array([last]))
        log_probs.append(float(log_p[0, target]))
        last = target
    return log_probs, ids.count(0)


def scored_alone(pair: Pair, before: list[int], word: int) -> float:
    """Log p by tables cut to the order that as many words before it allow."""
    order = min(len(before) + 1, pair.readable.order)
    cut = TableModel(BackoffTables(pair.readable.tables.levels[:order]), pair.vocabulary)
    state = cut.start(1)
    log_p: Floats = cut.tables.levels[0].log_prob[None].astype(np.float64)
    for token in before[max(0, len(before) - order + 1) :]:
        log_p, state = cut.step(state, np.array([token]))
    return float(log_p[0, word])


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_sentences(named: Pair, bos: bool, eos: bool, threads: int) -> None:
    engine = named.compiled.engine
    many = SENTENCES * 60
    sums, tokens, unknown = engine.score_sentences(many, bos, eos, threads)
    each, lengths, is_unknown, ends = engine.full_scores(many, bos, eos, threads)
    wanted = [by_steps(named, sentence, bos, eos) for sentence in SENTENCES] * 60
    assert_allclose(sums, [sum(log_probs) for log_probs, _ in wanted], rtol=1e-9)
    assert tokens.tolist() == [len(log_probs) for log_probs, _ in wanted]
    assert unknown.tolist() == [oov for _, oov in wanted]
    assert ends.tolist() == np.cumsum(tokens).tolist()
    assert_allclose(each, np.concatenate([log_probs for log_probs, _ in wanted]), rtol=1e-6)
    assert is_unknown.sum() == unknown.sum()
    assert lengths.min() >= 1
    assert lengths.max() == 4


def test_lines_of_a_file(named: Pair, tmp_path: Any) -> None:
    engine = named.compiled.engine
    path = tmp_path / "lines.txt"
    path.write_bytes("a b\r\n\nc\rb 日本\n a".encode())
    wanted = engine.score_sentences(["a b", "", "c", "b 日本", " a"])
    for found, expected in zip(engine.score_file(str(path)), wanted, strict=True):
        assert_array_equal(found, expected)


def test_states_word_by_word(named: Pair) -> None:
    engine = named.compiled.engine
    state, out = engine.begin_state(), engine.null_state()
    sentence = "a b zebra c a b c d"
    found = []
    for word in [*sentence.split(), "</s>"]:
        found.append(engine.advance(state, word, out))
        state, out = out, state
    each, lengths, is_unknown, _ = engine.full_scores([sentence.encode()])  # bytes will do
    assert_allclose([log_prob for log_prob, _, _ in found], each, rtol=1e-6)
    assert [length for _, length, _ in found] == lengths.tolist()
    assert [is_oov for _, _, is_oov in found] == is_unknown.astype(bool).tolist()


def test_names(named: Pair) -> None:
    engine = named.compiled.engine
    assert engine.names()[5] == engine.name(5) == "日本"
    assert engine.find("日本") == 5
    assert engine.find("zebra") == engine.find("") == -1
    with pytest.raises(ChainruleError, match="no word 8"):
        engine.name(8)


def test_a_model_without_names() -> None:
    engine = engines.from_tables(SMALL, WORDS)
    assert not engine.has_names
    with pytest.raises(ChainruleError, match="by number alone"):
        engine.score_sentences(["a"])
    with pytest.raises(ChainruleError, match="by number alone"):
        engine.find("a")
