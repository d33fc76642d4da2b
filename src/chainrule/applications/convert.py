"""Convert n-gram models: ARPA files, mixtures merged into one model, entropy pruning, file layouts."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from chainrule import api
from chainrule.errors import ChainruleWarning, ConfigError, NotFoundError, printable
from chainrule.lm import AnyModel
from chainrule.mixture import Mixture
from chainrule.model import Model
from chainrule.ngram import arpa, sharded
from chainrule.ngram.config import IMPORTED, INTERPOLATED, Config
from chainrule.ngram.entropy_pruning import entropy_prune
from chainrule.ngram.interpolation import interpolate
from chainrule.ngram.model import NgramModel
from chainrule.ngram.oov_speller import train_speller
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.provenance import Origin
from chainrule.system import thread_count
from chainrule.tokenizers.config import JOINER, Kind, TokenizerConfig
from chainrule.tokenizers.punctuation import joined_sides
from chainrule.tokenizers.train import from_words


def export_arpa(source: Path | Model, out: Path, progress: Progress | bool = silent) -> None:
    """Write an n-gram model as an ARPA file; sub-word symbols are written as in `tokenizer.json`."""
    progress = as_progress(progress)
    arpa.write(*_ngram_and_tokens(source), out, progress)


def write_arpa(source: Path | Model, out: BinaryIO) -> None:
    """Write an n-gram model in ARPA format to an open file."""
    arpa.write_to(*_ngram_and_tokens(source), out)


def _ngram_and_tokens(source: Path | Model) -> tuple[NgramModel, list[str]]:
    """Return the n-gram model, joined if it is in shards, and its tokens by id."""
    model = join_model(source if isinstance(source, Model) else api.load(source, kind="language model"))
    if model.family != "ngram":
        raise ConfigError(f"{model.name} is a {model.family} model; only n-gram models can become ARPA")
    tokenizer = model.tokenizer
    if not tokenizer.config.tokens_are_text:
        warnings.warn(
            f"the words of the file are {tokenizer.config.kind} symbols: score text tokenized the same way",
            ChainruleWarning,
            stacklevel=3,
        )
    return cast(NgramModel, model.lm), tokenizer.names()


def _tokenizer_kind(words: Sequence[str]) -> Kind:
    """Return `word` if the words contain the joiners written by the word tokenizer, else `whitespace`."""
    return "word" if any(any(joined_sides(word)) for word in words if JOINER in word) else "whitespace"


def import_arpa(path: Path, command: str = "", progress: Progress | bool = silent) -> Model:
    """Import an ARPA file with a word tokenizer over its vocabulary, which is closed if the file lacks `<unk>`.

    The speller for unknown words is trained on the vocabulary, since there is no training text.
    """
    progress = as_progress(progress)
    if not path.exists() and str(path) != "-":
        raise NotFoundError(
            f"there is no file {printable(str(path))}; give an ARPA file, or a model with --to arpa"
        )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; to convert a model, choose the output format with --to, for example --to arpa"
        )
    contents = arpa.read(path, progress, check_sums=True)
    config = TokenizerConfig(kind=_tokenizer_kind(contents.words), unk=contents.unk, closed=not contents.has_unk)
    tokenizer = from_words(contents.words, config)
    origin = Origin.now(text=f"imported from {path.name}", command=command)
    return Model(
        lm=NgramModel(contents.engine, tokenizer.vocabulary, is_normalized=contents.engine.is_normalized),
        tokenizer=tokenizer,
        family="ngram",
        config=Config(order=contents.engine.order, smoothing=IMPORTED),
        speller=train_speller(contents.words, known=contents.words) if contents.has_unk else None,
        origin=origin,
    )


def merge_mixture(model: Model, progress: Progress | bool = silent) -> Model:
    """Merge a mixture of n-gram models, or join shards, into one n-gram model; return an n-gram model unchanged.

    Raises ConfigError for other families.
    """
    progress = as_progress(progress)
    model = join_model(model)
    if model.family == "ngram":
        return model
    if model.family != "mixture":
        raise ConfigError(
            f"{model.name} is a {model.family} model; only n-gram models can be merged into an n-gram model"
        )
    mixture = cast(Mixture, model.lm)
    parts = list(_parts(mixture, 1.0, model.name))
    if len({lm.context for lm, _ in parts}) > 1:
        raise ConfigError(
            "some of the mixed models have line context and some stream context; "
            "only models with the same context can be merged"
        )
    if len({lm.engine.starts_at_bos for lm, _ in parts}) > 1:
        raise ConfigError(
            "some of the mixed stream models are smoothed by add-k and some are not; mix one kind only"
        )
    weights = [weight for _, weight in parts]
    tables = interpolate([lm.tables for lm, _ in parts], weights, mixture.vocabulary.size, progress)
    first = parts[0][0]
    tables = dataclasses.replace(tables, starts_at_bos=first.engine.starts_at_bos)
    config = Config(order=tables.order, smoothing=INTERPOLATED)
    lm = NgramModel.from_tables(tables, first.vocabulary, first.context, names=model.tokenizer.names())
    return dataclasses.replace(model, lm=lm, family="ngram", config=config, metrics={})


def split_model(model: Model, shards: int) -> Model:
    """Split an n-gram model into shards by ranges of first words, with about equal numbers of n-grams."""
    if model.family != "ngram":
        raise ConfigError(f"{model.name} is a {model.family} model; only n-gram models can be split into shards")
    lm = sharded.split(cast(NgramModel, model.lm), model.config, shards)
    return dataclasses.replace(model, lm=lm, family="sharded-ngram", config=lm.config)


def join_model(model: Model) -> Model:
    """Join the shards of a sharded n-gram model; return any other model unchanged."""
    if model.family != "sharded-ngram":
        return model
    lm, config = sharded.join(cast(sharded.ShardedModel, model.lm))
    return dataclasses.replace(model, lm=lm, family="ngram", config=config)


def prune(model: Model, threshold: float | None, progress: Progress | bool = silent) -> Model:
    """Remove the n-grams whose removal increases the perplexity by less than this fraction (Stolcke 1998).

    With None, return the model unchanged.
    """
    if threshold is None:
        return model
    progress = as_progress(progress)
    lm = cast(NgramModel, model.lm)
    if not threshold > 0:
        raise ConfigError(f"entropy-prune is {threshold}; choose a small number above 0, such as 1e-8")
    if not lm.is_normalized:
        raise ConfigError(
            "entropy pruning requires normalized probabilities, but those of this model do not sum to 1"
        )
    # The config validates the threshold.
    config = dataclasses.replace(model.config, entropy_prune=max(threshold, model.config.entropy_prune))
    tables = entropy_prune(lm.tables, lm.vocabulary, threshold, progress)
    pruned_lm = NgramModel.from_tables(
        tables, lm.vocabulary, lm.context, names=model.tokenizer.names(), layout=config.layout, bits=config.bits
    )
    return dataclasses.replace(model, lm=pruned_lm, config=config, metrics={})


def with_command(model: Model, command: str) -> Model:
    """Return the model with this command as its origin and without metrics."""
    old = model.origin
    origin = Origin.now(text=old.text, fingerprint=old.fingerprint, command=command, seed=old.seed)
    return dataclasses.replace(model, origin=origin, metrics={})


def change_layout(model: Model, layout: str | None = None, bits: int | None = None) -> Model:
    """Convert an n-gram model to another file layout; `bits=8` quantizes (layout `small` only).

    With neither, return the model unchanged.
    """
    if layout is None and bits is None:
        return model
    old = model.config
    new_bits = bits if bits is not None else old.bits if layout != "fast" else 0
    config = dataclasses.replace(old, layout=layout or ("small" if bits else old.layout), bits=new_bits)
    lm = cast(NgramModel, model.lm)
    engine = lm.engine.convert(layout=config.layout, bits=config.bits, threads=thread_count())
    return dataclasses.replace(model, lm=dataclasses.replace(lm, engine=engine), config=config, metrics={})


def _parts(mixture: Mixture, weight: float, name: str) -> Iterator[tuple[Any, float]]:
    """Yield the n-gram components of a (possibly nested) mixture with their total weights."""
    for component, share in zip(mixture.components, mixture.weights, strict=True):
        lm: AnyModel = component.lm
        if component.family == "mixture":
            yield from _parts(cast(Mixture, lm), weight * share, name)
        elif component.family != "ngram" or not lm.is_normalized:
            kind = component.family
            if kind == "ngram":
                kind = "stupid-backoff" if cast(NgramModel, lm).engine.log_missing else "not normalized n-gram"
            raise ConfigError(
                f"{name or 'the mixture'} contains a {kind} model; only n-grams with probabilities become one model"
            )
        else:
            yield lm, weight * share
