"""The door to the compiled n-gram engine (cpp/ngram/): counting, modified Kneser–Ney, model files.

Lives here: what crosses the border, and what its failures are called here. Not here: the model as a LanguageModel
(model.py), and the NumPy tables that specify all of it (counts.py, estimate.py, table_model.py).
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import memory, native
from chainrule.errors import ChainruleWarning, ModelFileError
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.counts import Counts, Level
from chainrule.ngram.discounts import fallback_message
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from chainrule.processors import threads

LARGEST_LOG = 700.0
"""exp of more overflows in float64."""
Engine = Any
"""A `chainrule._core.NgramModel`: immutable, in memory."""

SUMMED: Final = 50_000_000
"""About how many probabilities are summed to check a model."""


def core() -> Any:
    """The compiled module; n-gram models need it."""
    return native.require("n-gram models need")


def train(
    ids: Ids, config: Config, vocabulary: Vocabulary, context: Context, names: Sequence[str] | None = None
) -> Engine:
    """Modified Kneser–Ney from ids to a model, wholly compiled; discounts that fell back are warned of."""
    engine, _, fell_back = core().NgramModel.train(
        ids=np.ascontiguousarray(ids, dtype=np.int32),
        order=config.order,
        cut_offs=list(config.cut_offs()) if any(config.cut_offs()) else [],
        layout=config.layout,
        bits=config.bits,
        names=names,
        threads=threads(),
        **words(vocabulary, context),
    )
    warn_of_discounts(fell_back)
    return engine


def warn_of_discounts(fell_back: Sequence[str]) -> None:
    """Tell which orders took the fall-back, in the words of discounts.py; '' where one did not."""
    for order, why in enumerate(fell_back, start=1):
        if why:
            message = fallback_message(order, "default discounts 0.5, 1, 1.5", why)
            warnings.warn(message, ChainruleWarning, stacklevel=2)


def count(ids: Ids, order: int, vocabulary: Vocabulary, context: Context = "line") -> Counts:
    """What counts.count gives, compiled."""
    levels = core().ngram_counts(
        ids=np.ascontiguousarray(ids, dtype=np.int32),
        order=order,
        vocabulary_size=vocabulary.size,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        is_line=context == "line",
        threads=threads(),
    )
    return Counts(tuple(_level(level) for level in levels), vocabulary)


def _level(found: dict[str, Any]) -> Level:
    context, word, suffix, times = (found[name].astype(np.int64) for name in ("context", "word", "suffix", "count"))
    begins = np.zeros(len(word), dtype=bool)
    begins[slice(*found["begins"])] = True
    return Level(context, word, suffix, times, begins)


def of_tables(
    tables: BackoffTables,
    vocabulary: Vocabulary,
    context: Context = "line",
    is_normalized: bool = True,
    *,
    names: Sequence[str] | None = None,
    layout: str = "fast",
    bits: int = 0,
) -> Engine:
    """A model that can be asked, of tables."""
    levels = [
        {
            "key": np.ascontiguousarray(level.key, dtype=np.int64),
            "log_prob": np.ascontiguousarray(level.log_prob, dtype=np.float32),
            "log_backoff": np.ascontiguousarray(level.log_backoff, dtype=np.float32),
        }
        for level in tables.levels
    ]
    return core().NgramModel.of_tables(
        levels=levels,
        is_normalized=is_normalized,
        log_missing=tables.log_missing,
        starts_at_bos=tables.starts_at_bos,
        names=names,
        layout=layout,
        bits=bits,
        threads=threads(),
        **words(vocabulary, context),
    )


def to_tables(engine: Engine) -> BackoffTables:
    """The tables of a model."""
    levels = engine.tables()
    return BackoffTables(tuple(BackoffLevel(**level) for level in levels), engine.log_missing, engine.starts_at_bos)


def open_file(path: Path, *, verify: bool = False) -> Engine:
    """The model of a file: a small one is read and verified whole now, a large one block by block as it is used.

    Answers come from a private copy, so a file that changes later changes none. A file of more than half of the
    memory is mapped instead, and each call refuses it if it changed since it was opened.
    """
    return core().NgramModel.open(str(path), verify=verify, largest_copy=memory.available() // 2)


def save(engine: Engine, path: Path) -> None:
    """Write the model's file; what was not read yet is verified on its way."""
    engine.save(str(path))


def largest_deviation(engine: Engine) -> float:
    """The largest |Σ p(w | h) − 1| over a sample of contexts, stored and random; fewer of a large vocabulary."""
    contexts = min(max(SUMMED // (engine.vocabulary_size * engine.order), 8), 500)
    return float(engine.largest_deviation(contexts))


def check_scores(log_p: Floats, engine: Engine) -> Floats:
    """Return `log_p` unchanged; raise ModelFileError where it holds NaN or exp overflows.

    Back-off weights of a sealed file can be finite and still make no probability.
    """
    if log_p.size and not log_p.max() < LARGEST_LOG:  # NaN is not smaller
        name = engine.path or "the n-gram model"
        raise ModelFileError(f"{name} has weights that make no probability; train or convert the model again")
    return log_p


def mark(engine: Engine) -> str:
    """Which file this is, by a digest that its header holds."""
    return f"{engine.mark:016x}"


def words(vocabulary: Vocabulary, context: Context) -> dict[str, Any]:
    """What the engine is told of the vocabulary and of the rule for lines."""
    return {
        "vocabulary_size": vocabulary.size,
        "bos": vocabulary.bos,
        "eos": vocabulary.eos,
        "unk": -1 if vocabulary.unk is None else vocabulary.unk,
        "is_closed": vocabulary.closed,
        "is_stream": context == "stream",
    }
