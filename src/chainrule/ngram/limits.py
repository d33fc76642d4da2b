"""External-memory training for texts that exceed the memory limit (cpp/ngram/build/external.hpp).

The model file is byte for byte the same as that of in-memory training.
"""

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np

from chainrule.data.training import TrainingData
from chainrule.ngram import engine as engines
from chainrule.ngram.config import Config
from chainrule.ngram.engine import Engine
from chainrule.processors import thread_count
from chainrule.scratch import ScratchFolder

BYTES_PER_TOKEN: Final = 24
"""Estimated bytes per token for the text and for each order: count table and finished model."""


def estimate_bytes(data: TrainingData, config: Config) -> int:
    """Return an upper estimate of the bytes that in-memory training needs."""
    return data.train.tokens * BYTES_PER_TOKEN * (config.order + 1)


def exceeds_memory(data: TrainingData, config: Config) -> bool:
    """Return whether in-memory training might exceed the memory limit."""
    return data.memory is not None and estimate_bytes(data, config) > data.memory


def memory_error_message(data: TrainingData, config: Config) -> str:
    """Return the error message for a method that is available only in memory."""
    what = "entropy pruning" if config.entropy_prune else config.smoothing
    mebibytes = -(-estimate_bytes(data, config) >> 20)
    return (
        f"{what} works in memory and may take {mebibytes} MiB; raise --memory, or use modified-kneser-ney "
        "without entropy pruning"
    )


def train_external(data: TrainingData, config: Config, names: Sequence[str] | None) -> Engine:
    """Train a modified Kneser–Ney model through temporary files, which are deleted with the returned model."""
    assert data.memory is not None
    scratch = ScratchFolder()
    try:
        out = scratch.path / "model.ngram"
        ids = data.train.ids
        _, default_reasons = engines.core().ngram_train_within(
            ids=str(ids.filename) if isinstance(ids, np.memmap) else np.ascontiguousarray(ids, dtype=np.int32),
            order=config.order,
            cut_offs=list(config.cut_offs()) if any(config.cut_offs()) else [],
            memory=data.memory,
            folder=str(scratch.path),
            out=str(out),
            names=names,
            layout=config.layout,
            bits=config.bits,
            threads=thread_count(),
            progress=lambda done, of: data.progress("counting n-grams within the limit", done, of),
            **engines.vocabulary_kwargs(data.vocabulary, data.context),
        )
        engine = engines.open_file(out)
    except BaseException:
        scratch.remove()
        raise
    engines.warn_about_default_discounts(default_reasons)
    weakref.finalize(engine, scratch.remove)
    return engine
