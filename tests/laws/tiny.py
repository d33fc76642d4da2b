"""A small model of every family on a generated text; new families are included through the table of families."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from chainrule import api, families
from chainrule.applications.convert import split_model
from chainrule.config import build_config, with_settings
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning
from chainrule.lm import AnyModel, Context, Ids
from chainrule.model import Model
from chainrule.prepared_corpus import PreparedCorpus, prepare_corpus
from chainrule.storage.provenance import Origin
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig

WORDS = ["the", "a", "cat", "dog", "mouse", "sees", "chases", "loves", "and", "runs"]

SMALL: Final[dict[str, Any]] = {"hidden": 8, "epochs": 1, "batch_size": 8, "learning_rate": 0.02}
VARIANTS: Final[dict[str, list[dict[str, Any]]]] = {
    "feedforward": [
        {"order": 2},
        {"direct": True},
        {"direct": True, "tie": False, "layers": 2},
        {"embedding": 5, "output": "nce", "samples": 4},
    ],
    "rnn": [
        {"nonlinearity": "relu"},
        {"nonlinearity": "leaky", "learned_start": True},
        {"nonlinearity": "sigmoid", "attention": "dot", "attention_use": "state"},
        {"tie": False, "embedding": 5, "output": "adaptive"},
    ],
    "lstm": [
        {"attention": "dot", "attention_use": "sum", "memory": 3},
        {"attention": "general", "attention_use": "concat"},
        {"attention": "additive", "attention_use": "state", "memory": 2},
        {"attention": "scaled-dot", "attention_use": "concat", "layers": 2, "learned_start": True},
        {"layers": 2, "layer_norm": True, "embedding": 5, "bptt": 3},
        {"output": "sampled", "samples": 4},
        {"output": "nce", "samples": 4, "tie": False},
    ],
    "gru": [
        {"reset": "after", "attention": "additive"},
        {"reset": "before", "attention": "general", "attention_use": "concat", "memory": 2},
        {"output": "adaptive", "cutoffs": (3, 6), "tie": False, "learned_start": True},
    ],
    "transformer": [  # a window shorter than the lines: state resets within a line
        {"window": 4, "heads": 2, "layers": 2},
        {"window": 4, "heads": 2, "layers": 1, "positions": "sinusoidal"},
        {"window": 4, "heads": 1, "layers": 1, "positions": "learned", "bias": True},
        {"window": 4, "heads": 2, "layers": 2, "norm": "post", "activation": "relu"},
        {"window": 16, "heads": 2, "layers": 1, "output": "sampled", "samples": 4},
    ],
}
"""Settings that change what a network computes and are not among its `candidates`."""


@dataclass(frozen=True)
class Case:
    """Identifies a tiny model."""

    family: str
    config: Any
    context: Context
    closed: bool = False
    variant: str = ""

    def __str__(self) -> str:
        facets = families.get(self.family).facets(self.config).values() if self.config is not None else ()
        parts = [self.variant] if self.variant else map(str, facets)
        return "-".join([self.family, *parts, self.context, *(["closed"] * self.closed)])


def cases() -> list[Case]:
    """Every candidate and variant of every family, in both context rules; mixtures; shards; two closed ones."""
    contexts: tuple[Context, ...] = ("line", "stream")
    all_cases = [
        Case(family, config, context, variant=variant)
        for family in families.trainable()
        for variant, config in _configs(family)
        for context in contexts
    ]
    all_cases += [Case("mixture", None, context) for context in contexts]
    all_cases += [Case("sharded-ngram", None, context) for context in contexts]
    all_cases.append(Case("ngram", families.get("ngram").candidates()[2], "line", closed=True))
    return [
        *all_cases,
        Case("lstm", build_config(families.get("lstm").Config, SMALL, "model"), "line", closed=True),
    ]


def _configs(family: str) -> list[tuple[str, Any]]:
    """The family's candidates, with networks made small, and its variants named by their settings."""
    kind = families.get(family)
    small = [_small(config) for config in kind.candidates()]
    variants = VARIANTS.get(family, [])
    named = ["-".join(f"{name}={value}" for name, value in chosen.items()) for chosen in variants]
    created = [build_config(kind.Config, SMALL | chosen, "model") for chosen in variants]
    return [*(("", config) for config in small), *zip(named, created, strict=True)]


def _small(config: Any) -> Any:
    is_network = hasattr(config, "hidden")
    return with_settings(config, **SMALL | {"hidden": 16, "epochs": 2}) if is_network else config


@cache
def prepared(closed: bool) -> PreparedCorpus:
    """About a hundred lines including a blank one; an open vocabulary has unknown words."""
    lines = _lines()
    config = TokenizerConfig(closed=True) if closed else TokenizerConfig(vocab_size=8)
    return prepare_corpus(Corpus.from_lines(lines), config, Corpus.from_lines(lines[:10]))


@cache
def tiny(case: Case) -> Model:
    """The trained model; warnings about default discounts are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        if case.family == "sharded-ngram":
            return split_model(tiny(Case("ngram", families.get("ngram").candidates()[2], case.context)), 3)
        if case.family != "mixture":
            ready = prepared(case.closed)
            return api.train_prepared(
                case.family, case.config, ready, Origin(), RunOptions(context=case.context, time_limit=5)
            )
        table = families.get("ngram").candidates()
        parts = [
            tiny(Case("ngram", table[2], case.context)),
            tiny(Case("ngram", table[15], "line")),
            tiny(Case("lstm", _small(families.get("lstm").candidates()[0]), "line")),  # it reads lines in a stream
        ]
        return api.mix(parts, held_out=Corpus.from_lines(_lines()[:30]))


def contexts(lm: AnyModel, ids: Ids) -> list[Ids]:
    """Prefixes to predict from: seen, unseen, unknown words, the start, and after a line end."""
    v = lm.vocabulary
    rng = np.random.default_rng(3)
    words = np.flatnonzero(v.predictable)
    random = [rng.choice(words, size=size) for size in (1, 2, 5, 9)]
    starts = [np.array([], dtype=int), ids[:1], ids[:3], ids[:7], np.array([v.eos]), *random]
    return starts + ([np.full(4, v.unk)] if v.unk is not None else [])


def _lines() -> list[str]:
    rng = np.random.default_rng(7)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 8), p=_zipf())) for _ in range(100)] + [""]


def _zipf() -> Any:
    weights = 1 / np.arange(1, len(WORDS) + 1)
    return weights / weights.sum()
