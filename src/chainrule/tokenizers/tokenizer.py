"""str <-> ids: one class over the `tokenizers` library, whatever the kind of token.

Control symbols are added tokens outside the model's vocabulary, so that `<s>` in a user's text is ordinary
text. Not here: how a vocabulary is made (train.py), how a corpus is read (encode.py).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import tokenizers
from tokenizers import AddedToken, normalizers, pre_tokenizers

from chainrule.errors import InputError, ModelFileError
from chainrule.lm import Ids, Vocabulary
from chainrule.tokenizers import components, punctuation
from chainrule.tokenizers.config import BOS, EOS, JOINER, TokenizerConfig


def split_words(text: str) -> list[str]:
    r"""Cut at ASCII space and tab, and at nothing else (not at U+00A0, U+0085, U+2028 or a form feed).

    >>> split_words(" a\u00a0b \tc")
    ['a\xa0b', 'c']
    """
    return [word for word in text.replace("\t", " ").split(" ") if word]


def normalizer(config: TokenizerConfig) -> normalizers.Normalizer | None:
    """What lower-cases the text; None where it stays as it is."""
    if not config.lowercase:
        return None
    lower = normalizers.Lowercase()
    if not config.locale:
        return lower
    turkish = [normalizers.Replace(upper, content) for upper, content in components.TURKISH.items()]
    return normalizers.Sequence([*turkish, lower])


@contextmanager
def no_panic() -> Iterator[None]:
    """Turn a panic of the `tokenizers` library into a ModelFileError.

    A panic of Rust arrives as `pyo3_runtime.PanicException`, which is no Exception and cannot be imported: it would
    end a server's worker thread.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ModelFileError(
            f"the tokenizers library failed: {str(error)[:200]}; train the tokenizer again"
        ) from error


@dataclass(frozen=True, slots=True)
class Encoding:
    """Ids of a text with the characters that each stands for, as the `tokenizers` library gives them."""

    ids: list[int]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True)
class Tokenizer:
    """A trained tokenizer; ids run from 0 to `vocab_size` − 1, `<s>` and `</s>` among them."""

    backend: tokenizers.Tokenizer
    config: TokenizerConfig

    @classmethod
    def sealed(cls, backend: tokenizers.Tokenizer, config: TokenizerConfig) -> "Tokenizer":
        """Add the control symbols to a backend that has none yet."""
        symbols = [AddedToken(name, special=True, normalized=False) for name in (BOS, EOS)]
        backend.add_special_tokens(symbols)
        backend.encode_special_tokens = True
        return cls(backend, config)

    @classmethod
    def from_json(
        cls, content: str | bytes, config: TokenizerConfig, source: str = "tokenizer.json"
    ) -> "Tokenizer":
        """Read `tokenizer.json`; a file with other components than those of components.py is refused."""
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{source} is not UTF-8: {error}") from error
        components.check_kind(components.check(text, source), config, byte_alphabet(), source)
        try:
            with no_panic():
                backend = tokenizers.Tokenizer.from_str(text)
        except ModelFileError:
            raise
        except Exception as error:  # the library raises a bare Exception
            raise ModelFileError(f"{source} is not a tokenizer: {error}") from error
        backend.encode_special_tokens = True  # the file does not keep it
        return cls(backend, config)

    def to_json(self) -> str:
        """What `tokenizer.json` holds."""
        return self.backend.to_str(pretty=True)

    @cached_property
    def vocab_size(self) -> int:
        """V, control symbols counted."""
        with no_panic():
            return self.backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def bos(self) -> int:
        """The id of `<s>`."""
        return self._id(BOS)

    @cached_property
    def eos(self) -> int:
        """The id of `</s>`."""
        return self._id(EOS)

    @cached_property
    def unk(self) -> int | None:
        """The id of the unknown word; None where every text can be written without it."""
        return None if self.config.is_lossless else self._id(self.config.unk)

    @property
    def vocabulary(self) -> Vocabulary:
        """What a model needs to know of it."""
        return Vocabulary(self.vocab_size, self.bos, self.eos, self.unk, self.config.closed)

    @cached_property
    def known(self) -> dict[str, int]:
        """The ids of the model's vocabulary by name, control symbols not among them."""
        with no_panic():
            return self.backend.get_vocab(with_added_tokens=False)

    def see(self, text: str) -> str:
        """The text as the tokenizer sees it: lower-cased, blanks collapsed, where it does so."""
        seen = self.normalize(text)
        return " ".join(split_words(seen)) if self.config.collapses_blanks else seen

    def normalize(self, text: str) -> str:
        """The text lower-cased, where the tokenizer does so."""
        if self._normalizer is None:
            return text
        with no_panic():
            return self._normalizer.normalize_str(text)

    @cached_property
    def _normalizer(self) -> normalizers.Normalizer | None:
        found: normalizers.Normalizer | None = self.backend.normalizer
        return found

    def words(self, text: str) -> list[str]:
        """The tokens of a piece of one line by name, those outside the vocabulary among them; words alone."""
        seen = self.normalize(text)
        return split_words(punctuation.split(seen, self.config.unk) if self.config.splits_punctuation else seen)

    def encode(self, text: str) -> Ids:
        """Ids of a piece of one line, control symbols neither added nor recognised."""
        return np.array(self.encoding(text).ids, dtype=np.int32)

    def encode_prompt(self, text: str) -> Ids:
        """Ids of the beginning of a line that is to be continued.

        They differ from those of `encode` in a punctuation mark at the very end, where punctuation is split: an
        opening bracket or quotation mark is joined to what follows; any other mark is read with or without a joiner
        behind it, whichever form is the more frequent.
        """
        ids = self.encode(text)
        if self.config.splits_punctuation and len(ids):
            name, _, end = self.spans(text)[-1]
            if end == len(text):  # no blank behind it
                ids[-1] = self._open_form(name, int(ids[-1]))
        return ids

    def _open_form(self, name: str, id_: int) -> int:
        """The id of the last token of a prompt, with or without a joiner behind it."""
        joined = self.known.get(name + JOINER)
        if joined is None or not punctuation.is_mark(name):
            return id_
        if id_ == self.unk or punctuation.is_opening(name):
            return joined
        return min(id_, joined)  # ids ascend as frequencies fall

    def encoding(self, text: str) -> "tokenizers.Encoding | Encoding":
        """Ids of a piece of one line with the characters that each stands for."""
        if self.config.splits_punctuation:
            return self._split_encoding(text)
        try:
            with no_panic():
                return self.backend.encode(text, add_special_tokens=False)
        except TypeError as error:  # a lone surrogate: bytes on the command line that are not UTF-8
            raise InputError(f"{text[:40]!a} is no text: it holds what is not UTF-8; mend it") from error

    def _split_encoding(self, text: str) -> "Encoding":
        assert self.unk is not None
        spans = self.spans(text)
        ids = [self.known.get(name, self.unk) for name, _, _ in spans]
        return Encoding(ids, [(first, last) for _, first, last in spans])

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """The tokens of a line by name, those outside the vocabulary among them, and where they begin and end.

        For a tokenizer that splits punctuation.
        """
        spans = punctuation.split_spans(self.normalize(text), self.config.unk)
        if self._normalizer is None:
            return spans
        places = self._places(text)
        return [(name, places[first][0], places[last - 1][1]) for name, first, last in spans]

    def _places(self, text: str) -> list[tuple[int, int]]:
        """Where the characters begin and end of which each character of the normalized text was made.

        The library lower-cases characters one by one, and replaces what is Turkish before: one may become two, and
        I with a combining dot becomes one.
        """
        parts = re.finditer("I\u0307|.", text, re.DOTALL)
        return [part.span() for part in parts for _ in self.normalize(part[0])]

    def encodings(self, texts: Sequence[str]) -> "Sequence[tokenizers.Encoding | Encoding]":
        """The same of several texts, on all cores."""
        if self.config.splits_punctuation:
            return [self._split_encoding(text) for text in texts]
        with no_panic():
            return self.backend.encode_batch(list(texts), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control symbols left out."""
        keep = [int(i) for i in ids if i not in (self.bos, self.eos)]
        if self.config.splits_punctuation:
            return punctuation.join(" ".join(self._readable[i] for i in keep))
        with no_panic():
            return self.backend.decode(keep, skip_special_tokens=False)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        r"""What each id stands for, readable: bytes that are no character by themselves as \xNN."""
        return [self._readable[int(i)] for i in ids]

    def spellings_known(self) -> list[str]:
        """What an unknown word cannot be: the words of the vocabulary; none where tokens are pieces of words."""
        if not self.config.is_names:
            return []
        control = {self.bos, self.eos, self.unk}
        return [name for i, name in enumerate(self.names()) if i not in control]

    def texts(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for by itself: as `tokens`, but punctuation marks without joiners."""
        return [self.text_of(name) for name in self.tokens(ids)]

    def text_of(self, name: str) -> str:
        """A token of `tokens` as a reader knows it: a punctuation mark without joiners."""
        return punctuation.without_joiners(name) if self.config.splits_punctuation else name

    def word_id(self, word: str) -> int:
        """The id of a word that stands by itself; of a punctuation mark also where only joined ones are known.

        For tokenizers of words, where the words are given and not to be split.
        """
        assert self.unk is not None
        name = self.normalize(word)
        forms = punctuation.joined_forms(name) if self.config.splits_punctuation else [name]
        return next((self.known[form] for form in forms if form in self.known), self.unk)

    def names(self) -> list[str]:
        """What the backend calls each id; "" where it has none."""
        with no_panic():
            return [self.backend.id_to_token(i) or "" for i in range(self.vocab_size)]

    @cached_property
    def _readable(self) -> list[str]:
        names = self.names()
        if self.config.is_names:
            return names
        return [name if i in (self.bos, self.eos, self.unk) else readable(name) for i, name in enumerate(names)]

    def _id(self, name: str) -> int:
        with no_panic():
            number = self.backend.token_to_id(name)
        if number is None:
            raise ModelFileError(f"tokenizer.json has no '{name}'")
        return number


@cache
def byte_alphabet() -> dict[str, int]:
    """The character the library writes for each byte: itself where printable, else the next one from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet |= {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    return alphabet


def readable(name: str) -> str:
    """A symbol written in the byte alphabet, as text."""
    alphabet = byte_alphabet()
    return bytes(alphabet[c] for c in name).decode("utf-8", errors="backslashreplace")
