"""Conversions of n-gram models: merge a mixture into one model, entropy pruning, change of file layout."""

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
from chainrule.processors import thread_count
from chainrule.progress import Progress, as_progress, silent


def merge_mixture(model: Model, progress: Progress | bool = silent) -> Model:
    """Merge a mixture of n-gram models into one n-gram model; return an n-gram model unchanged.

    Raises ConfigError for other families.
    """
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


def prune(model: Model, threshold: float, progress: Progress | bool = silent) -> Model:
    """Remove the n-grams whose removal increases the perplexity by less than this fraction (Stolcke 1998)."""
    progress = as_progress(progress)
    lm = cast(NgramModel, model.lm)
    if not threshold > 0:
        raise ConfigError(f"entropy-prune is {threshold}; choose a small number above 0, such as 1e-8")
    if not lm.is_normalized:
        raise ConfigError("entropy-prune weighs probabilities, and those of this model do not sum to one")
    # The config validates the threshold.
    config = dataclasses.replace(model.config, entropy_prune=max(threshold, model.config.entropy_prune))
    tables = entropy_prune(lm.tables, lm.vocabulary, threshold, progress)
    pruned_lm = _model(tables, lm, model.tokenizer.names(), config)
    return dataclasses.replace(model, lm=pruned_lm, config=config, metrics={})


def with_command(model: Model, command: str) -> Model:
    """Return the model with this command as its origin and without metrics."""
    old = model.origin
    origin = Origin.now(text=old.text, fingerprint=old.fingerprint, command=command, seed=old.seed)
    return dataclasses.replace(model, origin=origin, metrics={})


def change_layout(model: Model, layout: str | None = None, bits: int | None = None) -> Model:
    """Convert an n-gram model to another file layout; `bits=8` quantizes (layout `small` only)."""
    old = model.config
    new_bits = bits if bits is not None else old.bits if layout != "fast" else 0
    config = dataclasses.replace(old, layout=layout or ("small" if bits else old.layout), bits=new_bits)
    lm = cast(NgramModel, model.lm)
    engine = lm.engine.convert(layout=config.layout, bits=config.bits, threads=thread_count())
    return dataclasses.replace(model, lm=dataclasses.replace(lm, engine=engine), config=config, metrics={})


def _model(tables: BackoffTables, like: NgramModel, names: list[str], config: Config) -> NgramModel:
    """Build a model from tables, with the vocabulary and context rule of `like`."""
    engine = engines.from_tables(
        tables, like.vocabulary, like.context, names=names, layout=config.layout, bits=config.bits
    )
    return NgramModel(engine, like.vocabulary, like.context)


def _parts(mixture: Mixture, weight: float, name: str) -> Iterator[tuple[Any, float]]:
    """Yield the n-gram components of a (possibly nested) mixture with their total weights."""
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
