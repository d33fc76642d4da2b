"""Refine a corrected line by iterated conditional modes: re-decide each word given all the others.

Beam search may prune a candidate that only later words support; afterwards every word is the best of its
candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np

from chainrule.applications.grid import WordChoice
from chainrule.applications.lattice import LOG_P_FLOOR, MIN_PARALLEL_QUERIES
from chainrule.applications.words import Word
from chainrule.lm import AnyModel, Batch, Floats
from chainrule.ngram.engine import check_scores
from chainrule.processors import thread_count

MAX_SWEEPS: Final = 8  # passes over a line; each but the last may change one word
BATCH_ROWS: Final = 512


@dataclass(slots=True)
class DecodedLine:
    """A decoded line; `scores` are those of the candidates of each part, given the other parts."""

    words: list[Word]
    parts: list[WordChoice]
    score: float
    scores: list[Floats]


def refine_words(lm: AnyModel, weight: float, lines: Sequence[DecodedLine]) -> None:
    """Change one word at a time until each is the best of its candidates."""
    active = list(lines)
    for sweep in range(MAX_SWEEPS):
        _rescore(lm, weight, active)
        if sweep < MAX_SWEEPS - 1:
            active = [line for line in active if _apply_best_change(line)]


def merge_duplicates(texts: Sequence[str], scores: Floats) -> tuple[list[str], Floats]:
    """Merge equal texts; their scores are combined by log-sum-exp."""
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    total = np.full(len(index), -np.inf)
    np.logaddexp.at(total, [index[text] for text in texts], scores)
    return list(index), total


def _apply_best_change(line: DecodedLine) -> bool:
    """Apply the change with the largest gain; return False if no change improves the score."""
    best, change = 0.0, None
    for position, (part, scores) in enumerate(zip(line.parts, line.scores, strict=True)):
        if len(scores) == 1:
            continue
        texts = [part.put(line.words, text) for text in part.arcs.texts]
        distinct, total = merge_duplicates(texts, scores)
        gain = float(total.max() - total[distinct.index(texts[part.choice])])
        if gain > best:
            best_text = distinct[int(total.argmax())]
            candidate_scores = np.where([text == best_text for text in texts], scores, -np.inf)
            best, change = gain, (position, int(candidate_scores.argmax()))
    if change is None:
        return False
    position, choice = change
    part = line.parts[position]
    line.score += float(line.scores[position][choice] - line.scores[position][part.choice])
    line.parts[position] = replace(part, choice=choice)
    return True


def _rescore(lm: AnyModel, weight: float, lines: Sequence[DecodedLine]) -> None:
    """Score all candidates, up to a constant per position."""
    engine = getattr(lm, "engine", None)
    log_p = _score_lines(lm, lines) if engine is None else _score_ngrams(lm, engine, lines)
    offset = 0
    for line in lines:
        line.scores = []
        for part in line.parts:
            size = len(part.arcs.texts)
            line.scores.append(part.arcs.log_channel + weight * log_p[offset : offset + size])
            offset += size


def _score_ngrams(lm: AnyModel, engine: Any, lines: Sequence[DecodedLine]) -> Floats:
    """log p of each candidate and of the following n − 1 words, whose context contains it."""
    start = [*lm.start(1).ids[0].tolist(), lm.vocabulary.bos]
    n = len(start)
    tokens: list[int] = []
    targets: list[int] = []  # indices of the tokens to score
    owners: list[int] = []
    rows = 0
    for line in lines:
        part_ids = [part.ids for part in line.parts]
        flat = [*start, *chain.from_iterable(part_ids), lm.vocabulary.eos]
        position = n
        for part, ids in zip(line.parts, part_ids, strict=True):
            before, after = flat[position - n : position], flat[position + len(ids) : position + len(ids) + n - 1]
            position += len(ids)
            for first, second in part.arcs.ids.tolist():
                tokens += [*before, first, *([second] if second >= 0 else ()), *after]
                count = 1 + (second >= 0) + len(after)
                targets += range(len(tokens) - count, len(tokens))
                owners += [rows] * count
                rows += 1
    if not rows:
        return np.zeros(0)
    token_array, target_array = np.array(tokens, dtype=np.int32), np.array(targets)
    contexts = token_array[target_array[:, None] + np.arange(-n, 0)]
    workers = 1 if len(target_array) < MIN_PARALLEL_QUERIES else thread_count()
    log_p = engine.score(contexts, np.ascontiguousarray(token_array[target_array][:, None]), workers)[:, 0]
    check_scores(log_p, engine)
    totals = np.zeros(rows)
    np.add.at(totals, owners, np.maximum(log_p, LOG_P_FLOOR))
    return totals


def _score_lines(lm: AnyModel, lines: Sequence[DecodedLine]) -> Floats:
    """log p of the whole line for each candidate."""
    rows: list[list[int]] = []
    for line in lines:
        part_ids = [part.ids for part in line.parts]
        for position, part in enumerate(line.parts):
            before, after = (
                list(chain.from_iterable(side)) for side in (part_ids[:position], part_ids[position + 1 :])
            )
            rows += [[*before, *(i for i in ids if i >= 0), *after] for ids in part.arcs.ids.tolist()]
    eos, bos = lm.vocabulary.eos, lm.vocabulary.bos
    log_probs = []
    for first in range(0, len(rows), BATCH_ROWS):
        batch = rows[first : first + BATCH_ROWS]
        T = max(len(row) for row in batch) + 1
        inputs = np.array([[bos, *row, *[eos] * (T - 1 - len(row))] for row in batch], dtype=np.int32)
        targets = np.array([[*row, *[eos] * (T - len(row))] for row in batch], dtype=np.int32)
        mask = np.arange(T) <= np.array([len(row) for row in batch])[:, None]
        log_p, _ = lm.score(Batch(inputs, targets, mask), lm.start(len(batch)))
        log_probs.append(np.where(mask, np.maximum(log_p, LOG_P_FLOOR), 0).sum(axis=1))
    return np.concatenate([np.zeros(0), *log_probs])
