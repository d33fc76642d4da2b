"""Training within a limit of memory: when it is needed, and how it is done (cpp/ngram/build/external.hpp).

The model is the same, byte for byte, as one trained in memory.
"""

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np

from chainrule.data.training import TrainingData
from chainrule.ngram import engine as engines
from chainrule.ngram.config import Config
from chainrule.ngram.engine import Engine
from chainrule.processors import threads
from chainrule.scratch import ScratchFolder

BYTES_PER_TOKEN: Final = 24
"""For the text and for each order: its table while it is counted, and its part of the finished model."""


def needed(data: TrainingData, config: Config) -> int:
    """About how many bytes training in memory takes, at most."""
    return data.train.tokens * BYTES_PER_TOKEN * (config.order + 1)


def is_too_much(data: TrainingData, config: Config) -> bool:
    """Whether training in memory might take more than it may."""
    return data.memory is not None and needed(data, config) > data.memory


def refusal(data: TrainingData, config: Config) -> str:
    """Why a method that has no way around memory cannot be had within the limit."""
    what = "entropy pruning" if config.entropy_prune else config.smoothing
    wanted = -(-needed(data, config) >> 20)
    return f"{what} works in memory and may take {wanted} MiB; raise --memory, or take modified-kneser-ney as it is"


def train(data: TrainingData, config: Config, names: Sequence[str] | None) -> Engine:
    """Modified Kneser–Ney through temporary files; the model's own file is one of them as long as it is used."""
    assert data.memory is not None
    scratch = ScratchFolder()
    try:
        out = scratch.path / "model.ngram"
        ids = data.train.ids
        _, fell_back = engines.core().ngram_train_within(
            ids=str(ids.filename) if isinstance(ids, np.memmap) else np.ascontiguousarray(ids, dtype=np.int32),
            order=config.order,
            cut_offs=list(config.cut_offs()) if any(config.cut_offs()) else [],
            memory=data.memory,
            folder=str(scratch.path),
            out=str(out),
            names=names,
            layout=config.layout,
            bits=config.bits,
            threads=threads(),
            progress=lambda done, of: data.progress("counting n-grams within the limit", done, of),
            **engines.words(data.vocabulary, data.context),
        )
        engine = engines.open_file(out)
    except BaseException:
        scratch.remove()
        raise
    engines.warn_of_discounts(fell_back)
    weakref.finalize(engine, scratch.remove)
    return engine
