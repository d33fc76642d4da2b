"""Training, validation and test set of a comparison: separate files, or a split of one text."""

from dataclasses import dataclass
from typing import Final

from chainrule.text.corpus import Corpus
from chainrule.text.default import default_corpus
from chainrule.text.files import Sources
from chainrule.text.splits import split

SUBSAMPLE_BLOCKS: Final = 256
"""Number of blocks in which a text is subsampled."""


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
    name = corpus.name
    lines = list(corpus)
    sha256 = Corpus.from_lines(lines).digest()
    if valid is not None and test is not None:
        return CorpusSplit(
            name=name,
            train=lines,
            valid=list(Corpus.of(valid)),
            test=list(Corpus.of(test)),
            seed=None,
            sha256=sha256,
        )
    parts = split(lines, seed=seed)
    unused = parts.valid if valid is not None else parts.test if test is not None else []
    return CorpusSplit(
        name=name,
        train=parts.train + unused,  # the share of a set given as a file is used for training
        valid=parts.valid if valid is None else list(Corpus.of(valid)),
        test=parts.test if test is None else list(Corpus.of(test)),
        seed=seed,
        sha256=sha256,
    )


def subsample_blocks(lines: list[str], part: int) -> list[str]:
    """Subsample the lines by keeping every `part`-th block, spread evenly over the text."""
    size = max(1, len(lines) // SUBSAMPLE_BLOCKS)
    return [line for first in range(0, len(lines), size * part) for line in lines[first : first + size]]
