r"""Write back-off models in the ARPA format.

The header `\data\` gives the number of n-grams of each order. A section `\n-grams:` has one line per n-gram:
log10 p(w | h), the words h w, and the log10 back-off weight of h w if it is a context. `\end\` ends the file.
The compiled core formats the text (cpp/arpa/writer.cpp).
"""

import bz2
import gzip
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from chainrule.errors import ConfigError, InputError, VocabularyError
from chainrule.lm import Vocabulary
from chainrule.ngram import engine
from chainrule.ngram.model import NgramModel
from chainrule.processors import thread_count
from chainrule.progress import Progress, silent
from chainrule.replacement import atomic_file
from chainrule.tokenizers.config import BOS, EOS

UNK_NAMES: Final = ("<unk>", "<UNK>")
"""Spellings of the unknown word in ARPA files; the first is written by default."""

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
        raise ConfigError("stupid backoff is a score, not a probability; an ARPA file cannot hold it")
    if lm.context == "stream":
        raise ConfigError("a stream n-gram cannot become ARPA, where every line starts from <s>; train by line")
    arpa_names = _arpa_names(names, lm.vocabulary)
    unk = lm.vocabulary.unk if lm.vocabulary.closed else None  # probability 0, so it is not listed

    def write_text(sink: Callable[[bytes], object]) -> None:
        def report(order: int, done: int, total: int) -> None:
            progress(f"writing {order}-grams", done, total)

        excluded = -1 if unk is None else unk
        engine.core().write_arpa(lm.engine, arpa_names, excluded, thread_count(), sink, report)

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
            raise InputError(f"ids {first_with[name]} and {i} are both named {name!r}; ARPA knows words by name")
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
