"""Back-off traces: a hand-worked example, agreement with `score`, and an independent count."""

import math
import warnings
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.lm import Batch, Context, Ids, Vocabulary
from chainrule.model import Model
from chainrule.ngram.config import SMOOTHINGS
from chainrule.ngram.model import (
    CONTEXT_NOT_STORED,
    FULL_ORDER,
    LINE_START,
    REASONS,
    WORD_NOT_STORED,
    BackoffTrace,
    NgramModel,
    trace_backoff,
)
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.text.corpus import Corpus

TOY = ["i love cats", "i love dogs", "cats chase mice"]


def rows_of(lm: NgramModel, rows: list[list[int]]) -> Batch:
    """Padded rows that begin with `<s>`."""
    width = max(map(len, rows))
    mask = np.array([[t < len(row) for t in range(width)] for row in rows])
    targets = np.array([row + [0] * (width - len(row)) for row in rows])
    return Batch(np.concatenate([np.full((len(rows), 1), lm.vocabulary.bos), targets[:, :-1]], 1), targets, mask)


@cache
def trained(smoothing: str, order: int, context: Context = "line", prune: tuple[int, ...] = ()) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # small texts use default discounts
        return chainrule.train(
            "ngram",
            Corpus.from_lines(text_lines()),
            valid=Corpus.from_lines(text_lines()[:20]),
            smoothing=smoothing,
            order=order,
            context=context,
            prune=prune,
        )


def text_lines() -> list[str]:
    rng = np.random.default_rng(4)
    return [" ".join(rng.choice(list("abcdefgh"), size=rng.integers(0, 7))) for _ in range(60)]


def in_ids(model: Model, line: str) -> list[int]:
    return [*model.tokenizer.encode(line).tolist(), model.tokenizer.eos]


def unseen_rows(model: Model) -> Batch:
    """Training lines, unseen lines, and an empty line."""
    lines = [*text_lines()[:5], "h g f e d c b a", "a a a a", "zebra a zebra", "", "b c"]
    return rows_of(cast(NgramModel, model.lm), [in_ids(model, line) for line in lines])


def trace_of(model: Model, batch: Batch) -> BackoffTrace:
    lm = cast(NgramModel, model.lm)
    return trace_backoff(lm, batch, lm.start(len(batch.inputs)))


def test_backoff_trace_worked_by_hand() -> None:
    # Stupid backoff, weight 0.4. Unigrams: i 2, love 2, cats 2, dogs 1, chase 1, mice 1, </s> 3: 12 in all.
    model = chainrule.train("ngram", Corpus.from_lines(TOY), order=3, smoothing="stupid-backoff")
    batch = rows_of(cast(NgramModel, model.lm), [in_ids(model, "i love mice")])
    trace = trace_of(model, batch)
    # i: "<s> i" in two of three lines, and nothing precedes <s>. love: always after "<s> i".
    assert trace.matched.tolist() == [[2, 3, 1, 2]]
    assert trace.reason.tolist() == [[LINE_START, FULL_ORDER, WORD_NOT_STORED, CONTEXT_NOT_STORED]]
    weight = math.log(0.4)
    assert_allclose(trace.weights[0], np.array([[0, 0], [0, 0], [weight, weight], [0, weight]]), atol=1e-12)
    assert_allclose(trace.stored[0], np.log([2 / 3, 1, 1 / 12, 1]), atol=1e-6)
    assert_allclose(np.exp(trace.log_prob[0]), [2 / 3, 1, 0.16 / 12, 0.4], atol=1e-7)
    assert trace.is_stored[0].tolist() == [[True, False], [True, True], [True, True], [True, False]]


def test_backoff_reasons_have_descriptions() -> None:
    assert len(REASONS) == 4
    assert REASONS[WORD_NOT_STORED] == "backed off: context seen, word not seen after it"
    assert REASONS[CONTEXT_NOT_STORED] == "backed off: context not seen"
    assert REASONS[LINE_START] == "beginning of the line: no more words before it"


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_backoff_trace_reproduces_the_score(smoothing: str, order: int, context: Context) -> None:
    model = trained(smoothing, order, context)
    batch = unseen_rows(model)
    lm = cast(NgramModel, model.lm)
    scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
    assert_array_equal(trace_of(model, batch).log_prob[batch.mask], scores[batch.mask])


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "stupid-backoff"])
def test_backoff_trace_reproduces_scores_of_pruned_tables(smoothing: str) -> None:
    model = trained(smoothing, 4, "line", (0, 1, 2))
    batch = unseen_rows(model)
    lm = cast(NgramModel, model.lm)
    scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
    trace = trace_of(model, batch)
    assert_array_equal(trace.log_prob[batch.mask], scores[batch.mask])
    assert trace.matched[batch.mask].max() < 4  # few 4-grams of this text occur three times


def test_backoff_trace_reports_pruned_ngrams_as_not_stored() -> None:
    # Bigrams and trigrams with count 1 are pruned: "b c", "c </s>", "a b c" and "b c </s>".
    lines = ["a b c", "a b d", "a b d"]
    model = chainrule.train("ngram", Corpus.from_lines(lines), order=3, smoothing="stupid-backoff", prune=(0, 1, 1))
    trace = trace_of(model, rows_of(cast(NgramModel, model.lm), [in_ids(model, "a b c")]))
    assert trace.matched.tolist() == [[2, 3, 1, 1]]
    # c: "b d" is stored after "b". </s>: nothing is stored after "c".
    assert [REASONS[why] for why in trace.reason[0]] == [
        "beginning of the line: no more words before it",
        "full order: the model has no longer n-grams",
        "backed off: context seen, word not seen after it",
        "backed off: context not seen",
    ]


def ngrams_of_text(order: int, context: Context) -> set[tuple[str, ...]]:
    """All n-grams of the text up to this order, with one leading `<s>`, counted independently of the model."""
    lines = [[*line.split(), "</s>"] for line in text_lines()]
    rows = lines if context == "line" else [[token for line in lines for token in line]]
    full = [["<s>", *row] for row in rows]
    return {
        tuple(row[last - n : last]) for row in full for n in range(1, order + 1) for last in range(n, len(row) + 1)
    }


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("order", [2, 4])
def test_backoff_trace_matches_an_independent_count(order: int, context: Context) -> None:
    model = trained("witten-bell", order, context)
    batch = unseen_rows(model)
    trace, ngrams = trace_of(model, batch), ngrams_of_text(order, context)
    followed = {ngram[:-1] for ngram in ngrams}
    names = model.tokenizer.tokens(range(model.tokenizer.vocab_size))
    for b, t in np.argwhere(batch.mask):
        start = "<s>" if context == "line" else "</s>"  # a text starts as a line does
        before = [start, *(names[i] for i in batch.targets[b, :t])]
        word = names[batch.targets[b, t]]
        lengths = [n for n in range(1, order + 1) if n - 1 <= len(before)]
        longest = max((n for n in lengths if (*before[len(before) - n + 1 :], word) in ngrams), default=1)
        assert trace.matched[b, t] == longest
        if longest == order:
            expected = FULL_ORDER
        elif longest > len(before):
            expected = LINE_START
        else:
            expected = WORD_NOT_STORED if tuple(before[-longest:]) in followed else CONTEXT_NOT_STORED
        assert trace.reason[b, t] == expected, (before, word)


def test_backoff_trace_continues_from_a_state() -> None:
    model = trained("modified-kneser-ney", 3, "stream")
    lm = cast(NgramModel, model.lm)
    full_text = rows_of(lm, [[*in_ids(model, "a b c"), *in_ids(model, "c b a")]])
    first = Batch(full_text.inputs[:, :3], full_text.targets[:, :3], full_text.mask[:, :3])
    second = Batch(full_text.inputs[:, 3:], full_text.targets[:, 3:], full_text.mask[:, 3:])
    _, state = lm.score(first, lm.start(1))
    pieces = [trace_backoff(lm, first, lm.start(1)), trace_backoff(lm, second, state)]
    together = trace_backoff(lm, full_text, lm.start(1))
    for name in ("matched", "stored", "weights", "is_stored", "reason"):
        parts = [cast(Any, getattr(piece, name)) for piece in pieces]
        assert_array_equal(np.concatenate(parts, axis=1), getattr(together, name))


def test_backoff_trace_restarts_at_each_line() -> None:
    model = trained("katz", 4, "line")
    lm = cast(NgramModel, model.lm)
    first, second = in_ids(model, "a b c d"), in_ids(model, "e f")
    apart = trace_of(model, rows_of(lm, [first, second]))
    joined = trace_of(model, rows_of(lm, [[*first, *second]]))
    assert_array_equal(joined.matched[0, len(first) :], apart.matched[1, : len(second)])
    assert_array_equal(joined.reason[0, len(first) :], apart.reason[1, : len(second)])
    assert joined.reason[0, len(first)] in (LINE_START, WORD_NOT_STORED, CONTEXT_NOT_STORED)


def test_backoff_trace_with_a_missing_suffix_bigram() -> None:
    # Other tools may write "a b a" without "b a". Ids: <s> 0, </s> 1, a 2, b 3.
    def level(keys: list[int], log_prob: list[float], log_backoff: list[float]) -> BackoffLevel:
        return BackoffLevel(np.array(keys), np.array(log_prob), np.array(log_backoff))

    unigrams = level([0, 1, 2, 3], [-np.inf, -1.0, -1.25, -1.5], [-0.5, 0.0, -0.25, -0.125])
    bigrams = level([2 * 4 + 3], [-0.75], [-2.0])  # "a b", row 0
    trigrams = level([0 * 4 + 2], [-0.0625], [0.0])  # "a b a"
    tables = BackoffTables((unigrams, bigrams, trigrams), log_missing=-4.0)
    lm = NgramModel.from_tables(tables, Vocabulary(4, 0, 1, None))
    batch = rows_of(lm, [[2, 3, 2, 2]])
    trace = trace_backoff(lm, batch, lm.start(1))
    # a: unigram, weight of <s>. b: "a b", then "<s> a" is missing. a: "a b a". a: unigram, then the weight of a,
    # and "b a" is missing.
    assert trace.matched.tolist() == [[1, 2, 3, 1]]
    assert trace.weights[0].tolist() == [[-0.5, 0.0], [0.0, -4.0], [0.0, 0.0], [-0.25, -4.0]]
    assert trace.log_prob.tolist() == [[-1.75, -4.75, -0.0625, -5.5]]
    assert trace.reason.tolist() == [[CONTEXT_NOT_STORED, CONTEXT_NOT_STORED, FULL_ORDER, WORD_NOT_STORED]]
    assert_array_equal(trace.log_prob, lm.score(batch, lm.start(1))[0])


def test_backoff_trace_of_a_unigram_model() -> None:
    trace = trace_of(trained("laplace", 1), unseen_rows(trained("laplace", 1)))
    ones: Ids = np.ones_like(trace.matched)
    assert_array_equal(trace.matched, ones)
    assert trace.weights.shape == (*ones.shape, 0)
    assert set(trace.reason.ravel().tolist()) == {FULL_ORDER}
