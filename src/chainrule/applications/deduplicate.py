r"""Remove duplicate lines or documents from a corpus (`chainrule dedup`).

Documents are compared as their words after Unicode case folding; white space is not compared. Exact duplicates
have the same 128-bit hash. Near duplicates have a Jaccard similarity of their five-word shingles of at least a
threshold: candidates agree in a band of their MinHash signatures (Broder 1997; 16 bands of 8 of 128 hashes), each
pair is verified, and clusters are the connected components of the verified pairs (cpp/text/duplicates.hpp). The
first document of a cluster in the order of the text is kept. The result is the same on every engine.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Record, Records
from chainrule.distributed.start import start_engine
from chainrule.errors import InputError, UsageError
from chainrule.lm import Ids
from chainrule.progress import Progress, silent
from chainrule.storage.atomic import atomic_file
from chainrule.text.corpus import Corpus, CorpusReader
from chainrule.text.lines import end_lines
from chainrule.text.partitions import BLOCK_CHARACTERS, TextPartition, partition_corpus
from chainrule.text.readers import Document, Sources, TextFile, file_format, warn_about_replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unit = Literal["line", "document"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
LEAST_SIMILARITY: Final = 0.5
"""Smallest threshold: of pairs with this similarity, about 6 % agree in a band."""
MOST_BUCKETS: Final = 4096
ROWS_AT_ONCE: Final = 1 << 21
"""Rows of a table that a task divides into records of the shuffle at once."""
INDEX_BITS: Final = 40
"""Bits of the number of a document in its partition, below those of the partition."""
EXACT, NEAR = 0, 1
_PLACED_HASH: Final = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<i8")])
_PLACED_BAND: Final = np.dtype([("band", "<u8"), ("place", "<i8")])
_COUNTS: Final = struct.Struct("<4q")
_PLACE: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Numbers of lines or documents; blank ones are kept and counted among the kept ones."""

    total: int = 0
    kept: int = 0
    exact: int = 0  # exact duplicates that were removed
    near: int = 0  # near duplicates that were removed

    def __add__(self, other: "Deduplication") -> "Deduplication":
        return Deduplication(
            self.total + other.total, self.kept + other.kept, self.exact + other.exact, self.near + other.near
        )


def deduplicate(
    text: Sources | Corpus,
    out: str | Path,
    *,
    by: str = "line",
    near: float | None = None,
    options: EngineOptions | None = None,
    progress: Progress | bool = silent,
    session: "SparkSession | None" = None,
) -> Deduplication:
    """Write the lines or documents of a corpus to a file without duplicates, in the order of the text.

    Args:
        text: Files, folders or a corpus.
        out: Output file: JSON Lines with the field `text` if its name ends with `.jsonl` or `.ndjson`, otherwise
            plain text with a blank line between documents.
        by: `line`, or `document`: a record of JSON Lines, Parquet or a table, or a paragraph of plain text, i.e.
            consecutive lines that are not blank.
        near: Jaccard similarity from which documents are near duplicates; None removes exact duplicates only.
        options: Engine on which the job runs; in this process by default.
        progress: Receives the stage, the number of its tasks that are done, and the number of all.
        session: A running Spark session, with `on="spark"` in the options.

    """
    out, corpus = Path(out), Corpus.of(text)
    unit = _check(corpus, out, by, near)
    settings = {"job": "dedup", "by": by, "near": near, "json": _is_json(out)}
    engine_options = options or EngineOptions()
    with (
        atomic_file(out) as file,
        start_engine(engine_options, corpus, settings, progress, session=session) as engine,
    ):
        documents = DocumentRecords.of(corpus, unit, engine.work.partition_bytes)
        stages = [_find_exact_duplicates(engine, documents)]
        if near is not None:
            stages.append(_find_near_duplicates(engine, documents, stages[0], near))
        remaining = engine.run("kept", [*stages, documents], _KeepDocuments(unit, _is_json(out)))
        return _write(engine.iterate(remaining), file, b"\n" if unit == "document" and not _is_json(out) else b"")


def _check(corpus: Corpus, out: Path, by: str, near: float | None) -> Unit:
    if by not in UNITS:
        raise UsageError(f"by is '{by}'; choose one of {', '.join(UNITS)}")
    if near is not None and not LEAST_SIMILARITY <= near <= 1:
        raise UsageError(
            f"near is {near:g}; choose a similarity from {LEAST_SIMILARITY:g} to 1, such as 0.8: less similar "
            "documents are rarely detected"
        )
    if by == "document" and corpus.drop_blank_lines:
        raise UsageError("blank lines separate the documents of plain text; leave out --drop-blank-lines")
    if by == "document" and not _is_json(out) and any(_has_records(file, corpus.column) for file in corpus.files):
        raise UsageError(
            f"the text has records, which may contain blank lines, and {out.name} would be plain text; "
            "choose an --out that ends with .jsonl"
        )
    return "line" if by == "line" else "document"


def _is_json(out: Path) -> bool:
    return out.suffix.lower() in (".jsonl", ".ndjson")


def _write(records: Iterator[Record], file: BinaryIO, separator: bytes) -> Deduplication:
    """Write the kept documents and return their numbers."""
    numbers = Deduplication()
    is_first = True
    for key, payload in records:
        if key < 0:
            numbers += Deduplication(*_COUNTS.unpack(payload))
            continue
        if not is_first:
            file.write(separator)
        file.write(payload)
        is_first = False
    return numbers


@dataclass(frozen=True, slots=True)
class DocumentBlock:
    """Consecutive documents, each ending with LF."""

    data: bytes
    ends: Ids  # (N,) end of each document in the data

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def begins(self) -> Ids:
        """(N,) begin of each document in the data."""
        return np.concatenate([[0], self.ends])[:-1].astype(np.int64)

    @classmethod
    def of_lines(cls, data: bytes) -> "DocumentBlock":
        """Create a block of lines."""
        return cls(data, np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1)

    @classmethod
    def of_documents(cls, documents: Sequence[bytes]) -> "DocumentBlock":
        """Create a block of documents."""
        return cls(b"".join(documents), np.cumsum([len(document) for document in documents], dtype=np.int64))

    def documents(self, numbers: Iterable[int] | None = None) -> list[bytes]:
        """Return the documents, or those with these numbers."""
        bounds = list(zip(self.begins.tolist(), self.ends.tolist(), strict=True))
        return [self.data[slice(*bounds[n])] for n in (range(len(self)) if numbers is None else numbers)]

    def fold_case(self, unit: Unit) -> "DocumentBlock":
        """Return the documents after Unicode case folding."""
        if self.data.isascii():
            return DocumentBlock(self.data.lower(), self.ends)
        if unit == "line":
            return DocumentBlock.of_lines(self.data.decode().casefold().encode())
        return DocumentBlock.of_documents([text.decode().casefold().encode() for text in self.documents()])

    def to_bytes(self) -> bytes:
        """Serialize the number of documents, their ends and the data."""
        return _PLACE.pack(len(self)) + self.ends.astype("<i8").tobytes() + self.data

    @classmethod
    def from_bytes(cls, payload: bytes) -> "DocumentBlock":
        """Parse the output of `to_bytes`."""
        (count,) = _PLACE.unpack_from(payload)
        begin = _PLACE.size * (1 + count)
        return cls(payload[begin:], np.frombuffer(payload, "<i8", count, _PLACE.size).astype(np.int64))


@dataclass(frozen=True, slots=True)
class DocumentRecords:
    """Lines or documents of a corpus in blocks; the key is −1 − the number of documents before in the partition."""

    texts: tuple[TextPartition, ...]
    unit: Unit

    @classmethod
    def of(cls, corpus: Corpus, unit: Unit, partition_bytes: int) -> "DocumentRecords":
        """Divide a corpus into partitions of whole documents."""
        texts = partition_corpus(corpus, partition_bytes)
        return cls(tuple(texts if unit == "line" else _align_to_paragraphs(texts)), unit)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, partition: int, /) -> Iterable[Record]:
        return _DocumentPartition(self.texts[partition], self.unit)


@dataclass(frozen=True, slots=True)
class _DocumentPartition:
    text: TextPartition
    unit: Unit

    def __iter__(self) -> Iterator[Record]:
        if self.unit == "line":
            return ((-1 - lines, block) for lines, block in self.text.blocks())
        return self._document_blocks()

    def _document_blocks(self) -> Iterator[Record]:
        corpus = self.text.corpus
        reader = CorpusReader(corpus, _join_chunks if _is_record_corpus(corpus) else _split_paragraphs)
        documents: list[bytes] = []
        before = size = 0
        for document in reader:
            documents.append(document.encode())
            size += len(document)
            if size >= BLOCK_CHARACTERS:
                yield -1 - before, DocumentBlock.of_documents(documents).to_bytes()
                before, size, documents = before + len(documents), 0, []
        if documents:
            yield -1 - before, DocumentBlock.of_documents(documents).to_bytes()
        warn_about_replaced(corpus.name, reader.replaced)


def _is_record_corpus(corpus: Corpus) -> bool:
    """Whether each text of a partition is a document: those in memory and those of a file of records."""
    return all(_has_records(file, corpus.column) for file in corpus.files)


def _has_records(file: TextFile, column: str | None) -> bool:
    kind = file_format(file)
    return kind in ("json", "parquet") or (kind == "table" and column is not None)


def _join_chunks(documents: Iterable[Document]) -> Iterator[str]:
    return ("".join(end_lines(document)) for document in documents)


def _split_paragraphs(documents: Iterable[Document]) -> Iterator[str]:
    """Yield the runs of lines that are not blank; each line ends with LF."""
    for document in documents:
        paragraph: list[str] = []
        rest = ""
        for chunk in end_lines(document):
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                if line.strip(" \t"):
                    paragraph.append(f"{line}\n")
                elif paragraph:
                    yield "".join(paragraph)
                    paragraph = []
        if paragraph:
            yield "".join(paragraph)


def _align_to_paragraphs(texts: Sequence[TextPartition]) -> list[TextPartition]:
    """Move the ends of byte ranges to the next blank line, so that no paragraph is divided."""
    aligned: list[TextPartition] = []
    end = 0  # of the previous range of the same file
    for text in texts:
        files = text.corpus.files
        byte_range = files[0].byte_range if files else None
        if byte_range is None:
            aligned.append(text)
            continue
        begin = 0 if byte_range[0] == 0 else end
        end = max(begin, _next_paragraph(files[0], byte_range[1]))
        file = replace(files[0], byte_range=(begin, end), size=end - begin)
        aligned.append(TextPartition(replace(text.corpus, files=(file,))))
    return aligned


def _next_paragraph(file: TextFile, position: int) -> int:
    """Return the position after the first blank line from `position`, the begin of a line; else the file's size."""
    try:
        with file.path.open("rb") as raw:
            raw.seek(position)
            for line in raw:
                position += len(line)
                if not line.strip(b" \t\r\n"):
                    break
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error
    return position


def _find_exact_duplicates(engine: Engine, documents: DocumentRecords) -> Records:
    """Return the numbers of the documents, by partition, whose hash an earlier document has."""
    buckets = max(1, min(len(documents), MOST_BUCKETS))
    hashes = engine.run("hashes", documents, _HashDocuments(documents.unit, buckets), partitions=buckets)
    return engine.run("duplicates", hashes, _drop_repeated_hashes, partitions=len(documents))


def _find_near_duplicates(engine: Engine, documents: DocumentRecords, exact: Records, threshold: float) -> Records:
    """Return the numbers of the documents, by partition, that are not the first of their cluster."""
    unit, buckets = documents.unit, max(1, min(len(documents), MOST_BUCKETS))
    bands = engine.run("bands", [exact, documents], _HashBands(unit, buckets), partitions=buckets)
    pairs = engine.run("candidates", bands, _pair_candidates)
    candidates = engine.share_file("candidates", _group_candidates(engine.iterate(pairs)))
    send = _SendCandidates(unit, candidates, buckets)
    texts = engine.run("candidate-texts", [exact, documents], send, partitions=buckets)
    return engine.run("near-duplicates", texts, _VerifyCandidates(threshold), partitions=len(documents))


def _place(partition: int, numbers: Ids) -> Ids:
    """Return places in the text: ascending in the order of the text."""
    return np.asarray(numbers + (partition << INDEX_BITS), np.int64)


def _by_bucket(parts: Iterable[NDArray[Any]], field: str, buckets: int) -> Iterator[Record]:
    """Yield the rows of each bucket, the remainder of a field, as bytes; many rows at once."""
    pending: list[NDArray[Any]] = []
    for part in parts:
        pending.append(part)
        if sum(map(len, pending)) >= ROWS_AT_ONCE:
            yield from _divide(np.concatenate(pending), field, buckets)
            pending = []
    if pending:
        yield from _divide(np.concatenate(pending), field, buckets)


def _divide(rows: NDArray[Any], field: str, buckets: int) -> Iterator[Record]:
    if not len(rows):
        return
    keys = rows[field] % np.uint64(buckets)
    order = np.argsort(keys, kind="stable")
    chosen, begins = np.unique(keys[order], return_index=True)
    for bucket, part in zip(chosen.tolist(), np.split(rows[order], begins[1:]), strict=True):
        yield int(bucket), part.tobytes()


def _dropped(kind: int, places: Ids) -> Iterator[Record]:
    """Yield the numbers of dropped documents by partition, after the kind of duplicate."""
    if not len(places):
        return
    places = np.sort(places)
    partitions, begins = np.unique(places >> INDEX_BITS, return_index=True)
    for partition, part in zip(partitions.tolist(), np.split(places, begins[1:]), strict=True):
        numbers = part & ((1 << INDEX_BITS) - 1)
        yield int(partition), np.concatenate([[kind], numbers]).astype("<i8").tobytes()


class _Remaining:
    """Documents of a partition with the numbers of those that earlier stages dropped.

    The records of the earlier stages come first; their keys are not negative.
    """

    def __init__(self, records: Iterator[Record], unit: Unit) -> None:
        self.dropped: dict[int, list[Ids]] = {EXACT: [], NEAR: []}
        self._records, self._unit = records, unit

    def __iter__(self) -> Iterator[tuple[int, DocumentBlock, NDArray[np.bool_]]]:
        """Yield the number of documents before each block, the block, and the mask of those that remain."""
        numbers: Ids | None = None
        for key, payload in self._records:
            if key >= 0:
                kind, *_ = dropped = np.frombuffer(payload, "<i8")
                self.dropped[int(kind)].append(dropped[1:])
                continue
            if numbers is None:
                numbers = np.sort(
                    np.concatenate([np.zeros(0, np.int64), *self.dropped[EXACT], *self.dropped[NEAR]])
                )
            before = -1 - key
            block = _parse_block(payload, self._unit)
            remains = np.ones(len(block), dtype=bool)
            first, last = np.searchsorted(numbers, [before, before + len(block)])
            remains[numbers[first:last] - before] = False
            yield before, block, remains


def _parse_block(payload: bytes, unit: Unit) -> DocumentBlock:
    return DocumentBlock.of_lines(payload) if unit == "line" else DocumentBlock.from_bytes(payload)


@dataclass(frozen=True)
class _HashDocuments:
    unit: Unit
    buckets: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the hash and the place of each document that is not blank, by hash."""
        return _by_bucket(self._rows(partition, records), "high", self.buckets)

    def _rows(self, partition: int, records: Iterator[Record]) -> Iterator[NDArray[Any]]:
        extension = system.load_extension()
        blank = extension.hash_documents(b"", np.zeros(1, np.int64))[0]
        for key, payload in records:
            block = _parse_block(payload, self.unit).fold_case(self.unit)
            hashes = extension.hash_documents(block.data, block.ends)
            rows = np.zeros(len(block), _PLACED_HASH)
            rows["high"], rows["low"] = hashes[:, 0], hashes[:, 1]
            rows["place"] = _place(partition, np.arange(len(block)) - 1 - key)
            yield rows[(hashes != blank).any(axis=1)]


def _drop_repeated_hashes(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    """Yield the places of documents whose hash an earlier document has."""
    parts = [np.frombuffer(payload, _PLACED_HASH) for _, payload in records]
    rows = np.concatenate([np.zeros(0, _PLACED_HASH), *parts])
    rows = rows[np.lexsort((rows["place"], rows["low"], rows["high"]))]
    is_repeated = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    yield from _dropped(EXACT, rows["place"][1:][is_repeated])


@dataclass(frozen=True)
class _HashBands:
    unit: Unit
    buckets: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the hash of each band and the place of each remaining document, by hash."""
        return _by_bucket(self._rows(partition, records), "band", self.buckets)

    def _rows(self, partition: int, records: Iterator[Record]) -> Iterator[NDArray[Any]]:
        extension = system.load_extension()
        for before, block, remains in _Remaining(records, self.unit):
            folded = block.fold_case(self.unit)
            numbers = np.flatnonzero(remains)
            texts = DocumentBlock.of_documents(folded.documents(numbers.tolist()))
            is_filled = np.array([bool(text.strip()) for text in texts.documents()], dtype=bool)
            bands = extension.band_hashes(texts.data, texts.ends)[is_filled]
            rows = np.zeros(bands.shape, _PLACED_BAND)
            rows["band"] = bands
            rows["place"] = _place(partition, before + numbers[is_filled])[:, None]
            yield rows.reshape(-1)


def _pair_candidates(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    """Yield pairs of places: the first document of each group that agrees in a band with each of the others."""
    rows = np.concatenate([np.zeros(0, _PLACED_BAND), *(np.frombuffer(part, _PLACED_BAND) for _, part in records)])
    rows = rows[np.lexsort((rows["place"], rows["band"]))]
    is_first = np.concatenate([[True], rows["band"][1:] != rows["band"][:-1]])[: len(rows)]
    firsts = rows["place"][is_first][np.cumsum(is_first) - 1]
    pairs = np.stack([firsts, rows["place"]], axis=1)[~is_first]
    yield partition, np.unique(pairs, axis=0).astype("<i8").tobytes()


def _group_candidates(records: Iterator[Record]) -> bytes:
    """Return the places of the candidates, ascending, and the number of the connected component of each."""
    parts = [np.frombuffer(payload, "<i8").reshape(-1, 2) for _, payload in records]
    pairs = np.unique(np.concatenate([np.zeros((0, 2), np.int64), *parts]), axis=0)
    places, members = np.unique(pairs, return_inverse=True)
    edges = np.ascontiguousarray(members.reshape(-1, 2), np.int64)
    components = system.load_extension().connected_components(edges, len(places))
    return np.stack([places, components]).astype("<i8").tobytes()


@dataclass(frozen=True)
class _SendCandidates:
    unit: Unit
    candidates: Path
    buckets: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the place and the text of each candidate, by connected component."""
        stored = np.fromfile(self.candidates, "<i8").reshape(2, -1)
        first, last = np.searchsorted(stored[0], [partition << INDEX_BITS, (partition + 1) << INDEX_BITS])
        places, components = stored[0, first:last], stored[1, first:last]
        for before, block, _ in _Remaining(records, self.unit):
            bounds = _place(partition, np.array([before, before + len(block)]))
            chosen = slice(*np.searchsorted(places, bounds).tolist())
            numbers = (places[chosen] - bounds[0]).tolist()
            if not numbers:
                continue
            texts = block.fold_case(self.unit).documents(numbers)
            for place, component, text in zip(places[chosen].tolist(), components[chosen], texts, strict=True):
                yield int(component) % self.buckets, _PLACE.pack(place) + text


@dataclass(frozen=True)
class _VerifyCandidates:
    threshold: float

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the places of the documents that are not the first of their cluster."""
        texts = {_PLACE.unpack_from(payload)[0]: bytes(payload)[_PLACE.size :] for _, payload in records}
        places = np.array(sorted(texts), np.int64)
        block = DocumentBlock.of_documents([texts[place] for place in places.tolist()])
        firsts = system.load_extension().near_duplicates(block.data, block.ends, self.threshold)
        yield from _dropped(NEAR, places[firsts != np.arange(len(places))])


@dataclass(frozen=True)
class _KeepDocuments:
    unit: Unit
    is_json: bool

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the remaining documents as they are written, then the numbers of documents with the key −1."""
        total = n_kept = 0
        remaining = _Remaining(records, self.unit)
        for before, block, remains in remaining:
            total += len(block)
            n_kept += int(remains.sum())
            documents = block.documents(np.flatnonzero(remains).tolist())
            if self.is_json:
                documents = [_to_json(document) for document in documents]
            if documents:
                separator = b"\n" if self.unit == "document" and not self.is_json else b""
                yield before, separator.join(documents)
        exact, near = (sum(map(len, remaining.dropped[kind])) for kind in (EXACT, NEAR))
        yield -1, _COUNTS.pack(total, n_kept, exact, near)


def _to_json(document: bytes) -> bytes:
    text = document.decode().removesuffix("\n")
    return json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
