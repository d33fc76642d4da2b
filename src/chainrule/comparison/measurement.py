"""Train one candidate, with every seed, and measure it on the test text."""

import dataclasses
import math
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import families, folder
from chainrule.api import train_prepared
from chainrule.comparison.planning import Candidate
from chainrule.comparison.settings import Settings
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.perplexity import Evaluation
from chainrule.lm import Floats
from chainrule.model import Model, Origin
from chainrule.preparation import Prepared
from chainrule.progress import Progress
from chainrule.report.results import Row

SAMPLE_TOKENS = 30
SAMPLES = 8
"""The first that is more than an empty line is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """One finished model: its row, −log p of each test line in nats, and the model itself where it is in memory."""

    row: Row
    line_nats: Floats
    model: Model | None


def train(
    candidate: Candidate,
    prepared: Prepared,
    settings: Settings,
    text: str,
    *,
    seed: int,
    seconds: float | None,
    progress: Progress,
    place: Path | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """The trained model and the warnings of its training; a checkpoint at `place` is continued."""
    origin = Origin.now(text=text, fingerprint=prepared.fingerprint, command=settings.command, seed=seed, run=place)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChainruleWarning)
        model = train_prepared(
            candidate.family,
            candidate.config,
            prepared,
            origin,
            context=settings.context,
            seed=seed,
            max_seconds=seconds,
            device=settings.device,
            progress=progress,
            place=place,
            resume=place is not None and (place / folder.CHECKPOINT).exists(),
        )
    is_network = candidate.family != "ngram"  # the discount fall-backs of the many small n-grams are not news
    advice = dict.fromkeys(str(warning.message) for warning in caught) if is_network else {}
    return model, tuple(advice)


def measure(candidate: Candidate, model: Model, settings: Settings, advice: Sequence[str] = ()) -> Measured:
    """Evaluate a trained model on the test text."""
    figures, line_nats = model.evaluate_lines(candidate.tokenized.test)
    row = make_row(candidate.name, candidate.tokenized.title, model, figures, settings, advice)
    return Measured(row, line_nats, model)


def make_row(
    name: str,
    tokenizer: str,
    model: Model,
    figures: Evaluation,
    settings: Settings,
    advice: Sequence[str] = (),
) -> Row:
    """The row of a model with these figures on the test text."""
    family = families.get(model.family)
    note = "" if model.lm.is_normalized else "a score, not a probability"
    if figures.infinite:
        note = f"infinite: no probability for {figures.cause}"
    seconds = model.metrics["train_seconds"]
    samples = model.generate_several("", SAMPLES, seed=settings.seed, max_tokens=SAMPLE_TOKENS)
    return Row(
        name=name,
        family=model.family,
        parameters=model.parameters,
        size_bytes=sum(map(len, family.files(model.lm).values())),
        train_seconds=seconds,
        train_tokens_per_second=_tokens_processed(model) / max(seconds, 1e-3),
        perplexity=figures.perplexity,
        perplexity_per_word=figures.perplexity_per_word,
        bits_per_byte=figures.bits_per_byte,
        sample=next((sample.text for sample in samples if sample.text), ""),
        is_ranked=model.lm.is_normalized and not figures.infinite,
        note=note,
        facets=family.facets(model.config),
        tokenizer=tokenizer,
        status=status(model.metrics),
        is_still_falling=is_still_falling(model.metrics),
        epochs=model.metrics.get("train_epochs"),
        steps=model.metrics.get("train_steps"),
        valid_bits_per_byte=model.metrics.get("valid_bits_per_byte"),
        advice=tuple(advice),
    )


def status(metrics: dict[str, Any]) -> str:
    """How training ended; n-grams are estimated in one pass and are complete."""
    if "status" in metrics:
        return str(metrics["status"])
    if "train_epochs" not in metrics:
        return "complete"
    return f"{metrics['train_epochs']:g} epochs: {metrics.get('train_stopped', 'ended')}"


def is_still_falling(metrics: dict[str, Any]) -> bool:
    """Whether a network's time ran out before its validation loss stopped falling."""
    if "train_is_converged" in metrics:
        return not metrics["train_is_converged"]
    return "train_stopped" in metrics and metrics["train_stopped"] != "all epochs done"


def combine_seeds(measured: Sequence[Measured], seeds: Sequence[int]) -> Measured:
    """One row for several seeds: means and the standard deviation; the model is that of the best validation figure.

    Bits per byte and the logarithms of perplexities are averaged; n − 1 is the divisor of the variance.
    """
    rows = [one.row for one in measured]
    best = min(measured, key=lambda one: _or_infinite(one.row.valid_bits_per_byte, one.row.bits_per_byte))
    if len(measured) == 1:
        return best
    bits = [row.bits_per_byte for row in rows]
    figures = tuple(
        {
            "seed": seed,
            "bits_per_byte": row.bits_per_byte,
            "valid_bits_per_byte": row.valid_bits_per_byte,
            "is_kept": row is best.row,
        }
        for seed, row in zip(seeds, rows, strict=True)
    )
    row = dataclasses.replace(
        best.row,
        bits_per_byte=statistics.fmean(bits),
        perplexity=float(np.exp(np.mean([np.log(row.perplexity) for row in rows]))),
        perplexity_per_word=float(np.exp(np.mean([np.log(row.perplexity_per_word) for row in rows]))),
        sd=statistics.stdev(bits),
        train_seconds=sum(row.train_seconds for row in rows),
        is_still_falling=any(row.is_still_falling for row in rows),
        seeds=figures,
        advice=tuple(dict.fromkeys(words for row in rows for words in row.advice)),
    )
    return Measured(row, best.line_nats, best.model)


def _or_infinite(*figures: float | None) -> tuple[float, ...]:
    return tuple(math.inf if figure is None else figure for figure in figures)


def _tokens_processed(model: Model) -> int:
    """Tokens that were learnt from: a network reads its text once an epoch, an n-gram once."""
    return int(model.metrics.get("train_tokens_processed", model.metrics.get("train_tokens", 0)))
