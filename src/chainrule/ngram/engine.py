"""Typed wrapper of the compiled n-gram engine (cpp/ngram/): counting, modified Kneser–Ney, model files."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import system
from chainrule.errors import ChainruleWarning, ModelFileError
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.smoothing import Counts, Level, fallback_message
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.system import thread_count

LARGEST_LOG = 700.0
"""Log-probabilities at or above this value are rejected: exp overflows float64 a little above it."""
Engine = Any
"""A `chainrule._core.NgramModel`, which is immutable."""

SUMMED_PROBABILITIES: Final = 50_000_000
"""Approximate number of probabilities summed by `largest_deviation`."""


def train(
    ids: Ids, config: Config, vocabulary: Vocabulary, context: Context, names: Sequence[str] | None = None
) -> Engine:
    """Train a modified Kneser–Ney model; warn if an order uses default discounts."""
    engine, _, default_reasons = system.load_extension().NgramModel.train(
        ids=np.ascontiguousarray(ids, dtype=np.int32),
        **_counting_kwargs(config),
        **_model_kwargs(vocabulary, context, names, config.layout, config.bits),
    )
    warn_about_default_discounts(default_reasons)
    return engine


def train_external(
    ids: Ids,
    config: Config,
    vocabulary: Vocabulary,
    context: Context,
    names: Sequence[str] | None = None,
    *,
    memory: int,
    folder: Path,
    progress: Callable[[int, int], object],
) -> Engine:
    """Train like `train`, within `memory` bytes; the temporary files in `folder` must outlive the model."""
    out = folder / "model.ngram"
    _, default_reasons = system.load_extension().ngram_train_within(
        ids=str(ids.filename) if isinstance(ids, np.memmap) else np.ascontiguousarray(ids, dtype=np.int32),
        memory=memory,
        folder=str(folder),
        out=str(out),
        progress=progress,
        **_counting_kwargs(config),
        **_model_kwargs(vocabulary, context, names, config.layout, config.bits),
    )
    engine = open_file(out, reads_all=False)
    warn_about_default_discounts(default_reasons)
    return engine


def memory_in_use() -> int:
    """Return the resident memory of the process in bytes."""
    return int(system.load_extension().memory_in_use())


def return_large_blocks() -> None:
    """Make the allocator return large blocks of memory as soon as they are freed, for a process with a limit."""
    system.load_extension().return_large_blocks()


def least_memory(config: Config, tokens: int, vocabulary: int) -> int:
    """Return the lowest memory limit of `train_external`, for the process as it is now."""
    return int(
        system.load_extension().ngram_least_memory(tokens, vocabulary, config.order, config.layout, config.bits)
    )


def disk_required(config: Config, tokens: int, vocabulary: int) -> int:
    """Return the bytes of the temporary files of `train_external`."""
    return int(system.load_extension().ngram_disk_required(tokens, vocabulary, config.order))


def _counting_kwargs(config: Config) -> dict[str, Any]:
    """Return the arguments that both ways of training share."""
    return {"order": config.order, "cut_offs": list(config.cut_offs()) if any(config.cut_offs()) else []}


def _model_kwargs(
    vocabulary: Vocabulary, context: Context, names: Sequence[str] | None, layout: str, bits: int
) -> dict[str, Any]:
    """Return the arguments that describe a model: vocabulary, context rule, words and file layout."""
    return {
        "vocabulary_size": vocabulary.size,
        "bos": vocabulary.bos,
        "eos": vocabulary.eos,
        "unk": -1 if vocabulary.unk is None else vocabulary.unk,
        "is_closed": vocabulary.closed,
        "is_stream": context == "stream",
        "names": names,
        "layout": layout,
        "bits": bits,
        "threads": thread_count(),
    }


def warn_about_default_discounts(reasons: Sequence[str]) -> None:
    """Warn about each order that uses default discounts; its reason in `reasons` is empty if it does not."""
    for order, reason in enumerate(reasons, start=1):
        if reason:
            message = fallback_message(order, "default discounts 0.5, 1, 1.5", reason)
            warnings.warn(message, ChainruleWarning, stacklevel=2)


def count(ids: Ids, order: int, vocabulary: Vocabulary, context: Context = "line") -> Counts:
    """Count all n-grams up to `order` whose last word is predicted."""
    levels = system.load_extension().ngram_counts(
        ids=np.ascontiguousarray(ids, dtype=np.int32),
        order=order,
        vocabulary_size=vocabulary.size,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        is_line=context == "line",
        threads=thread_count(),
    )
    return Counts(tuple(_level(level) for level in levels), vocabulary)


def _level(arrays: dict[str, Any]) -> Level:
    names = ("context", "word", "suffix", "count")
    context, word, suffix, counts = (arrays[name].astype(np.int64) for name in names)
    begins = np.zeros(len(word), dtype=bool)
    begins[slice(*arrays["begins"])] = True
    return Level(context, word, suffix, counts, begins)


def from_tables(
    tables: BackoffTables,
    vocabulary: Vocabulary,
    context: Context = "line",
    is_normalized: bool = True,
    *,
    names: Sequence[str] | None = None,
    layout: str = "fast",
    bits: int = 0,
) -> Engine:
    """Build a model from back-off tables."""
    levels = [
        {
            "key": np.ascontiguousarray(level.key, dtype=np.int64),
            "log_prob": np.ascontiguousarray(level.log_prob, dtype=np.float32),
            "log_backoff": np.ascontiguousarray(level.log_backoff, dtype=np.float32),
        }
        for level in tables.levels
    ]
    return system.load_extension().NgramModel.of_tables(
        levels=levels,
        is_normalized=is_normalized,
        log_missing=tables.log_missing,
        starts_at_bos=tables.starts_at_bos,
        **_model_kwargs(vocabulary, context, names, layout, bits),
    )


def to_tables(engine: Engine) -> BackoffTables:
    """Return the back-off tables of a model."""
    levels = engine.tables()
    return BackoffTables(tuple(BackoffLevel(**level) for level in levels), engine.log_missing, engine.starts_at_bos)


def open_file(path: Path, *, verify: bool = False, parts: int = 1, reads_all: bool = True) -> Engine:
    """Open a model file. A large file (without `reads_all` any) is verified block by block at first use.

    The file is copied into memory, so later changes to it have no effect. A file larger than half of the available
    memory is memory-mapped instead, and every call raises if it has changed since it was opened. `parts` files
    share that memory.
    """
    largest_copy = max(system.available() // 2 // parts, 1)
    options = {} if reads_all else {"verified_at_open": 0}
    return system.load_extension().NgramModel.open(str(path), verify=verify, largest_copy=largest_copy, **options)


def save(engine: Engine, path: Path) -> None:
    """Write the model to a file, verifying blocks that have not been read yet."""
    engine.save(str(path))


def largest_deviation(engine: Engine) -> float:
    """Return the largest |Σ_w p(w | h) − 1| over a sample of stored and random contexts h.

    The larger the vocabulary, the fewer contexts are sampled.
    """
    contexts = min(max(SUMMED_PROBABILITIES // (engine.vocabulary_size * engine.order), 8), 500)
    return float(engine.largest_deviation(contexts))


def check_scores(log_p: Floats, engine: Engine) -> Floats:
    """Return `log_p` unchanged; raise ModelFileError if it contains NaN or values whose exp overflows.

    The back-off weights of a file with a valid checksum can be finite and still not give probabilities.
    """
    if log_p.size and not log_p.max() < LARGEST_LOG:  # NaN is not smaller
        name = engine.path or "the n-gram model"
        raise ModelFileError(f"{name} has weights that make no probability; train or convert the model again")
    return log_p


def content_id(engine: Engine) -> str:
    """Return the digest stored in the header of the model file."""
    return f"{engine.mark:016x}"
