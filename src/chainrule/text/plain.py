"""Select corpora that the compiled extension can read directly: uncompressed plain text files.

Files are judged by name here. The extension returns None for content that needs the Python reader (a byte order
mark, CR, invalid UTF-8, very long lines; see cpp/text/lines.hpp).
"""

import os
from dataclasses import dataclass
from typing import Any, Final

from chainrule import native, processors
from chainrule.text.compression import SUFFIXES
from chainrule.text.corpus import Corpus
from chainrule.text.documents import TABLES

RECORDS: Final = (".jsonl", ".ndjson", ".parquet")  # tables also, if a column is named


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Files that are plain text by name, and the extension that reads them."""

    core: Any
    names: list[bytes]
    threads: int


def find_plain_files(corpus: Corpus) -> PlainFiles | None:
    """Return the files of a corpus for the extension; None if it cannot read them or is not built."""
    # Compressed data without a suffix is detected by the extension: no magic bytes are valid UTF-8.
    is_special = any(
        name.lower().endswith((*SUFFIXES, *RECORDS, *(TABLES if corpus.column is not None else ())))
        for file in corpus.files
        for name in (file.name, file.path.name)
    )
    if (
        is_special
        or any(file.stream for file in corpus.files)
        or corpus.texts
        or corpus.drop_blank_lines
        or not corpus.files
    ):
        return None
    core = native.load()
    if core is None:
        return None
    return PlainFiles(core, [os.fsencode(file.path) for file in corpus.files], processors.thread_count())
