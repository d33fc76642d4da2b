"""The n-gram family as the table of families knows it: train, save, load, and what `compare` tries."""

import warnings

import numpy as np

from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.folder import Sealed
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram import jelinek_mercer, storage
from chainrule.ngram.config import SMOOTHINGS, Config
from chainrule.ngram.counts import Counts, count
from chainrule.ngram.estimate import estimate
from chainrule.ngram.model import NgramModel

FILE = "model.ngram"
HELD_OUT_PART = 10

__all__ = ["Config", "candidates", "facets", "files", "load", "parameters", "train"]


def train(data: TrainingData, config: Config) -> NgramModel:
    """Count and smooth."""
    if config.smoothing not in SMOOTHINGS:
        raise ConfigError(f"smoothing is '{config.smoothing}'; choose one of {', '.join(SMOOTHINGS)}")
    counts = count(data.train.ids, config.order, data.vocabulary, data.context, data.progress)
    weights = _weights(counts, data, config) if config.smoothing == "jelinek-mercer" else None
    data.progress(f"smoothing: {config.smoothing}", 0, None)
    tables = estimate(counts, config, weights)
    return NgramModel(tables, data.vocabulary, data.context, config.is_normalized)


def _weights(counts: Counts, data: TrainingData, config: Config) -> list[Floats]:
    """Jelinek–Mercer's λ from the validation text, or from lines held out of the text where there is none."""
    if data.valid is not None and data.valid.tokens:
        learnt_on, held_out = counts, data.valid.ids
    else:
        rest, held_out = _hold_out(data.train.ids, data.vocabulary.eos)
        learnt_on = count(rest, config.order, data.vocabulary, data.context)
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


def files(lm: NgramModel) -> dict[str, bytes]:
    """The tables."""
    return {FILE: storage.pack(storage.to_arrays(lm.tables))}


def load(
    files: Sealed, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto"
) -> NgramModel:
    """The model of saved tables; they stay on the processor whatever the device."""
    arrays = storage.unpack(files.bytes(FILE), FILE)
    tables = storage.from_arrays(arrays, config.order, vocabulary.size)
    return NgramModel(tables, vocabulary, context, config.is_normalized)


def parameters(lm: NgramModel) -> int:
    """Stored probabilities and back-off weights."""
    return lm.parameters


def candidates() -> list[Config]:
    """Orders 1 to 5 by every smoothing."""
    return [Config(order=n, smoothing=smoothing) for smoothing in SMOOTHINGS for n in range(1, 6)]


def facets(config: Config) -> dict[str, str | int]:
    """Order and smoothing."""
    return {"order": config.order, "smoothing": config.smoothing}
