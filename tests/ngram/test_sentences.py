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
def test_state_scoring_worked_by_hand(layout: str) -> None:
    engine = engines.from_tables(SMALL, WORDS, layout=layout, names=["<s>", "</s>", "a", "b"])
    state, out = engine.begin_state(), engine.null_state()
    assert state != out
    assert engine.advance(state, "a", out) == (-1.75, 1, False)
    after_a = out.copy()
    assert after_a == out
    assert hash(after_a) == hash(out)
    assert engine.advance(after_a, 3, out) == (-4.75, 2, False)
    assert after_a != out
    assert engine.advance(out, "a", out) == (-0.0625, 3, False)  # in place
    log_prob, length, is_unknown = engine.advance(out, "zebra", out)
    assert (log_prob, length, is_unknown) == (-np.inf, 0, True)  # this model has no <unk>
    # No context is stored after an impossible word: −1.25 for "a", −4 for each of the two missing contexts.
    assert engine.advance(out, "a", after_a) == (-1.25 - 8, 1, False)


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
    """A random text over the words a, b, c, d and 日本."""
    rng = np.random.default_rng(5)
    vocabulary = Vocabulary(8, bos=6, eos=7, unk=0)
    ids = rng.choice([0, 1, 2, 3, 4, 5, 7], 3000, p=[0.1, 0.3, 0.2, 0.2, 0.05, 0.05, 0.1])
    ids[-1] = 7
    tables = tables_of(ids, Config(order=4), vocabulary, "line")
    names = ["<unk>", "a", "b", "c", "d", "日本", "<s>", "</s>"]
    engine = engines.from_tables(tables, vocabulary, names=names, layout=request.param)
    return Pair(NgramModel(engine, vocabulary), TableModel(tables, vocabulary), rng)


def score_by_steps(pair: Pair, sentence: str, bos: bool, eos: bool) -> tuple[list[float], int]:
    """Log p of every token of a sentence and the number of unknown words, one `step` at a time."""
    names = pair.compiled.engine.names()
    ids = [names.index(word) if word in names else 0 for word in split_words(sentence)]
    targets = [*ids, pair.vocabulary.eos] if eos else ids
    if not bos:  # null context: no n-gram reaches beyond the first word
        results = [score_with_truncated_order(pair, targets[:t], targets[t]) for t in range(len(targets))]
        return results, ids.count(0)
    state, log_probs, last = pair.readable.start(1), [], pair.vocabulary.bos
    for target in targets:
        log_p, state = pair.readable.step(state, np.array([last]))
        log_probs.append(float(log_p[0, target]))
        last = target
    return log_probs, ids.count(0)


def score_with_truncated_order(pair: Pair, before: list[int], word: int) -> float:
    """Log p by tables truncated to the order that this many preceding words allow."""
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
def test_score_sentences_equals_stepwise_scores(named: Pair, bos: bool, eos: bool, threads: int) -> None:
    engine = named.compiled.engine
    many = SENTENCES * 60
    sums, tokens, unknown = engine.score_sentences(many, bos, eos, threads)
    token_log_probs, lengths, is_unknown, ends = engine.full_scores(many, bos, eos, threads)
    expected = [score_by_steps(named, sentence, bos, eos) for sentence in SENTENCES] * 60
    assert_allclose(sums, [sum(log_probs) for log_probs, _ in expected], rtol=1e-9)
    assert tokens.tolist() == [len(log_probs) for log_probs, _ in expected]
    assert unknown.tolist() == [oov for _, oov in expected]
    assert ends.tolist() == np.cumsum(tokens).tolist()
    assert_allclose(token_log_probs, np.concatenate([log_probs for log_probs, _ in expected]), rtol=1e-6)
    assert is_unknown.sum() == unknown.sum()
    assert lengths.min() >= 1
    assert lengths.max() == 4


def test_score_file_equals_score_sentences(named: Pair, tmp_path: Any) -> None:
    engine = named.compiled.engine
    path = tmp_path / "lines.txt"
    path.write_bytes("a b\r\n\nc\rb 日本\n a".encode())
    in_memory = engine.score_sentences(["a b", "", "c", "b 日本", " a"])
    for actual, expected in zip(engine.score_file(str(path)), in_memory, strict=True):
        assert_array_equal(actual, expected)


def test_advance_equals_full_scores(named: Pair) -> None:
    engine = named.compiled.engine
    state, out = engine.begin_state(), engine.null_state()
    sentence = "a b zebra c a b c d"
    results = []
    for word in [*sentence.split(), "</s>"]:
        results.append(engine.advance(state, word, out))
        state, out = out, state
    token_log_probs, lengths, is_unknown, _ = engine.full_scores([sentence.encode()])  # bytes are accepted
    assert_allclose([log_prob for log_prob, _, _ in results], token_log_probs, rtol=1e-6)
    assert [length for _, length, _ in results] == lengths.tolist()
    assert [is_oov for _, _, is_oov in results] == is_unknown.astype(bool).tolist()


def test_names_and_find(named: Pair) -> None:
    engine = named.compiled.engine
    assert engine.names()[5] == engine.name(5) == "日本"
    assert engine.find("日本") == 5
    assert engine.find("zebra") == engine.find("") == -1
    with pytest.raises(ChainruleError, match="no word with the id 8"):
        engine.name(8)


def test_word_queries_require_names() -> None:
    engine = engines.from_tables(SMALL, WORDS)
    assert not engine.has_names
    with pytest.raises(ChainruleError, match="stores word ids only"):
        engine.score_sentences(["a"])
    with pytest.raises(ChainruleError, match="stores word ids only"):
        engine.find("a")
