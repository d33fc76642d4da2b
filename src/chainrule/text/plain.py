"""Which text the compiled core may read by itself: files whose lines stand there just as a corpus gives them.

Lives here: what can be told of files by their names. Not here: what only their bytes tell (cpp/text/lines.hpp: a
byte order mark, CR, what is not UTF-8, lines of more than a fragment); the core answers None for those, and the
text is read by corpus.py, which defines what is read.
"""

import os
from dataclasses import dataclass
from typing import Any, Final

from chainrule import native, processors
from chainrule.text.compression import SUFFIXES
from chainrule.text.corpus import Corpus
from chainrule.text.documents import TABLES

RECORDS: Final = (".jsonl", ".ndjson", ".parquet")  # and tables, if a column is named


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Files that are plain text as far as their names tell, and the core that reads them."""

    core: Any
    names: list[bytes]
    threads: int


def find_plain(corpus: Corpus) -> PlainFiles | None:
    """The corpus's files for the core; None where it cannot read them, or is not there."""
    # Packed data is told by its first bytes too, and none of those are UTF-8.
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
    return PlainFiles(core, [os.fsencode(file.path) for file in corpus.files], processors.threads())
