"""Save and load a folder of word vectors: config, words, tensors, metrics, model card and manifest."""

import codecs
import datetime
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule import config as settings
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.text_format import read_vectors
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError, printable
from chainrule.lm import Floats
from chainrule.storage import tensors, verified_dir
from chainrule.storage.manifest import JSON
from chainrule.storage.tensors import TensorSpec
from chainrule.storage.verified_dir import PICKLES, VerifiedDir, dump_json, read_json
from chainrule.system import versions
from chainrule.text.readers import TextFile, find_files, read_blocks

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


MAX_WORD_BYTES: Final = 1 << 16  # bytes
MAX_DIMENSIONS: Final = 1 << 18  # as many numbers as a line of text may hold

_HEADER: Final = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ?\r?\n")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class _Entry(NamedTuple):
    word: bytes
    values: bytes  # W float32, little-endian
    offset: int  # byte offset in the file


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
    words, matrix = _read_binary(files[0]) if is_binary(files[0]) else _read_text(files[0])
    about = make_provenance(f"imported from {Path(files[0].name).name}", None, "", None)
    return WordVectors(words, matrix, about=about)


def is_binary(file: TextFile) -> bool:
    """Return whether a header `COUNT WIDTH` and a first word are followed by binary data."""
    head = next(read_blocks(file), b"")
    header = _HEADER.match(head)
    if header is None:
        return False
    _, _, rest = head[header.end() :].partition(b" ")
    payload = rest[: 4 * int(header[2])]  # the first vector, if the format is binary
    if _CONTROL.search(payload) or not _is_utf8(payload):
        return True
    return file.name.lower().endswith(".bin") and not _is_number(rest.split(maxsplit=1)[:1])


def _is_utf8(content: bytes) -> bool:
    try:
        codecs.utf_8_decode(content, "strict", False)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _is_number(fields: list[bytes]) -> bool:
    try:
        return bool(fields) and math.isfinite(float(fields[0]))
    except ValueError:
        return False


def _read_text(file: TextFile) -> tuple[tuple[str, ...], Floats]:
    vectors = read_vectors(file)
    return vectors.words, vectors.matrix


def _read_binary(file: TextFile) -> tuple[tuple[str, ...], Floats]:
    rows: dict[str, int] = {}
    numbers = bytearray()
    repeated = 0
    for number, entry in enumerate(_entries(file), start=1):
        try:
            word = entry.word.decode()
        except UnicodeDecodeError as error:
            what = f"{_quote_bytes(entry.word)} is not UTF-8 ({error.reason}); is this word2vec's binary format?"
            raise _error(file, number, entry.offset, what) from None
        if not word or any(blank in word for blank in "\n\0"):
            what = f"{_quote_bytes(entry.word)} is not a word; is this word2vec's binary format?"
            raise _error(file, number, entry.offset, what)
        if word in rows:
            repeated += 1
            continue
        rows[word] = len(rows)
        numbers += entry.values
    matrix = np.frombuffer(numbers, dtype="<f4").reshape(len(rows), -1).astype(np.float32, copy=False)
    is_finite = np.isfinite(matrix).all(axis=1)
    if not is_finite.all():
        raise InputError(f"{file.name}: the vector of {list(rows)[int(is_finite.argmin())]!r} is not finite")
    if repeated:
        message = f"{file.name}: {repeated} words are repeated; the first vector of each was kept"
        warnings.warn(message, ChainruleWarning, stacklevel=4)
    return tuple(rows), matrix


def _entries(file: TextFile) -> Iterator[_Entry]:
    """Yield the entries of a binary file, as many as its header says."""
    blocks = read_blocks(file)
    buffer = next(blocks, b"")
    header = _HEADER.match(buffer)
    assert header is not None, "checked by is_binary"
    count, width = int(header[1]), int(header[2])
    if not count or not 1 <= width <= MAX_DIMENSIONS:
        limits = f"chainrule reads 1 to {MAX_DIMENSIONS} numbers a word"
        what = f"the header says {count} words of {width} numbers; {limits}"
        raise InputError(f"{file.name}, line 1: {what}")
    base, at = 0, header.end()  # base: file offset of `buffer`; at: start of the next entry in `buffer`
    for number in range(1, count + 1):
        # An entry is a word, a blank and 4·W bytes, with an optional line break before the next word.
        while (end := _end(buffer, at, width)) is None:
            block = next(blocks, None)
            if block is None:
                what = f"the file ends here, and its header counts {count} words of {width} numbers; fetch it again"
                raise _error(file, number, base + at, what)
            if len(buffer) - at > MAX_WORD_BYTES + 4 * width and b" " not in buffer[at : at + MAX_WORD_BYTES]:
                what = f"no word ends within {MAX_WORD_BYTES} bytes; is this word2vec's binary format?"
                raise _error(file, number, base + at, what)
            base, buffer, at = base + at, buffer[at:] + block, 0
        blank = buffer.index(b" ", at)
        yield _Entry(buffer[at:blank].lstrip(b"\n"), buffer[blank + 1 : end], base + at)
        at = end
    if buffer[at:].strip(b"\n") or next(blocks, b""):
        raise _error(file, count + 1, base + at, f"the header counts {count} words, but more data follows")


def _end(buffer: bytes, at: int, width: int) -> int | None:
    """Return the end of the entry that starts at `at`, or None if it is incomplete."""
    blank = buffer.find(b" ", at)
    end = blank + 1 + 4 * width
    return None if blank < 0 or end > len(buffer) else end


def _error(file: TextFile, number: int, offset: int, what: str) -> InputError:
    return InputError(f"{file.name}, word {number} (byte {offset}): {what}")


def _quote_bytes(content: bytes) -> str:
    text = content.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
