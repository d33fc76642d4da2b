"""Pairs of a misspelling and the word that was meant, from files.

Lives here: the three forms in which such pairs are passed around. Not here: what is learnt from them (channel.py).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chainrule.errors import InputError
from chainrule.text.corpus import Corpus


class Misspelling(NamedTuple):
    """What was written, and what was meant."""

    wrong: str
    right: str


def read_misspellings(files: Sequence[str | Path]) -> list[Misspelling]:
    """The pairs of all files, each in one of three forms, told apart line by line.

    `wrong<TAB>right`; `right: wrong wrong`; or `$right` with its misspellings below it, one a line, and `_` for a
    blank. A word that is given as its own misspelling is left out.
    """
    found = [pair for file in files for pair in _read(file)]
    return [pair for pair in found if pair.wrong and pair.right and pair.wrong != pair.right]


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
            meant = _spaced(line[1:])
        elif ":" in line:
            right, _, wrongs = line.partition(":")
            pairs += [Misspelling(_spaced(wrong), _spaced(right)) for wrong in wrongs.split()]
        elif meant:
            pairs.append(Misspelling(_spaced(re.sub(r" \d+$", "", line)), meant))
        else:
            raise InputError(
                f"{corpus.name}, line {number}: {line[:40]!r} is no pair; "
                "write wrong<TAB>right, or right: wrong wrong, or $right and below it its misspellings"
            )
    return pairs


def _spaced(word: str) -> str:
    return word.strip().replace("_", " ")
