"""Train a candidate with every seed and evaluate it on the test text."""

import dataclasses
import math
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import families
from chainrule.api import train_prepared
from chainrule.comparison.plan import Candidate
from chainrule.comparison.results import Row
from chainrule.comparison.settings import Settings
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.perplexity import Evaluation
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.progress import Progress
from chainrule.storage import verified_dir
from chainrule.storage.provenance import Origin

SAMPLE_TOKENS = 30
SAMPLES = 8
"""Samples drawn; the first that is not empty is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """A finished model: its row, −log p of each test line in nats, and the model if it is in memory."""

    row: Row
    line_nats: Floats
    model: Model | None


def train(
    candidate: Candidate,
    settings: Settings,
    text: str,
    *,
    seed: int,
    seconds: float | None,
    progress: Progress,
    run_dir: Path | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """Train a model and collect its warnings; a checkpoint in `run_dir` is resumed."""
    prepared = candidate.tokenized.prepared
    origin = Origin.now(
        text=text, fingerprint=prepared.fingerprint, command=settings.command, seed=seed, run=run_dir
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChainruleWarning)
        model = train_prepared(
            candidate.family,
            candidate.config,
            prepared,
            origin,
            RunOptions(
                context=settings.context,
                seed=seed,
                time_limit=seconds,
                device=settings.device,
                progress=progress,
                out=run_dir,
                resume=run_dir is not None and (run_dir / verified_dir.CHECKPOINT).exists(),
            ),
        )
    is_network = candidate.family != "ngram"  # default-discount warnings of small n-grams are not shown
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
    """Build the row of a model from its test metrics."""
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
    """Describe how training ended; n-gram models are always complete."""
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
    """Merge the runs of several seeds into one row; the model is the one with the best validation result.

    Bits per byte and log perplexities are averaged; the standard deviation uses n − 1.
    """
    rows = [run.row for run in measured]
    best = min(measured, key=lambda run: _or_infinite(run.row.valid_bits_per_byte, run.row.bits_per_byte))
    if len(measured) == 1:
        return best
    bits = [row.bits_per_byte for row in rows]
    seed_metrics = tuple(
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
        seeds=seed_metrics,
        advice=tuple(dict.fromkeys(warning for row in rows for warning in row.advice)),
    )
    return Measured(row, best.line_nats, best.model)


def _or_infinite(*figures: float | None) -> tuple[float, ...]:
    return tuple(math.inf if figure is None else figure for figure in figures)


def _tokens_processed(model: Model) -> int:
    """Number of training tokens processed over all epochs."""
    return int(model.metrics.get("train_tokens_processed", model.metrics.get("train_tokens", 0)))
