"""The n-gram family as the table of families knows it: train, save, load, and what `compare` tries."""

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError
from chainrule.folder import Content, Sealed, Written
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.manifest import REMEDY
from chainrule.ngram import engine as engines
from chainrule.ngram import jelinek_mercer, limits
from chainrule.ngram.config import SMOOTHINGS, Config
from chainrule.ngram.counts import Counts, start_at_line_ends
from chainrule.ngram.engine import Engine
from chainrule.ngram.entropy_pruning import entropy_prune
from chainrule.ngram.estimate import estimate
from chainrule.ngram.model import NgramModel

FILE = "model.ngram"
HELD_OUT_PART = 10

__all__ = ["Config", "candidates", "facets", "files", "load", "parameters", "train"]


def train(data: TrainingData, config: Config) -> NgramModel:
    """Count and smooth."""
    if config.smoothing not in SMOOTHINGS:
        raise ConfigError(f"smoothing is '{config.smoothing}'; choose one of {', '.join(SMOOTHINGS)}")
    data.progress("counting n-grams", 0, None)
    return NgramModel(_engine(data, config), data.vocabulary, data.context, config.is_normalized)


def _engine(data: TrainingData, config: Config) -> Engine:
    """Modified Kneser–Ney wholly compiled; the other smoothings in NumPy over the engine's counts."""
    names = None if data.names is None else data.names()
    is_compiled = config.smoothing == "modified-kneser-ney"
    if limits.is_too_much(data, config):
        if not is_compiled or config.entropy_prune:
            raise ConfigError(limits.refusal(data, config))
        return limits.train(data, config, names)
    if is_compiled and not config.entropy_prune:
        return engines.train(data.train.ids, config, data.vocabulary, data.context, names)
    if is_compiled:
        exact = replace(config, layout="fast", bits=0)  # rounded once, when it is pruned
        tables = engines.to_tables(engines.train(data.train.ids, exact, data.vocabulary, data.context))
    else:
        counts = engines.count(data.train.ids, config.order, data.vocabulary, data.context)
        weights = _weights(counts, data, config) if config.smoothing == "jelinek-mercer" else None
        data.progress(f"smoothing: {config.smoothing}", 0, None)
        starts_at_bos = data.context == "stream" and config.smoothing in ("add-k", "laplace")
        counts = start_at_line_ends(counts) if starts_at_bos else counts
        tables = replace(estimate(counts, config, weights), starts_at_bos=starts_at_bos)
    return engines.of_tables(
        entropy_prune(tables, data.vocabulary, config.entropy_prune, data.progress),
        data.vocabulary,
        data.context,
        config.is_normalized,
        names=names,
        layout=config.layout,
        bits=config.bits,
    )


def _weights(counts: Counts, data: TrainingData, config: Config) -> list[Floats]:
    """Jelinek–Mercer's λ from the validation text, or from lines held out of the text where there is none."""
    if data.valid is not None and data.valid.tokens:
        learnt_on, held_out = counts, data.valid.ids
    else:
        rest, held_out = _hold_out(data.train.ids, data.vocabulary.eos)
        learnt_on = engines.count(rest, config.order, data.vocabulary, data.context)
    weights = jelinek_mercer.learn(learnt_on, held_out, data.context, config.buckets, progress=data.progress)
    return jelinek_mercer.spread(counts, weights, config.buckets)


def _hold_out(ids: Ids, eos: int) -> tuple[Ids, Ids]:
    """All lines but every tenth, and every tenth; of fewer lines all but the last, and the last."""
    line = np.cumsum(ids == eos) - (ids == eos)
    part = min(HELD_OUT_PART, int(line[-1]) + 1)
    if part == 1:
        raise InputError(
            "Jelinek-Mercer weights need a held-out text, and one line has none to spare: give --valid"
        )
    warnings.warn(
        f"Jelinek-Mercer weights are learnt on one line in {part} of the training text; "
        "give a held-out text with --valid",
        ChainruleWarning,
        stacklevel=2,
    )
    is_held_out = line % part == part - 1
    return ids[~is_held_out], ids[is_held_out]


def files(lm: NgramModel) -> Mapping[str, Content]:
    """The model file, which the engine writes itself."""
    engine = lm.engine
    return {FILE: Written(engine.bytes, lambda path: engines.save(engine, path), engines.mark(engine))}


def load(
    files: Sealed, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto"
) -> NgramModel:
    """The model of a saved file; it stays on the processor whatever the device."""
    path = files.open(FILE)
    engine = engines.open_file(path)
    if files.files[FILE].mark not in (None, engines.mark(engine)):
        raise ModelFileError(f"{path} is not the file that the manifest lists, but another model's; {REMEDY}")
    unk = -1 if vocabulary.unk is None else vocabulary.unk
    wanted = (config.order, vocabulary.size, vocabulary.bos, vocabulary.eos, unk, context == "stream")
    found = (engine.order, engine.vocabulary_size, engine.bos, engine.eos, engine.unk, engine.is_stream)
    if found != wanted:
        raise ModelFileError(f"{path} was not made with the config and tokenizer beside it; {REMEDY}")
    # The file knows more than the config: of an imported model, and of one quantised by an older chainrule.
    return NgramModel(engine, vocabulary, context, config.is_normalized and engine.is_normalized)


def parameters(lm: NgramModel) -> int:
    """Stored probabilities and back-off weights."""
    return lm.parameters


def candidates() -> list[Config]:
    """Orders 1 to 5 by every smoothing."""
    return [Config(order=n, smoothing=smoothing) for smoothing in SMOOTHINGS for n in range(1, 6)]


def facets(config: Config) -> dict[str, str | int]:
    """Order and smoothing."""
    return {"order": config.order, "smoothing": config.smoothing}
