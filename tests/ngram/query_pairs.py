"""Random models in compiled and NumPy form, for equivalence tests."""

import warnings
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from chainrule.errors import ChainruleWarning
from chainrule.lm import Context, Ids, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram import smoothing
from chainrule.ngram.config import SMOOTHINGS, Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import estimate
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from ngram.reference import TableModel, count


@dataclass(frozen=True)
class Pair:
    """One model in compiled and NumPy form, and a random generator."""

    compiled: NgramModel
    readable: TableModel
    rng: np.random.Generator

    @property
    def vocabulary(self) -> Vocabulary:
        return self.readable.vocabulary

    def rows(self, rows: int, columns: int) -> Ids:
        return self.rng.integers(0, self.vocabulary.size, (rows, columns))


def tables_of(ids: Ids, config: Config, vocabulary: Vocabulary, context: Context) -> BackoffTables:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        counts = count(ids, config.order, vocabulary, context)
        weights = None
        if config.smoothing == "jelinek-mercer":
            learnt = smoothing.estimate_lambdas(counts, ids, context, config.buckets)
            weights = smoothing.expand_lambdas(counts, learnt, config.buckets)
        return estimate(counts, config, weights)


def pair_of(tables: BackoffTables, vocabulary: Vocabulary, context: Context, layout: str, seed: int = 0) -> Pair:
    engine = engines.from_tables(tables, vocabulary, context, layout=layout)
    return Pair(
        NgramModel(engine, vocabulary, context),
        TableModel(tables, vocabulary, context),
        np.random.default_rng(seed),
    )


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A model of a random text with random smoothing, order, context rule and layout, sometimes pruned."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    V = draw(st.sampled_from([3, 4, 7, 30, 300]))
    bos, eos, unk = (int(i) for i in rng.permutation(V)[:3])
    context: Context = draw(st.sampled_from(["line", "stream"]))
    chance = 1 / rng.permutation(np.arange(1, V)) ** rng.uniform(0, 2)
    words = np.setdiff1d(np.arange(V), [bos])
    ids = rng.choice(words, draw(st.sampled_from([1, 7, 60, 2000])), p=chance / chance.sum())
    ids[-1] = eos
    order = draw(st.integers(1, 6))
    prune = tuple(sorted(draw(st.lists(st.integers(0, 2), max_size=order - 1))))
    smoothing = draw(st.sampled_from(SMOOTHINGS))
    vocabulary = Vocabulary(V, bos, eos, unk, closed=draw(st.booleans()))
    config = Config(order=order, smoothing=smoothing, prune=(0, *prune) if prune else ())
    tables = tables_of(ids, config, vocabulary, context)
    return pair_of(tables, vocabulary, context, draw(st.sampled_from(["fast", "small"])), seed)


WORDS = Vocabulary(size=4, bos=0, eos=1, unk=None)


def level(keys: list[int], log_prob: list[float], log_backoff: list[float]) -> BackoffLevel:
    return BackoffLevel(np.array(keys), np.array(log_prob, np.float32), np.array(log_backoff, np.float32))


# Ids: <s> 0, </s> 1, a 2, b 3. "a b a" is stored but "b a" is not, as other tools may write it.
SMALL = BackoffTables(
    (
        level([0, 1, 2, 3], [-np.inf, -1.0, -1.25, -1.5], [-0.5, 0.0, -0.25, -0.125]),
        level([2 * 4 + 3], [-0.75], [-2.0]),
        level([0 * 4 + 2], [-0.0625], [0.0]),
    ),
    log_missing=-4.0,
)
