"""Ids as pieces of text: what each token adds, and where in a text it stands.

Lives here: one token in its place, and a prompt, given as text or as ids, cut into tokens. Not here: the text of
a completion while it grows (writing.py).
"""

import builtins
import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.server.errors import ApiError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.config import BOS, EOS
from chainrule.tokenizers.tokenizer import Tokenizer, byte_alphabet

INSIDE_A_WORD: Final = "##"  # how WordPiece marks a piece that goes on with a word
BREAKS: Final = ("\n", "\r")


class Pieces:
    """What a token adds to a text, given the token before it.

    The bytes of a line's tokens, joined, are the text that the tokenizer decodes them to.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._controls = {tokenizer.bos: BOS, tokenizer.eos: EOS}
        self._is_plain = tokenizer.config.is_names  # names are text, not the byte alphabet
        self._has_blanks = tokenizer.config.collapses_blanks  # each word but the first has a blank before it

    def bytes(self, previous: int | None, id_: int) -> bytes:
        """UTF-8, perhaps of a part of a character; control symbols add nothing."""
        if id_ in self._controls:
            return b""
        name = self.tokenizer.backend.id_to_token(id_) or ""
        blank = b""
        if self.tokenizer.config.splits_punctuation:
            return self._split_bytes(previous, name)
        if self._has_blanks and previous is not None and previous not in self._controls:
            is_inside = not self._is_plain and name.startswith(INSIDE_A_WORD)
            name = name.removeprefix(INSIDE_A_WORD) if is_inside else name
            blank = b"" if is_inside else b" "
        if self._is_plain or id_ == self.tokenizer.unk:
            return blank + name.encode()
        return blank + bytes(byte_alphabet()[c] for c in name)

    def _split_bytes(self, previous: int | None, name: str) -> builtins.bytes:
        is_joined = previous is None or previous in self._controls or punctuation.joins(name)[0]
        if not is_joined and previous is not None:
            before = self.tokenizer.backend.id_to_token(previous) or ""
            is_joined = punctuation.joins(before)[1]
        return b" " * (not is_joined) + punctuation.join(name).encode()

    def text(self, previous: int | None, id_: int) -> str:
        r"""The same to be read: a control symbol by its name, bytes that are no character as \xNN."""
        if id_ in self._controls:
            return self._controls[id_]
        return self.bytes(previous, id_).decode("utf-8", errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class Given:
    """A prompt as tokens in their places."""

    text: str  # as it is echoed
    ids: tuple[int, ...]  # without `<s>`; `</s>` for each line break
    begins: tuple[int, ...]  # where in the text each begins, in characters
    has_bos: bool = False  # it was given as ids, and `<s>` was the first

    @property
    def last(self) -> int | None:
        """The token that the next one follows."""
        return self.ids[-1] if self.ids else None


def lay_out(text: str, tokenizer: Tokenizer) -> Given:
    """Every line of a text as in evaluation, `</s>` at the end of each, the last among them."""
    ids: list[int] = []
    begins: list[int] = []
    position = end = 0  # where the next piece of a line begins; where the last token ended
    for fragment, ends_line in Corpus.from_lines([text]).fragments():
        position = text.index(fragment, position)
        encoding = tokenizer.encoding(fragment)
        for id_, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            ids.append(id_)
            begins.append(min(end, position + first))  # a blank belongs to the word behind it
            end = position + last
        position += len(fragment)
        if ends_line:
            ids.append(tokenizer.eos)
            begins.append(end)
            position += 2 if text.startswith("\r\n", position) else 1
            end = min(position, len(text))
    return Given(text, tuple(ids), tuple(begins))


def prompt_of_text(text: str, tokenizer: Tokenizer, *, is_continued: bool = False) -> Given:
    """A text to go on with: its last line is open unless a break ends it.

    With `is_continued`, a mark at the end is read as by `Tokenizer.encode_prompt`, else as in evaluation.
    """
    whole = lay_out(text, tokenizer)
    if text.endswith(BREAKS):
        return whole
    # Blanks that the tokenizer does not read come again with the next word.
    shown = text.rstrip(" \t") if tokenizer.config.collapses_blanks else text
    ids = whole.ids[:-1]
    last_chunk = re.split("[ \t\r\n]", text)[-1]
    if is_continued and tokenizer.config.splits_punctuation and last_chunk:
        ids = (*ids[:-1], int(tokenizer.encode_prompt(last_chunk)[-1]))
    return Given(shown, ids, whole.begins[:-1])


def prompt_of_ids(given: Sequence[int], pieces: Pieces) -> Given:
    """Ids to go on with; `<s>` may be the first, and is read once in any case."""
    tokenizer = pieces.tokenizer
    has_bos = bool(given) and given[0] == tokenizer.bos
    ids = tuple(given[has_bos:])
    wrong = next((i for i in ids if not 0 <= i < tokenizer.vocab_size or i == tokenizer.bos), None)
    if wrong is not None:
        reason = (
            f"id {wrong} is {BOS}, which may only be the first of a prompt"
            if wrong == tokenizer.bos
            else f"there is no token {wrong}; ids run from 0 to {tokenizer.vocab_size - 1}"
        )
        raise ApiError(400, reason, param="prompt")
    text, begins = _spell(ids, pieces)
    return Given(text, ids, begins, has_bos)


def text_of_ids(ids: Sequence[int], pieces: Pieces) -> str:
    """The text of ids, a line break for `</s>` and nothing for `<s>`."""
    return _spell(ids, pieces)[0]


def _spell(ids: Sequence[int], pieces: Pieces) -> tuple[str, tuple[int, ...]]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts: list[str] = []
    begins: list[int] = []
    length = 0
    previous = None
    for id_ in ids:
        is_break = id_ == pieces.tokenizer.eos
        begins.append(length)
        part = decoder.decode(pieces.bytes(previous, id_), is_break) + "\n" * is_break
        parts.append(part)
        length += len(part)
        previous = id_
    return "".join(parts) + decoder.decode(b"", True), tuple(begins)
