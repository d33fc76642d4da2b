"""Id shards: a text as token ids in files that can be memory-mapped (`chainrule encode`).

A folder of shards has a manifest with the SHA-256 of each file, the tokenizer, and `ids.shards`, a JSON document
with the numbers of tokens and lines, the data type and the files. A shard is an array of little-endian ids without
a header, `</s>` after each line; it ends with a line. The concatenation of the shards is the text.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from chainrule.data.encoded import EncodedText, MappedIds, id_blocks
from chainrule.errors import ModelFileError
from chainrule.lm import Ids, Vocabulary
from chainrule.storage import provenance, strict_json, verified_dir
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.text.readers import SHARD_INDEX

FORMAT_VERSION: Final = 1
KIND: Final = "id shards"
UNKNOWN_WORDS: Final = "unknown_words.json"
TOKENS_PER_SHARD: Final = 1 << 26
LARGEST_UINT16: Final = 1 << 16


def id_dtype(vocab_size: int) -> str:
    """Return the NumPy type of the ids: uint16 if all ids fit, otherwise uint32, little-endian."""
    return "<u2" if vocab_size <= LARGEST_UINT16 else "<u4"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextNumbers:
    """Counts of a text, as in `EncodedText`."""

    tokens: int = 0
    lines: int = 0
    words: int = 0
    characters: int = 0
    bytes: int = 0

    def __add__(self, other: "TextNumbers") -> "TextNumbers":
        return TextNumbers(
            tokens=self.tokens + other.tokens,
            lines=self.lines + other.lines,
            words=self.words + other.words,
            characters=self.characters + other.characters,
            bytes=self.bytes + other.bytes,
        )


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of ids."""

    file: str
    tokens: int
    lines: int
    sha256: str


class ShardWriter:
    """Writes ids to shards of at least `tokens` tokens, each but the last; a shard ends with a line."""

    def __init__(self, folder: Path, eos: int, tokens: int) -> None:
        self.shards: list[Shard] = []
        self._folder, self._eos, self._tokens = folder, eos, tokens
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._written = self._lines = 0

    def append(self, ids: NDArray[Any]) -> None:
        """Append ids in the type of the shards."""
        while len(ids):
            first = max(0, self._tokens - self._written - 1)
            ends = np.flatnonzero(ids[first:] == self._eos)
            cut = first + int(ends[0]) + 1 if len(ends) else len(ids)
            self._write(ids[:cut])
            if len(ends):
                self.close()
            ids = ids[cut:]

    def _write(self, ids: NDArray[Any]) -> None:
        if self._file is None:
            self._file = (self._folder / _shard_name(len(self.shards))).open("wb")
        data = ids.tobytes()
        self._file.write(data)
        self._digest.update(data)
        self._written += len(ids)
        self._lines += int(np.count_nonzero(ids == self._eos))

    def close(self) -> None:
        """Finish the current shard."""
        if self._file is None:
            return
        self._file.close()
        name = _shard_name(len(self.shards))
        self.shards.append(Shard(name, self._written, self._lines, self._digest.hexdigest()))
        self._file, self._digest = None, hashlib.sha256()
        self._written = self._lines = 0


def _shard_name(number: int) -> str:
    return f"ids-{number:05d}.bin"


@dataclass(frozen=True, slots=True)
class IdShards:
    """A folder of shards."""

    folder: VerifiedDir
    vocabulary: Vocabulary
    numbers: TextNumbers
    shards: tuple[Shard, ...]
    fingerprint: Fingerprint
    unknown_words: Mapping[str, int] = field(default_factory=dict)  # count of each spelling of the unknown word

    def map_shards(self) -> Iterator[NDArray[Any]]:
        """Yield the ids of each shard, memory-mapped; its SHA-256 and its largest id are verified first."""
        for shard in self.shards:
            path = self.folder.verified_path(shard.file)
            ids = np.memmap(path, id_dtype(self.vocabulary.size), "r")
            largest = max((int(block.max(initial=0)) for block in id_blocks(ids)), default=0)
            if largest >= self.vocabulary.size:
                raise ModelFileError(
                    f"{path} contains the id {largest}, but the vocabulary has {self.vocabulary.size} tokens; "
                    "encode the text again"
                )
            yield ids

    def read(self, ids_file: Path | None = None) -> EncodedText:
        """Read the whole text as int32 ids in memory, or in a memory-mapped file."""
        if ids_file is None:
            ids: Ids = np.concatenate([np.zeros(0, np.int32), *(ids.astype(np.int32) for ids in self.map_shards())])
        else:
            with ids_file.open("wb") as file:
                for shard in self.map_shards():
                    file.write(shard.astype(np.int32).tobytes())
            ids = np.memmap(ids_file, np.int32, "r") if self.numbers.tokens else np.zeros(0, np.int32)
        return self._encoded(ids)

    def map(self) -> EncodedText:
        """Return the whole text with the ids in the mapped files of the shards, for the training of networks."""
        return self._encoded(MappedIds(list(self.map_shards()) or [np.zeros(0, np.int32)]))

    def _encoded(self, ids: Any) -> EncodedText:
        return EncodedText(
            ids=ids,
            eos=self.vocabulary.eos,
            unk=self.vocabulary.unk,
            words=self.numbers.words,
            characters=self.numbers.characters,
            bytes=self.numbers.bytes,
            spellings=[word for word, count in self.unknown_words.items() for _ in range(count)],
        )


def serialize_index(
    vocabulary: Vocabulary, numbers: TextNumbers, shards: Sequence[Shard], text: Fingerprint
) -> bytes:
    """Return the content of `ids.shards`."""
    return strict_json.dump(
        {
            "format_version": FORMAT_VERSION,
            "dtype": np.dtype(id_dtype(vocabulary.size)).name,
            "byte_order": "little",
            "vocab_size": vocabulary.size,
            "bos": vocabulary.bos,
            "eos": vocabulary.eos,
            "unk": vocabulary.unk,
            **{name: getattr(numbers, name) for name in ("tokens", "lines", "words", "characters", "bytes")},
            "text_sha256": text.sha256,
            "shards": [
                {"file": shard.file, "tokens": shard.tokens, "lines": shard.lines, "sha256": shard.sha256}
                for shard in shards
            ],
        }
    )


def find_shards(corpus: Corpus) -> Path | None:
    """Return the folder of shards that a corpus was opened with; None if it is text."""
    folders = [file.path.parent for file in corpus.files if file.path.name == SHARD_INDEX]
    return folders[0] if len(folders) == len(corpus.files) == 1 else None


def open_shards(path: Path, vocabulary: Vocabulary) -> IdShards:
    """Open a folder of shards, whose tokenizer has this vocabulary; the files are verified when they are read."""
    folder = verified_dir.open_dir(path)
    index = verified_dir.read_json(folder, SHARD_INDEX)
    if index.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path / SHARD_INDEX} has format version {index.get('format_version')!r}, but this version of "
            f"chainrule reads {FORMAT_VERSION}; encode the text again"
        )
    with provenance.translate_config_errors(folder):
        numbers = TextNumbers(**{name: int(index[name]) for name in TextNumbers.__slots__})
        shards = tuple(Shard(**shard) for shard in index["shards"])
        unknown = verified_dir.read_json(folder, UNKNOWN_WORDS)
        size = np.dtype(id_dtype(vocabulary.size)).itemsize
        if [index[key] for key in ("vocab_size", "bos", "eos", "unk")] != [
            vocabulary.size,
            vocabulary.bos,
            vocabulary.eos,
            vocabulary.unk,
        ]:
            raise ValueError("the ids are not those of the tokenizer")
        if any(folder.files[shard.file].size != size * shard.tokens for shard in shards):
            raise ValueError("the sizes of the shards are not those of their tokens")
        if sum(shard.tokens for shard in shards) != numbers.tokens or sum(unknown.values()) > numbers.tokens:
            raise ValueError("the number of tokens is not that of the shards")
        return IdShards(folder, vocabulary, numbers, shards, _fingerprint(folder, numbers.lines), unknown)


def _fingerprint(folder: VerifiedDir, lines: int) -> Fingerprint:
    origin = provenance.read_origin(folder).fingerprint
    assert origin is not None, "shards without a fingerprint"
    return Fingerprint(origin.sha256, origin.sketch, lines)
