"""Encode a corpus as token ids, with the counts of words, characters and bytes of the text.

The extension encodes texts of all formats for word tokenizers. With a vocabulary, it encodes a text and computes
its fingerprint in one pass; without one, `scan_text` reads a text once for its word counts, its fingerprint and
its ids. `count_words`, and `encode_words` with a file, use bounded memory. Other tokenizers, and lower-cased or
streamed texts, are encoded in batches.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers

from chainrule import system
from chainrule.data.encoded import EncodedText
from chainrule.lm import Ids
from chainrule.progress import Progress, silent
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import SHORTEST_LINE, SKETCH_SIZE, Fingerprint, fingerprint_in_background
from chainrule.text.lines import FRAGMENT, Fragment
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Encoding, Tokenizer, split_words

CHARACTERS_PER_BATCH: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TextScan:
    """A text that the extension has read once: word counts, fingerprint, and its words to be encoded."""

    _scan: Any  # TextScan of the extension
    _sha256: Any
    _threads: int
    _replaced: int

    @property
    def counts(self) -> dict[str, int]:
        """Count of each word, by decreasing count, then by code points."""
        counts: dict[str, int] = self._scan.counts
        return counts

    @property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of the text."""
        return Fingerprint(self._sha256.hexdigest(), self._scan.sketch, self._scan.lines)

    def encode(self, tokenizer: Tokenizer) -> EncodedText:
        """Encode the text with a word tokenizer; may be called once, since the words are released."""
        assert tokenizer.unk is not None
        ids, spellings = self._scan.encode(tokenizer.vocab, tokenizer.unk, tokenizer.eos, self._threads)
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


def count_words(corpus: Corpus, config: TokenizerConfig) -> dict[str, int] | None:
    """Count the words of a text, by decreasing count, then by code points; None if the extension cannot."""
    reader = open_reader(corpus) if config.is_word_level and not config.lowercase else None
    if reader is None:
        return None
    counts: dict[str, int] | None = system.load_extension().count_plain_words(
        reader.text, reader.threads, config.placeholder
    )
    return counts


def encode_words(
    corpus: Corpus, tokenizer: Tokenizer, ids_file: Path | None = None, *, with_fingerprint: bool = False
) -> tuple[EncodedText, Fingerprint] | None:
    """Encode a text in one pass, in memory or in a file of int32; None if the extension cannot.

    The fingerprint is empty unless it is requested.
    """
    reader = open_reader(corpus) if _is_plain(tokenizer) else None
    if reader is None:
        return None
    sha256 = hashlib.sha256()
    size, update = (SKETCH_SIZE, sha256.update) if with_fingerprint else (0, None)
    core, encoding, threads = system.load_extension(), tokenizer.word_encoding, reader.threads
    result: dict[str, Any] | None
    if ids_file is None:
        result = core.encode_plain_text(reader.text, encoding, threads, SHORTEST_LINE, size, update)
    else:
        file = os.fsencode(ids_file)
        result = core.encode_plain_words(reader.text, encoding, threads, file, SHORTEST_LINE, size, update)
    if result is None:
        return None
    ids = result["ids"] if ids_file is None else map_ids(ids_file)
    fingerprint = Fingerprint(sha256.hexdigest(), result["sketch"], result["lines"])
    return _encoded_text(result, ids, tokenizer, reader.replaced), fingerprint


def encode_lines(lines: bytes, tokenizer: Tokenizer) -> EncodedText:
    """Encode lines in memory (UTF-8, LF after each) as `encode` does."""
    if _is_plain(tokenizer) and not has_long_lines(lines):
        result: dict[str, Any] = system.load_extension().encode_lines(lines, tokenizer.word_encoding)
        return _encoded_text(result, result["ids"], tokenizer, 0)
    corpus = Corpus.from_lines(lines.decode().removesuffix("\n").split("\n"))
    return _encode_fragments(corpus, tokenizer, silent, None)


def has_long_lines(lines: bytes) -> bool:
    """Whether a line may have more than `FRAGMENT` characters, after which words are split."""
    if len(lines) <= FRAGMENT:
        return False
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    return bool(np.diff(ends, prepend=-1).max(initial=0) > FRAGMENT)


def _encoded_text(result: dict[str, Any], ids: Ids, tokenizer: Tokenizer, replaced: int) -> EncodedText:
    counts = {key: result[key] for key in ("words", "characters", "bytes", "spellings")}
    return EncodedText(ids=ids, eos=tokenizer.eos, unk=tokenizer.unk, replaced=replaced, **counts)


def _is_plain(tokenizer: Tokenizer) -> bool:
    """Whether the words of a text are looked up as they are."""
    return tokenizer.config.is_word_level and tokenizer.backend.normalizer is None


def map_ids(path: Path) -> Ids:
    """Memory-map a file of ids."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.int32)
    return np.memmap(path, dtype=np.int32, mode="r")


def encode(
    corpus: Corpus, tokenizer: Tokenizer, progress: Progress = silent, ids_file: Path | None = None
) -> EncodedText:
    """Encode every line with `</s>` after each; with `ids_file`, into a memory-mapped file of int32."""
    expected = corpus.size_hint()  # too small for compressed files: the total is then unknown
    progress("encoding", 0, expected or None)
    result = encode_words(corpus, tokenizer, ids_file)
    if result is None:
        return _encode_fragments(corpus, tokenizer, progress, ids_file)
    encoded = result[0]
    progress("encoding", encoded.bytes, expected if expected and encoded.bytes <= expected else None)
    return encoded


def encode_with_fingerprint(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Progress = silent,
    ids_file: Path | None = None,
    scan: TextScan | None = None,
) -> tuple[EncodedText, Fingerprint]:
    """Encode a text as `encode` does and compute its fingerprint, in one pass over the text if possible.

    `scan` is the scan of the corpus if it has been read already.
    """
    if scan is not None:
        result = scan.encode(tokenizer), scan.fingerprint
    elif (words := encode_words(corpus, tokenizer, ids_file, with_fingerprint=True)) is not None:
        result = words
    else:
        with fingerprint_in_background(corpus) as digest:
            encoded = _encode_fragments(corpus, tokenizer, progress, ids_file)
        return encoded, digest.result()
    progress("encoding", result[0].bytes, None)
    return result


def _encode_fragments(
    corpus: Corpus, tokenizer: Tokenizer, progress: Progress, ids_file: Path | None
) -> EncodedText:
    """Encode batch by batch, for any text and tokenizer."""
    spellings: list[str] = []
    pool: dict[str, str] = {}  # interned spellings
    tally = TextCounts()
    expected = corpus.size_hint()
    fragments = corpus.fragments()
    ids = _Ids(ids_file)
    for batch in encode_fragments(fragments, tokenizer):
        spellings.extend([pool.setdefault(spelling, spelling) for spelling in batch.spellings])
        for fragment in batch.fragments:
            tally.add(tokenizer, fragment)
        ids.append(batch.ids)
        progress("encoding", tally.bytes, expected if expected and tally.bytes <= expected else None)
    return EncodedText(
        ids=ids.joined(),
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        words=tally.words,
        characters=tally.characters,
        bytes=tally.bytes,
        spellings=spellings,
        replaced=fragments.replaced,
    )


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
    """Look up words in a dictionary: same result as the library, and encoding takes half the time."""
    assert tokenizer.unk is not None
    words = tokenizer.words(text)
    known, unk = tokenizer.vocab, tokenizer.unk
    ids = [known.get(word, unk) for word in words]
    return ids, [word for word, id_ in zip(words, ids, strict=True) if id_ == unk] if unk in ids else []


def _unknown(tokenizer: Tokenizer, text: str, encoding: tokenizers.Encoding | Encoding) -> list[str]:
    ids = encoding.ids
    if tokenizer.unk is None or tokenizer.unk not in ids:
        return []
    if tokenizer.config.kind == "char":  # one id per normalized character: lower-casing may make two of one
        return [c for c, id_ in zip(tokenizer.normalize(text), ids, strict=True) if id_ == tokenizer.unk]
    spans = encoding.offsets
    return [tokenizer.normalize(text[slice(*spans[i])]) for i, id_ in enumerate(ids) if id_ == tokenizer.unk]
