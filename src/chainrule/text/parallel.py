"""Read sentence pairs (source, target) from two aligned files or one tab-separated table."""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.text.corpus import Corpus, open_file, read_batches

ONE_FILE: Final = "give one file, so that lines have numbers"
COLUMN_NAMES: Final = re.compile(  # usual names of the two columns of a table
    r"source|target|src|tgt|trg|input|output|question|answer|original|translation|text|reference|sentence[12]|"
    r"ar|bg|cs|da|de|el|en|es|et|fi|fr|he|hi|hu|id|it|ja|ko|lt|lv|nl|no|pl|pt|ro|ru|sk|sl|sv|th|tr|uk|vi|zh|"
    r"english|german|deutsch|french|spanish|italian|portuguese|dutch|czech|polish|russian|chinese|japanese"
)


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """Aligned source and target sentences in file order."""

    sources: Sequence[str]
    targets: Sequence[str]
    name: str = "the pairs given"
    numbers: tuple[int, ...] = ()  # line number of each pair in its file, from 1; 1, 2, … by default
    left_out: int = 0  # lines of the file that were dropped because one side is empty

    def __post_init__(self) -> None:
        for side in ("sources", "targets"):
            if isinstance(getattr(self, side), str):
                raise InputError(f"{self.name}: {side} is one text; give a list of texts, such as [text]")
            object.__setattr__(self, side, tuple(getattr(self, side)))
        if len(self.sources) != len(self.targets):
            count = f"{len(self.sources)} sources but {len(self.targets)} targets"
            raise InputError(f"{self.name}: there are {count}; give one target for each source")
        object.__setattr__(self, "numbers", tuple(self.numbers or range(1, len(self.sources) + 1)))

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.sources)


def read_pairs(files: str | Path | Sequence[str | Path], *, keeps_empty: bool = False) -> SentencePairs:
    """Read the pairs of two files, line by line, or of one table with lines `source<TAB>target`.

    Pairs with an empty side (white space only) are dropped with one warning that counts them; with `keeps_empty`
    all lines are kept. A first line of a table that looks like a header is read as a pair, with a warning.
    """
    paths = [files] if isinstance(files, str | Path) else list(files)
    if len(paths) not in (1, 2):
        raise UsageError(f"{len(paths)} files were given for pairs; give two (source, target), or one table")
    texts = [open_file(file, ONE_FILE) for file in paths]
    name = ", ".join(text.name for text in texts)
    lines = _read_table(texts[0]) if len(texts) == 1 else _read_aligned(texts[0], texts[1])
    if len(texts) == 1 and lines and _is_header(lines[0]):
        shown = " and ".join(map(repr, lines[0]))
        message = f"{name}, line 1 looks like a header ({shown}) and is read as a pair; delete it if it is one"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    is_complete = [keeps_empty or all(side.strip() for side in sides) for sides in lines]
    numbers = [number for number, complete in enumerate(is_complete, start=1) if complete]
    if not numbers:
        raise InputError(f"{name}: none of {len(lines)} lines is a pair with text on both sides; check the files")
    if empty := len(lines) - len(numbers):
        first = is_complete.index(False) + 1
        message = f"{name}: {empty} of {len(lines)} pairs have an empty side, the first in line {first}; left out"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    sources, targets = zip(*(lines[number - 1] for number in numbers), strict=True)
    return SentencePairs(sources, targets, name, tuple(numbers), empty)


def read_sources(file: str | Path) -> list[str]:
    """Read source sentences without targets, one per line; empty lines are kept."""
    return list(open_file(file, ONE_FILE))


def read_source_batches(file: str | Path) -> Iterator[list[str]]:
    """Read source sentences in batches: a file as one batch, standard input as it becomes available."""
    if str(file) != "-":
        yield read_sources(file)
        return
    yield from read_batches(Corpus.of(file, reads_once=True, has_errors_option=False))


def read_aligned_lines(file: str | Path, pairs: SentencePairs) -> list[str]:
    """Read the lines of a text with one line for every pair, or for every line of the pairs' file."""
    lines, expected = read_sources(file), len(pairs) + pairs.left_out
    if len(lines) not in (len(pairs), expected):
        count = f"{len(lines)} line" + "s" * (len(lines) != 1)
        raise InputError(f"{file} has {count}, but {expected} are needed: one for every line of {pairs.name}")
    return lines


def _is_header(sides: tuple[str, str]) -> bool:
    """Whether both sides are usual column names and differ."""
    first, second = (side.strip().lower() for side in sides)
    return first != second and all(map(COLUMN_NAMES.fullmatch, (first, second)))


def _read_aligned(source: Corpus, target: Corpus) -> list[tuple[str, str]]:
    sources, targets = list(source), list(target)
    if len(sources) != len(targets):
        raise InputError(
            f"{source.name} has {len(sources)} lines but {target.name} has {len(targets)}; "
            "line n of one must be the translation of line n of the other"
        )
    return list(zip(sources, targets, strict=True))


def _read_table(table: Corpus) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(list(table), start=1):
        if (tabs := line.count("\t")) != 1:
            raise InputError(
                f"{table.name}, line {number} has {tabs} tabs; a line must be source, one tab, target "
                "(or give two files, one for each side)"
            )
        source, target = line.split("\t")
        pairs.append((source, target))
    return pairs
