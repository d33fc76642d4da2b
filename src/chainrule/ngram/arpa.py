r"""Read and write back-off models in the ARPA format.

The header `\data\` gives the number of n-grams of each order. A section `\n-grams:` has one line per n-gram:
log10 p(w | h), the words h w, and the log10 back-off weight of h w if it is a context. `\end\` ends the file.
The compiled core parses and formats the text (cpp/arpa/).
"""

import bz2
import gzip
import lzma
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from chainrule import system
from chainrule.errors import ChainruleWarning, ConfigError, InputError, VocabularyError
from chainrule.lm import Vocabulary
from chainrule.ngram import engine
from chainrule.ngram.engine import Engine
from chainrule.ngram.model import NgramModel
from chainrule.ngram.tables import BackoffTables
from chainrule.progress import Progress, silent
from chainrule.storage.atomic import atomic_file
from chainrule.text.readers import find_files, read_blocks
from chainrule.tokenizers.config import BOS, EOS

UNK_NAMES: Final = ("<unk>", "<UNK>")
"""Spellings of the unknown word in ARPA files; the first is written by default."""
TOLERANCE: Final = 1e-3
"""Allowed deviation from 1 of the probabilities after a context; ARPA files have six or seven digits."""

_INVALID_WORD: Final = re.compile("[ \t\r\n\0\ud800-\udfff]")


def write(lm: NgramModel, names: Sequence[str], path: Path, progress: Progress = silent) -> None:
    """Write the model to `path`, with `names[i]` for id i; compress if the suffix is `.gz`, `.bz2` or `.xz`.

    The control symbols are written as `<s>`, `</s>` and `<unk>`. An existing file is replaced atomically.
    """
    write_text = _writer(lm, names, progress)
    with atomic_file(path) as raw, _open_compressed(raw, path.suffix.lower()) as file:
        write_text(file.write)


def write_to(lm: NgramModel, names: Sequence[str], out: BinaryIO) -> None:
    """Write the model to an open binary file."""
    _writer(lm, names, silent)(out.write)


def _writer(
    lm: NgramModel, names: Sequence[str], progress: Progress
) -> Callable[[Callable[[bytes], object]], None]:
    """Return a function that passes the text of the ARPA file to a sink; raise if the model has no ARPA form."""
    if not lm.is_normalized and lm.engine.log_missing:  # unseen contexts have a back-off weight other than 1
        raise ConfigError("stupid backoff is a score, not a probability; an ARPA file cannot contain it")
    if lm.context == "stream":
        raise ConfigError("a stream n-gram cannot become ARPA, where every line starts from <s>; train by line")
    arpa_names = _arpa_names(names, lm.vocabulary)
    unk = lm.vocabulary.unk if lm.vocabulary.closed else None  # probability 0, so it is not listed

    def write_text(sink: Callable[[bytes], object]) -> None:
        def report(order: int, done: int, total: int) -> None:
            progress(f"writing {order}-grams", done, total)

        excluded = -1 if unk is None else unk
        system.load_extension().write_arpa(lm.engine, arpa_names, excluded, system.thread_count(), sink, report)

    return write_text


def _arpa_names(names: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Return the name of each id with ARPA's control symbols; raise if a name is not a word or is not unique."""
    if len(names) != vocabulary.size:
        raise VocabularyError(f"the model was built for {vocabulary.size} ids but {len(names)} have names")
    arpa_names = list(names)
    arpa_names[vocabulary.bos], arpa_names[vocabulary.eos] = BOS, EOS
    if vocabulary.unk is not None and arpa_names[vocabulary.unk] not in UNK_NAMES:
        arpa_names[vocabulary.unk] = UNK_NAMES[0]
    first_with: dict[str, int] = {}
    for i, name in enumerate(arpa_names):
        if not name or _INVALID_WORD.search(name):
            raise InputError(
                f"the name of id {i} is {name!r}; an ARPA file takes only words without blanks or line ends"
            )
        if first_with.setdefault(name, i) != i:
            raise InputError(f"ids {first_with[name]} and {i} are both named {name!r}; ARPA words must be unique")
    return arpa_names


@contextmanager
def _open_compressed(
    raw: BinaryIO, suffix: str
) -> Iterator[BinaryIO | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]:
    """Open a writer over `raw` that compresses according to the suffix."""
    if suffix == ".gz":
        # No file name and no time stamp, so that the same model gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as compressed:
            yield compressed
    elif suffix == ".bz2":
        with bz2.open(raw, "wb") as compressed:
            yield compressed
    elif suffix == ".xz":
        with lzma.open(raw, "wb") as compressed:
            yield compressed
    else:
        yield raw


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
    1e-3, a warning is issued and the model is marked as unnormalized.

    A log10 probability of −99 or less is read as probability 0, and `<s>` is never predicted. A context that is not
    listed itself gets its backed-off probability and the back-off weight 1.
    """
    files = find_files(path)
    if len(files) != 1:
        raise InputError(f"{path} refers to {len(files)} files; give one ARPA file")

    def report(order: int, done: int, total: int) -> None:
        if order:
            progress(f"reading {order}-grams", done, total)
        else:
            progress("building tables", 0, None)

    blocks = read_blocks(files[0])
    arpa_file = system.load_extension().ArpaFile.read(
        lambda: next(blocks, b""), files[0].name, system.thread_count(), report
    )
    if not arpa_file.has_eos:
        warnings.warn(
            f"{files[0].name} has no {EOS}, so that no line can end: every line is impossible",
            ChainruleWarning,
            stacklevel=2,
        )
    unk, *words = arpa_file.names[:-2]
    model = arpa_file.model(threads=system.thread_count())
    if check_sums:
        deviation = engine.largest_deviation(model)
        if not deviation <= TOLERANCE:
            model = arpa_file.model(threads=system.thread_count(), is_normalized=False)
            warnings.warn(
                f"{files[0].name} is not normalized: probabilities after some context sum to 1 ± {deviation:.3g}; "
                "its scores are not comparable with those of other models",
                ChainruleWarning,
                stacklevel=2,
            )
    return Arpa(words, model, arpa_file.has_unk, unk)
