"""The probability section: surprisal, calibration, comparison of models, and n-gram back-off.

Distributions are computed in blocks of at most 4 MB and reduced to sums.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from chainrule.inspection import calibration
from chainrule.inspection import predictions as analysis
from chainrule.inspection.calibration import Bin, Tally
from chainrule.inspection.predictions import Disagreement, Orders, PredictionRecorder, Predictions
from chainrule.inspection.report import Figure, Finding, Section
from chainrule.inspection.text_excerpt import Sample
from chainrule.lm import Batch, Floats
from chainrule.ngram.model import REASONS, NgramModel, trace_backoff
from chainrule.plots.html import bold, to_printable
from chainrule.progress import Progress, silent

NAME = "probability"
TITLE = "Probability"


@dataclass(frozen=True, slots=True)
class ModelReading:
    """A sample and the predictions of its model."""

    name: str  # display name of the model
    sample: Sample
    predictions: Predictions
    all_tokens: tuple[Bin, ...]  # empty if scores are not probabilities
    best_guesses: tuple[Bin, ...]
    orders: Orders | None  # n-gram models only


def section(samples: Sequence[Sample], *, progress: Progress = silent) -> Section | None:
    """Return surprisal, calibration, comparison and back-off of these models on their texts."""
    if not samples:
        return None
    readings = [read_sample(sample, progress) for sample in samples]
    comparisons = [compare_models(readings[0], other) for other in readings[1:]]
    comparisons = [item for item in comparisons if len(item.names)]
    findings = [finding for item in readings for finding in _findings(item)]
    return Section(
        name=NAME,
        title=TITLE,
        findings=(
            *findings,
            *_ranking(readings, comparisons),
            *(Finding(None, analysis.describe_disagreement(item)) for item in comparisons),
        ),
        figures=_figures(readings, comparisons),
        data={
            "models": [_to_json(item) for item in readings],
            "disagreement": [analysis.to_json(item) for item in comparisons],
        },
        arrays={f"{item.name}/{key}": values for item in readings for key, values in _arrays(item).items()},
    )


def read_sample(sample: Sample, progress: Progress = silent) -> ModelReading:
    """Read the sample once and collect what the figures need."""
    lm, ids = sample.model.lm, sample.ids
    recorder, tally = PredictionRecorder(lm, ids), Tally.empty()
    for positions, log_p in analysis.next_token_distributions(lm, ids, progress):
        recorder.add(positions, log_p)
        if lm.is_normalized:
            tally += calibration.tally_events(log_p, ids[positions])
    predictions = recorder.finish()
    all_tokens: tuple[Bin, ...] = ()
    best_guesses: tuple[Bin, ...] = ()
    if lm.is_normalized:
        is_right = predictions.top_ids[:, 0] == ids
        all_tokens = calibration.equal_mass_bins(tally)
        best_guesses = calibration.reliability_bins(predictions.confidence, is_right)
    orders = backoff_orders(sample) if sample.model.family == "ngram" else None
    return ModelReading(to_printable(sample.name), sample, predictions, all_tokens, best_guesses, orders)


def backoff_orders(sample: Sample) -> Orders:
    """Return the n-gram order used for each token, reading the text as one row."""
    lm = cast(NgramModel, sample.model.lm)
    targets = sample.ids[None, :].astype(np.int64)
    inputs = np.concatenate([[[lm.vocabulary.bos]], targets[:, :-1]], axis=1)
    trace = trace_backoff(lm, Batch(inputs, targets, np.ones(targets.shape, dtype=bool)), lm.start(1))
    bits = -trace.log_prob[0] / math.log(2) + 0.0
    return Orders(lm.order, trace.matched[0], bits, trace.reason[0], REASONS)


def compare_models(first: ModelReading, second: ModelReading) -> Disagreement:
    """Compare token by token if both tokenize alike, otherwise word by word with spellings of unknown words."""
    first_sample, second_sample = first.sample, second.sample
    N = min(len(first_sample.tokens), len(second_sample.tokens))
    is_alike = first_sample.model.tokenizer.vocab.keys() == second_sample.model.tokenizer.vocab.keys()
    if is_alike and first_sample.tokens[:N] == second_sample.tokens[:N]:
        bits = (first.predictions.bits[:N], second.predictions.bits[:N])
        comparison = Disagreement(first.name, second.name, "token", first_sample.display_tokens[:N], *bits)
    else:
        comparison = analysis.compare_words(first.name, second.name, _words(first), _words(second))
    return replace(comparison, is_probability=first.predictions.is_normalized and second.predictions.is_normalized)


def _words(reading: ModelReading) -> analysis.WordBits:
    sample, tokenizer = reading.sample, reading.sample.model.tokenizer

    def spell(indices: list[int]) -> str:
        return tokenizer.decode(sample.ids[indices].tolist()).strip(analysis.BLANKS)

    is_end = sample.ids == sample.text.eos
    tokens = (
        sample.source_tokens if tokenizer.config.splits_punctuation else sample.tokens
    )  # `<unk>` has no joiners
    return analysis.group_words(tokens, _bits_with_spelling(reading), is_end, tokenizer.config.kind, spell)


def _bits_with_spelling(reading: ModelReading) -> Floats:
    """Return the bits of each token (N,), including the spelling of unknown words if there is a speller."""
    bits, text, speller = reading.predictions.bits, reading.sample.text, reading.sample.model.speller
    if speller is not None and text.oov:
        bits[text.ids == text.unk] -= speller.log_probs(text.spellings) / math.log(2)
    return bits


# Findings.


def _findings(reading: ModelReading) -> list[Finding]:
    findings = [
        Finding(reading.name, analysis.describe_predictions(reading.sample.display_tokens, reading.predictions))
    ]
    calibration_clause = calibration.describe(reading.all_tokens)
    if calibration_clause:
        predictions = reading.predictions
        error = (
            f"Over {len(predictions.ids):,} tokens {calibration.describe_error(reading.best_guesses)}; the mean "
            f"entropy is {predictions.entropy_bits.mean():.2f} bits."
        )
        findings.append(Finding(reading.name, f"{calibration_clause}.", error))
    if reading.orders is not None:
        findings.append(Finding(reading.name, f"{analysis.describe_orders(reading.orders)}."))
    return findings


def _ranking(readings: Sequence[ModelReading], comparisons: Sequence[Disagreement]) -> list[Finding]:
    """Rank all models in one sentence, if they read the same tokens."""
    if (
        len(comparisons) < 2
        or len(comparisons) < len(readings) - 1
        or any(item.unit != "token" for item in comparisons)
    ):
        return []
    normalized = [item for item in readings if item.predictions.is_normalized]
    ranked = sorted(normalized, key=lambda item: float(item.predictions.bits.mean()))
    entries = [f"{item.name} {item.predictions.bits.mean():.2f}" for item in ranked]
    return [Finding(None, f"Bits per token, best first: {', '.join(entries).replace('inf', '∞')}.")]


# Figures.


def _figures(results: Sequence[ModelReading], comparisons: Sequence[Disagreement]) -> tuple[Figure, ...]:
    """Return the coloured texts, calibration plots, comparisons and back-off figures."""
    text_figures = [_reading(item, _numbered("reading", i)) for i, item in enumerate(results)]
    tables = [_table(item, _numbered("disagreement", i)) for i, item in enumerate(comparisons)]
    ngrams = [item for item in results if item.orders is not None]
    order_texts = [_orders_text(item, _numbered("orders-text", i)) for i, item in enumerate(ngrams)]
    bars = [_orders(item, _numbered("orders", i)) for i, item in enumerate(ngrams)]
    return (*text_figures, *_calibration(results), *tables, *bars, *order_texts)


def _reading(reading: ModelReading, name: str) -> Figure:
    sample, tokenizer = reading.sample, reading.sample.model.tokenizer
    names = tokenizer.display_texts(range(tokenizer.vocab_size))
    score_note = "" if reading.predictions.is_normalized else " These are bits of a score, not a probability."
    unknown_note = (
        " Words in ⟨ ⟩ are out of vocabulary; their bits are those of &lt;unk&gt;." if sample.text.oov else ""
    )
    caption = (
        f"{bold(reading.name)}: tokens coloured by surprisal, −log₂ p in bits; {_shown_of(sample)}. Hover over a "
        "token, or use the arrow keys, to see the top predictions and the entropy "
        f"there.{unknown_note}{score_note}"
    )
    drawing = analysis.predictions_html(
        sample.running_tokens, reading.predictions, names, sample.text.eos, is_apart=_is_apart(sample)
    )
    return Figure(name=name, drawing=drawing, caption=caption, is_wide=True)


def _is_apart(sample: Sample) -> bool:
    """Return whether tokens are separated by blanks."""
    return sample.model.tokenizer.config.kind == "whitespace"


def _calibration(readings: Sequence[ModelReading]) -> list[Figure]:
    """Plot both reliability diagrams of all normalized models."""
    normalized = [reading for reading in readings if reading.all_tokens]
    if not normalized:
        return []
    all_tokens = {reading.name: reading.all_tokens for reading in normalized}
    top_predictions = {reading.name: reading.best_guesses for reading in normalized}
    errors = "; ".join(
        f"{bold(reading.name)} {100 * calibration.expected_calibration_error(reading.best_guesses):.1f} "
        f"({100 * calibration.chance_level(reading.best_guesses)[0]:.1f} by chance)"
        for reading in normalized
    )
    unnormalized = [bold(reading.name) for reading in readings if not reading.predictions.is_normalized]
    note = f" Not drawn: {', '.join(unnormalized)}, whose scores are not probabilities." if unnormalized else ""
    return [
        Figure(
            name="calibration",
            drawing=calibration.plot_all_tokens(all_tokens, title="Calibration over all tokens"),
            caption="All tokens of the vocabulary at every position, in bins of equal expected hits: predicted "
            "probability against observed frequency. On the dashed line the model is calibrated, below it "
            "overconfident. Error bars: two standard errors; triangles: bins without hits." + note,
        ),
        Figure(
            name="confidence",
            drawing=calibration.plot_top_predictions(top_predictions, title="Calibration of the top prediction"),
            caption="The most probable token at every position, in bins of equal width: confidence against "
            "accuracy. Expected calibration error, the mean distance from the dashed line, in percentage points "
            "(in brackets: by chance, for a perfectly calibrated model of the same confidences): "
            f"{errors}.{note}",
        ),
    ]


def _table(comparison: Disagreement, name: str) -> Figure:
    method = (
        "Both models tokenize the text alike, so tokens are compared."
        if comparison.unit == "token"
        else "The models tokenize the text differently, so the bits of all tokens of a word are summed, including "
        "the preceding blank and the spelling of unknown words."
    )
    balance = analysis.describe_balance(comparison, bold(comparison.first), bold(comparison.second))
    caption = (
        f"The {analysis.SHOWN} {comparison.unit}s with the largest difference in log₂ p in each direction, in "
        f"context. {method} Overall, "
        f"{balance}{'' if comparison.is_probability else ', by score, not probability'}."
    )
    return Figure(name=name, drawing=analysis.table_html(comparison), caption=caption, is_wide=True)


def _orders(reading: ModelReading, name: str) -> Figure:
    assert reading.orders is not None
    caption = (
        f"{bold(reading.name)}: share of tokens for which an n-gram of this order was the longest stored, with "
        "the mean bits of those tokens. Longer n-grams usually cost fewer bits."
    )
    drawing = analysis.plot_orders(reading.orders, title=f"N-gram orders used, {reading.name}")
    return Figure(name=name, drawing=drawing, caption=caption)


def _orders_text(reading: ModelReading, name: str) -> Figure:
    assert reading.orders is not None
    caption = (
        f"{bold(reading.name)}: tokens coloured by the order of the n-gram used, up to "
        f"{reading.orders.order}; {_shown_of(reading.sample)}. Below: why no longer n-gram was used, over all "
        "tokens; a pruned n-gram counts as not seen."
    )
    is_end = reading.sample.ids == reading.sample.text.eos
    drawing = analysis.orders_html(reading.sample.running_tokens, reading.orders, is_end, _is_apart(reading.sample))
    return Figure(name=name, drawing=drawing, caption=caption, is_wide=True)


def _numbered(name: str, i: int) -> str:
    """Number names from the second on: reading, reading-2, reading-3."""
    return f"{name}-{i + 1}" if i else name


def _shown_of(sample: Sample) -> str:
    N = len(sample.tokens)
    return (
        f"the first {analysis.MAX_SHOWN:,} of {N:,} tokens"
        if N > analysis.MAX_SHOWN
        else f"{N:,} token{'' if N == 1 else 's'}"
    )


# JSON and arrays.


def _to_json(reading: ModelReading) -> dict[str, Any]:
    document = {"name": reading.name} | analysis.summary(reading.predictions)
    if reading.all_tokens:
        document["calibration"] = {
            "expected_calibration_error": calibration.expected_calibration_error(reading.best_guesses),
            "expected_by_chance": calibration.chance_level(reading.best_guesses)[0],
            "all_tokens": [b.as_json() for b in reading.all_tokens],
            "best_guesses": [b.as_json() for b in reading.best_guesses],
        }
    if reading.orders is not None:
        document["orders"] = [asdict(statistics) for statistics in analysis.order_statistics(reading.orders)]
    return document


def _arrays(reading: ModelReading) -> dict[str, Floats]:
    predictions = reading.predictions
    arrays: dict[str, Floats] = {"bits": predictions.bits, "rank": predictions.rank.astype(np.float64)}
    if predictions.is_normalized:
        arrays |= {"entropy_bits": predictions.entropy_bits, "confidence": predictions.confidence}
    if reading.orders is not None:
        arrays["order"] = reading.orders.matched_order.astype(np.float64)
    return arrays
