"""A small model of every family, on a text made here; a family joins the laws by joining the table of families."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from chainrule import api, families
from chainrule.errors import ChainruleWarning
from chainrule.lm import AnyModel, Context, Ids
from chainrule.model import Model, Origin
from chainrule.preparation import Prepared, prepare
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig

WORDS = ["the", "a", "cat", "dog", "mouse", "sees", "chases", "loves", "and", "runs"]


@dataclass(frozen=True)
class Case:
    """Which tiny model."""

    family: str
    config: Any
    context: Context
    closed: bool = False

    def __str__(self) -> str:
        facets = families.get(self.family).facets(self.config).values() if self.config is not None else ()
        return "-".join([self.family, *map(str, facets), self.context, *(["closed"] * self.closed)])


def cases() -> list[Case]:
    """Every candidate of every family, in both context rules; mixtures of the first and the last; one closed."""
    contexts: tuple[Context, ...] = ("line", "stream")
    found = [
        Case(family, config, context)
        for family in families.trainable()
        for config in families.get(family).candidates()
        for context in contexts
    ]
    found += [Case("mixture", None, context) for context in contexts]
    return [*found, Case("ngram", families.get("ngram").candidates()[2], "line", closed=True)]


@cache
def prepared(closed: bool) -> Prepared:
    """About a hundred lines, a blank one among them, words cut off where the vocabulary is open."""
    lines = _lines()
    config = TokenizerConfig(closed=True) if closed else TokenizerConfig(vocab_size=8)
    return prepare(Corpus.from_lines(lines), config, Corpus.from_lines(lines[:10]))


@cache
def tiny(case: Case) -> Model:
    """The trained model; small texts make discounts fall back, which is not what the laws are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        if case.family != "mixture":
            ready = prepared(case.closed)
            return api.train_prepared(
                case.family, case.config, ready, Origin(), context=case.context, max_seconds=5
            )
        table = families.get("ngram").candidates()
        parts = [tiny(Case("ngram", table[2], case.context)), tiny(Case("ngram", table[15], "line"))]
        return api.mix(parts, held_out=Corpus.from_lines(_lines()[:30]))


def contexts(lm: AnyModel, seen: Ids) -> list[Ids]:
    """Prefixes to predict from: seen ones, unseen ones, unknown words, the start, and after a line's end."""
    v = lm.vocabulary
    rng = np.random.default_rng(3)
    words = np.flatnonzero(v.predictable)
    random = [rng.choice(words, size=size) for size in (1, 2, 5, 9)]
    starts = [np.array([], dtype=int), seen[:1], seen[:3], seen[:7], np.array([v.eos]), *random]
    return starts + ([np.full(4, v.unk)] if v.unk is not None else [])


def _lines() -> list[str]:
    rng = np.random.default_rng(7)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 8), p=_zipf())) for _ in range(100)] + [""]


def _zipf() -> Any:
    weights = 1 / np.arange(1, len(WORDS) + 1)
    return weights / weights.sum()
