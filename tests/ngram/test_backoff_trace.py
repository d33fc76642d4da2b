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
        warnings.simplefilter("ignore", ChainruleWarning)  # small texts make discounts fall back
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
    """Lines of the text, lines of other words in other order, an empty one."""
    lines = [*text_lines()[:5], "h g f e d c b a", "a a a a", "zebra a zebra", "", "b c"]
    return rows_of(cast(NgramModel, model.lm), [in_ids(model, line) for line in lines])


def trace_of(model: Model, batch: Batch) -> BackoffTrace:
    lm = cast(NgramModel, model.lm)
    return trace_backoff(lm, batch, lm.start(len(batch.inputs)))


def test_the_toy_by_hand() -> None:
    # Stupid backoff, weight 0.4. Unigrams: i 2, love 2, cats 2, dogs 1, chase 1, mice 1, </s> 3: 12 in all.
    model = chainrule.train("ngram", Corpus.from_lines(TOY), order=3, smoothing="stupid-backoff")
    batch = rows_of(cast(NgramModel, model.lm), [in_ids(model, "i love mice")])
    trace = trace_of(model, batch)
    # i: "<s> i" twice in three lines, and nothing stands before <s>. love: "<s> i love" always.
    # mice: after "i love" cats and dogs only, after "love" likewise, so 1/12 with two weights passed by.
    # </s>: "love mice" was never seen; "mice </s>" always, with the weight of a context that is missing.
    assert trace.matched.tolist() == [[2, 3, 1, 2]]
    assert trace.reason.tolist() == [[LINE_START, FULL_ORDER, WORD_NOT_STORED, CONTEXT_NOT_STORED]]
    weight = math.log(0.4)
    assert_allclose(trace.weights[0], np.array([[0, 0], [0, 0], [weight, weight], [0, weight]]), atol=1e-12)
    assert_allclose(trace.stored[0], np.log([2 / 3, 1, 1 / 12, 1]), atol=1e-6)
    assert_allclose(np.exp(trace.log_prob[0]), [2 / 3, 1, 0.16 / 12, 0.4], atol=1e-7)
    assert trace.is_stored[0].tolist() == [[True, False], [True, True], [True, True], [True, False]]


def test_reasons_are_words() -> None:
    assert len(REASONS) == 4
    assert REASONS[WORD_NOT_STORED] == "backed off: context seen, word not seen after it"
    assert REASONS[CONTEXT_NOT_STORED] == "backed off: context not seen"
    assert REASONS[LINE_START] == "beginning of the line: no more words before it"


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_put_together_again_it_is_the_score(smoothing: str, order: int, context: Context) -> None:
    model = trained(smoothing, order, context)
    batch = unseen_rows(model)
    lm = cast(NgramModel, model.lm)
    scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
    assert_array_equal(trace_of(model, batch).log_prob[batch.mask], scores[batch.mask])


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "stupid-backoff"])
def test_so_it_is_with_pruned_tables(smoothing: str) -> None:
    model = trained(smoothing, 4, "line", (0, 1, 2))
    batch = unseen_rows(model)
    lm = cast(NgramModel, model.lm)
    scores, _ = lm.score(batch, lm.start(len(batch.inputs)))
    trace = trace_of(model, batch)
    assert_array_equal(trace.log_prob[batch.mask], scores[batch.mask])
    assert trace.matched[batch.mask].max() < 4  # hardly a 4-gram of this text comes three times


def test_what_occurs_may_not_be_stored() -> None:
    # Bigrams and trigrams that come once are dropped: "b c", "c </s>", "a b c" and "b c </s>" are only in the text.
    lines = ["a b c", "a b d", "a b d"]
    model = chainrule.train("ngram", Corpus.from_lines(lines), order=3, smoothing="stupid-backoff", prune=(0, 1, 1))
    trace = trace_of(model, rows_of(cast(NgramModel, model.lm), [in_ids(model, "a b c")]))
    assert trace.matched.tolist() == [[2, 3, 1, 1]]
    # c: "b" has "b d" after it. </s>: nothing is stored after "c", though the text went on there.
    assert [REASONS[why] for why in trace.reason[0]] == [
        "beginning of the line: no more words before it",
        "full order: the model has no longer n-grams",
        "backed off: context seen, word not seen after it",
        "backed off: context not seen",
    ]


def counted(order: int, context: Context) -> set[tuple[str, ...]]:
    """Every n-gram of the text up to this order, `<s>` once before it, counted without the model's help."""
    lines = [[*line.split(), "</s>"] for line in text_lines()]
    rows = lines if context == "line" else [[token for line in lines for token in line]]
    full = [["<s>", *row] for row in rows]
    return {
        tuple(row[last - n : last]) for row in full for n in range(1, order + 1) for last in range(n, len(row) + 1)
    }


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("order", [2, 4])
def test_what_was_seen_by_a_second_count(order: int, context: Context) -> None:
    model = trained("witten-bell", order, context)
    batch = unseen_rows(model)
    trace, seen = trace_of(model, batch), counted(order, context)
    followed = {ngram[:-1] for ngram in seen}
    names = model.tokenizer.tokens(range(model.tokenizer.vocab_size))
    for b, t in np.argwhere(batch.mask):
        start = "<s>" if context == "line" else "</s>"  # a text starts as a line does
        before = [start, *(names[i] for i in batch.targets[b, :t])]
        word = names[batch.targets[b, t]]
        lengths = [n for n in range(1, order + 1) if n - 1 <= len(before)]
        longest = max((n for n in lengths if (*before[len(before) - n + 1 :], word) in seen), default=1)
        assert trace.matched[b, t] == longest
        if longest == order:
            expected = FULL_ORDER
        elif longest > len(before):
            expected = LINE_START
        else:
            expected = WORD_NOT_STORED if tuple(before[-longest:]) in followed else CONTEXT_NOT_STORED
        assert trace.reason[b, t] == expected, (before, word)


def test_a_text_in_two_pieces_is_the_text() -> None:
    model = trained("modified-kneser-ney", 3, "stream")
    lm = cast(NgramModel, model.lm)
    whole = rows_of(lm, [[*in_ids(model, "a b c"), *in_ids(model, "c b a")]])
    first = Batch(whole.inputs[:, :3], whole.targets[:, :3], whole.mask[:, :3])
    second = Batch(whole.inputs[:, 3:], whole.targets[:, 3:], whole.mask[:, 3:])
    _, state = lm.score(first, lm.start(1))
    pieces = [trace_backoff(lm, first, lm.start(1)), trace_backoff(lm, second, state)]
    together = trace_backoff(lm, whole, lm.start(1))
    for name in ("matched", "stored", "weights", "is_stored", "reason"):
        parts = [cast(Any, getattr(piece, name)) for piece in pieces]
        assert_array_equal(np.concatenate(parts, axis=1), getattr(together, name))


def test_lines_in_one_row_start_anew() -> None:
    model = trained("katz", 4, "line")
    lm = cast(NgramModel, model.lm)
    one, other = in_ids(model, "a b c d"), in_ids(model, "e f")
    apart = trace_of(model, rows_of(lm, [one, other]))
    joined = trace_of(model, rows_of(lm, [[*one, *other]]))
    assert_array_equal(joined.matched[0, len(one) :], apart.matched[1, : len(other)])
    assert_array_equal(joined.reason[0, len(one) :], apart.reason[1, : len(other)])
    assert joined.reason[0, len(one)] in (LINE_START, WORD_NOT_STORED, CONTEXT_NOT_STORED)


def test_a_trigram_whose_bigram_is_missing() -> None:
    # Files of other programs may hold "a b a" and not "b a". Ids: <s> 0, </s> 1, a 2, b 3.
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


def test_order_one_has_nothing_to_back_off_to() -> None:
    trace = trace_of(trained("laplace", 1), unseen_rows(trained("laplace", 1)))
    ones: Ids = np.ones_like(trace.matched)
    assert_array_equal(trace.matched, ones)
    assert trace.weights.shape == (*ones.shape, 0)
    assert set(trace.reason.ravel().tolist()) == {FULL_ORDER}
