r"""The ARPA format of back-off models: its fixed names and numbers, and the writer.

A header `\data\` counts the n-grams of each order; a section `\n-grams:` lists them, log10 p(w | h), the words
h w, and log10 of the weight of h w as a context where it has one; `\end\` ends it.
The only unit here is log10. Not here: reading (arpa_reader.py).
"""

import gzip
import lzma
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from chainrule.errors import ConfigError, InputError, VocabularyError
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.ngram.model import NgramModel
from chainrule.ngram.tables import BackoffLevel
from chainrule.progress import Progress, silent
from chainrule.replacement import replacing_file
from chainrule.tokenizers.config import BOS, EOS

UNKNOWNS: Final = ("<unk>", "<UNK>")
"""Names of the unknown word, the usual one first."""

LOG10_ZERO: Final = -99.0
"""This and all below it is the logarithm of 0: a probability below 1e-99 does not survive the format."""

_NO_WORD: Final = re.compile("[ \t\r\n\0\ud800-\udfff]")
_LINES_AT_ONCE: Final = 1 << 14


def write(lm: NgramModel, names: Sequence[str], path: Path, progress: Progress = silent) -> None:
    """Write the model with `names[i]` for id i; a path in `.gz` or `.xz` is packed.

    The three control symbols get the names ARPA knows them by. A file that stands there is replaced in one
    step, once the new one is whole and on the disk.
    """
    content = pieces(lm, names, progress)
    with replacing_file(path) as raw, _packed(raw, path.suffix.lower()) as file:
        for piece in content:
            file.write(piece.encode())


def pieces(lm: NgramModel, names: Sequence[str], progress: Progress = silent) -> Iterator[str]:
    """The file's text, piece by piece; what cannot become ARPA is refused before the first."""
    if not lm.is_normalized:
        raise ConfigError("stupid backoff is a score, not a probability; an ARPA file cannot hold it")
    if lm.context == "stream":
        raise ConfigError("a stream n-gram cannot become ARPA, where every line starts from <s>; train by line")
    return _pieces(lm, _spell(names, lm.vocabulary), progress)


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


def _pieces(lm: NgramModel, names: list[str], progress: Progress) -> Iterator[str]:
    V = lm.vocabulary.size
    kept = _kept(lm)
    yield "\\data\\\n"
    yield from (f"ngram {n}={keep.sum()}\n" for n, keep in enumerate(kept, start=1))
    texts = names  # of the n-grams of one order, by row
    for n, (level, keep) in enumerate(zip(lm.tables.levels, kept, strict=True), start=1):
        if n > 1:
            contexts, words = (part.tolist() for part in np.divmod(level.key, V))
            texts = [f"{texts[h]} {names[w]}" for h, w in zip(contexts, words, strict=True)]
        yield f"\n\\{n}-grams:\n"
        rows = np.flatnonzero(keep)
        for first in range(0, len(rows), _LINES_AT_ONCE):
            progress(f"writing {n}-grams", first, len(rows))
            yield _entries(level, texts, rows[first : first + _LINES_AT_ONCE], is_top=n == lm.order)
        progress(f"writing {n}-grams", len(rows), len(rows))
    yield "\n\\end\\\n"


def _kept(lm: NgramModel) -> list[Mask]:
    """Which n-grams of each order are written: all, but for those with an `<unk>` that has no probability."""
    V = lm.vocabulary.size
    left_out = lm.vocabulary.unk if lm.vocabulary.closed else None
    kept: list[Mask] = []
    for level in lm.tables.levels:
        context, word = np.divmod(level.key, V)
        keep = word != (-1 if left_out is None else left_out)
        kept.append(keep & kept[-1][context] if kept else keep)
    return kept


def _entries(level: BackoffLevel, texts: list[str], rows: Ids, is_top: bool) -> str:
    log_p = _log10(np.minimum(level.log_prob[rows], 0)).tolist()
    weight = [0.0] * len(rows) if is_top else _log10(level.log_backoff[rows]).tolist()
    return "".join(
        f"{p:.8g}\t{texts[row]}\t{b:.8g}\n" if b else f"{p:.8g}\t{texts[row]}\n"
        for row, p, b in zip(rows.tolist(), log_p, weight, strict=True)
    )


def _log10(natural: Floats) -> Floats:
    scaled = natural.astype(np.float64) / np.log(10) + 0.0  # -0.0 becomes 0.0
    return np.where(np.isneginf(scaled), LOG10_ZERO, scaled)


@contextmanager
def _packed(raw: BinaryIO, suffix: str) -> Iterator[BinaryIO | gzip.GzipFile | lzma.LZMAFile]:
    """What to write into, so that `raw` holds it as its name promises."""
    if suffix == ".gz":
        # Neither name nor time inside: the same model gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            yield packed
    elif suffix == ".xz":
        with lzma.open(raw, "wb") as packed:
            yield packed
    else:
        yield raw
