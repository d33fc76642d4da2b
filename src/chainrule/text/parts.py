"""The parts of a text that models are compared on: given as files, or dealt from one text."""

from dataclasses import dataclass
from typing import Final

from chainrule.text.corpus import Corpus
from chainrule.text.default import default_corpus
from chainrule.text.files import Sources
from chainrule.text.splits import split

THIN_BLOCKS: Final = 256
"""Into how many blocks a text is cut that is to be thinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Three texts, and the one they come from."""

    name: str
    train: list[str]
    valid: list[str]
    test: list[str]
    seed: int | None  # None: nothing was dealt
    sha256: str  # of the text as it was given, before any split


def divide(
    text: Sources | Corpus | None, valid: Sources | Corpus | None, test: Sources | Corpus | None, seed: int
) -> Parts:
    """The parts as given; what is not given is dealt block by block from the text, or from the embedded one."""
    corpus = default_corpus() if text is None else Corpus.of(text)
    name = corpus.name
    lines = list(corpus)
    sha256 = Corpus.from_lines(lines).digest()
    if valid is not None and test is not None:
        return Parts(
            name=name,
            train=lines,
            valid=list(Corpus.of(valid)),
            test=list(Corpus.of(test)),
            seed=None,
            sha256=sha256,
        )
    dealt = split(lines, seed=seed)
    given = dealt.valid if valid is not None else dealt.test if test is not None else []
    return Parts(
        name=name,
        train=dealt.train + given,  # a part that is given as a file leaves its share to training
        valid=dealt.valid if valid is None else list(Corpus.of(valid)),
        test=dealt.test if test is None else list(Corpus.of(test)),
        seed=seed,
        sha256=sha256,
    )


def thin(lines: list[str], part: int) -> list[str]:
    """One block in `part` of the lines, from all over the text: less of it, and not of another kind."""
    size = max(1, len(lines) // THIN_BLOCKS)
    return [line for first in range(0, len(lines), size * part) for line in lines[first : first + size]]
