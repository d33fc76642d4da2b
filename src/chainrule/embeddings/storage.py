"""Save and load a folder of word vectors: config, words, tensors, metrics, model card and manifest."""

import datetime
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
from chainrule.errors import ConfigError, InputError, ModelFileError, UsageError, printable
from chainrule.storage import tensors, verified_dir
from chainrule.storage.manifest import JSON
from chainrule.storage.tensors import TensorSpec
from chainrule.storage.verified_dir import PICKLES, VerifiedDir, dump_json, read_json
from chainrule.system import versions
from chainrule.text.readers import find_files

CONFIG, METRICS, CARD = "config.json", "metrics.json", "README.md"  # same names as in all model folders
WORDS_FILE: Final = "words.txt"  # one word per line, in row order
TENSORS_FILE: Final = "model.safetensors"
SAFETENSORS_DTYPES: Final = {"float32": "F32", "uint64": "U64"}
LARGEST_VALUE: Final = 1e30
"""Largest allowed magnitude of a value; norms and sums of vectors must stay finite in float32."""
ROWS_PER_WRITE: Final = 1 << 10
"""Rows written at a time."""


def make_provenance(text: str, sha256: str | None, command: str, seed: int | None) -> dict[str, JSON]:
    """Return the provenance for the manifest of vectors created now."""
    return {
        "kind": "vectors",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "seed": seed,
        "training_text": {"names": text, "sha256": sha256},
        "versions": versions(),
    }


def save(vectors: WordVectors, path: Path, *, force: bool = False) -> None:
    """Write the folder at `path`; an existing model or unfinished run is replaced only with `force`."""
    if wrong := [word for word in vectors.words if not word or "\n" in word]:
        raise InputError(f"{wrong[0]!r} is no word; words have a letter or more and no line breaks")
    subwords = vectors.subwords
    config = {
        "task": "vectors",
        "model": None if vectors.config is None else settings.to_json(vectors.config),
        "lowercase": vectors.lowercase,
        "subwords": None if subwords is None else [subwords.shortest, subwords.longest, subwords.buckets],
    }
    arrays = {"matrix": vectors.matrix, "counts": vectors.counts, "buckets": vectors.buckets}
    about = dict(vectors.about) or make_provenance("unknown", None, "", None)
    files = {
        CONFIG: dump_json(config),
        WORDS_FILE: "".join(f"{word}\n" for word in vectors.words).encode(),
        METRICS: dump_json(vectors.metrics),
        CARD: _card(vectors, about).encode(),
    }

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        _write_tensors(
            temporary / TENSORS_FILE, {name: array for name, array in arrays.items() if array is not None}
        )

    with verified_dir.lock(path):
        verified_dir.write(path, fill, about, force=force)


def _write_tensors(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a safetensors file some rows at a time; the library would need two more copies in memory.

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
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for first in range(0, len(arrays[name]), ROWS_PER_WRITE):
                rows = arrays[name][first : first + ROWS_PER_WRITE]
                out.write(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes())


def load(path: str | Path) -> WordVectors:
    """Load the vectors of a folder after verifying every file."""
    sealed = verified_dir.read(Path(path))
    config = read_json(sealed, CONFIG)
    if config.get("task") != "vectors":
        what = config.get("task") or config.get("family") or "tokenizer"
        raise ModelFileError(
            f"{path} does not contain word vectors but a model of kind '{what}'; see chainrule info {path}"
        )
    try:
        return _load(sealed, config)
    except (ConfigError, ValueError, LookupError, TypeError, AttributeError, InputError) as error:
        reason = str(error) if isinstance(error, ConfigError | InputError) else repr(error)
        reason = printable(reason)[:400]  # may quote file content
        raise ModelFileError(f"{path} does not hold vectors of this chainrule: {reason}") from error


def _load(sealed: VerifiedDir, config: dict[str, Any]) -> WordVectors:
    arrays = tensors.unpack(sealed.bytes(TENSORS_FILE), sealed.path / TENSORS_FILE)
    words = tuple(sealed.bytes(WORDS_FILE).decode().split("\n")[:-1])
    if not words or len(set(words)) < len(words) or not all(words):
        raise ConfigError(f"{WORDS_FILE} does not hold words, each once, one a line")
    subwords = _subwords(config["subwords"])
    if type(config["lowercase"]) is not bool:
        raise ConfigError(f"lowercase is {config['lowercase']!r}; it must be true or false")
    _check(words, arrays, subwords, sealed.path / TENSORS_FILE)
    matrix, counts, buckets = arrays["matrix"], arrays.get("counts"), arrays.get("buckets")
    return WordVectors(
        words=words,
        matrix=matrix,
        counts=counts,
        subwords=subwords,
        buckets=buckets,
        lowercase=config["lowercase"],
        metrics=read_json(sealed, METRICS),
        config=None if config["model"] is None else _config(config["model"]),
        about=dict(sealed.facts),
    )


def _config(saved: dict[str, Any]) -> VectorConfig:
    """Return the saved config; folders of versions that did not split punctuation have no `tokenizer` key."""
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
    """Raise if the arrays do not have the expected shapes, or hold values whose squares overflow."""
    matrix = arrays.get("matrix", np.zeros((0, 0)))
    D = matrix.shape[1] if matrix.ndim == 2 else None
    specs = {"matrix": TensorSpec("float32", (len(words), D))}
    if subwords is not None:
        specs["buckets"] = TensorSpec("float32", (subwords.buckets, D))
    tensors.check_specs(arrays, specs, source, {"counts": TensorSpec("uint64", (len(words),))})
    for name, values in arrays.items():
        tensors.check_finite(values, f"{source}: {name}", LARGEST_VALUE)


def _card(vectors: WordVectors, about: Mapping[str, Any]) -> str:
    """Return the model card, README.md."""
    config = {} if vectors.config is None else settings.to_json(vectors.config)
    text = about["training_text"]
    tables = ["\n".join(f"| {key} | {value} |" for key, value in t.items()) for t in (config, vectors.metrics)]
    return f"""# Word vectors ({vectors.method})

Made by chainrule {about["versions"].get("chainrule", "")} on {about["created"]}, with

    {about["command"]}

- Training text: {text["names"]}, sha256 {text["sha256"] or "unknown"}
- {len(vectors):,} words, {vectors.dimensions:,} dimensions

| setting | value |
|---|---|
{tables[0] or "| none | |"}

| figure | value |
|---|---|
{tables[1] or "| none | |"}

Use it:

    chainrule vectors neighbors THIS_FOLDER WORD
"""


def read(path: str | Path) -> WordVectors:
    """Read word vectors from a chainrule folder or from a file in word2vec text, word2vec binary or GloVe format.

    Files may be compressed (gzip, bzip2, xz, zstd). If a word is repeated, its first vector is used.
    """
    if Path(path).is_dir():
        return load(path)
    if Path(path).suffix.lower() in PICKLES:
        raise ModelFileError(f"{path} looks like a pickle, and chainrule never unpickles: export it as word2vec")
    files = find_files(path)
    if len(files) != 1:
        raise UsageError(f"{path} names {len(files)} files; vectors are read from one, so name that one")
    loaded = read_binary_vectors(files[0]) if is_binary(files[0]) else read_vectors(files[0])
    about = make_provenance(f"imported from {Path(files[0].name).name}", None, "", None)
    return WordVectors(loaded.words, loaded.matrix, about=about)
