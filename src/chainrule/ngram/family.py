"""N-gram family: training, saving, loading and the configurations tried by `compare`."""

import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from chainrule.data.training_data import TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.config import SMOOTHINGS, Config
from chainrule.ngram.engine import Engine
from chainrule.ngram.entropy_pruning import entropy_prune
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Counts, copy_eos_contexts_to_bos, estimate, estimate_lambdas, expand_lambdas
from chainrule.storage.temp_dir import ScratchFolder
from chainrule.storage.verified_dir import REMEDY, Content, StreamedFile, VerifiedDir

FILE: Final = "model.ngram"
BYTES_PER_TOKEN: Final = 24
"""Estimated bytes per token for the text and for each order: count table and finished model."""
BYTES_PER_WORD: Final = 44
"""Bytes per word of the vocabulary kept during training: name, offset and place in a hash table."""
SPELLER_BYTES_PER_WORD: Final = 60
SPELLER_BYTES: Final = 28 << 20
"""Bytes while the speller is trained: counts of the character n-grams of rare words, and those sorted at once."""
HELD_OUT_PART: Final = 10
"""Jelinek–Mercer without a validation text: one line in this many is held out."""

__all__ = [
    "Config",
    "candidates",
    "facets",
    "files",
    "load",
    "minimum_memory",
    "parameters",
    "temporary_bytes",
    "train",
]


def train(data: TrainingData, config: Config) -> NgramModel:
    """Train an n-gram model: count n-grams and smooth."""
    if config.smoothing not in SMOOTHINGS:
        raise ConfigError(f"smoothing is '{config.smoothing}'; choose one of {', '.join(SMOOTHINGS)}")
    data.options.progress("counting n-grams", 0, None)
    return NgramModel(_train_engine(data, config), data.vocabulary, data.options.context, config.is_normalized)


def minimum_memory(config: Config, tokens: int, vocabulary: int, limit: int, *, has_words: bool) -> int:
    """Return the lowest memory limit for a text; `has_words`: the process holds the vocabulary already.

    Raise ConfigError for a method that only works in memory and needs more than `limit`.
    """
    words = 0 if has_words else vocabulary * BYTES_PER_WORD
    if not _is_external(config):
        needed = words + _memory_needed(config, tokens)
        _check_in_memory(config, needed, limit)
        return needed
    speller = engines.memory_in_use() + SPELLER_BYTES + vocabulary * SPELLER_BYTES_PER_WORD
    return words + max(engines.least_memory(config, tokens, vocabulary), speller)


def temporary_bytes(config: Config, tokens: int, vocabulary: int, limit: int) -> int:
    """Return the bytes of the temporary files of a text within a limit; 0 if only its ids are written."""
    if _memory_needed(config, tokens) + vocabulary * BYTES_PER_WORD <= limit or not _is_external(config):
        return 0
    return engines.disk_required(config, tokens, vocabulary)


def _memory_needed(config: Config, tokens: int) -> int:
    """Return an upper estimate of the memory of the process while it trains in memory."""
    return engines.memory_in_use() + tokens * BYTES_PER_TOKEN * (config.order + 1)


def _check_in_memory(config: Config, needed: int, limit: int) -> None:
    """Raise ConfigError for a method that only works in memory and needs more than the limit."""
    if needed > limit and not _is_external(config):
        what = "entropy pruning" if config.entropy_prune else config.smoothing
        raise ConfigError(
            f"{what} works in memory and may take {-(-needed >> 20)} MiB; raise --memory, or use "
            "modified-kneser-ney without entropy pruning"
        )


def _is_external(config: Config) -> bool:
    """Whether training can use temporary files instead of memory."""
    return config.smoothing == "modified-kneser-ney" and not config.entropy_prune


def _train_engine(data: TrainingData, config: Config) -> Engine:
    """Train modified Kneser–Ney in compiled code; apply other smoothing methods in NumPy to compiled counts."""
    names = None if data.names is None else data.names()
    is_compiled = config.smoothing == "modified-kneser-ney"
    needed = _memory_needed(config, data.train.tokens)
    if data.options.memory_limit is not None and needed > data.options.memory_limit:
        _check_in_memory(config, needed, data.options.memory_limit)
        return _train_external(data, config, names, data.options.memory_limit)
    if is_compiled and not config.entropy_prune:
        return engines.train(data.train.ids, config, data.vocabulary, data.options.context, names)
    if is_compiled:
        exact = replace(config, layout="fast", bits=0)  # quantized once, after pruning
        tables = engines.to_tables(engines.train(data.train.ids, exact, data.vocabulary, data.options.context))
    else:
        counts = engines.count(data.train.ids, config.order, data.vocabulary, data.options.context)
        weights = _weights(counts, data, config) if config.smoothing == "jelinek-mercer" else None
        data.options.progress(f"smoothing: {config.smoothing}", 0, None)
        starts_at_bos = data.options.context == "stream" and config.smoothing in ("add-k", "laplace")
        counts = copy_eos_contexts_to_bos(counts) if starts_at_bos else counts
        tables = replace(estimate(counts, config, weights), starts_at_bos=starts_at_bos)
    return engines.from_tables(
        entropy_prune(tables, data.vocabulary, config.entropy_prune, data.options.progress),
        data.vocabulary,
        data.options.context,
        config.is_normalized,
        names=names,
        layout=config.layout,
        bits=config.bits,
    )


def _train_external(data: TrainingData, config: Config, names: Sequence[str] | None, memory: int) -> Engine:
    """Train through temporary files, which are deleted with the returned model."""
    scratch = ScratchFolder()
    try:
        engine = engines.train_external(
            data.train.ids,
            config,
            data.vocabulary,
            data.options.context,
            names,
            memory=memory,
            folder=scratch.path,
            progress=lambda done, of: data.options.progress("counting n-grams within the limit", done, of),
        )
    except BaseException:
        scratch.remove()
        raise
    weakref.finalize(engine, scratch.remove)
    return engine


def _weights(counts: Counts, data: TrainingData, config: Config) -> list[Floats]:
    """Return the λ of Jelinek–Mercer, estimated on the validation text or on held-out training lines."""
    if data.valid is not None and data.valid.tokens:
        train_counts, held_out = counts, data.valid.ids
    else:
        train_ids, held_out = _hold_out(data.train.ids, data.vocabulary.eos)
        train_counts = engines.count(train_ids, config.order, data.vocabulary, data.options.context)
    weights = estimate_lambdas(
        train_counts, held_out, data.options.context, config.buckets, progress=data.options.progress
    )
    return expand_lambdas(counts, weights, config.buckets)


def _hold_out(ids: Ids, eos: int) -> tuple[Ids, Ids]:
    """Split the ids into training lines and held-out lines: every tenth line, or the last of fewer than ten."""
    line = np.cumsum(ids == eos) - (ids == eos)
    part = min(HELD_OUT_PART, int(line[-1]) + 1)
    if part == 1:
        raise InputError(
            "Jelinek-Mercer weights need held-out text, but the training text has a single line: give --valid"
        )
    warnings.warn(
        f"Jelinek-Mercer weights are learned on one line in {part} of the training text; "
        "give a held-out text with --valid",
        ChainruleWarning,
        stacklevel=2,
    )
    is_held_out = line % part == part - 1
    return ids[~is_held_out], ids[is_held_out]


def files(lm: NgramModel) -> Mapping[str, Content]:
    """Return the model file, which the engine writes."""
    engine = lm.engine
    return {FILE: StreamedFile(engine.bytes, lambda path: engines.save(engine, path), engines.content_id(engine))}


def load(
    files: VerifiedDir, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto"
) -> NgramModel:
    """Load a saved model; `device` is ignored, n-gram models run on the CPU."""
    path = files.verified_path(FILE)
    engine = engines.open_file(path)
    if files.files[FILE].content_id not in (None, engines.content_id(engine)):
        raise ModelFileError(f"{path} is not the file that the manifest lists, but another model's; {REMEDY}")
    unk = -1 if vocabulary.unk is None else vocabulary.unk
    expected = (config.order, vocabulary.size, vocabulary.bos, vocabulary.eos, unk, context == "stream")
    actual = (engine.order, engine.vocabulary_size, engine.bos, engine.eos, engine.unk, engine.is_stream)
    if actual != expected:
        raise ModelFileError(f"{path} was not made with the config and tokenizer beside it; {REMEDY}")
    # The file can be unnormalized although the config is not: imported models, models quantized by older versions.
    return NgramModel(engine, vocabulary, context, config.is_normalized and engine.is_normalized)


def parameters(lm: NgramModel) -> int:
    """Return the number of stored probabilities and back-off weights."""
    return lm.parameters


def candidates() -> list[Config]:
    """Return the configurations tried by `compare`: orders 1 to 5 with every smoothing."""
    return [Config(order=n, smoothing=smoothing) for smoothing in SMOOTHINGS for n in range(1, 6)]


def facets(config: Config) -> dict[str, str | int]:
    """Return the settings that distinguish the candidates: order and smoothing."""
    return {"order": config.order, "smoothing": config.smoothing}
