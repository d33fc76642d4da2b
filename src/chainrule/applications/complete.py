"""Completion as one types: the words that what was typed may become, p(word | context, prefix).

The text is parted into context and prefix. A word model chooses among the words of its vocabulary; where tokens are
smaller than words, a small beam follows them to the end of the word. Tokens as text are in pieces.py, reading a
context is in reading.py.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.applications.pieces import Pieces
from chainrule.applications.reading import Reader
from chainrule.decoding.continuation import Continuation
from chainrule.decoding.ranges import check
from chainrule.errors import InputError
from chainrule.lm import Floats, Ids, Mask
from chainrule.model import Model
from chainrule.text.lines import BLANKS
from chainrule.tokenizers.config import JOINER
from chainrule.tokenizers.punctuation import is_mark, join, joins
from chainrule.tokenizers.tokenizer import Tokenizer

BEAM: Final = 16
LONGEST: Final = 40
"""Tokens of a word that the beam follows at most."""
HIGHEST: Final = "\U0010ffff"
LONGEST_INSIDE: Final = 8
"""Tokens that a word being typed has at most, as it has no end yet: U.S is three."""
SEPARATORS: Final = f"{BLANKS}\r\n"


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole word and how probable it is, given the text before it and the beginning that was typed."""

    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class _Beam:
    """Beginnings of words, one a row."""

    texts: list[bytes]  # what was written behind the context
    log_probs: Floats  # (K,)
    log_p: Floats  # (K, V) of the next token
    state: Any


class _Word(NamedTuple):
    """A word of the vocabulary as it is written, and whether it is joined to what stands before it."""

    text: str
    id: int
    joins_left: bool


def _words(tokenizer: Tokenizer) -> Iterator[_Word]:
    """The words of the vocabulary, marks without joiners; the unknown word is none."""
    for name, i in tokenizer.known.items():
        if i == tokenizer.unk:
            continue
        is_joined = tokenizer.config.splits_punctuation and JOINER in name
        yield _Word(join(name), i, joins(name)[0]) if is_joined else _Word(name, i, False)


def part(text: str) -> tuple[str, str]:
    """What has been read, and the beginning of a word at its end: what stands behind the last blank.

    >>> part("the stock mar")
    ('the stock ', 'mar')
    """
    prefix = re.split(rf"[{BLANKS}\r\n]", text)[-1]
    return text[: len(text) - len(prefix)], prefix


class Completer:
    """Suggests words of a model, keystroke by keystroke; it remembers the context, and is for one typist."""

    def __init__(self, model: Model) -> None:
        self._tokenizer = model.tokenizer
        self._reader = Reader(model.lm)
        self._kind = model.tokenizer.config.kind
        self._is_split = model.tokenizer.config.splits_punctuation
        is_words = model.tokenizer.config.is_words
        words = sorted(_words(model.tokenizer)) if is_words else []
        self._words = [word.text for word in words]
        self._ids: Ids = np.array([word.id for word in words], dtype=np.int64)
        self._joins: Mask = np.array([word.joins_left for word in words], dtype=bool)
        self._pieces = None if is_words else Pieces(model.tokenizer)

    def part(self, text: str) -> tuple[str, str]:
        """What has been read, and the beginning of a word at its end.

        It begins behind the last blank or, where the tokenizer splits punctuation, behind the last mark, unless a
        word of the vocabulary begins with that mark and the word before it (don' for don't).
        """
        context, typed = part(text)
        if not self._is_split or not typed:
            return context, typed
        first = self._word_start(typed)
        return context + typed[:first], typed[first:]

    def _word_start(self, chunk: str) -> int:
        """Where the word that is being typed begins in what stands behind the last blank."""
        *before, (last, start, _) = self._tokenizer.spans(chunk)[-LONGEST_INSIDE:]
        for name, first, _ in before:
            if not is_mark(name) and self._is_beginning(self._tokenizer.normalize(chunk[first:])):
                return first
        return len(chunk) if is_mark(last) else start

    def _is_beginning(self, prefix: str) -> bool:
        place = bisect_left(self._words, prefix)
        return place < len(self._words) and self._words[place].startswith(prefix)

    def complete(self, text: str, top: int = 10) -> list[Completion]:
        """The most probable words that the end of the text may become, the best first.

        Words of the vocabulary for a word model, renormalised over those that begin so; for others any word, whose
        probability is that of its pieces and of an end behind them.
        """
        check("top", top)
        context, typed = self.part(text)
        prefix = self._tokenizer.normalize(typed)
        try:
            wanted = prefix.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{text[:40]!a} is no text: it holds what is not UTF-8; mend it") from error
        if self._is_split:
            return self._known(self._read_split(text, typed), prefix, top, not context or context[-1] in SEPARATORS)
        if self._pieces is None:
            return self._known(self._read(context)[0], prefix, top)
        # The blank belongs to the word: it is the first byte of most of a sub-word tokenizer's words.
        blank = context[-1:] if context[-1:] in BLANKS else ""
        before = context[: len(context) - len(blank)]
        lead = b" " if self._kind == "wordpiece" else blank.encode()
        return self._spelled(self._read(before), lead + wanted, len(lead), top)

    def _read(self, context: str) -> tuple[Floats, Any]:
        return self._reader.after(Continuation(self._tokenizer, context).prompt_ids)

    def _read_split(self, text: str, typed: str) -> Floats:
        """Log p of the next token, the word that is being typed left out.

        The text is split as a whole, so that a mark before that word has its joiner. A mark at the end of the text
        is read with a joiner behind it or without one, whichever is more probable.
        """
        ids = Continuation(self._tokenizer, text).prompt_ids
        if typed:
            return self._reader.after(ids[: -len(self._tokenizer.spans(typed))])[0]
        forms = self._forms(text)
        if not forms:
            return self._reader.after(ids)[0]
        log_p = self._reader.after(ids[:-1])[0]
        return self._reader.after((*ids[:-1], max(forms, key=log_p.__getitem__)))[0]

    def _forms(self, text: str) -> list[int]:
        """The ids that a mark at the end of the text may have."""
        chunk = part(text)[1]
        if not chunk:
            return []
        name = self._tokenizer.spans(chunk)[-1][0]
        return [i for form in (name, name + JOINER) if (i := self._tokenizer.known.get(form)) is not None]

    def _known(self, log_p: Floats, prefix: str, top: int, is_apart: bool = False) -> list[Completion]:
        """Words of the vocabulary, by their places in alphabetical order; if `is_apart`, none that is joined."""
        first, last = bisect_left(self._words, prefix), bisect_right(self._words, prefix + HIGHEST)
        places = np.arange(first, last)
        if is_apart:
            places = places[~self._joins[first:last]]
        ids = self._ids[places]
        log_p = log_p[ids]
        total = _log_sum(log_p)
        if total == -np.inf:
            return []
        if self._is_split:  # a mark with and without a joiner is one text
            return self._merged(places, log_p - total, top)
        best = np.argpartition(-log_p, top - 1)[:top] if top < len(ids) else np.arange(len(ids))
        best = best[np.lexsort((ids[best], -log_p[best]))]
        p = np.exp(log_p[best] - total)
        return [Completion(self._words[first + i], q) for i, q in zip(best.tolist(), p.tolist(), strict=True) if q]

    def _merged(self, places: Ids, log_p: Floats, top: int) -> list[Completion]:
        sums: dict[str, float] = {}
        for place, p in zip(places.tolist(), np.exp(log_p).tolist(), strict=True):
            sums[self._words[place]] = sums.get(self._words[place], 0.0) + p
        best = heapq.nsmallest(top, ((-p, word) for word, p in sums.items() if p))
        return [Completion(word, -p) for p, word in best]

    def _spelled(self, read: tuple[Floats, Any], wanted: bytes, lead: int, top: int) -> list[Completion]:
        """Words piece by piece: first what agrees with the prefix, then to the end of the word."""
        pieces = self._some_pieces()
        beam = _Beam([b""], np.zeros(1), read[0][None], read[1])
        mass = 0.0 if not wanted else -np.inf  # log p(prefix | context)
        found: dict[bytes, float] = {}
        for _ in range(LONGEST):
            self._finish(beam, wanted, lead, found)
            rows, ids, scores, passed = self._extend(beam, wanted)
            mass = float(np.logaddexp(mass, passed))
            enough = sorted(found.values(), reverse=True)[top - 1 : top]
            if not len(rows) or (enough and scores[0] < enough[0]):
                break
            log_p, state = self._reader.lm.step(beam.state.select(rows), ids)
            texts = [beam.texts[r] + pieces.texts[i] for r, i in zip(rows.tolist(), ids.tolist(), strict=True)]
            beam = _Beam(texts, scores, log_p, state)
        best_words = sorted(found, key=lambda word: (-found[word], word))[:top]
        return [Completion(word.decode(), float(np.exp(found[word] - mass))) for word in best_words]

    def _finish(self, beam: _Beam, wanted: bytes, lead: int, found: dict[bytes, float]) -> None:
        """Add the words that may end here: log p of the word and of an end, whatever comes behind it."""
        is_end = self._some_pieces().is_end
        for text, log_prob, row in zip(beam.texts, beam.log_probs.tolist(), beam.log_p, strict=True):
            word = text[lead:]
            if len(text) < len(wanted) or not word or not _is_text(word):
                continue
            end = log_prob + _log_sum(row[is_end])
            if end > -np.inf:
                found[word] = float(np.logaddexp(found.get(word, -np.inf), end))

    def _extend(self, beam: _Beam, wanted: bytes) -> tuple[Ids, Ids, Floats, float]:
        """Rows, new ids and log p of longer beginnings, and log p of now having all that is wanted."""
        pieces, passed = self._some_pieces(), -np.inf
        lengths = np.array([len(text) for text in beam.texts])
        open_, within = np.flatnonzero(lengths >= len(wanted)), np.flatnonzero(lengths < len(wanted))
        rows, ids = [np.repeat(open_, len(pieces.inner))], [np.tile(pieces.inner, len(open_))]
        scores = [(beam.log_probs[open_, None] + beam.log_p[open_][:, pieces.inner]).ravel()]
        for row in within.tolist():
            rest = wanted[len(beam.texts[row]) :]
            whole = pieces.beginning_with(rest)
            passed = float(np.logaddexp(passed, beam.log_probs[row] + _log_sum(beam.log_p[row, whole])))
            fits = pieces.length[whole] - len(rest) <= pieces.tail[whole]
            new = np.concatenate([whole[fits], pieces.part_of(rest)])
            rows.append(np.full(len(new), row))
            ids.append(new)
            scores.append(beam.log_probs[row] + beam.log_p[row, new])
        every = np.concatenate(scores)
        best = np.argpartition(-every, BEAM)[:BEAM] if len(every) > BEAM else np.arange(len(every))
        best = best[np.argsort(-every[best], kind="stable")]
        best = best[every[best] > -np.inf]
        return np.concatenate(rows)[best], np.concatenate(ids)[best], every[best], passed

    def _some_pieces(self) -> Pieces:
        assert self._pieces is not None
        return self._pieces


def _is_text(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _log_sum(log_p: Floats) -> float:
    highest = log_p.max(initial=-np.inf)
    return float(highest + np.log(np.exp(log_p - highest).sum())) if highest > -np.inf else -np.inf
