"""Encode a corpus as token ids, with the counts of words, characters and bytes of the text.

The extension encodes texts of all formats for word tokenizers. With a vocabulary, it encodes a text and computes
its fingerprint in one pass; without one, `scan_text` reads a text once for its word counts, its fingerprint and
its ids. `count_words`, and `encode_words` with a file, use bounded memory. Other tokenizers, and lower-cased or
streamed texts, are encoded in batches.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers

from chainrule import system
from chainrule.data.encoded import EncodedText
from chainrule.errors import InputError
from chainrule.lm import Ids
from chainrule.progress import Progress, silent
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import SHORTEST_LINE, SKETCH_SIZE, Fingerprint, fingerprint_in_background
from chainrule.text.lines import FRAGMENT, Fragment
from chainrule.text.readers import TextFile, file_format, is_compressed
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Encoding, Tokenizer, WordTokenizer, split_words

CHARACTERS_PER_BATCH: Final = 1 << 20
SAMPLED_PIECES: Final = 64
"""Most pieces that `sample_text` reads."""
SAMPLED_PIECE: Final = 1 << 20
"""Bytes of a piece."""
SAMPLED_SHARE: Final = 50
"""`sample_text` reads one piece in this many, or fewer."""


@dataclass(frozen=True, slots=True)
class TextScan:
    """A text that the extension has read once: word counts, fingerprint, and its words to be encoded."""

    _scan: Any  # TextScan of the extension
    _sha256: Any
    _threads: int
    _replaced: int

    def counted(self, excluded: Sequence[str]) -> Any:
        """Return the counts of the words, except those excluded, as `CountedWords` of the extension."""
        return self._scan.counted(list(excluded))

    @property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of the text."""
        return Fingerprint(self._sha256.hexdigest(), self._scan.sketch, self._scan.lines)

    def encode(self, tokenizer: Tokenizer) -> EncodedText:
        """Encode the text with a word tokenizer; may be called once, since the words are released."""
        assert isinstance(tokenizer, WordTokenizer)
        ids, spellings = self._scan.encode(tokenizer.word_encoding, self._threads)
        return EncodedText(
            ids=ids,
            eos=tokenizer.eos,
            unk=tokenizer.unk,
            words=self._scan.words,
            characters=self._scan.characters,
            bytes=self._scan.bytes,
            spellings=spellings,
            replaced=self._replaced,
        )


def scan_text(corpus: Corpus, config: TokenizerConfig) -> TextScan | None:
    """Read a text once for a word tokenizer; None if the extension cannot."""
    reader = open_reader(corpus) if config.is_word_level and not config.lowercase else None
    if reader is None:
        return None
    sha256 = hashlib.sha256()
    scan = system.load_extension().scan_plain_text(
        reader.text, reader.threads, config.placeholder, SHORTEST_LINE, SKETCH_SIZE, sha256.update
    )
    return None if scan is None else TextScan(scan, sha256, reader.threads, reader.replaced)


@dataclass(frozen=True, slots=True)
class CountingLimit:
    """Limit of the memory that counting words takes; beyond it, counts are merged from a file in `folder`."""

    memory: int = 0  # in bytes; 0: unlimited
    folder: str = ""
    check: Callable[[int], None] = lambda words: None  # raises if a vocabulary of this size is too large


UNLIMITED: Final = CountingLimit()


def count_words(
    corpus: Corpus, config: TokenizerConfig, excluded: Sequence[str] = (), limit: CountingLimit = UNLIMITED
) -> Any:
    """Count the words of a text as `CountedWords` of the extension; None if it cannot read the text."""
    reader = open_reader(corpus) if config.is_word_level and not config.lowercase else None
    if reader is None:
        return None
    return system.load_extension().count_plain_words(
        reader.text, reader.threads, config.placeholder, list(excluded), limit.memory, limit.folder
    )


def sample_text(corpus: Corpus, config: TokenizerConfig) -> list[tuple[int, int, int, int]] | None:
    """Read a small part of plain files, at most SAMPLED_PIECES MiB spread over them; None for other texts.

    Returns the bytes, tokens, types and types with the minimum count of a quarter, half and all of the part.
    """
    size = corpus.size_hint() or 0
    pieces = min(size // (SAMPLED_SHARE << 20), SAMPLED_PIECES)
    is_plain = all(file_format(file) == "plain" and not is_compressed(file) for file in corpus.files)
    if pieces < 4 or corpus.texts or not is_plain or not config.is_word_level or config.lowercase:
        return None
    sample = system.load_extension().TextSample(config.placeholder)
    # Every fourth piece, then those between: each prefix of the sequence is spread over the text.
    sequence = [i * size // pieces for first in (0, 2, 1, 3) for i in range(first, pieces, 4)]
    samples = []
    for number, offset in enumerate(sequence, start=1):
        sample.add(_read_lines(corpus.files, offset))
        if number in (len(sequence) // 4, len(sequence) // 2, len(sequence)):
            samples.append((sample.bytes, sample.tokens, sample.types, sample.types_with(config.min_count)))
    return samples


def _read_lines(files: Sequence[TextFile], offset: int) -> bytes:
    """Read the whole lines of a piece of 1 MiB at an offset in the concatenated plain files."""
    for file in files:
        if offset < file.size:
            break
        offset -= file.size
    begin = 0 if file.byte_range is None else file.byte_range[0]
    try:
        with file.path.open("rb") as raw:
            raw.seek(begin + offset)
            piece = raw.read(min(SAMPLED_PIECE, file.size - offset))
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror}; check the file") from error
    first = piece.find(b"\n") + 1 if offset else 0
    return piece[first : piece.rfind(b"\n") + 1]


def encode_words(
    corpus: Corpus,
    tokenizer: Tokenizer,
    ids_file: Path | None = None,
    limit: CountingLimit = UNLIMITED,
    *,
    with_fingerprint: bool = False,
) -> tuple[EncodedText, Fingerprint] | None:
    """Encode a text in one pass; None if the extension cannot. The fingerprint is empty unless it is requested.

    With `ids_file`, into a memory-mapped file of int32; unknown words are then counted within `limit` instead of
    listed.
    """
    reader = open_reader(corpus) if _is_plain(tokenizer) else None
    if reader is None:
        return None
    assert isinstance(tokenizer, WordTokenizer)
    sha256 = hashlib.sha256()
    size, update = (SKETCH_SIZE, sha256.update) if with_fingerprint else (0, None)
    core, encoding, threads = system.load_extension(), tokenizer.word_encoding, reader.threads
    result: dict[str, Any] | None
    if ids_file is None:
        result = core.encode_plain_text(reader.text, encoding, threads, SHORTEST_LINE, size, update)
    else:
        file, excluded = os.fsencode(ids_file), [tokenizer.config.unk]
        counting = excluded, limit.memory, limit.folder
        result = core.encode_plain_words(
            reader.text, encoding, threads, file, SHORTEST_LINE, size, update, *counting
        )
    if result is None:
        return None
    ids = result["ids"] if ids_file is None else map_ids(ids_file)
    fingerprint = Fingerprint(sha256.hexdigest(), result["sketch"], result["lines"])
    encoded = _encoded_text(result, ids, tokenizer, reader.replaced)
    return _with_type_counts(encoded, ids_file, tokenizer), fingerprint


def encode_lines(lines: bytes, tokenizer: Tokenizer) -> EncodedText:
    """Encode lines in memory (UTF-8, LF after each) as `encode` does."""
    if isinstance(tokenizer, WordTokenizer) and _is_plain(tokenizer) and not has_long_lines(lines):
        result: dict[str, Any] = system.load_extension().encode_lines(lines, tokenizer.word_encoding)
        return _encoded_text(result, result["ids"], tokenizer, 0)
    corpus = Corpus.from_lines(lines.decode().removesuffix("\n").split("\n"))
    return _encode_fragments(corpus, tokenizer, silent, None, UNLIMITED)


def has_long_lines(lines: bytes) -> bool:
    """Whether a line may have more than `FRAGMENT` characters, after which words are split."""
    if len(lines) <= FRAGMENT:
        return False
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    return bool(np.diff(ends, prepend=-1).max(initial=0) > FRAGMENT)


def _encoded_text(result: dict[str, Any], ids: Ids, tokenizer: Tokenizer, replaced: int) -> EncodedText:
    fields = ("words", "characters", "bytes", "spellings", "spelled")
    values = {name: result[name] for name in fields if name in result}
    return EncodedText(ids=ids, eos=tokenizer.eos, unk=tokenizer.unk, replaced=replaced, **values)


def _is_plain(tokenizer: Tokenizer) -> bool:
    """Whether the words of a text are looked up as they are."""
    return tokenizer.config.is_word_level and not tokenizer.config.lowercase


def map_ids(path: Path) -> Ids:
    """Memory-map a file of ids."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.int32)
    return np.memmap(path, dtype=np.int32, mode="r")


def encode(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Progress = silent,
    ids_file: Path | None = None,
    limit: CountingLimit = UNLIMITED,
) -> EncodedText:
    """Encode every line with `</s>` after each.

    With `ids_file`, into a memory-mapped file of int32; unknown words of a word tokenizer are then counted within
    `limit` instead of listed.
    """
    expected = corpus.size_hint()  # too small for compressed files: the total is then unknown
    progress("encoding", 0, expected or None)
    result = encode_words(corpus, tokenizer, ids_file, limit)
    if result is None:
        return _encode_fragments(corpus, tokenizer, progress, ids_file, limit)
    encoded = result[0]
    progress("encoding", encoded.bytes, expected if expected and encoded.bytes <= expected else None)
    return encoded


def _with_type_counts(text: EncodedText, ids_file: Path | None, tokenizer: Tokenizer) -> EncodedText:
    """Count the ids of a file; return a text in memory unchanged."""
    if ids_file is None:
        return text
    counts: Ids = system.load_extension().count_ids(os.fsencode(ids_file), tokenizer.vocab_size)
    return replace(text, type_counts=counts)


def encode_with_fingerprint(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Progress = silent,
    ids_file: Path | None = None,
    scan: TextScan | None = None,
    limit: CountingLimit = UNLIMITED,
) -> tuple[EncodedText, Fingerprint]:
    """Encode a text as `encode` does and compute its fingerprint, in one pass over the text if possible.

    `scan` is the scan of the corpus if it has been read already.
    """
    if scan is not None:
        result = scan.encode(tokenizer), scan.fingerprint
    elif (words := encode_words(corpus, tokenizer, ids_file, limit, with_fingerprint=True)) is not None:
        result = words
    else:
        with fingerprint_in_background(corpus) as digest:
            encoded = _encode_fragments(corpus, tokenizer, progress, ids_file, limit)
        return encoded, digest.result()
    progress("encoding", result[0].bytes, None)
    return result


def _encode_fragments(
    corpus: Corpus, tokenizer: Tokenizer, progress: Progress, ids_file: Path | None, limit: CountingLimit
) -> EncodedText:
    """Encode batch by batch, for any text and tokenizer."""
    spellings: list[str] = []
    pool: dict[str, str] = {}  # interned spellings
    is_counted = ids_file is not None and tokenizer.config.is_word_level
    counter = system.load_extension().VocabularyCounter(limit.memory, limit.folder) if is_counted else None
    tally = TextCounts()
    expected = corpus.size_hint()
    fragments = corpus.fragments()
    ids = _Ids(ids_file)
    for batch in encode_fragments(fragments, tokenizer):
        if counter is None:
            spellings.extend([pool.setdefault(spelling, spelling) for spelling in batch.spellings])
        else:
            counter.add(" ".join(batch.spellings))
        for fragment in batch.fragments:
            tally.add(tokenizer, fragment)
        ids.append(batch.ids)
        progress("encoding", tally.bytes, expected if expected and tally.bytes <= expected else None)
    encoded = EncodedText(
        ids=ids.joined(),
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        words=tally.words,
        characters=tally.characters,
        bytes=tally.bytes,
        spellings=spellings,
        replaced=fragments.replaced,
        spelled=None if counter is None else counter.finish([tokenizer.config.unk]),
    )
    return _with_type_counts(encoded, ids_file, tokenizer)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Fragments of lines as ids."""

    fragments: list[Fragment]
    ids: Ids  # (N,) int32, `</s>` where a line ends
    spellings: list[str]  # of the ids that are `<unk>`


def encode_fragments(fragments: Iterable[Fragment], tokenizer: Tokenizer) -> Iterator[EncodedBatch]:
    """Encode fragments of lines in batches of about `CHARACTERS_PER_BATCH` characters."""
    for batch in _batches(fragments):
        rows: list[list[int]] = []
        spellings: list[str] = []
        for fragment, (row, unknown) in zip(batch, _encode(batch, tokenizer), strict=True):
            spellings.extend(unknown)
            rows.append([*row, tokenizer.eos] if fragment.ends_line else row)
        yield EncodedBatch(batch, np.fromiter(chain.from_iterable(rows), dtype=np.int32), spellings)


class _Ids:
    """Growing array of ids in memory or in a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._parts: list[Ids] = [np.zeros(0, dtype=np.int32)]
        self._file = None if path is None else path.open("wb")

    def append(self, ids: Ids) -> None:
        """Append ids."""
        if self._file is None:
            self._parts.append(ids)
        else:
            self._file.write(ids.tobytes())

    def joined(self) -> Ids:
        """Return all ids; nothing may be appended afterwards."""
        if self._path is None or self._file is None:
            return np.concatenate(self._parts)
        self._file.close()
        return map_ids(self._path)


@dataclass(slots=True)
class TextCounts:
    """Counts of words, characters and UTF-8 bytes of the normalized text, with one for each line break."""

    words: int = 0
    characters: int = 0
    bytes: int = 0
    words_in_line: int = 0

    def add(self, tokenizer: Tokenizer, fragment: Fragment) -> None:
        """Count one fragment of a line."""
        text = tokenizer.normalize(fragment.text)
        words = split_words(text)
        breaks = int(fragment.ends_line)
        if tokenizer.config.collapses_blanks:
            text = " ".join(words)
            if words and self.words_in_line:
                breaks += 1  # the blank between this fragment and the previous one
        self.words += len(words)
        self.words_in_line = 0 if fragment.ends_line else self.words_in_line + len(words)
        self.characters += len(text) + breaks
        self.bytes += len(text.encode()) + breaks


def _batches(fragments: Iterable[Fragment]) -> Iterator[list[Fragment]]:
    batch: list[Fragment] = []
    characters = 0
    for fragment in fragments:
        batch.append(fragment)
        characters += len(fragment.text) + 1
        if characters >= CHARACTERS_PER_BATCH:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encode(batch: list[Fragment], tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the ids of each fragment and the normalized spellings of its unknown words."""
    if tokenizer.config.is_word_level:
        yield from (_look_up(tokenizer, fragment.text) for fragment in batch)
        return
    texts = [fragment.text for fragment in batch]
    for text, encoding in zip(texts, tokenizer.encodings(texts), strict=True):
        yield encoding.ids, _unknown(tokenizer, text, encoding)


def _look_up(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[str]]:
    """Look up the words: same result as the library, and encoding takes half the time."""
    assert tokenizer.unk is not None
    words, unk = tokenizer.words(text), tokenizer.unk
    ids = tokenizer.word_ids(words)
    return ids, [word for word, id_ in zip(words, ids, strict=True) if id_ == unk] if unk in ids else []


def _unknown(tokenizer: Tokenizer, text: str, encoding: tokenizers.Encoding | Encoding) -> list[str]:
    ids = encoding.ids
    if tokenizer.unk is None or tokenizer.unk not in ids:
        return []
    if tokenizer.config.kind == "char":  # one id per normalized character: lower-casing may make two of one
        return [c for c, id_ in zip(tokenizer.normalize(text), ids, strict=True) if id_ == tokenizer.unk]
    spans = encoding.offsets
    return [tokenizer.normalize(text[slice(*spans[i])]) for i, id_ in enumerate(ids) if id_ == tokenizer.unk]
