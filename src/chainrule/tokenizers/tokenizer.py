"""Tokenizer: text to ids and back, one class for all kinds, based on the `tokenizers` library.

Control symbols are added tokens outside the vocabulary of the model, so that `<s>` in a text is ordinary text.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from chainrule import system
from chainrule.config import build_config, to_json
from chainrule.errors import InputError, ModelFileError
from chainrule.lm import Ids, Mask, Vocabulary
from chainrule.storage import provenance, strict_json, verified_dir
from chainrule.storage.provenance import CONFIG, TOKENIZER, Origin, translate_config_errors
from chainrule.storage.verified_dir import Content, StreamedFile, VerifiedDir, read_json
from chainrule.tokenizers import components, punctuation
from chainrule.tokenizers.config import BOS, EOS, JOINER, TokenizerConfig, saved_settings

CONTROLS: Final = (BOS, EOS)
"""Control symbols, whose ids follow those of the vocabulary."""
WORDS_PER_BLOCK: Final = 1 << 15
"""Words of a block of `tokenizer.json`."""
CONTINUATION_PREFIX: Final = "##"  # WordPiece prefix of tokens that continue a word


def split_words(text: str) -> list[str]:
    r"""Split at ASCII space and tab only (not at U+00A0, U+0085, U+2028 or a form feed).

    >>> split_words(" a\u00a0b \tc")
    ['a\xa0b', 'c']
    """
    return [word for word in text.replace("\t", " ").split(" ") if word]


@contextmanager
def translate_panics() -> Iterator[None]:
    """Convert a panic of the `tokenizers` library into a ModelFileError.

    A Rust panic is raised as `pyo3_runtime.PanicException`, which is not a subclass of Exception and cannot be
    imported: it would end the worker thread of a server.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ModelFileError(
            f"the tokenizers library failed: {str(error)[:200]}; train the tokenizer again"
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class VocabularyWords:
    """Some words of a vocabulary, which are read from its table one at a time."""

    table: Any  # WordVocabulary of the extension
    is_included: Mask  # (V,)

    def __len__(self) -> int:
        return int(self.is_included.sum())

    def __iter__(self) -> Iterator[str]:
        return (self.table[i] for i in np.flatnonzero(self.is_included).tolist())

    def __contains__(self, word: object) -> bool:
        id_ = self.table.find(word) if isinstance(word, str) else -1
        return id_ >= 0 and bool(self.is_included[id_])


@dataclass(frozen=True, slots=True)
class Encoding:
    """Ids of a text with their character offsets; same attributes as `tokenizers.Encoding`."""

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Tokenizer:
    """A trained tokenizer; ids run from 0 to `vocab_size` − 1, including `<s>` and `</s>`."""

    backend: tokenizers.Tokenizer
    config: TokenizerConfig

    @classmethod
    def with_control_symbols(cls, backend: tokenizers.Tokenizer, config: TokenizerConfig) -> "Tokenizer":
        """Add the control symbols to a backend."""
        symbols = [AddedToken(name, special=True, normalized=False) for name in (BOS, EOS)]
        backend.add_special_tokens(symbols)
        backend.encode_special_tokens = True
        return cls(backend, config)

    @classmethod
    def from_json(
        cls, content: str | bytes, config: TokenizerConfig, source: str = "tokenizer.json"
    ) -> "Tokenizer":
        """Parse `tokenizer.json`; raise ModelFileError for components that components.py does not allow."""
        if config.is_word_level and (tokenizer := WordTokenizer.read(content, config)) is not None:
            return tokenizer
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{source} is not UTF-8: {error}") from error
        checked = components.check(text, source)
        components.check_kind(checked, config, byte_alphabet(), source)
        try:
            with translate_panics():
                backend = tokenizers.Tokenizer.from_str(text)
        except ModelFileError:
            raise
        except Exception as error:  # the library raises a bare Exception
            raise ModelFileError(f"{source} is not a tokenizer: {error}") from error
        if config.is_word_level:
            words = checked["model"]["vocab"]
            return WordTokenizer.of_names(sorted(words, key=words.__getitem__), config)
        backend.encode_special_tokens = True  # not stored in the file
        return cls(backend, config)

    def to_json(self) -> str:
        """Serialize as `tokenizer.json`."""
        return b"".join(self.json_blocks()).decode()

    def json_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of `tokenizer.json` in blocks."""
        yield self.backend.to_str(pretty=True).encode()

    def json_file(self) -> StreamedFile:
        """Return `tokenizer.json` as the content of a file to write."""

        def write(path: Path) -> None:
            with path.open("wb") as file:
                file.writelines(self.json_blocks())

        return StreamedFile(sum(map(len, self.json_blocks())), write)

    def sha256(self) -> str:
        """Return the SHA-256 of `tokenizer.json`."""
        digest = hashlib.sha256()
        for block in self.json_blocks():
            digest.update(block)
        return digest.hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """V, including control symbols."""
        with translate_panics():
            return self.backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def bos(self) -> int:
        """Id of `<s>`."""
        return self._id(BOS)

    @cached_property
    def eos(self) -> int:
        """Id of `</s>`."""
        return self._id(EOS)

    @cached_property
    def unk(self) -> int | None:
        """Id of the unknown word; None if the tokenizer can encode every text."""
        return None if self.config.is_lossless else self._id(self.config.unk)

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary size and control ids for a model."""
        return Vocabulary(self.vocab_size, self.bos, self.eos, self.unk, self.config.closed)

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Ids of the vocabulary by token, without control symbols."""
        with translate_panics():
            return self.backend.get_vocab(with_added_tokens=False)

    def token_id(self, token: str) -> int | None:
        """Return the id of a token of the vocabulary; None if there is none or for a control symbol."""
        return self.vocab.get(token)

    def canonicalize(self, text: str) -> str:
        """Normalize a text and collapse its blanks, as configured."""
        normalized = self.normalize(text)
        return " ".join(split_words(normalized)) if self.config.collapses_blanks else normalized

    def normalize(self, text: str) -> str:
        """Lower-case a text, if configured."""
        if self._normalizer is None:
            return text
        with translate_panics():
            return self._normalizer.normalize_str(text)

    @cached_property
    def _normalizer(self) -> normalizers.Normalizer | None:
        backend_normalizer: normalizers.Normalizer | None = self.backend.normalizer
        return backend_normalizer

    def words(self, text: str) -> list[str]:
        """Split a part of a line into words, including out-of-vocabulary words (word tokenizers only)."""
        line = self.normalize(text)
        return split_words(punctuation.split(line, self.config.unk) if self.config.splits_punctuation else line)

    def encode(self, text: str) -> Ids:
        """Encode a part of a line; control symbols are neither added nor recognized."""
        return np.array(self.encoding(text).ids, dtype=np.int32)

    def encode_prompt(self, text: str) -> Ids:
        """Encode a prompt, i.e. the beginning of a line to be continued.

        If punctuation is split, a final punctuation mark is encoded differently from `encode`: an opening bracket
        or quotation mark is joined to the next token; any other mark takes the more frequent form, with or without
        a trailing joiner.
        """
        ids = self.encode(text)
        if self.config.splits_punctuation and len(ids):
            name, _, end = self.spans(text)[-1]
            if end == len(text):  # no trailing blank
                ids[-1] = self._open_form(name, int(ids[-1]))
        return ids

    def _open_form(self, name: str, id_: int) -> int:
        """Return the id of the last token of a prompt, with or without a trailing joiner."""
        joined = self.token_id(name + JOINER)
        if joined is None or not punctuation.is_punctuation(name):
            return id_
        if id_ == self.unk or punctuation.is_opening(name):
            return joined
        return min(id_, joined)  # ids are in order of decreasing frequency

    def encoding(self, text: str) -> "tokenizers.Encoding | Encoding":
        """Encode a part of a line with the character offsets of each token."""
        if self.config.splits_punctuation:
            return self._split_encoding(text)
        try:
            with translate_panics():
                return self.backend.encode(text, add_special_tokens=False)
        except TypeError as error:  # a lone surrogate, i.e. a command-line argument that is not UTF-8
            raise InputError(f"{text[:40]!a} is not UTF-8; correct it") from error

    def _split_encoding(self, text: str) -> "Encoding":
        spans = self.spans(text)
        return Encoding(self.word_ids([name for name, _, _ in spans]), [(first, last) for _, first, last in spans])

    def word_ids(self, words: Sequence[str]) -> list[int]:
        """Return the ids of words as they are; `unk` for unknown words."""
        assert self.unk is not None
        ids = map(self.token_id, words)
        return [self.unk if id_ is None else id_ for id_ in ids]

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return the tokens of a line, including out-of-vocabulary words, with their start and end offsets.

        Only for tokenizers that split punctuation.
        """
        spans = punctuation.split_spans(self.normalize(text), self.config.unk)
        if self._normalizer is None:
            return spans
        offsets = self._source_offsets(text)
        return [(name, offsets[first][0], offsets[last - 1][1]) for name, first, last in spans]

    def _source_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the span in `text` of each character of the normalized text.

        The library lower-cases each character separately, after the Turkish replacements: one character may become
        two, and I with a combining dot becomes one.
        """
        parts = re.finditer("I\u0307|.", text, re.DOTALL)
        return [part.span() for part in parts for _ in self.normalize(part[0])]

    def encodings(self, texts: Sequence[str]) -> "Sequence[tokenizers.Encoding | Encoding]":
        """Encode several texts on all cores."""
        if self.config.splits_punctuation:
            return [self._split_encoding(text) for text in texts]
        with translate_panics():
            return self.backend.encode_batch(list(texts), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text without control symbols."""
        keep = [int(i) for i in ids if i not in (self.bos, self.eos)]
        if self.config.splits_punctuation:
            return punctuation.join(" ".join(self._readable[i] for i in keep))
        with translate_panics():
            return self.backend.decode(keep, skip_special_tokens=False)

    def token_bytes(self, previous: int | None, id_: int) -> bytes:
        """Return the UTF-8 bytes of a token, given the token before; empty for control symbols.

        A token may be part of a character. The bytes of the tokens of a line are those of the decoded line.
        """
        controls = (self.bos, self.eos)
        name = "" if id_ in controls else self.name(id_)
        is_first = previous is None or previous in controls
        if not name or not self.config.collapses_blanks:
            blank = b""
        elif self.config.splits_punctuation:
            before = "" if previous is None else self.name(previous)
            is_joined = is_first or punctuation.joined_sides(name)[0] or punctuation.joined_sides(before)[1]
            return b" " * (not is_joined) + punctuation.join(name).encode()
        else:  # every word but the first is preceded by a blank
            is_subword = self.config.kind == "wordpiece" and name.startswith(CONTINUATION_PREFIX)
            name = name.removeprefix(CONTINUATION_PREFIX) if is_subword and not is_first else name
            blank = b"" if is_first or is_subword else b" "
        if self.config.tokens_are_text or id_ == self.unk:
            return blank + name.encode()
        return blank + bytes(byte_alphabet()[c] for c in name)

    def token_text(self, previous: int | None, id_: int) -> str:
        r"""Return the text of a token, given the token before: control symbols by name, other bytes as \xNN."""
        if id_ in (self.bos, self.eos):
            return BOS if id_ == self.bos else EOS
        return self.token_bytes(previous, id_).decode("utf-8", errors="backslashreplace")

    def tokens(self, ids: Sequence[int]) -> list[str]:
        r"""Return the readable token of each id; incomplete UTF-8 sequences are written as \xNN."""
        return [self._readable[int(i)] for i in ids]

    def vocabulary_words(self) -> "Sequence[str] | VocabularyWords":
        """Return the words of the vocabulary, which an unknown word cannot be; empty for sub-word tokenizers."""
        if not self.config.tokens_are_text:
            return []
        control = {self.bos, self.eos, self.unk}
        return [name for i, name in enumerate(self.names()) if i not in control]

    def display_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of the ids with joiners removed from punctuation marks."""
        tokens = self.tokens(ids)
        return [*map(punctuation.without_joiners, tokens)] if self.config.splits_punctuation else tokens

    def display_text(self, name: str) -> str:
        """Remove the joiners from a token of `tokens`."""
        return punctuation.without_joiners(name) if self.config.splits_punctuation else name

    def word_id(self, word: str) -> int:
        """Return the id of a word that is not to be split; for a punctuation mark, of any form in the vocabulary.

        Only for word tokenizers.
        """
        assert self.unk is not None
        name = self.normalize(word)
        forms = punctuation.joined_forms(name) if self.config.splits_punctuation else [name]
        return next((id_ for form in forms if (id_ := self.token_id(form)) is not None), self.unk)

    def name(self, id_: int) -> str:
        """Return a token as stored; "" for an unused id."""
        with translate_panics():
            return self.backend.id_to_token(id_) or ""

    def names(self) -> list[str]:
        """Return the token of each id as stored; "" for unused ids."""
        with translate_panics():
            return [self.backend.id_to_token(i) or "" for i in range(self.vocab_size)]

    def stored_names(self) -> Sequence[str]:
        """Return the token of each id in the form that takes the least memory."""
        return self.names()

    @cached_property
    def _readable(self) -> Sequence[str]:
        names = self.names()
        if self.config.tokens_are_text:
            return names
        return [name if i in (self.bos, self.eos, self.unk) else decode_bytes(name) for i, name in enumerate(names)]

    def _id(self, name: str) -> int:
        with translate_panics():
            number = self.backend.token_to_id(name)
        if number is None:
            raise ModelFileError(f"tokenizer.json has no '{name}'")
        return number


class WordTokenizer(Tokenizer):
    """A tokenizer whose tokens are whole words, with its vocabulary in the extension.

    The tokenizer of the `tokenizers` library and the dictionary of the vocabulary are built only if they are used.
    """

    table: Any
    """Names of all ids, a `WordVocabulary` of the extension; the last two are `<s>` and `</s>`."""

    def __init__(self, table: Any, config: TokenizerConfig) -> None:
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "config", config)

    @classmethod
    def of_names(cls, names: Iterable[str], config: TokenizerConfig) -> "WordTokenizer":
        """Build a tokenizer with these words by id, including the unknown word."""
        return cls(system.load_extension().WordVocabulary(chain(names, CONTROLS), len(CONTROLS)), config)

    @classmethod
    def read(cls, content: str | bytes, config: TokenizerConfig) -> "WordTokenizer | None":
        """Read `tokenizer.json` in the form in which `json_blocks` writes it; None if any byte differs."""
        raw = content if isinstance(content, bytes) else content.encode(errors="replace")
        _, tail = components.word_level_json(config, 1)
        end = len(raw) - len(tail)
        last_entry = re.search(rb": ([0-9]{1,10})\n\Z", raw[max(end - 16, 0) : max(end, 0)])
        if last_entry is None or not raw.endswith(tail):
            return None
        head, _ = components.word_level_json(config, int(last_entry[1]) + 1)
        if not raw.startswith(head) or len(head) > end:
            return None
        table = system.load_extension().WordVocabulary.from_json(raw, len(head), end, CONTROLS)
        return None if table is None or table.find(config.unk) < 0 else cls(table, config)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer.from_json, (self.to_json(), self.config)

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The tokenizer as one of the `tokenizers` library."""
        backend = components.make_backend(self.config, models.WordLevel(self.vocab, unk_token=self.config.unk))
        return Tokenizer.with_control_symbols(backend, self.config).backend

    def json_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of `tokenizer.json` in blocks."""
        head, tail = components.word_level_json(self.config, self.bos)
        yield head
        for first in range(0, self.bos, WORDS_PER_BLOCK):
            yield self.table.json_entries(first, first + WORDS_PER_BLOCK)
        yield tail

    @cached_property
    def vocab_size(self) -> int:
        """V, including control symbols."""
        return len(self.table)

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Ids of the vocabulary by token, without control symbols."""
        return {name: i for i, name in enumerate(self.table) if i < self.bos}

    @cached_property
    def word_encoding(self) -> Any:
        """The vocabulary and its special ids as a `WordEncoding` of the extension."""
        return system.load_extension().WordEncoding(self.table, self.unk, self.eos, self.config.placeholder)

    def token_id(self, token: str) -> int | None:
        """Return the id of a token of the vocabulary; None if there is none or for a control symbol."""
        id_: int = self.table.find(token)
        return None if id_ < 0 else id_

    def encoding(self, text: str) -> "tokenizers.Encoding | Encoding":
        """Encode a part of a line with the character offsets of each token."""
        if self.config.splits_punctuation:
            return self._split_encoding(text)
        try:
            line = self.normalize(text)
            line.encode()
        except (TypeError, UnicodeEncodeError) as error:  # a lone surrogate
            raise InputError(f"{text[:40]!a} is not UTF-8; correct it") from error
        matches = list(re.finditer("[^ \t]+", line))
        ids = self.word_ids([match[0] for match in matches])
        if self._normalizer is None:
            return Encoding(ids, [match.span() for match in matches])
        offsets = self._source_offsets(text)
        return Encoding(ids, [(offsets[m.start()][0], offsets[m.end() - 1][1]) for m in matches])

    def encodings(self, texts: Sequence[str]) -> "Sequence[tokenizers.Encoding | Encoding]":
        """Encode several texts."""
        return [self.encoding(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text without control symbols."""
        words = " ".join(self.name(int(i)) for i in ids if i not in (self.bos, self.eos))
        return punctuation.join(words) if self.config.splits_punctuation else words

    def name(self, id_: int) -> str:
        """Return a token as stored; "" for an unused id."""
        return str(self.table[id_]) if 0 <= id_ < self.vocab_size else ""

    def names(self) -> list[str]:
        """Return the token of each id."""
        return list(self.table)

    def stored_names(self) -> Sequence[str]:
        """Return the token of each id in the form that takes the least memory."""
        table: Sequence[str] = self.table
        return table

    @cached_property
    def _readable(self) -> Sequence[str]:
        return self.stored_names()

    def vocabulary_words(self) -> VocabularyWords:
        """Return the words of the vocabulary, which an unknown word cannot be."""
        is_included = np.ones(self.vocab_size, dtype=bool)
        is_included[[self.bos, self.eos]] = False
        is_included[self.unk] = False
        return VocabularyWords(self.table, is_included)

    @cached_property
    def _normalizer(self) -> normalizers.Normalizer | None:
        return components.make_normalizer(self.config)

    def _id(self, name: str) -> int:
        controls = {name: self.vocab_size - len(CONTROLS) + i for i, name in enumerate(CONTROLS)}
        number = controls.get(name, self.token_id(name))
        if number is None:
            raise ModelFileError(f"tokenizer.json has no '{name}'")
        return number


class PrefixIndex:
    """Sorted index of token texts without leading blanks, joiners and control symbols."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos, tokenizer.unk)]
        names = [name.lstrip(" ") for name in tokenizer.display_texts(ids)]
        order = sorted(range(len(ids)), key=names.__getitem__)
        self._names = [names[i] for i in order]
        self._ids = np.array([ids[i] for i in order], dtype=np.int64)

    def matches(self, prefix: str) -> Ids:
        """Return the sorted ids of the tokens that start with `prefix`, ignoring leading blanks."""
        prefix = prefix.lstrip(" ")
        first = bisect_left(self._names, prefix)
        last = bisect_left(self._names, True, lo=first, key=lambda name: not name.startswith(prefix))
        ids: Ids = np.sort(self._ids[first:last])
        return ids


@cache
def byte_alphabet() -> dict[str, int]:
    """Return the byte alphabet of the library: a printable byte is its own character, others follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet |= {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    return alphabet


def decode_bytes(name: str) -> str:
    """Decode a symbol in the byte alphabet to text."""
    alphabet = byte_alphabet()
    return bytes(alphabet[c] for c in name).decode("utf-8", errors="backslashreplace")


def save_tokenizer(tokenizer: Tokenizer, path: Path, origin: Origin, *, force: bool = False) -> None:
    """Save a tokenizer to a folder; `force` as in `save`."""
    files: dict[str, Content] = {
        TOKENIZER: tokenizer.json_file(),
        CONFIG: strict_json.dump({"tokenizer": to_json(tokenizer.config)}),
    }
    provenance.write(path, "tokenizer", files, origin, force=force)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a tokenizer folder or a model folder."""
    folder = verified_dir.open_dir(Path(path))
    with translate_config_errors(folder):
        config = read_json(folder, CONFIG)
        saved = config["tokenizers"]["text"] if "tokenizers" in config else config.get("tokenizer", {})
        tokenizer = read_tokenizer(folder, saved)
    folder.verify_rest()
    return tokenizer


def read_tokenizer(folder: VerifiedDir, saved: dict[str, Any], role: str = "text") -> Tokenizer:
    """Read the tokenizer of a model folder; a translation model with two has the roles `source` and `target`."""
    config = build_config(TokenizerConfig, saved_settings(saved), "tokenizer", is_saved=True)
    name = tokenizer_file(role)
    return Tokenizer.from_json(folder.bytes(name), config, str(folder.path / name))


def tokenizer_file(role: str) -> str:
    """Return the name of the file of a tokenizer."""
    return TOKENIZER if role == "text" else f"tokenizer.{role}.json"
