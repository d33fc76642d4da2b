r"""The ARPA format of back-off models: its fixed names, and the door to its writer.

A header `\data\` counts the n-grams of each order; a section `\n-grams:` lists them, log10 p(w | h), the words
h w, and log10 of the weight of h w as a context where it has one; `\end\` ends it.
Not here: the text itself (cpp/arpa/writer.cpp) and reading (arpa_reader.py).
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
from chainrule.processors import threads
from chainrule.progress import Progress, silent
from chainrule.replacement import replacing_file
from chainrule.tokenizers.config import BOS, EOS

UNKNOWNS: Final = ("<unk>", "<UNK>")
"""Names of the unknown word, the usual one first."""

_NO_WORD: Final = re.compile("[ \t\r\n\0\ud800-\udfff]")


def write(lm: NgramModel, names: Sequence[str], path: Path, progress: Progress = silent) -> None:
    """Write the model with `names[i]` for id i; a path in `.gz`, `.bz2` or `.xz` is packed.

    The three control symbols get the names ARPA knows them by. A file that stands there is replaced in one
    step, once the new one is whole and on the disk.
    """
    put = _writer(lm, names, progress)
    with replacing_file(path) as raw, _packed(raw, path.suffix.lower()) as file:
        put(file.write)


def write_to(lm: NgramModel, names: Sequence[str], out: BinaryIO) -> None:
    """The same, to an open file."""
    _writer(lm, names, silent)(out.write)


def _writer(
    lm: NgramModel, names: Sequence[str], progress: Progress
) -> Callable[[Callable[[bytes], object]], None]:
    """What hands the file's text to a sink; what cannot become ARPA is refused before."""
    if not lm.is_normalized and lm.engine.log_missing:  # a weight of contexts that are not stored
        raise ConfigError("stupid backoff is a score, not a probability; an ARPA file cannot hold it")
    if lm.context == "stream":
        raise ConfigError("a stream n-gram cannot become ARPA, where every line starts from <s>; train by line")
    spelled = _spell(names, lm.vocabulary)
    unk = lm.vocabulary.unk if lm.vocabulary.closed else None  # it has no probability, and no line

    def put(sink: Callable[[bytes], object]) -> None:
        def tell(order: int, done: int, total: int) -> None:
            progress(f"writing {order}-grams", done, total)

        left_out = -1 if unk is None else unk
        engine.core().write_arpa(lm.engine, spelled, left_out, threads(), sink, tell)

    return put


def _spell(names: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    if len(names) != vocabulary.size:
        raise VocabularyError(f"the model was built for {vocabulary.size} ids but {len(names)} have names")
    spelled = list(names)
    spelled[vocabulary.bos], spelled[vocabulary.eos] = BOS, EOS
    if vocabulary.unk is not None and spelled[vocabulary.unk] not in UNKNOWNS:
        spelled[vocabulary.unk] = UNKNOWNS[0]
    first_with: dict[str, int] = {}
    for i, name in enumerate(spelled):
        if not name or _NO_WORD.search(name):
            raise InputError(
                f"the name of id {i} is {name!r}; an ARPA file takes only words without blanks or line ends"
            )
        if first_with.setdefault(name, i) != i:
            raise InputError(f"ids {first_with[name]} and {i} are both named {name!r}; ARPA knows words by name")
    return spelled


@contextmanager
def _packed(raw: BinaryIO, suffix: str) -> Iterator[BinaryIO | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]:
    """What to write into, so that `raw` holds it as its name promises."""
    if suffix == ".gz":
        # Neither name nor time inside: the same model gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            yield packed
    elif suffix == ".bz2":
        with bz2.open(raw, "wb") as packed:
            yield packed
    elif suffix == ".xz":
        with lzma.open(raw, "wb") as packed:
            yield packed
    else:
        yield raw
