"""Save and load a folder of word vectors: config, words, tensors, metrics, model card and manifest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import config as settings
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.formats import is_binary, read_binary_vectors, read_vectors
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ConfigError, InputError, ModelFileError, printable
from chainrule.storage import provenance, tensors, verified_dir
from chainrule.storage.provenance import CONFIG, LONGEST_REASON, METRICS, Card, Origin
from chainrule.storage.tensors import TensorSpec
from chainrule.storage.verified_dir import PICKLES, Content, StreamedFile, VerifiedDir, read_json
from chainrule.text.readers import find_file

WORDS_FILE: Final = "words.txt"  # one word per line, in row order
TENSORS_FILE: Final = "model.safetensors"
SAFETENSORS_DTYPES: Final = {"float32": "F32", "uint64": "U64"}
LARGEST_VALUE: Final = 1e30
"""Largest allowed magnitude of a value; norms and sums of vectors must stay finite in float32."""
ROWS_PER_WRITE: Final = 1 << 10
"""Rows written at a time."""


def save(vectors: WordVectors, path: Path, *, force: bool = False) -> None:
    """Write the folder at `path`; an existing model or unfinished run is replaced only with `force`."""
    if wrong := [word for word in vectors.words if not word or "\n" in word]:
        raise InputError(f"{wrong[0]!r} is not a valid word; words must be non-empty and contain no line breaks")
    subwords, origin = vectors.subwords, vectors.origin
    config = {
        "task": "vectors",
        "model": None if vectors.config is None else settings.to_json(vectors.config),
        "lowercase": vectors.lowercase,
        "subwords": None if subwords is None else [subwords.shortest, subwords.longest, subwords.buckets],
    }
    named = {"matrix": vectors.matrix, "counts": vectors.counts, "buckets": vectors.buckets}
    arrays = {name: array for name, array in named.items() if array is not None}
    files: dict[str, Content] = {
        WORDS_FILE: "".join(f"{word}\n" for word in vectors.words).encode(),
        TENSORS_FILE: _tensor_file(arrays),
    }
    card = Card(
        title=f"Word vectors ({vectors.method})",
        facts=[f"{len(vectors):,} words, {vectors.dimensions:,} dimensions"],
        usage=["vectors neighbors THIS_FOLDER WORD"],
    )
    if not origin.created:
        origin = Origin.now(text="unknown", command=origin.command)
    provenance.save(
        path, "vectors", files, config=config, metrics=vectors.metrics, origin=origin, card=card, force=force
    )


def _tensor_file(arrays: Mapping[str, NDArray[Any]]) -> StreamedFile:
    """Return a safetensors file written some rows at a time; the library would need two more copies in memory.

    The format: header length (8 bytes), JSON header padded with blanks to a multiple of 8, then the tensors,
    ordered by item size (largest first) and name.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        array = arrays[name]
        offsets = [end, end := end + array.nbytes]
        header[name] = {
            "dtype": SAFETENSORS_DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Path) -> None:
        with file.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                for first in range(0, len(arrays[name]), ROWS_PER_WRITE):
                    rows = arrays[name][first : first + ROWS_PER_WRITE]
                    out.write(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes())

    return StreamedFile(8 + len(text) + end, write)


def load(folder: VerifiedDir, device: str = "cpu") -> WordVectors:
    """Load the vectors of an open folder; `device` is ignored, vectors stay in main memory."""
    config = read_json(folder, CONFIG)
    if config.get("task") != "vectors":
        what = config.get("task") or config.get("family") or "tokenizer"
        raise ModelFileError(
            f"{folder.path} does not contain word vectors but a model of kind '{what}'; "
            f"see chainrule info {folder.path}"
        )
    try:
        return _load(folder, config)
    except (ConfigError, ValueError, LookupError, TypeError, AttributeError, InputError) as error:
        reason = str(error) if isinstance(error, ConfigError | InputError) else repr(error)
        reason = printable(reason)[:LONGEST_REASON]  # may quote file content
        raise ModelFileError(
            f"{folder.path} does not contain vectors of this version of chainrule: {reason}"
        ) from error


def _load(folder: VerifiedDir, config: dict[str, Any]) -> WordVectors:
    arrays = tensors.unpack(folder.bytes(TENSORS_FILE), folder.path / TENSORS_FILE)
    words = tuple(folder.bytes(WORDS_FILE).decode().split("\n")[:-1])
    if not words or len(set(words)) < len(words) or not all(words):
        raise ConfigError(f"{WORDS_FILE} must contain distinct words, one per line")
    subwords = _subwords(config["subwords"])
    if type(config["lowercase"]) is not bool:
        raise ConfigError(f"lowercase is {config['lowercase']!r}; it must be true or false")
    _check(words, arrays, subwords, folder.path / TENSORS_FILE)
    matrix, counts, buckets = arrays["matrix"], arrays.get("counts"), arrays.get("buckets")
    return WordVectors(
        words=words,
        matrix=matrix,
        counts=counts,
        subwords=subwords,
        buckets=buckets,
        lowercase=config["lowercase"],
        metrics=read_json(folder, METRICS),
        config=None if config["model"] is None else _config(config["model"]),
        origin=provenance.read_origin(folder),
    )


def _config(saved: dict[str, Any]) -> VectorConfig:
    """Return the saved config; folders saved before punctuation was split have no `tokenizer` key."""
    return settings.build_config(VectorConfig, {"tokenizer": "whitespace", **saved}, "vectors", is_saved=True)


def _subwords(values: Any) -> Subwords | None:
    """Parse the character n-gram settings of config.json."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != 3 or {type(value) for value in values} != {int}:
        raise ConfigError(f"subwords is {values!r:.60}; it must be null or three whole numbers")
    return Subwords(*values)


def _check(
    words: tuple[str, ...], arrays: Mapping[str, NDArray[Any]], subwords: Subwords | None, source: Path
) -> None:
    """Raise if the arrays do not have the expected shapes, or contain values whose squares overflow."""
    matrix = arrays.get("matrix", np.zeros((0, 0)))
    D = matrix.shape[1] if matrix.ndim == 2 else None
    specs = {"matrix": TensorSpec("float32", (len(words), D))}
    if subwords is not None:
        specs["buckets"] = TensorSpec("float32", (subwords.buckets, D))
    tensors.check_specs(arrays, specs, source, {"counts": TensorSpec("uint64", (len(words),))})
    for name, values in arrays.items():
        tensors.check_finite(values, f"{source}: {name}", LARGEST_VALUE)


def read(path: str | Path) -> WordVectors:
    """Read word vectors from a chainrule folder or from a file in word2vec text, word2vec binary or GloVe format.

    Files may be compressed (gzip, bzip2, xz, zstd). If a word is repeated, its first vector is used.
    """
    if Path(path).is_dir():
        folder = verified_dir.open_dir(Path(path))
        vectors = load(folder)
        folder.verify_rest()
        return vectors
    if Path(path).suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, but chainrule never unpickles: export it as word2vec")
    file = find_file(path, "give one file of vectors")
    loaded = read_binary_vectors(file) if is_binary(file) else read_vectors(file)
    origin = Origin.now(text=f"imported from {Path(file.name).name}", command="")
    return WordVectors(loaded.words, loaded.matrix, origin=origin)
