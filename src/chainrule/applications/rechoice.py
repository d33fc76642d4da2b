"""A second look at a line that was chosen: every word again, the others being as they are.

Lives here: the scores of a word's candidates in their line, and the choice by them. A beam may lose what only later
words speak for; after this each word is the most probable of its candidates. Not here: the search (lattice.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np

from chainrule.applications.grid import Part
from chainrule.applications.lattice import FEW, IMPOSSIBLE
from chainrule.applications.words import Word
from chainrule.lm import AnyModel, Batch, Floats
from chainrule.ngram.engine import check_scores
from chainrule.processors import threads

SWEEPS: Final = 8  # looks at a line; each but the last may change one of its words
ROWS_AT_ONCE: Final = 512


@dataclass(slots=True)
class Line:
    """A line as it is read now; `scores` are those of each part's candidates, the other parts as they are."""

    words: list[Word]
    parts: list[Part]
    score: float
    scores: list[Floats]


def rechoose(lm: AnyModel, weight: float, lines: Sequence[Line]) -> None:
    """Change words, one at a time, until each is the best of its candidates."""
    open_ = list(lines)
    for sweep in range(SWEEPS):
        _look(lm, weight, open_)
        if sweep < SWEEPS - 1:
            open_ = [line for line in open_ if _change(line)]


def merge(texts: Sequence[str], scores: Floats) -> tuple[list[str], Floats]:
    """Every text once; log Σ exp of the scores of those that are the same."""
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    total = np.full(len(place), -np.inf)
    np.logaddexp.at(total, [place[text] for text in texts], scores)
    return list(place), total


def _change(line: Line) -> bool:
    """Put a better candidate where most is gained; False: there is none."""
    best, change = 0.0, None
    for place, (part, scores) in enumerate(zip(line.parts, line.scores, strict=True)):
        if len(scores) == 1:
            continue
        texts = [part.put(line.words, text) for text in part.arcs.texts]
        distinct, total = merge(texts, scores)
        gain = float(total.max() - total[distinct.index(texts[part.choice])])
        if gain > best:
            wanted = distinct[int(total.argmax())]
            of_wanted = np.where([text == wanted for text in texts], scores, -np.inf)
            best, change = gain, (place, int(of_wanted.argmax()))
    if change is None:
        return False
    place, choice = change
    part = line.parts[place]
    line.score += float(line.scores[place][choice] - line.scores[place][part.choice])
    line.parts[place] = replace(part, choice=choice)
    return True


def _look(lm: AnyModel, weight: float, lines: Sequence[Line]) -> None:
    """The scores of all candidates, up to a term that is the same for all of one place."""
    engine = getattr(lm, "engine", None)
    log_p = _whole(lm, lines) if engine is None else _near(lm, engine, lines)
    at = 0
    for line in lines:
        line.scores = []
        for part in line.parts:
            size = len(part.arcs.texts)
            line.scores.append(part.arcs.log_channel + weight * log_p[at : at + size])
            at += size


def _near(lm: AnyModel, engine: Any, lines: Sequence[Line]) -> Floats:
    """log p of each candidate and of the words behind that see it: all that an n-gram needs."""
    start = [*lm.start(1).ids[0].tolist(), lm.vocabulary.bos]
    n = len(start)
    tokens: list[int] = []
    places: list[int] = []  # of the tokens that are asked for
    owners: list[int] = []
    rows = 0
    for line in lines:
        own = [part.ids for part in line.parts]
        flat = [*start, *chain.from_iterable(own), lm.vocabulary.eos]
        at = n
        for part, ids in zip(line.parts, own, strict=True):
            before, after = flat[at - n : at], flat[at + len(ids) : at + len(ids) + n - 1]
            at += len(ids)
            for first, second in part.arcs.ids.tolist():
                tokens += [*before, first, *([second] if second >= 0 else ()), *after]
                asked = 1 + (second >= 0) + len(after)
                places += range(len(tokens) - asked, len(tokens))
                owners += [rows] * asked
                rows += 1
    if not rows:
        return np.zeros(0)
    read, asked_at = np.array(tokens, dtype=np.int32), np.array(places)
    contexts = read[asked_at[:, None] + np.arange(-n, 0)]
    workers = 1 if len(asked_at) < FEW else threads()
    log_p = engine.score(contexts, np.ascontiguousarray(read[asked_at][:, None]), workers)[:, 0]
    check_scores(log_p, engine)
    found = np.zeros(rows)
    np.add.at(found, owners, np.maximum(log_p, IMPOSSIBLE))
    return found


def _whole(lm: AnyModel, lines: Sequence[Line]) -> Floats:
    """log p of the whole line with each candidate in it."""
    rows: list[list[int]] = []
    for line in lines:
        own = [part.ids for part in line.parts]
        for place, part in enumerate(line.parts):
            before, after = (list(chain.from_iterable(side)) for side in (own[:place], own[place + 1 :]))
            rows += [[*before, *(i for i in ids if i >= 0), *after] for ids in part.arcs.ids.tolist()]
    eos, bos = lm.vocabulary.eos, lm.vocabulary.bos
    found = []
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        T = max(len(row) for row in some) + 1
        inputs = np.array([[bos, *row, *[eos] * (T - 1 - len(row))] for row in some], dtype=np.int32)
        targets = np.array([[*row, *[eos] * (T - len(row))] for row in some], dtype=np.int32)
        mask = np.arange(T) <= np.array([len(row) for row in some])[:, None]
        log_p, _ = lm.score(Batch(inputs, targets, mask), lm.start(len(some)))
        found.append(np.where(mask, np.maximum(log_p, IMPOSSIBLE), 0).sum(axis=1))
    return np.concatenate([np.zeros(0), *found])
