"""Read ARPA files of any maker: KenLM, SRILM, MITLM, chainrule.

Lives here: the ids a file's words get, its tables, the contexts a pruned file leaves out. Not here: the grammar
(arpa_sections.py), the format's constants and the writer (arpa.py).
"""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.lm import Floats, Ids
from chainrule.ngram.arpa import UNKNOWNS
from chainrule.ngram.arpa_sections import Lines, Section, read_sections
from chainrule.ngram.tables import BackoffLevel, BackoffTables, find, take
from chainrule.progress import Progress, silent
from chainrule.text.files import find_files
from chainrule.tokenizers.config import BOS, EOS


@dataclass(frozen=True, slots=True)
class Arpa:
    """Ids: 0 the unknown word, then `words`, then `<s>` and `</s>`."""

    words: list[str]
    tables: BackoffTables
    has_unk: bool  # False: the unknown word has probability 0
    unk: str  # how the file spells the unknown word


def read(path: Path, progress: Progress = silent) -> Arpa:
    """Read a file, plain or packed; natural logarithms from here on.

    A log10 of −99 or less is that of 0, and `<s>` is never predicted, whatever the file says. A context that
    is not listed itself gets the probability that backing off gives and the weight 1.
    """
    files = find_files(path)
    if len(files) != 1:
        raise InputError(f"{path} holds {len(files)} files; name one ARPA file")
    lines = Lines(files[0])
    names, sections = read_sections(lines, progress)
    words, unk, id_of = _lay_out(names)
    sections = [replace(section, ids=id_of[section.ids]) for section in sections]
    progress("building tables", 0, None)
    tables = _build(lines, sections, V=len(words) + 3, bos=len(words) + 1)
    if EOS not in names:
        warnings.warn(
            f"{lines.name} has no {EOS}, so that no line can end: every line is impossible",
            ChainruleWarning,
            stacklevel=2,
        )
    return Arpa(words, tables, unk in names, unk)


def _lay_out(names: list[str]) -> tuple[list[str], str, Ids]:
    """The ordinary words, the unknown word's name, and the id of each of `names`."""
    unk = next((name for name in UNKNOWNS if name in names), UNKNOWNS[0])
    words = [name for name in names if name not in (unk, BOS, EOS)]
    ids = {name: i for i, name in enumerate([unk, *words, BOS, EOS])}
    return words, unk, np.array([ids[name] for name in names], dtype=np.int32)


def _build(lines: Lines, sections: list[Section], V: int, bos: int) -> BackoffTables:
    """Order by order: each n-gram's row among its kind, then what longer n-grams need and nobody listed."""
    levels = [_unigrams(lines, sections[0], V, bos)]
    waiting = [(section, section.ids[:, 0]) for section in sections[1:]]  # with the row of the first words
    while waiting:
        (section, context), *waiting = waiting
        n, word = len(levels) + 1, section.ids[:, -1]
        key = context.astype(np.int64) * V + word
        listed = _sorted_once(lines, section, key)
        lacking = [s.ids[find(listed, rows, s.ids[:, n - 1], V) < 0, :n] for s, rows in waiting]
        added = np.unique(np.concatenate([section.ids[:0], *lacking]), axis=0)  # (A, n)
        key = np.concatenate([key, _rows(levels, added[:, :-1]).astype(np.int64) * V + added[:, -1]])
        log_prob = np.concatenate([section.log_prob, _backed_off(levels, added)])
        log_prob[key % V == bos] = -np.inf
        log_backoff = np.concatenate([section.log_backoff, np.zeros(len(added))])
        level = _level(key, log_prob, log_backoff)
        waiting = [(s, level.find(rows, s.ids[:, n - 1], V)) for s, rows in waiting]
        levels.append(level)
    return BackoffTables(tuple(levels))


def _unigrams(lines: Lines, section: Section, V: int, bos: int) -> BackoffLevel:
    word = section.ids[:, 0]
    _sorted_once(lines, section, word)
    log_prob, log_backoff = np.full(V, -np.inf), np.zeros(V)
    log_prob[word], log_backoff[word] = section.log_prob, section.log_backoff
    log_prob[bos] = -np.inf
    return _level(np.arange(V), log_prob, log_backoff)


def _level(key: Ids, log_prob: Floats, log_backoff: Floats) -> BackoffLevel:
    by_key = np.argsort(key)
    single = (log_prob[by_key].astype(np.float32), log_backoff[by_key].astype(np.float32))
    return BackoffLevel(key[by_key], *single)


def _sorted_once(lines: Lines, section: Section, key: Ids) -> Ids:
    """The keys in order, refused where one comes twice."""
    by_key = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[by_key[1:]] == key[by_key[:-1]])
    if len(again):
        first, second = section.line[by_key[again[0] : again[0] + 2]]
        raise lines.error(f"the same n-gram as in line {first}", int(second))
    return key[by_key]


def _rows(levels: list[BackoffLevel], ids: Ids) -> Ids:
    """(A, m) m-grams -> (A,) their rows, −1 where not listed."""
    row = ids[:, 0]
    for level, word in zip(levels[1:], ids.T[1:], strict=False):
        row = level.find(row, word, len(levels[0]))
    return row


def _backed_off(levels: list[BackoffLevel], ids: Ids) -> Floats:
    """(A, n) n-grams of the next order -> (A,) log p of the last word, from the orders there are."""
    word, n = ids[:, -1], ids.shape[1]
    log_p: Floats = levels[0].log_prob[word].astype(np.float64)
    for m in range(1, n):
        context = _rows(levels, ids[:, n - 1 - m : n - 1])
        log_p += take(levels[m - 1].log_backoff, context, np.zeros(len(ids)))
        if m < n - 1:
            found = levels[m].find(context, word, len(levels[0]))
            log_p = take(levels[m].log_prob, found, log_p)
    return np.minimum(log_p, 0)
