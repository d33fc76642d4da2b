"""The folder of word vectors: settings, words, numbers, figures, card, sealed by a manifest.

Lives here: which files there are and what they mean. Not here: sealing and verifying a folder (folder.py), files of
other software (formats.py).
"""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors

from chainrule import config as settings
from chainrule import folder
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ConfigError, InputError, ModelFileError
from chainrule.folder import Sealed, as_json, read_json
from chainrule.manifest import JSON
from chainrule.versions import versions

CONFIG, METRICS, CARD = "config.json", "metrics.json", "README.md"  # as the folders of all models have them
WORDS: Final = "words.txt"  # one a line, in the order of the rows
NUMBERS: Final = "model.safetensors"
TYPES: Final = {"float32": "F32", "uint64": "U64"}  # what safetensors calls them
ROWS: Final = 1 << 10
"""Written at a time."""


def origin(text: str, sha256: str | None, command: str, seed: int | None) -> dict[str, JSON]:
    """What the manifest says of vectors that are being made here and now."""
    return {
        "kind": "vectors",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "seed": seed,
        "training_text": {"names": text, "sha256": sha256},
        "versions": versions(),
    }


def save(vectors: WordVectors, path: Path, *, force: bool = False) -> None:
    """Write the folder at `path`; another model or an unfinished run there is replaced only with `force`."""
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
    about = dict(vectors.about) or origin("unknown", None, "", None)
    files = {
        CONFIG: as_json(config),
        WORDS: "".join(f"{word}\n" for word in vectors.words).encode(),
        METRICS: as_json(vectors.metrics),
        CARD: _card(vectors, about).encode(),
    }

    def fill(temporary: Path) -> None:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        _write_tensors(temporary / NUMBERS, {name: array for name, array in arrays.items() if array is not None})

    with folder.hold(path):
        folder.write(path, fill, about, force=force)


def _write_tensors(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """A file of safetensors, some rows at a time: with the library all of it would be in memory twice more.

    The length of the header as 8 bytes; the header, filled up with blanks to a multiple of 8; the numbers, those of
    more bytes first, then by name.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        array = arrays[name]
        offsets = [end, end := end + array.nbytes]
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for first in range(0, len(arrays[name]), ROWS):
                rows = arrays[name][first : first + ROWS]
                out.write(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes())


def load(path: str | Path) -> WordVectors:
    """The vectors of a folder, every file verified first."""
    sealed = folder.read(Path(path))
    config = read_json(sealed, CONFIG)
    if config.get("task") != "vectors":
        what = config.get("task") or config.get("family") or "tokenizer"
        raise ModelFileError(
            f"{path} holds no word vectors, but a model of kind '{what}'; see chainrule info {path}"
        )
    try:
        return _load(sealed, config)
    except (ConfigError, ValueError, LookupError, TypeError, AttributeError, SafetensorError, InputError) as error:
        reason = str(error) if isinstance(error, ConfigError | InputError) else repr(error)
        raise ModelFileError(f"{path} does not hold vectors of this chainrule: {reason}") from error


def _load(sealed: Sealed, config: dict[str, Any]) -> WordVectors:
    arrays = dict(read_tensors(sealed.bytes(NUMBERS)))
    words = tuple(sealed.bytes(WORDS).decode().split("\n")[:-1])
    matrix, counts, buckets = arrays["matrix"], arrays.get("counts"), arrays.get("buckets")
    subwords = None if config["subwords"] is None else Subwords(*map(int, config["subwords"]))
    _check(words, matrix, counts, buckets)
    if (subwords is None) != (buckets is None) or (
        subwords is not None and buckets is not None and len(buckets) != subwords.buckets
    ):
        raise ConfigError("config and numbers disagree on the character n-grams")
    return WordVectors(
        words=words,
        matrix=matrix,
        counts=counts,
        subwords=subwords,
        buckets=buckets,
        lowercase=bool(config["lowercase"]),
        metrics=read_json(sealed, METRICS),
        config=None if config["model"] is None else settings.make(VectorConfig, config["model"], "vectors"),
        about=dict(sealed.facts),
    )


def _check(
    words: tuple[str, ...], matrix: NDArray[Any], counts: NDArray[Any] | None, buckets: NDArray[Any] | None
) -> None:
    """Refuse arrays that cannot belong together."""
    is_whole = matrix.ndim == 2 and len(matrix) == len(words) == len(set(words)) and matrix.dtype == np.float32
    if counts is not None:
        is_whole = is_whole and counts.shape == (len(words),) and counts.dtype == np.uint64
    if buckets is not None:
        is_whole = is_whole and buckets.ndim == 2 and buckets.dtype == np.float32
        is_whole = is_whole and buckets.shape[1] == matrix.shape[1] and bool(np.isfinite(buckets).all())
    if not is_whole or not np.isfinite(matrix).all():
        raise ConfigError(f"the numbers of {NUMBERS} do not fit the words of {WORDS}")


def _card(vectors: WordVectors, about: Mapping[str, Any]) -> str:
    """The README.md of the folder."""
    chosen = {} if vectors.config is None else settings.to_json(vectors.config)
    text = about["training_text"]
    tables = ["\n".join(f"| {key} | {value} |" for key, value in of.items()) for of in (chosen, vectors.metrics)]
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
