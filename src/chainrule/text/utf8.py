"""Bytes -> str: UTF-8, strictly or with U+FFFD for what is not, and counted.

Lives here: decoding and its errors. Not here: where bytes come from (compression.py).
"""

import codecs
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from chainrule.errors import ChainruleWarning, InputError

Errors = Literal["strict", "replace"]

CONVERT: Final = "convert it to UTF-8"
OPTION: Final = ", or read it with --errors replace"
"""What a message adds where there is such an option."""
_MARK: Final = "\ufeff"
_REPLACEMENT: Final = "\ufffd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def warn_of_replaced(name: str, count: int) -> None:
    """Say how many sequences of a text were not UTF-8, where there were any."""
    if count:
        message = f"{name}: {count} sequences are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=3)


@dataclass(slots=True)
class Decoder:
    """Decodes one pass over a corpus; `replaced` counts the sequences that were not UTF-8 so far."""

    errors: Errors = "strict"
    replaced: int = 0
    remedy: str = CONVERT + OPTION  # what messages advise

    def decode_blocks(self, blocks: Iterable[bytes], where: str) -> Iterator[str]:
        """The text of a file given in non-empty blocks, without its byte order mark."""
        rest, offset = b"", 0
        for block in chain(blocks, [b""]):
            data = rest + block
            text, used = self._decode(data, where, offset, is_last=not block)
            yield text if offset else text.removeprefix(_MARK)
            rest, offset = data[used:], offset + used

    def decode_document(self, data: bytes, where: str) -> str:
        """The text of one whole document."""
        return self._decode(data, where, 0, is_last=True)[0]

    def check(self, text: str, where: str) -> str:
        """The text itself where UTF-8 can hold it: lone surrogates, which JSON can spell, it cannot."""
        if self.errors == "strict" and (found := _SURROGATE.search(text)):
            code = ord(found[0])
            raise InputError(f"{where} holds the lone surrogate U+{code:X}, which is no text; {self.remedy}")
        text, count = _SURROGATE.subn(_REPLACEMENT, text)
        self.replaced += count
        return text

    def _decode(self, data: bytes, where: str, offset: int, is_last: bool) -> tuple[str, int]:
        try:
            text, used = codecs.utf_8_decode(data, self.errors, is_last)
        except UnicodeDecodeError as error:
            at = error.start
            raise InputError(
                f"{where} is not UTF-8 at byte {offset + at} (0x{data[at]:02x}); {self.remedy}"
            ) from None
        if self.errors == "replace":
            # A U+FFFD that was spelled out in the file is ordinary text.
            self.replaced += text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
        return text, used
