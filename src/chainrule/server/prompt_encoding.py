"""Encoding of prompts given as text or as ids, with the character offset of each token."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.server.errors import ApiError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import BOS
from chainrule.tokenizers.tokenizer import Tokenizer

BREAKS: Final = ("\n", "\r")


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

    With `is_continued`, final punctuation is encoded as in `Tokenizer.encode_prompt`, otherwise as in evaluation.
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


def prompt_from_ids(token_ids: Sequence[int], tokenizer: Tokenizer) -> EncodedPrompt:
    """Return the prompt of token ids; a leading `<s>` is optional."""
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
    text, offsets = _decode_with_offsets(ids, tokenizer)
    return EncodedPrompt(text, ids, offsets, has_bos)


def decode_ids(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Decode ids to text, with a line break for `</s>` and nothing for `<s>`."""
    return _decode_with_offsets(ids, tokenizer)[0]


def _decode_with_offsets(ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, tuple[int, ...]]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts: list[str] = []
    offsets: list[int] = []
    length = 0
    previous = None
    for id_ in ids:
        is_break = id_ == tokenizer.eos
        offsets.append(length)
        part = decoder.decode(tokenizer.token_bytes(previous, id_), is_break) + "\n" * is_break
        parts.append(part)
        length += len(part)
        previous = id_
    return "".join(parts) + decoder.decode(b"", True), tuple(offsets)
