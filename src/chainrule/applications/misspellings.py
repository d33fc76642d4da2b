"""Read pairs of misspelt and intended words from files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chainrule.errors import InputError
from chainrule.text.corpus import Corpus


class Misspelling(NamedTuple):
    """A misspelt word and the intended word."""

    wrong: str
    right: str


def read_misspellings(files: Sequence[str | Path]) -> list[Misspelling]:
    """Read the pairs of all files; the format is detected line by line.

    Formats: `wrong<TAB>right`; `right: wrong wrong`; or `$right` followed by its misspellings, one per line, with
    `_` for a blank. Pairs of identical words are dropped.
    """
    pairs = [pair for file in files for pair in _read(file)]
    return [pair for pair in pairs if pair.wrong and pair.right and pair.wrong != pair.right]


def _read(file: str | Path) -> list[Misspelling]:
    corpus = Corpus.of(str(file), expects_lines=False)
    pairs: list[Misspelling] = []
    meant = ""
    for number, line in enumerate(corpus, start=1):
        if not line.strip():
            continue
        if "\t" in line:
            columns = line.split("\t")
            if len(columns) != 2:
                where = f"{corpus.name}, line {number} has {len(columns) - 1} tabs"
                raise InputError(f"{where}; a line is: what was written, one tab, what was meant")
            pairs.append(Misspelling(*(column.strip() for column in columns)))
        elif line.startswith("$"):
            meant = _parse_word(line[1:])
        elif ":" in line:
            right, _, wrongs = line.partition(":")
            pairs += [Misspelling(_parse_word(wrong), _parse_word(right)) for wrong in wrongs.split()]
        elif meant:
            pairs.append(Misspelling(_parse_word(re.sub(r" \d+$", "", line)), meant))
        else:
            raise InputError(
                f"{corpus.name}, line {number}: {line[:40]!r} is not a pair; "
                "write wrong<TAB>right, or right: wrong wrong, or $right and below it its misspellings"
            )
    return pairs


def _parse_word(word: str) -> str:
    return word.strip().replace("_", " ")
