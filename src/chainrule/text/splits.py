"""Training, validation and test sets: seeded random splits, and the texts used if none is named.

Contiguous blocks of lines are assigned at random rather than single lines, because neighbouring lines are similar.
"""

import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from chainrule.config import check_seed
from chainrule.errors import InputError, NotFoundError, UsageError
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import SHORTEST_LINE
from chainrule.text.lines import BLANKS, cut_lines, drop_blank_lines, join_lines
from chainrule.text.readers import Sources

Fractions = tuple[float, float, float]

NOVEL: Final = Path(__file__).parent / "embedded" / "pride-and-prejudice.txt.xz"
SUBSAMPLE_BLOCKS: Final = 256
"""Number of blocks in which a text is subsampled."""


@dataclass(frozen=True, slots=True)
class Split:
    """Three disjoint parts of one text, each in text order."""

    train: list[str]
    valid: list[str]
    test: list[str]


def split(
    lines: Sequence[str], *, fractions: Fractions = (0.8, 0.1, 0.1), seed: int = 0, blocks: int = 100
) -> Split:
    """Divide the lines into `blocks` of near-equal length and assign them at random; no part is empty.

    A text with fewer lines than blocks is split line by line.
    """
    _check(fractions, seed, blocks)
    if len(lines) < 3:
        raise InputError(
            f"the text has {len(lines)} line{'' if len(lines) == 1 else 's'}; "
            "train, valid and test need at least one each: break the text into lines, or give --valid and --test"
        )
    blocks = min(blocks, len(lines))
    edges = [block * len(lines) // blocks for block in range(blocks + 1)]
    owners = np.repeat(np.arange(3), _apportion(blocks, fractions))  # (blocks,)
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    for block, owner in enumerate(np.random.default_rng(seed).permutation(owners)):
        parts[owner].extend(lines[edges[block] : edges[block + 1]])
    return Split(*parts)


def _apportion(blocks: int, fractions: Fractions) -> list[int]:
    """Assign one block to each part, and each further block to the part with the largest deficit."""
    counts = [1, 1, 1]
    for _ in range(blocks - 3):
        deficits = [fraction * blocks - count for fraction, count in zip(fractions, counts, strict=True)]
        counts[deficits.index(max(deficits))] += 1
    return counts


def _check(fractions: Fractions, seed: int, blocks: int) -> None:
    if len(fractions) != 3 or not all(f > 0 for f in fractions) or not math.isclose(sum(fractions), 1):
        raise UsageError(f"fractions are {fractions}; choose three above 0 that sum to 1")
    if blocks < 3:
        raise UsageError(f"blocks is {blocks}; choose 3 or more, one for each part")
    check_seed(seed)


def default_corpus(name: str = "novel") -> Corpus:
    """Return the text `novel` or `python` as a corpus with a title.

    >>> default_corpus().name
    'Pride and Prejudice (embedded)'
    """
    if name not in _TEXTS:
        raise UsageError(f"text is '{name}'; choose one of {', '.join(_TEXTS)}, or give a file of your own")
    title, read = _TEXTS[name]
    return Corpus.from_lines(read(), title=title)


def default_text() -> list[str]:
    """Return the paragraphs of Jane Austen's *Pride and Prejudice*, one per line, the same on every Python.

    Source and licence are in `embedded/README.md`.

    >>> default_text()[0][:38]
    'It is a truth universally acknowledged'
    """
    return list(_paragraphs())


@cache
def _paragraphs() -> tuple[str, ...]:
    return tuple(lzma.decompress(NOVEL.read_bytes()).decode("ascii").splitlines())


def python_reference() -> list[str]:
    """Return the lines of the running Python's language reference (the topics of `help()`), sorted by topic.

    Blank lines and trailing blanks are removed. Topics repeat whole pages: of equal lines of at least
    `SHORTEST_LINE` characters only the first is kept, so that the test set is not contained in the training set.
    The text differs between Python releases.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise NotFoundError("this Python comes without its language reference; give a text of your own") from None
    texts: dict[str, str] = topics
    fragments = (piece for topic in sorted(texts) for piece in cut_lines([texts[topic]]))
    lines = [line.rstrip(BLANKS) for line in join_lines(drop_blank_lines(fragments))]
    first = {line.strip(BLANKS): index for index, line in reversed(list(enumerate(lines)))}
    return [
        line for index, line in enumerate(lines) if len(line) < SHORTEST_LINE or first[line.strip(BLANKS)] == index
    ]


_TEXTS: Final[Mapping[str, tuple[str, Callable[[], list[str]]]]] = {
    "novel": ("Pride and Prejudice (embedded)", default_text),
    "python": ("the Python language reference", python_reference),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSplit:
    """Training, validation and test lines, and the source text."""

    name: str
    train: list[str]
    valid: list[str]
    test: list[str]
    seed: int | None  # None: nothing was split
    sha256: str  # of the text before splitting


def split_text(
    text: Sources | Corpus | None, valid: Sources | Corpus | None, test: Sources | Corpus | None, seed: int
) -> CorpusSplit:
    """Read the sets; split those not given as files block by block from the text (default: the embedded one)."""
    corpus = default_corpus() if text is None else Corpus.of(text)
    lines = list(corpus)
    is_split = valid is None or test is None
    parts = split(lines, seed=seed) if is_split else Split(lines, [], [])
    unused = parts.valid if valid is not None else parts.test if test is not None else []
    return CorpusSplit(
        name=corpus.name,
        train=parts.train + unused,  # the share of a set given as a file is used for training
        valid=parts.valid if valid is None else list(Corpus.of(valid)),
        test=parts.test if test is None else list(Corpus.of(test)),
        seed=seed if is_split else None,
        sha256=Corpus.from_lines(lines).digest(),
    )


def subsample_blocks(lines: list[str], part: int) -> list[str]:
    """Subsample the lines by keeping every `part`-th block, spread evenly over the text."""
    size = max(1, len(lines) // SUBSAMPLE_BLOCKS)
    return [line for first in range(0, len(lines), size * part) for line in lines[first : first + size]]
