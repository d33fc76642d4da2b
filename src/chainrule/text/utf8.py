"""Decode UTF-8, strictly or with invalid sequences replaced by U+FFFD and counted."""

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
"""Added to error messages of commands with the option `--errors`."""
_MARK: Final = "\ufeff"
_REPLACEMENT: Final = "\ufffd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def warn_about_replaced(name: str, count: int) -> None:
    """Warn about the number of invalid UTF-8 sequences, if any."""
    if count:
        message = f"{name}: {count} sequences are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=3)


@dataclass(slots=True)
class Decoder:
    """Decoder for one pass over a corpus; `replaced` counts the invalid UTF-8 sequences so far."""

    errors: Errors = "strict"
    replaced: int = 0
    remedy: str = CONVERT + OPTION  # advice in error messages

    def decode_blocks(self, blocks: Iterable[bytes], where: str) -> Iterator[str]:
        """Decode non-empty blocks of a file and drop its byte order mark."""
        rest, offset = b"", 0
        for block in chain(blocks, [b""]):
            data = rest + block
            text, used = self._decode(data, where, offset, is_last=not block)
            yield text if offset else text.removeprefix(_MARK)
            rest, offset = data[used:], offset + used

    def decode_document(self, data: bytes, where: str) -> str:
        """Decode a whole document."""
        return self._decode(data, where, 0, is_last=True)[0]

    def check(self, text: str, where: str) -> str:
        """Return the text; raise for or replace lone surrogates, which JSON can contain but UTF-8 cannot encode."""
        if self.errors == "strict" and (match := _SURROGATE.search(text)):
            code = ord(match[0])
            raise InputError(f"{where} contains the lone surrogate U+{code:X}, which is not text; {self.remedy}")
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
            # Do not count U+FFFD characters that are in the file.
            self.replaced += text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
        return text, used
