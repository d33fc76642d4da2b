"""N-gram models made of others: one of a mixture, one pruned, one with its file in another layout.

Lives here: what makes a new model of old ones without any text. Not here: the arithmetic (ngram/interpolation.py,
ngram/entropy_pruning.py) and files (exchange.py).
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from chainrule.errors import ConfigError
from chainrule.lm import AnyModel
from chainrule.mixture import Mixture
from chainrule.model import Model, Origin
from chainrule.ngram import engine as engines
from chainrule.ngram.config import INTERPOLATED, Config
from chainrule.ngram.entropy_pruning import entropy_prune
from chainrule.ngram.interpolation import interpolate
from chainrule.ngram.model import NgramModel
from chainrule.ngram.tables import BackoffTables
from chainrule.processors import threads
from chainrule.progress import Progress, as_progress, silent


def single(model: Model, progress: Progress | bool = silent) -> Model:
    """An n-gram model as it is, a mixture of n-grams as one; any other model is refused."""
    progress = as_progress(progress)
    if model.family == "ngram":
        return model
    if model.family != "mixture":
        raise ConfigError(f"{model.name} is a {model.family} model; only n-gram models can become an n-gram model")
    mixture = cast(Mixture, model.lm)
    parts = list(_parts(mixture, 1.0, model.name))
    if len({lm.context for lm, _ in parts}) > 1:
        raise ConfigError("some of the mixed models read by line and some as a stream; one model cannot do both")
    if len({lm.engine.starts_at_bos for lm, _ in parts}) > 1:
        raise ConfigError(
            "some of the mixed stream models are smoothed by add-k and some are not; mix one kind only"
        )
    weights = [weight for _, weight in parts]
    tables = interpolate([lm.tables for lm, _ in parts], weights, mixture.vocabulary.size, progress)
    tables = dataclasses.replace(tables, starts_at_bos=parts[0][0].engine.starts_at_bos)
    config = Config(order=tables.order, smoothing=INTERPOLATED)
    lm = _model(tables, parts[0][0], model.tokenizer.names(), config)
    return dataclasses.replace(model, lm=lm, family="ngram", config=config, metrics={})


def pruned(model: Model, threshold: float, progress: Progress | bool = silent) -> Model:
    """An n-gram model without the n-grams whose loss raises its perplexity by less than this part of it."""
    progress = as_progress(progress)
    lm = cast(NgramModel, model.lm)
    if not threshold > 0:
        raise ConfigError(f"entropy-prune is {threshold}; choose a small number above 0, such as 1e-8")
    if not lm.is_normalized:
        raise ConfigError("entropy-prune weighs probabilities, and those of this model do not sum to one")
    config = dataclasses.replace(
        model.config, entropy_prune=max(threshold, model.config.entropy_prune)
    )  # refuses what cannot be
    tables = entropy_prune(lm.tables, lm.vocabulary, threshold, progress)
    made = _model(tables, lm, model.tokenizer.names(), config)
    return dataclasses.replace(model, lm=made, config=config, metrics={})


def made_by(model: Model, command: str) -> Model:
    """The same model with an origin that names this command, and without the figures of the run it comes from."""
    old = model.origin
    origin = Origin.now(text=old.text, fingerprint=old.fingerprint, command=command, seed=old.seed)
    return dataclasses.replace(model, origin=origin, metrics={})


def laid_out(model: Model, layout: str | None = None, bits: int | None = None) -> Model:
    """An n-gram model with its file in another layout; quantised with 8 bits, which only the small one can be."""
    old = model.config
    wanted = bits if bits is not None else old.bits if layout != "fast" else 0
    config = dataclasses.replace(old, layout=layout or ("small" if bits else old.layout), bits=wanted)
    lm = cast(NgramModel, model.lm)
    engine = lm.engine.convert(layout=config.layout, bits=config.bits, threads=threads())
    return dataclasses.replace(model, lm=dataclasses.replace(lm, engine=engine), config=config, metrics={})


def _model(tables: BackoffTables, like: NgramModel, names: list[str], config: Config) -> NgramModel:
    """A model of these tables over the vocabulary and by the context rule of another."""
    engine = engines.of_tables(
        tables, like.vocabulary, like.context, names=names, layout=config.layout, bits=config.bits
    )
    return NgramModel(engine, like.vocabulary, like.context)


def _parts(mixture: Mixture, weight: float, name: str) -> Iterator[tuple[Any, float]]:
    """The n-gram models of a mixture, of mixtures within it too, each with its weight in the whole."""
    for component, share in zip(mixture.components, mixture.weights, strict=True):
        lm: AnyModel = component.lm
        if component.family == "mixture":
            yield from _parts(cast(Mixture, lm), weight * share, name)
        elif component.family != "ngram" or not lm.is_normalized:
            kind = component.family
            if kind == "ngram":
                kind = "stupid-backoff" if cast(NgramModel, lm).engine.log_missing else "not normalised n-gram"
            raise ConfigError(
                f"{name or 'the mixture'} holds a {kind} model; only n-grams with probabilities become one model"
            )
        else:
            yield lm, weight * share
