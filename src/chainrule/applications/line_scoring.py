"""Log-probabilities of many independent lines.

Lines are scored in batches of bounded size. If tokens are white-space separated words, the n-gram engine reads the
lines directly.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.errors import UsageError
from chainrule.evaluation.perplexity import TokenScorer, token_log_probs
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.ngram.engine import check_scores
from chainrule.system import thread_count
from chainrule.text.corpus import Corpus, read_batches
from chainrule.text.lines import FRAGMENT, cut_lines
from chainrule.tokenizers.encode import encode, encode_fragments
from chainrule.tokenizers.tokenizer import split_words

MAX_ENGINE_LINE: Final = FRAGMENT
"""Longer lines are not passed to the engine, which would not split words where the tokenizer does."""


@dataclass(frozen=True, slots=True)
class LineScores:
    """Log-probabilities of N lines in nats: of the tokens and of the spellings of unknown words."""

    log_probs: Floats  # (N,)  including `</s>`; p(`<unk>`) without its spelling
    tokens: Ids  # (N,)
    spellings: Floats  # (N,)  of unknown words; −inf if there are any and the model has no speller

    @property
    def log_probs_with_spelling(self) -> Floats:
        """(N,) log-probability of the text itself, used to rank lines."""
        return self.log_probs + self.spellings


def read_batches_for(models: Sequence[Model], corpus: Corpus) -> Iterator[list[str]]:
    """Batches that can be scored independently: a single batch if any model has `stream` context."""
    if all(model.lm.context == "line" for model in models):
        return read_batches(corpus)
    return iter([lines] if (lines := list(corpus.read())) else [])


class LineScorer:
    """Scores batches of lines with one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._engine = _engine(model)

    def score(self, lines: Sequence[str]) -> LineScores:
        """Score lines like `model.scores`; a text with line breaks is scored as the sum of its lines."""
        if isinstance(lines, str):
            raise UsageError("score was given one text; give a list of lines, such as [text]")
        if not lines:
            return LineScores(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))
        if max(map(len, lines)) > MAX_ENGINE_LINE:
            return self._score_some_long(lines)
        text = "\n".join(lines)
        if text.count("\n") + text.count("\r") >= len(lines):
            return self._score_multiline(lines)
        # In text `<s>` is an ordinary word; the engine would read it as a control symbol.
        if self._engine is None or "<s>" in text or "</s>" in text:
            return self._score_encoded(lines)
        try:
            return self._score_words(lines)
        except UnicodeEncodeError:  # a lone surrogate; the tokenizer raises the proper error
            return self._score_encoded(lines)

    def count_bytes(self, lines: Sequence[str], scores: LineScores) -> Ids:
        """(N,) UTF-8 bytes of each line after normalization, plus one for the line break."""
        canonical = self.model.tokenizer.canonicalize
        if self._engine is None or any("\n" in line or "\r" in line for line in lines):
            texts = (Corpus.from_lines([text]) for text in lines)
            return np.array(
                [sum(len(canonical(line).encode()) + 1 for line in text) for text in texts], dtype=np.int64
            )
        total = np.array([len(line.encode()) for line in lines], dtype=np.int64)
        blanks = np.array([line.count(" ") + line.count("\t") for line in lines], dtype=np.int64)
        is_split = self.model.tokenizer.config.splits_punctuation
        words = (count_words(lines) if is_split else scores.tokens) - 1
        return total - blanks + np.maximum(words, 1)  # one blank between words, and the line break

    def _score_words(self, lines: Sequence[str]) -> LineScores:
        """Score with the engine, which tokenizes the lines itself."""
        speller, config = self.model.speller, self.model.tokenizer.config
        options = {"threads": thread_count(), "placeholder": config.unk if config.splits_punctuation else None}
        if speller is not None:
            log_probs, *others = self._engine.score_spelled(lines, speller.compiled, **options)
            return LineScores(check_scores(log_probs, self._engine), *others)
        log_probs, tokens, unknown = self._engine.score_sentences(lines, **options)
        check_scores(log_probs, self._engine)
        return LineScores(log_probs, tokens, np.where(unknown > 0, -np.inf, 0.0))

    def _score_multiline(self, texts: Sequence[str]) -> LineScores:
        """Score multi-line texts as the sums over their lines."""
        text_lines = [list(Corpus.from_lines([text])) for text in texts]
        starts = np.cumsum([0, *map(len, text_lines[:-1])])
        scores = self.score([line for lines in text_lines for line in lines])
        sums = (np.add.reduceat(values, starts) for values in (scores.log_probs, scores.tokens, scores.spellings))
        return LineScores(*sums)

    def _score_some_long(self, lines: Sequence[str]) -> LineScores:
        """Score lines longer than `MAX_ENGINE_LINE` one at a time in fragments, and the others as a batch."""
        if any("\n" in line or "\r" in line for line in lines):
            return self._score_multiline(lines)
        if self.model.lm.context == "stream":
            return self._score_encoded(lines)
        scores = LineScores(np.zeros(len(lines)), np.zeros(len(lines), dtype=np.int64), np.zeros(len(lines)))
        short = [i for i, line in enumerate(lines) if len(line) <= MAX_ENGINE_LINE]
        short_scores = self.score([lines[i] for i in short])
        for name in ("log_probs", "tokens", "spellings"):
            getattr(scores, name)[short] = getattr(short_scores, name)
        for i in sorted(set(range(len(lines))) - set(short)):
            scored = score_long_line(self.model, lines[i])
            scores.log_probs[i], scores.tokens[i] = scored.log_prob, scored.tokens
            scores.spellings[i] = scored.log_prob_of_spellings
        return scores

    def _score_encoded(self, lines: Sequence[str]) -> LineScores:
        """Score via token ids, for any family and tokenizer."""
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
    """Score of a line read in fragments, in nats."""

    log_prob: float
    tokens: int
    oov: int
    log_prob_of_spellings: float
    ids: list[Ids]  # per fragment; empty without `keeps_tokens`
    log_probs: list[Floats]  # likewise


def score_long_line(
    model: Model, line: str, scorer: TokenScorer | None = None, *, keeps_tokens: bool = False
) -> LongLineScore:
    """Score a line of any length in constant memory.

    The result equals `model.score` bit for bit: sums are exact until rounded once (`math.fsum`). With
    `keeps_tokens` the id and log-probability of every token are stored, 12 bytes each. `scorer` carries the state
    of `stream` models.
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
    """(N,) white-space separated words per line, plus one for the line break."""
    return np.array([len(split_words(line)) + 1 for line in lines], dtype=np.int64)


def _engine(model: Model) -> Any:
    """The n-gram engine if its word splitting equals that of the tokenizer, else None."""
    tokenizer, engine = model.tokenizer, model.lm.engine
    is_plain = tokenizer.config.is_word_level and not tokenizer.config.lowercase
    return engine if is_plain and engine is not None and engine.has_names and model.lm.context == "line" else None
