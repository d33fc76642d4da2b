"""Read ARPA files of any maker: KenLM, SRILM, MITLM, chainrule.

Lives here: the door to the reader, plain or packed files. Not here: the grammar, the tables and the contexts a
pruned file leaves out (cpp/arpa/reader.cpp), the writer (arpa.py).
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainrule.errors import ChainruleWarning, InputError
from chainrule.ngram import engine
from chainrule.ngram.engine import Engine
from chainrule.ngram.tables import BackoffTables
from chainrule.processors import threads
from chainrule.progress import Progress, silent
from chainrule.text.compression import read_blocks
from chainrule.text.files import find_files
from chainrule.tokenizers.config import EOS

TOLERANCE: Final = 1e-3
"""How far from 1 the probabilities after a context may sum; files have six or seven digits."""


@dataclass(frozen=True, slots=True)
class Arpa:
    """Ids: 0 the unknown word, then `words`, then `<s>` and `</s>`."""

    words: list[str]
    engine: Engine
    has_unk: bool  # False: the unknown word has probability 0
    unk: str  # how the file spells the unknown word

    @property
    def tables(self) -> BackoffTables:
        """What the file lists and the contexts it leaves out, made anew each time."""
        return engine.to_tables(self.engine)


def read(path: Path, progress: Progress = silent, *, check_sums: bool = False) -> Arpa:
    """Read a file, plain or packed; natural logarithms from here on.

    With `check_sums` the probabilities after a sample of contexts are summed; where one sum is not 1 ± 1e-3, the
    model is marked as not normalised, with a warning.

    A log10 of −99 or less is that of 0, and `<s>` is never predicted, whatever the file says. A context that
    is not listed itself gets the probability that backing off gives and the weight 1.
    """
    files = find_files(path)
    if len(files) != 1:
        raise InputError(f"{path} holds {len(files)} files; name one ARPA file")

    def tell(order: int, done: int, total: int) -> None:
        if order:
            progress(f"reading {order}-grams", done, total)
        else:
            progress("building tables", 0, None)

    blocks = read_blocks(files[0])
    found = engine.core().ArpaFile.read(lambda: next(blocks, b""), files[0].name, threads(), tell)
    if not found.has_eos:
        warnings.warn(
            f"{files[0].name} has no {EOS}, so that no line can end: every line is impossible",
            ChainruleWarning,
            stacklevel=2,
        )
    unk, *words = found.names[:-2]
    model = found.model(threads=threads())
    if check_sums:
        deviation = engine.largest_deviation(model)
        if not deviation <= TOLERANCE:
            model = found.model(threads=threads(), is_normalized=False)
            warnings.warn(
                f"{files[0].name} is not normalised: probabilities after some context sum to 1 ± {deviation:.3g}; "
                "its scores do not compare with those of other models",
                ChainruleWarning,
                stacklevel=2,
            )
    return Arpa(words, model, found.has_unk, unk)
