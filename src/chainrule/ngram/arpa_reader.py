"""Read ARPA files written by KenLM, SRILM, MITLM or chainrule, plain or compressed.

The compiled core parses the file and restores contexts missing from pruned models (cpp/arpa/reader.cpp).
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainrule.errors import ChainruleWarning, InputError
from chainrule.ngram import engine
from chainrule.ngram.engine import Engine
from chainrule.ngram.tables import BackoffTables
from chainrule.processors import thread_count
from chainrule.progress import Progress, silent
from chainrule.text.compression import read_blocks
from chainrule.text.files import find_files
from chainrule.tokenizers.config import EOS

TOLERANCE: Final = 1e-3
"""Allowed deviation from 1 of the probabilities after a context; ARPA files have six or seven digits."""


@dataclass(frozen=True, slots=True)
class Arpa:
    """Contents of an ARPA file; id 0 is the unknown word, then come `words`, `<s>` and `</s>`."""

    words: list[str]
    engine: Engine
    has_unk: bool  # False: the unknown word has probability 0
    unk: str  # spelling of the unknown word in the file

    @property
    def tables(self) -> BackoffTables:
        """Back-off tables including the restored contexts, rebuilt at each access."""
        return engine.to_tables(self.engine)


def read(path: Path, progress: Progress = silent, *, check_sums: bool = False) -> Arpa:
    """Read an ARPA file, plain or compressed, and convert its values to natural logarithms.

    With `check_sums`, the probabilities after a sample of contexts are summed; if a sum differs from 1 by more than
    1e-3, a warning is issued and the model is marked as unnormalised.

    A log10 probability of −99 or less is read as probability 0, and `<s>` is never predicted. A context that is not
    listed itself gets its backed-off probability and the back-off weight 1.
    """
    files = find_files(path)
    if len(files) != 1:
        raise InputError(f"{path} holds {len(files)} files; name one ARPA file")

    def report(order: int, done: int, total: int) -> None:
        if order:
            progress(f"reading {order}-grams", done, total)
        else:
            progress("building tables", 0, None)

    blocks = read_blocks(files[0])
    arpa_file = engine.core().ArpaFile.read(lambda: next(blocks, b""), files[0].name, thread_count(), report)
    if not arpa_file.has_eos:
        warnings.warn(
            f"{files[0].name} has no {EOS}, so that no line can end: every line is impossible",
            ChainruleWarning,
            stacklevel=2,
        )
    unk, *words = arpa_file.names[:-2]
    model = arpa_file.model(threads=thread_count())
    if check_sums:
        deviation = engine.largest_deviation(model)
        if not deviation <= TOLERANCE:
            model = arpa_file.model(threads=thread_count(), is_normalized=False)
            warnings.warn(
                f"{files[0].name} is not normalised: probabilities after some context sum to 1 ± {deviation:.3g}; "
                "its scores do not compare with those of other models",
                ChainruleWarning,
                stacklevel=2,
            )
    return Arpa(words, model, arpa_file.has_unk, unk)
