"""Data of the report figures: learning curves, sentence surprisal and gradient flow."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from chainrule.comparison import measurement
from chainrule.comparison.model_store import Store, best_by
from chainrule.comparison.plan import Candidate
from chainrule.comparison.results import Curve, Row, Sentence, Surprisal, extrapolate, is_unigram, rankable_rows
from chainrule.comparison.settings import Settings
from chainrule.comparison.tokenized_text import Tokenized, tokenize
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.evaluation.perplexity import LN2
from chainrule.inspection import gradient_flow
from chainrule.inspection.gradient_flow import comparable_flows
from chainrule.inspection.sample import take_sample
from chainrule.neural.probes.measurements import GradientFlow
from chainrule.progress import Progress
from chainrule.text.corpus import Corpus
from chainrule.text.splits import CorpusSplit, subsample_blocks


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """Time budget of a comparison."""

    total: float  # expected total in seconds
    start: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.total - self.elapsed)


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Progress callback of one stage, reported as elapsed time of the whole comparison."""

    outer: Progress
    clock: Clock
    name: str

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report elapsed and total seconds."""
        description = f"{self.name}: {what}" if what else self.name
        seconds = max(1, round(self.clock.total))
        self.outer(description, min(round(self.clock.elapsed), seconds), seconds)


CURVE_PARTS: Final = (16, 8, 4, 2, 1)
CURVE_SECONDS: Final = 20.0
"""Without a total budget, models that train longer than this get no learning curve."""
FLOW_TOKENS: Final = 2000  # test tokens for the gradient-flow measurement
FLOW_LAGS: Final = 50
FLOW_POSITIONS: Final = 64
SENTENCES: Final = 4
SENTENCE_LENGTHS: Final = range(8, 22)

MakeStage = Callable[[str], Stage]


def learning_curves(
    texts: CorpusSplit,
    rows: Sequence[Row],
    tokenized: Sequence[Tokenized],
    settings: Settings,
    stage: MakeStage,
    clock: Clock,
    store: Store,
) -> Iterator[Curve]:
    """Learning curves of the best model of each tokenizer and family, while time is left.

    A network trained on a fraction of the text gets the same fraction of the training time.
    """
    by_title = {text.title: text for text in tokenized}
    prepared: dict[tuple[str, int], Tokenized | None] = {}
    for row in best_by(rows, "tokenizer", "family"):
        runs = max(1, len(row.seeds))
        expected = row.train_seconds / runs * sum(1 / part for part in CURVE_PARTS[:-1])
        is_too_long = expected > clock.left if settings.total_seconds else row.train_seconds > CURVE_SECONDS
        if row.family == "mixture" or (is_too_long and expected > 1):
            continue
        model = store.get(row.name)
        whole = by_title[row.tokenizer]
        points = []
        for part in CURVE_PARTS:
            stage(f"learning curve of {row.name}")("", 0, None)
            if part == 1:
                points.append((*_size(whole), saved_model_bits(row)))
                continue
            if (row.tokenizer, part) not in prepared:
                prepared[row.tokenizer, part] = _tokenize_part(texts, whole, part, settings)
            subset = prepared[row.tokenizer, part]
            if subset is None:
                continue
            seconds = row.train_seconds / runs / part if row.epochs is not None else None
            candidate = Candidate(subset, row.family, model.config, row.name)
            with suppress(ChainruleError):  # skip parts too small to train on
                smaller, _ = measurement.train(
                    candidate,
                    subset.prepared,
                    settings,
                    texts.name,
                    seed=settings.seed,
                    seconds=seconds,
                    progress=stage(f"learning curve of {row.name}"),
                )
                points.append((*_size(subset), smaller.evaluate_encoded(subset.test).bits_per_byte))
        tokens, size, bits = zip(*points, strict=True)
        doubled_bits = extrapolate(size, bits)
        yield Curve(name=row.name, tokens=tokens, bytes=size, bits_per_byte=bits, doubled_bits=doubled_bits)


def _size(tokenized: Tokenized) -> tuple[int, int]:
    """Tokens and bytes of the training text."""
    return tokenized.prepared.train.tokens, tokenized.prepared.train.bytes


def saved_model_bits(row: Row) -> float:
    """Bits per byte of the saved model, not the mean over seeds."""
    saved = [figures["bits_per_byte"] for figures in row.seeds if figures["is_kept"]]
    return float(saved[0]) if saved else row.bits_per_byte


def _tokenize_part(texts: CorpusSplit, whole: Tokenized, part: int, settings: Settings) -> Tokenized | None:
    """Tokenize every `part`-th block of lines with a new tokenizer; None if they contain no words."""
    lines = subsample_blocks(texts.train, part)
    if not any(line.strip() for line in lines):
        return None
    with suppress(ChainruleError), warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # the full text has been warned about
        return tokenize(dataclasses.replace(texts, train=lines), whole.name, settings)
    return None


def sentence_surprisals(texts: CorpusSplit, rows: Sequence[Row], store: Store) -> Iterator[Sentence]:
    """Surprisal of a few test lines under the best model of each tokenizer and family, and the best unigram."""
    shown = {row.name: None for row in best_by(rows, "tokenizer", "family")}
    for title in dict.fromkeys(row.tokenizer for row in rows):
        unigrams = rankable_rows(row for row in rows if row.tokenizer == title and is_unigram(row))
        shown.update({row.name: None for row in unigrams[:1]})
    lines = [line for line in texts.test if len(line.split()) in SENTENCE_LENGTHS]
    lines = lines or [line for line in texts.test if line.strip()]
    for line in lines[:: max(1, len(lines) // SENTENCES)][:SENTENCES]:
        scores = [(name, store.get(name).score(line)) for name in shown]
        surprisals = (
            Surprisal(name=name, tokens=score.tokens, bits=tuple((0.0 - p) / LN2 for p in score.log_probs))
            for name, score in scores
        )
        yield Sentence(text=line, by_model=tuple(surprisals))


def gradient_flows(
    texts: CorpusSplit, rows: Sequence[Row], store: Store, stage: MakeStage
) -> Iterator[GradientFlow]:
    """Gradient flow of the best network of each tokenizer and family."""
    corpus = Corpus.from_lines(texts.test)
    for row in best_by(rows, "tokenizer", "family"):
        if row.family in ("ngram", "mixture"):
            continue
        model = store.get(row.name)
        if model.lm.network is not None:
            sample = take_sample(model, corpus, name=row.name, tokens=FLOW_TOKENS)
            measured = gradient_flow.measure(
                sample, lags=FLOW_LAGS, positions=FLOW_POSITIONS, progress=stage(f"gradient flow of {row.name}")
            )
            yield from comparable_flows(measured)
