"""Lines of text and what a model makes of each, many at a time.

Lives here: reading lines in batches of bounded size, and their log-probabilities, by the n-gram engine's own
reading of words where the tokenizer only cuts at blanks. Not here: what they are used for (filter.py, identify.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

import numpy as np

from chainrule.evaluation.scores import token_log_probs
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.ngram.engine import refusing_damage
from chainrule.ngram.spelling import Speller
from chainrule.processors import threads
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import split_words

CHARACTERS_AT_ONCE: Final = 1 << 21
LONG: Final = 1 << 20
"""Characters of a line that the engine is not given whole."""

REMEMBERED: Final = 1 << 19
"""Spellings that are held before the memory of them begins anew."""


@dataclass(frozen=True, slots=True)
class LineScores:
    """Of each of N lines the log-probability, in nats, of its tokens and of its unknown words' spellings."""

    log_probs: Floats  # (N,)  `</s>` among the tokens, p(`<unk>`) without its spelling
    tokens: Ids  # (N,)
    spellings: Floats  # (N,)  add it for the probability of the text itself; zeros where it was not asked for


def read_batches(corpus: Corpus, characters: int | None = None) -> Iterator[list[str]]:
    """The lines of a text in lists of about so many characters, or of one line that is longer."""
    enough = CHARACTERS_AT_ONCE if characters is None else characters
    held: list[str] = []
    size = 0
    for block in corpus.blocks():
        held.append(block)
        size += len(block)
        if size >= enough and "\n" in block:
            ended, _, rest = "".join(held).rpartition("\n")
            yield ended.split("\n")
            held, size = [rest], len(rest)
    if text := "".join(held):
        yield text.removesuffix("\n").split("\n")


def batches_for(models: Sequence[Model], corpus: Corpus) -> Iterator[list[str]]:
    """The batches these models may be given one by one: all lines at once where one of them reads a stream."""
    if all(model.lm.context == "line" for model in models):
        return read_batches(corpus)
    return iter([lines] if (lines := list(corpus)) else [])


class Scorer:
    """A model that is given lines, batch after batch; the spelling of a word that comes again is remembered."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._engine = _engine(model)
        self._spellings = _Spellings(model.speller)

    def score(self, lines: Sequence[str], *, is_spelled: bool = True) -> LineScores:
        """What `model.scores` says of these lines; one that holds line breaks is several, added up."""
        if not lines:
            return LineScores(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))
        text = "\n".join(lines)
        if text.count("\n") + text.count("\r") >= len(lines):
            return self._score_parted(lines, is_spelled)
        # `<s>` is a word like any other in a text, but a control symbol to the engine.
        if self._engine is None or "<s>" in text or "</s>" in text or max(map(len, lines)) > LONG:
            return self._score_encoded(lines, is_spelled)
        with refusing_damage():
            return self._score_words(lines, text, is_spelled)

    def count_bytes(self, lines: Sequence[str], scores: LineScores) -> Ids:
        """(N,) UTF-8 bytes of each line as the tokenizer sees it, one for its break."""
        tokenizer = self.model.tokenizer
        if self._engine is None:
            return np.array([len(tokenizer.see(line).encode()) + 1 for line in lines], dtype=np.int64)
        whole = np.array([len(line.encode()) for line in lines], dtype=np.int64)
        blanks = np.array([line.count(" ") + line.count("\t") for line in lines], dtype=np.int64)
        return whole - blanks + np.maximum(scores.tokens - 1, 1)  # a blank between two words, and the break

    def _score_words(self, lines: Sequence[str], text: str, is_spelled: bool) -> LineScores:
        """By the engine, which cuts at blanks itself; `text` is the lines with LF between them."""
        N = len(lines)
        if not is_spelled:
            log_probs, tokens, _ = self._engine.score_sentences(list(lines), threads=threads())
            return LineScores(log_probs, tokens, np.zeros(N))
        of_tokens, _, is_unknown, ends = self._engine.full_scores(list(lines), threads=threads())
        tokens = np.diff(ends, prepend=0)
        log_probs = np.add.reduceat(of_tokens.astype(np.float64), ends - tokens)
        spellings = np.zeros(N)
        if is_unknown.any():
            is_unknown = np.delete(is_unknown, ends - 1)  # of each word, `</s>` being none
            words = filter(None, text.replace("\n", " ").replace("\t", " ").split(" "))
            unknown = list(compress(words, is_unknown.tobytes()))
            np.add.at(spellings, np.repeat(np.arange(N), tokens - 1)[is_unknown > 0], self._spellings.of(unknown))
        return LineScores(log_probs, tokens, spellings)

    def _score_parted(self, texts: Sequence[str], is_spelled: bool) -> LineScores:
        """Texts of several lines: the sums over their lines."""
        parted = [list(Corpus.from_lines([text])) for text in texts]
        starts = np.cumsum([0, *map(len, parted[:-1])])
        found = self.score([line for lines in parted for line in lines], is_spelled=is_spelled)
        sums = (np.add.reduceat(values, starts) for values in (found.log_probs, found.tokens, found.spellings))
        return LineScores(*sums)

    def _score_encoded(self, lines: Sequence[str], is_spelled: bool) -> LineScores:
        """By way of ids, whatever the family and the tokenizer."""
        encoded = encode(Corpus.from_lines(lines), self.model.tokenizer)
        ends = np.flatnonzero(encoded.ids == encoded.eos) + 1
        starts = np.concatenate([[0], ends[:-1]])
        log_probs = np.add.reduceat(token_log_probs(self.model.lm, encoded), starts)
        spellings = np.zeros(len(lines))
        if is_spelled and encoded.spellings:
            rows = np.searchsorted(ends, np.flatnonzero(encoded.ids == encoded.unk), side="right")
            np.add.at(spellings, rows, self._spellings.of(encoded.spellings))
        return LineScores(log_probs, ends - starts, spellings)


class _Spellings:
    """Log p(spelling) of unknown words, looked up where they were met before."""

    def __init__(self, speller: Speller | None) -> None:
        self._speller = speller
        self._met: dict[str, float] = {}

    def of(self, words: list[str]) -> Floats:
        """One each; a model without a speller gives −inf."""
        if self._speller is None:
            return np.full(len(words), -np.inf)
        if len(self._met) > REMEMBERED:
            self._met.clear()
        if new := set(words) - self._met.keys():
            distinct = sorted(new)
            self._met |= zip(distinct, self._speller.log_probs(distinct).tolist(), strict=True)
        return np.array(list(map(self._met.__getitem__, words)), dtype=np.float64)


def count_words(lines: Sequence[str]) -> Ids:
    """(N,) words of each line as blanks part them, its break being one more."""
    return np.array([len(split_words(line)) + 1 for line in lines], dtype=np.int64)


def _engine(model: Model) -> Any:
    """The n-gram engine, where reading words by blanks is what the tokenizer does; else None."""
    tokenizer, engine = model.tokenizer, getattr(model.lm, "engine", None)
    is_plain = tokenizer.config.kind == "word" and tokenizer.backend.normalizer is None
    return engine if is_plain and engine is not None and engine.has_names and model.lm.context == "line" else None
