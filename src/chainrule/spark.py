"""Functions on Spark DataFrames (pyspark 4.1 or later): log-probabilities as columns.

import chainrule.spark
frame = chainrule.spark.score("runs/news", frame, column="text")
"""

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chainrule import api
from chainrule.applications.line_jobs import check_context
from chainrule.applications.line_scoring import LineScorer
from chainrule.errors import MissingExtra, UsageError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.storage.temp_dir import ScratchFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("log_prob", "log_prob_with_spelling", "bits_per_byte")
_FOLDER: Final = "model"
_sent: dict[str, ScratchFolder] = {}
"""Archives of models that were sent to workers, by name; removed when the process ends."""


def score(model: Model | str | Path, frame: "DataFrame", column: str = "text") -> "DataFrame":
    """Add the columns `log_prob`, `log_prob_with_spelling` (nats) and `bits_per_byte` to a DataFrame.

    The values are those of `chainrule score` and `chainrule filter`; a text with line breaks is scored as the sum
    of its lines, and a null text has null values. Each worker loads the model once.

    Args:
        model: Folder of a model with line context that all workers can read, or a loaded model, which is sent to
            the workers.
        frame: A DataFrame.
        column: Name of the column of texts.

    """
    try:
        from pyspark.sql import types
    except ImportError:
        raise MissingExtra("Spark needs pyspark: pip install 'chainrule[spark]'") from None
    if column not in frame.columns:
        raise UsageError(f"the DataFrame has no column {column!r}; choose one of {', '.join(frame.columns)}")
    if not isinstance(frame.schema[column].dataType, types.StringType):
        raise UsageError(f"the column {column!r} contains {frame.schema[column].dataType.simpleString()}, not text")
    if existing := [name for name in COLUMNS if name in frame.columns]:
        raise UsageError(f"the DataFrame has a column {existing[0]!r} already; rename or drop it")
    loaded = model if isinstance(model, Model) else api.load(model, kind="language model", device="cpu")
    check_context([loaded])
    source = _send(model, frame.sparkSession) if isinstance(model, Model) else str(Path(model).absolute())
    added = [types.StructField(name, types.DoubleType()) for name in COLUMNS]
    schema = types.StructType([*frame.schema.fields, *added])
    return frame.mapInArrow(_ScoreBatches(source, column, is_sent=isinstance(model, Model)), schema)


def _send(model: Model, session: "SparkSession") -> str:
    """Send a model to the workers; return the name of its archive."""
    scratch = ScratchFolder()
    model.save(scratch.path / _FOLDER)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(scratch.path / _FOLDER, _FOLDER)
    name = f"chainrule-{hashlib.sha256(archive.getbuffer()).hexdigest()[:16]}.tar"
    (scratch.path / name).write_bytes(archive.getbuffer())
    _sent[name] = scratch
    session.sparkContext.addFile(str(scratch.path / name))
    return name


@lru_cache(maxsize=2)
def _load_in_worker(source: str, is_sent: bool) -> LineScorer:
    """Load a model once in each worker process, from a folder or an archive that was sent."""
    if not is_sent:
        return LineScorer(api.load(source, kind="language model", device="cpu"))
    from pyspark import SparkFiles

    scratch = ScratchFolder()
    _sent[source] = scratch  # the model maps its files
    with tarfile.open(SparkFiles.get(source)) as tar:
        tar.extractall(scratch.path, filter="data")
    return LineScorer(api.load(scratch.path / _FOLDER, kind="language model", device="cpu"))


@dataclass(frozen=True)
class _ScoreBatches:
    """Score the texts of Arrow batches."""

    source: str
    column: str
    is_sent: bool

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch with the columns of the scores."""
        import pyarrow

        scorer = _load_in_worker(self.source, self.is_sent)
        for batch in batches:
            texts = batch.column(batch.schema.get_field_index(self.column)).to_pylist()
            is_text = np.array([text is not None for text in texts], dtype=bool)
            columns = np.zeros((len(COLUMNS), len(texts)))
            columns[:, is_text] = _score([text for text in texts if text is not None], scorer)
            arrays = [*batch.columns, *(pyarrow.array(values, mask=~is_text) for values in columns)]
            yield pyarrow.RecordBatch.from_arrays(arrays, [*batch.schema.names, *COLUMNS])


def _score(texts: list[str], scorer: LineScorer) -> Floats:
    """(3, N) values of the columns."""
    scores = scorer.score(texts)
    log_probs = scores.log_probs_with_spelling
    sizes = scorer.count_bytes(texts, scores)
    return np.stack([scores.log_probs, log_probs, -log_probs / np.log(2) / sizes])
