"""The numbers behind the figures of the report: learning curves, sentences by surprisal, gradient flow."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from chainrule.comparison import measurement
from chainrule.comparison.evidence import extrapolate
from chainrule.comparison.planning import Candidate
from chainrule.comparison.settings import Settings
from chainrule.comparison.stages import Clock, Stage
from chainrule.comparison.store import Store, best_by
from chainrule.comparison.tokenized import Tokenized, tokenize
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.evaluation.perplexity import LN2
from chainrule.inspection.flow import GradientFlow
from chainrule.microscope import flow
from chainrule.microscope.sample import take
from chainrule.report.results import Curve, Row, Sentence, Surprisal, contenders, is_unigram
from chainrule.text.corpus import Corpus
from chainrule.text.parts import Parts, thin

CURVE_PARTS: Final = (16, 8, 4, 2, 1)
CURVE_SECONDS: Final = 20.0
"""A model that takes longer to train gets no learning curve where there is no budget for the whole."""
FLOW_TOKENS: Final = 2000  # of the test text that gradients are followed in
FLOW_LAGS: Final = 50
FLOW_POSITIONS: Final = 64
SENTENCES: Final = 4
SENTENCE_LENGTHS: Final = range(8, 22)

MakeStage = Callable[[str], Stage]


def curves(
    texts: Parts,
    rows: Sequence[Row],
    tokenized: Sequence[Tokenized],
    settings: Settings,
    stage: MakeStage,
    clock: Clock,
    store: Store,
) -> Iterator[Curve]:
    """Quality by the amount of training text for the best model of each tokenizer and family, while time is left.

    A network reads a part of the text as often as the whole: it has the same part of the time.
    """
    by_title = {one.title: one for one in tokenized}
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
                points.append((*_size(whole), model_bits(row)))
                continue
            if (row.tokenizer, part) not in prepared:
                prepared[row.tokenizer, part] = _tokenize_part(texts, whole, part, settings)
            some = prepared[row.tokenizer, part]
            if some is None:
                continue
            seconds = row.train_seconds / runs / part if row.epochs is not None else None
            candidate = Candidate(some, row.family, model.config, row.name)
            with suppress(ChainruleError):  # a part too small for a model is a point less
                smaller, _ = measurement.train(
                    candidate,
                    some.prepared,
                    settings,
                    texts.name,
                    seed=settings.seed,
                    seconds=seconds,
                    progress=stage(f"learning curve of {row.name}"),
                )
                points.append((*_size(some), smaller.evaluate_encoded(some.test).bits_per_byte))
        tokens, size, bits = zip(*points, strict=True)
        doubled_bits = extrapolate(size, bits)
        yield Curve(name=row.name, tokens=tokens, bytes=size, bits_per_byte=bits, doubled_bits=doubled_bits)


def _size(tokenized: Tokenized) -> tuple[int, int]:
    """Tokens and bytes of the training text."""
    return tokenized.prepared.train.tokens, tokenized.prepared.train.bytes


def model_bits(row: Row) -> float:
    """Bits per byte of the model that is kept, not the mean of several seeds."""
    kept = [figures["bits_per_byte"] for figures in row.seeds if figures["is_kept"]]
    return float(kept[0]) if kept else row.bits_per_byte


def _tokenize_part(texts: Parts, whole: Tokenized, part: int, settings: Settings) -> Tokenized | None:
    """One line in `part` with a tokenizer trained on these lines; None where they hold no words."""
    lines = thin(texts.train, part)
    if not any(line.strip() for line in lines):
        return None
    with suppress(ChainruleError), warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # what is said of the whole text is enough
        return tokenize(dataclasses.replace(texts, train=lines), whole.name, settings)
    return None


def sentences(texts: Parts, rows: Sequence[Row], store: Store) -> Iterator[Sentence]:
    """A few lines of the test text as the best of each tokenizer and family read them, and the best unigram."""
    shown = {row.name: None for row in best_by(rows, "tokenizer", "family")}
    for title in dict.fromkeys(row.tokenizer for row in rows):
        unigrams = contenders(row for row in rows if row.tokenizer == title and is_unigram(row))
        shown.update({row.name: None for row in unigrams[:1]})
    lines = [line for line in texts.test if len(line.split()) in SENTENCE_LENGTHS]
    lines = lines or [line for line in texts.test if line.strip()]
    for line in lines[:: max(1, len(lines) // SENTENCES)][:SENTENCES]:
        scores = [(name, store.get(name).score(line)) for name in shown]
        views = (
            Surprisal(name=name, tokens=score.tokens, bits=tuple((0.0 - p) / LN2 for p in score.log_probs))
            for name, score in scores
        )
        yield Sentence(text=line, by_model=tuple(views))


def flows(texts: Parts, rows: Sequence[Row], store: Store, stage: MakeStage) -> Iterator[GradientFlow]:
    """How far back the error of one prediction reaches, in the best network of each tokenizer and family."""
    corpus = Corpus.from_lines(texts.test)
    for row in best_by(rows, "tokenizer", "family"):
        if row.family in ("ngram", "mixture"):
            continue
        model = store.get(row.name)
        if hasattr(model.lm, "network"):
            sample = take(model, corpus, name=row.name, tokens=FLOW_TOKENS)
            measured = flow.flows(
                sample, lags=FLOW_LAGS, positions=FLOW_POSITIONS, progress=stage(f"gradient flow of {row.name}")
            )
            yield from flow.compared(measured)
