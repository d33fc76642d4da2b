"""Lines of text and what a model makes of each, many at a time.

Lines are read in batches of bounded size. Where tokens are words as they are written, the n-gram engine reads the
lines itself. What the log-probabilities are used for is in filter.py and identify.py.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.errors import UsageError
from chainrule.evaluation.scores import TokenScorer, token_log_probs
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.ngram.engine import check_scores
from chainrule.processors import threads
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.lines import FRAGMENT, cut_lines
from chainrule.tokenizers.encode import encode, encode_fragments
from chainrule.tokenizers.tokenizer import split_words

LONG: Final = FRAGMENT
"""Characters of a line that the engine is not given: it would not cut a word that the tokenizer cuts."""


@dataclass(frozen=True, slots=True)
class LineScores:
    """Of each of N lines the log-probability, in nats, of its tokens and of its unknown words' spellings."""

    log_probs: Floats  # (N,)  `</s>` among the tokens, p(`<unk>`) without its spelling
    tokens: Ids  # (N,)
    spellings: Floats  # (N,)  of the unknown words; −inf where a line has some and the model has no speller

    @property
    def log_probs_with_spelling(self) -> Floats:
        """(N,) log-probability of the text itself: what lines are ranked by."""
        return self.log_probs + self.spellings


def batches_for(models: Sequence[Model], corpus: Corpus) -> Iterator[list[str]]:
    """The batches these models may be given one by one: all lines at once where one of them reads a stream."""
    if all(model.lm.context == "line" for model in models):
        return read_batches(corpus)
    return iter([lines] if (lines := list(corpus.read())) else [])


class Scorer:
    """A model that is given lines, batch after batch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._engine = _engine(model)

    def score(self, lines: Sequence[str]) -> LineScores:
        """What `model.scores` says of these lines; one that holds line breaks is several, added up."""
        if isinstance(lines, str):
            raise UsageError("score was given one text; give a list of lines, such as [text]")
        if not lines:
            return LineScores(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))
        if max(map(len, lines)) > LONG:
            return self._score_some_long(lines)
        text = "\n".join(lines)
        if text.count("\n") + text.count("\r") >= len(lines):
            return self._score_parted(lines)
        # `<s>` is a word like any other in a text, but a control symbol to the engine.
        if self._engine is None or "<s>" in text or "</s>" in text:
            return self._score_encoded(lines)
        try:
            return self._score_words(lines)
        except UnicodeEncodeError:  # a lone surrogate, which is refused where text is read
            return self._score_encoded(lines)

    def count_bytes(self, lines: Sequence[str], scores: LineScores) -> Ids:
        """(N,) UTF-8 bytes of each line as the tokenizer sees it, one for its break."""
        see = self.model.tokenizer.see
        if self._engine is None or any("\n" in line or "\r" in line for line in lines):
            parted = (Corpus.from_lines([text]) for text in lines)
            return np.array([sum(len(see(line).encode()) + 1 for line in text) for text in parted], dtype=np.int64)
        whole = np.array([len(line.encode()) for line in lines], dtype=np.int64)
        blanks = np.array([line.count(" ") + line.count("\t") for line in lines], dtype=np.int64)
        is_split = self.model.tokenizer.config.splits_punctuation
        words = (count_words(lines) if is_split else scores.tokens) - 1
        return whole - blanks + np.maximum(words, 1)  # a blank between two words, and the break

    def _score_words(self, lines: Sequence[str]) -> LineScores:
        """By the engine, which splits punctuation and cuts at blanks itself."""
        speller, config = self.model.speller, self.model.tokenizer.config
        options = {"threads": threads(), "placeholder": config.unk if config.splits_punctuation else None}
        if speller is not None:
            log_probs, *others = self._engine.score_spelled(lines, speller.compiled(), **options)
            return LineScores(check_scores(log_probs, self._engine), *others)
        log_probs, tokens, unknown = self._engine.score_sentences(lines, **options)
        check_scores(log_probs, self._engine)
        return LineScores(log_probs, tokens, np.where(unknown > 0, -np.inf, 0.0))

    def _score_parted(self, texts: Sequence[str]) -> LineScores:
        """Texts of several lines: the sums over their lines."""
        parted = [list(Corpus.from_lines([text])) for text in texts]
        starts = np.cumsum([0, *map(len, parted[:-1])])
        found = self.score([line for lines in parted for line in lines])
        sums = (np.add.reduceat(values, starts) for values in (found.log_probs, found.tokens, found.spellings))
        return LineScores(*sums)

    def _score_some_long(self, lines: Sequence[str]) -> LineScores:
        """Lines some of which are longer than `LONG`: each of these by itself, piece by piece."""
        if any("\n" in line or "\r" in line for line in lines):
            return self._score_parted(lines)
        if self.model.lm.context == "stream":
            return self._score_encoded(lines)
        scores = LineScores(np.zeros(len(lines)), np.zeros(len(lines), dtype=np.int64), np.zeros(len(lines)))
        short = [i for i, line in enumerate(lines) if len(line) <= LONG]
        short_scores = self.score([lines[i] for i in short])
        for name in ("log_probs", "tokens", "spellings"):
            getattr(scores, name)[short] = getattr(short_scores, name)
        for i in sorted(set(range(len(lines))) - set(short)):
            scored = score_long_line(self.model, lines[i])
            scores.log_probs[i], scores.tokens[i] = scored.log_prob, scored.tokens
            scores.spellings[i] = scored.log_prob_of_spellings
        return scores

    def _score_encoded(self, lines: Sequence[str]) -> LineScores:
        """By way of ids, whatever the family and the tokenizer."""
        encoded = encode(Corpus.from_lines(lines), self.model.tokenizer)
        ends = np.flatnonzero(encoded.ids == encoded.eos) + 1
        starts = np.concatenate([[0], ends[:-1]])
        log_probs = np.add.reduceat(token_log_probs(self.model.lm, encoded), starts)
        spellings = np.zeros(len(lines))
        if encoded.spellings:
            rows = np.searchsorted(ends, np.flatnonzero(encoded.ids == encoded.unk), side="right")
            speller = self.model.speller
            log_p = -np.inf if speller is None else speller.log_probs(encoded.spellings)
            np.add.at(spellings, rows, log_p)
        return LineScores(log_probs, ends - starts, spellings)


@dataclass(frozen=True, slots=True)
class LongLineScore:
    """What a model makes of one line that is read in pieces; nats."""

    log_prob: float
    tokens: int
    oov: int
    log_prob_of_spellings: float
    ids: list[Ids]  # in pieces; empty unless asked for
    log_probs: list[Floats]  # likewise


def score_long_line(
    model: Model, line: str, scorer: TokenScorer | None = None, *, keeps_tokens: bool = False
) -> LongLineScore:
    """What `model.score` says of a line of any length, in memory that does not grow with it.

    The sum is the same to the last bit: it is exact until it is rounded once (`math.fsum`). With `keeps_tokens`
    every token's id and log-probability are kept, 12 bytes each. A `stream` model goes on with its `scorer`.
    """
    scorer = scorer or TokenScorer(model.lm)
    kept_ids: list[Ids] = []
    kept_log_probs: list[Floats] = []
    spellings: list[float] = []
    tokens = oov = 0

    def read() -> Iterator[float]:
        nonlocal tokens, oov
        pieces = (line[first : first + FRAGMENT] for first in range(0, len(line), FRAGMENT))
        for batch in encode_fragments(cut_lines(pieces), model.tokenizer):
            log_probs = scorer.log_probs(batch.ids)
            tokens += len(batch.ids)
            oov += len(batch.spellings)
            if batch.spellings:
                speller = model.speller
                spellings.append(
                    -math.inf if speller is None else math.fsum(speller.log_probs(batch.spellings).tolist())
                )
            if keeps_tokens:
                kept_ids.append(batch.ids)
                kept_log_probs.append(log_probs)
            yield from log_probs.tolist()

    log_prob = math.fsum(read())
    return LongLineScore(log_prob, tokens, oov, math.fsum(spellings), kept_ids, kept_log_probs)


def count_words(lines: Sequence[str]) -> Ids:
    """(N,) words of each line as blanks part them, its break being one more."""
    return np.array([len(split_words(line)) + 1 for line in lines], dtype=np.int64)


def _engine(model: Model) -> Any:
    """The n-gram engine, where reading words by blanks is what the tokenizer does; else None."""
    tokenizer, engine = model.tokenizer, getattr(model.lm, "engine", None)
    is_plain = tokenizer.config.is_words and tokenizer.backend.normalizer is None
    return engine if is_plain and engine is not None and engine.has_names and model.lm.context == "line" else None
