"""Token-to-text conversion with character offsets, and the encoding of prompts given as text or as ids."""

import builtins
import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chainrule.decoding.stop_strings import StopSearch, StopStrings
from chainrule.lm import Ids
from chainrule.server.errors import ApiError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.config import BOS, EOS
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet

CONTINUATION_PREFIX: Final = "##"  # WordPiece prefix of tokens that continue a word
BREAKS: Final = ("\n", "\r")


class TokenDecoder:
    """Decode single tokens, given the token before.

    The concatenated bytes of a line's tokens equal the text that the tokenizer decodes them to.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._controls = {tokenizer.bos: BOS, tokenizer.eos: EOS}
        self._is_plain = tokenizer.config.tokens_are_text  # token names are text, not the byte alphabet
        self._has_blanks = tokenizer.config.collapses_blanks  # every word but the first is preceded by a blank

    def bytes(self, previous: int | None, id_: int) -> bytes:
        """Return the UTF-8 bytes of a token, possibly part of a character; empty for control symbols."""
        if id_ in self._controls:
            return b""
        name = self.tokenizer.backend.id_to_token(id_) or ""
        blank = b""
        if self.tokenizer.config.splits_punctuation:
            return self._split_bytes(previous, name)
        if self._has_blanks and previous is not None and previous not in self._controls:
            is_inside = not self._is_plain and name.startswith(CONTINUATION_PREFIX)
            name = name.removeprefix(CONTINUATION_PREFIX) if is_inside else name
            blank = b"" if is_inside else b" "
        if self._is_plain or id_ == self.tokenizer.unk:
            return blank + name.encode()
        return blank + bytes(byte_alphabet()[c] for c in name)

    def _split_bytes(self, previous: int | None, name: str) -> builtins.bytes:
        is_joined = previous is None or previous in self._controls or punctuation.joined_sides(name)[0]
        if not is_joined and previous is not None:
            before = self.tokenizer.backend.id_to_token(previous) or ""
            is_joined = punctuation.joined_sides(before)[1]
        return b" " * (not is_joined) + punctuation.join(name).encode()

    def text(self, previous: int | None, id_: int) -> str:
        r"""Return the text of a token: control symbols by name, incomplete characters as \xNN."""
        if id_ in self._controls:
            return self._controls[id_]
        return self.bytes(previous, id_).decode("utf-8", errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A tokenized prompt with character offsets."""

    text: str  # as echoed in the response
    ids: tuple[int, ...]  # without `<s>`; `</s>` for each line break
    offsets: tuple[int, ...]  # start of each token in the text, in characters
    has_bos: bool = False  # given as ids that start with `<s>`

    @property
    def last(self) -> int | None:
        """The last token id, or None for an empty prompt."""
        return self.ids[-1] if self.ids else None


def encode_lines(text: str, tokenizer: Tokenizer) -> EncodedPrompt:
    """Encode a text as in evaluation: every line, including the last, ends with `</s>`."""
    ids: list[int] = []
    offsets: list[int] = []
    position = end = 0  # start of the next fragment; end of the last token
    for fragment, ends_line in Corpus.from_lines([text]).fragments():
        position = text.index(fragment, position)
        encoding = tokenizer.encoding(fragment)
        for id_, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            ids.append(id_)
            offsets.append(min(end, position + first))  # a blank belongs to the word that follows it
            end = position + last
        position += len(fragment)
        if ends_line:
            ids.append(tokenizer.eos)
            offsets.append(end)
            position += 2 if text.startswith("\r\n", position) else 1
            end = min(position, len(text))
    return EncodedPrompt(text, tuple(ids), tuple(offsets))


def encode_prompt(text: str, tokenizer: Tokenizer, *, is_continued: bool = False) -> EncodedPrompt:
    """Encode a prompt: its last line has no `</s>` unless the text ends with a line break.

    With `is_continued`, final punctuation is encoded as by `Tokenizer.encode_prompt`, otherwise as in evaluation.
    """
    encoded = encode_lines(text, tokenizer)
    if text.endswith(BREAKS):
        return encoded
    # Trailing blanks are not tokens; they are generated with the next word.
    echoed = text.rstrip(" \t") if tokenizer.config.collapses_blanks else text
    ids = encoded.ids[:-1]
    last_chunk = re.split("[ \t\r\n]", text)[-1]
    if is_continued and tokenizer.config.splits_punctuation and last_chunk:
        ids = (*ids[:-1], int(tokenizer.encode_prompt(last_chunk)[-1]))
    return EncodedPrompt(echoed, ids, encoded.offsets[:-1])


def prompt_from_ids(token_ids: Sequence[int], pieces: TokenDecoder) -> EncodedPrompt:
    """Return the prompt of token ids; a leading `<s>` is optional."""
    tokenizer = pieces.tokenizer
    has_bos = bool(token_ids) and token_ids[0] == tokenizer.bos
    ids = tuple(token_ids[has_bos:])
    invalid = next((i for i in ids if not 0 <= i < tokenizer.vocab_size or i == tokenizer.bos), None)
    if invalid is not None:
        reason = (
            f"id {invalid} is {BOS}, which may only be the first of a prompt"
            if invalid == tokenizer.bos
            else f"there is no token {invalid}; ids run from 0 to {tokenizer.vocab_size - 1}"
        )
        raise ApiError(400, reason, param="prompt")
    text, offsets = _decode_with_offsets(ids, pieces)
    return EncodedPrompt(text, ids, offsets, has_bos)


def decode_ids(ids: Sequence[int], pieces: TokenDecoder) -> str:
    """Decode ids to text, with a line break for `</s>` and nothing for `<s>`."""
    return _decode_with_offsets(ids, pieces)[0]


def _decode_with_offsets(ids: Sequence[int], pieces: TokenDecoder) -> tuple[str, tuple[int, ...]]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts: list[str] = []
    offsets: list[int] = []
    length = 0
    previous = None
    for id_ in ids:
        is_break = id_ == pieces.tokenizer.eos
        offsets.append(length)
        part = decoder.decode(pieces.bytes(previous, id_), is_break) + "\n" * is_break
        parts.append(part)
        length += len(part)
        previous = id_
    return "".join(parts) + decoder.decode(b"", True), tuple(offsets)


DrawSpelling = Callable[[], str]
"""Draws the spelling of the next unknown word of a sample."""


class StreamDecoder:
    """Decode the tokens of one sample to text; with `spell`, `<unk>` is replaced by a drawn spelling.

    Attributes:
        spelled: Text of each spelled token by position, including the blank before it.

    """

    def __init__(self, pieces: TokenDecoder, previous: int | None, spell: DrawSpelling | None = None) -> None:
        self.spelled: dict[int, str] = {}
        self._pieces = pieces
        self._previous = previous
        self._spell = spell
        self._tokens = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, id_: int) -> str:
        """Return the text that a token adds."""
        added = self._pieces.bytes(self._previous, id_)
        if self._spell is not None and id_ == self._pieces.tokenizer.unk:
            added = added.removesuffix(self._pieces.bytes(None, id_)) + self._spell().encode()
            self.spelled[self._tokens] = added.decode()
        self._previous = id_
        self._tokens += 1
        return self._decoder.decode(added)

    def end(self) -> str:
        """End the text; an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", True)


class IncrementalDetokenizer:
    """Incremental detokenizer that searches for stop strings.

    Released text is not stored, so that adding a token never copies the text before it.

    Attributes:
        offsets: Start of each token in the text; for a token inside a character, the start of that character.

    """

    def __init__(
        self, pieces: TokenDecoder, previous: int | None, stops: StopStrings, spell: DrawSpelling | None = None
    ) -> None:
        self.offsets: list[int] = []
        self._text = StreamDecoder(pieces, previous, spell)
        self._search = StopSearch(stops)
        self._released = 0
        self._pending = ""  # decoded text not yet released

    @property
    def spelled(self) -> dict[int, str]:
        """Text of each spelled token by position."""
        return self._text.spelled

    @property
    def stop_start(self) -> int | None:
        """Start of the first stop string, or None."""
        return self._search.start

    @property
    def length(self) -> int:
        """Number of decoded characters, including a stop string and the text after it."""
        return self._search.length

    @property
    def stable_length(self) -> int:
        """Number of leading characters that no further token can change or turn into a stop string."""
        return self.length - self._search.held_back if self.stop_start is None else self.stop_start

    def add(self, id_: int) -> None:
        """Add one token."""
        self.offsets.append(self.length)
        self._extend(self._text.add(id_))

    def end(self) -> None:
        """End the text; an incomplete character becomes U+FFFD."""
        self._extend(self._text.end())

    def release(self, end: int) -> str:
        """Return the characters up to `end` that were not released before."""
        text = self._pending[: max(0, end - self._released)]
        self._pending = self._pending[len(text) :]
        self._released += len(text)
        return text

    def _extend(self, added: str) -> None:
        self._pending += added
        self._search.feed(added)


class StopCheck:
    """Callable that tells whether a token completes a stop string; call it with every token of one sample.

    Spellings of unknown words are drawn later, so the search restarts after each of them; stop strings that overlap
    a spelling are found by `IncrementalDetokenizer`.
    """

    def __init__(
        self, pieces: TokenDecoder, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
    ) -> None:
        self._text = StreamDecoder(pieces, previous)
        self._stops = stops
        self._search = StopSearch(stops)
        self._unk = pieces.tokenizer.unk if is_unknown_spelled else None

    def __call__(self, id_: int) -> bool:
        """Add a token and return whether a stop string is complete."""
        added = self._text.add(id_)
        if id_ == self._unk:
            self._search = StopSearch(self._stops)
        else:
            self._search.feed(added)
        return self._search.start is not None


def stop_checks(
    pieces: TokenDecoder, previous: int | None, stops: StopStrings, *, is_unknown_spelled: bool = False
) -> Callable[[], StopCheck] | None:
    """Return a factory of `StopCheck`, one per sample; None if there are no stop strings."""
    if not stops:
        return None
    return lambda: StopCheck(pieces, previous, stops, is_unknown_spelled=is_unknown_spelled)


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
