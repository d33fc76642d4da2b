"""Where a model's probability goes: what it expects before each token, how often it is right to, against others.

Lives here: the section of an inspection, from samples to words, pictures and numbers. Not here: how a text is read
(inspection/reading.py), calibration (inspection/calibration.py), n-gram orders (ngram/depth.py).

Distributions are taken a few rows at a time, at most 16 MB of them, and only sums are kept: 1,000 tokens of a 2×650
LSTM over 10,000 words take 3 to 6 s on two cores and 30 MB beside the model.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from chainrule.inspection import calibration, calibration_plot, depth, disagreement
from chainrule.inspection.calibration import Tally
from chainrule.inspection.disagreement import Disagreement
from chainrule.inspection.foreign import bold, plain_text
from chainrule.inspection.reading import (
    SHOWN,
    Predictions,
    Recorder,
    distributions,
    in_words,
    reading_html,
    summary,
)
from chainrule.inspection.section import Figure, Section
from chainrule.lm import Batch, Floats
from chainrule.microscope.sample import Sample
from chainrule.ngram.depth import REASONS, depths
from chainrule.ngram.model import NgramModel
from chainrule.progress import Progress, as_progress, silent

NAME = "probability"
TITLE = "Probability"


@dataclass(frozen=True, slots=True)
class Look:
    """A sample and all that was found in it."""

    sample: Sample
    predictions: Predictions
    all_tokens: tuple[calibration.Bin, ...]  # none where scores are no probabilities
    best_guesses: tuple[calibration.Bin, ...]
    orders: depth.Orders | None  # of n-grams alone

    @property
    def name(self) -> str:
        """What the model is called."""
        return plain_text(self.sample.name)


def section(samples: Sequence[Sample], *, progress: Progress | bool = silent) -> Section | None:
    """Surprisal, calibration, disagreement and back-off of these models on their texts."""
    progress = as_progress(progress)
    if not samples:
        return None
    looks = [look(sample, progress) for sample in samples]
    against = [compare(looks[0], other) for other in looks[1:]]
    against = [each for each in against if len(each.names)]
    findings = [words for each in looks for words in _findings(each)]
    return Section(
        name=NAME,
        title=TITLE,
        findings=(*findings, *_ranking(looks, against), *map(disagreement.in_words, against)),
        figures=_figures(looks, against),
        data={
            "models": [_to_json(each) for each in looks],
            "disagreement": [disagreement.to_json(each) for each in against],
        },
        arrays={f"{each.name}/{key}": values for each in looks for key, values in _arrays(each).items()},
    )


def look(sample: Sample, progress: Progress | bool = silent) -> Look:
    """Read the sample once, keeping what the figures need."""
    progress = as_progress(progress)
    lm = sample.model.lm
    record, counted = Recorder(lm, sample.ids), Tally.empty()
    for places, log_p in distributions(lm, sample.ids, progress):
        record.add(places, log_p)
        if lm.is_normalized:
            counted += calibration.tally(log_p, sample.ids[places])
    predictions = record.finish()
    all_tokens: tuple[calibration.Bin, ...] = ()
    best_guesses: tuple[calibration.Bin, ...] = ()
    if lm.is_normalized:
        is_right = predictions.top_ids[:, 0] == sample.ids
        all_tokens = calibration.equal_mass(counted)
        best_guesses = calibration.reliability(predictions.confidence, is_right)
    orders = find_orders(sample) if sample.model.family == "ngram" else None
    return Look(sample, predictions, all_tokens, best_guesses, orders)


def find_orders(sample: Sample) -> depth.Orders:
    """Which order of an n-gram model answered each token; in one row, since lines start anew by themselves."""
    lm = cast(NgramModel, sample.model.lm)
    targets = sample.ids[None, :].astype(np.int64)
    inputs = np.concatenate([[[lm.vocabulary.bos]], targets[:, :-1]], axis=1)
    found = depths(lm, Batch(inputs, targets, np.ones(targets.shape, dtype=bool)), lm.start(1))
    bits = -found.log_prob[0] / math.log(2) + 0.0
    return depth.Orders(lm.order, found.found[0], bits, found.reason[0], REASONS)


def compare(one: Look, other: Look) -> Disagreement:
    """Token by token where both cut the text alike, else word by word, unknown words with their spelling."""
    first, second = one.sample, other.sample
    N = min(len(first.tokens), len(second.tokens))
    is_alike = first.model.tokenizer.known.keys() == second.model.tokenizer.known.keys()
    if is_alike and first.tokens[:N] == second.tokens[:N]:
        bits = (one.predictions.bits[:N], other.predictions.bits[:N])
        found = Disagreement(one.name, other.name, "token", first.shown[:N], *bits)
    else:
        found = disagreement.by_word(one.name, other.name, _words(one), _words(other))
    return replace(found, is_probability=one.predictions.is_normalized and other.predictions.is_normalized)


def _words(each: Look) -> disagreement.Words:
    sample, tokenizer = each.sample, each.sample.model.tokenizer

    def spell(at: list[int]) -> str:
        return tokenizer.decode(sample.ids[at].tolist()).strip(disagreement.BLANKS)

    is_end = sample.ids == sample.text.eos
    tokens = sample.written if tokenizer.config.splits_punctuation else sample.tokens  # <unk> has no joiners
    return disagreement.words(tokens, _bits_with_spelling(each), is_end, tokenizer.config.kind, spell)


def _bits_with_spelling(each: Look) -> Floats:
    """(N,) the bits of each token; of an unknown word also those of its letters, where the model has a speller."""
    bits, text, speller = each.predictions.bits, each.sample.text, each.sample.model.speller
    if speller is not None and text.oov:
        bits[text.ids == text.unk] -= speller.log_probs(text.spellings) / math.log(2)
    return bits


# Words.


def _findings(each: Look) -> list[str]:
    found = [f"{each.name}: {in_words(each.sample.shown, each.predictions)}"]
    said = calibration.in_words(each.all_tokens)
    if said:
        predictions = each.predictions
        found.append(
            f"{each.name}: {said}. Over {len(predictions.ids):,} tokens its best guesses are "
            f"{calibration.error_in_words(each.best_guesses)}; before a token it was unsure by "
            f"{predictions.entropy_bits.mean():.2f} bits (mean entropy)."
        )
    if each.orders is not None:
        found.append(f"{each.name}: {depth.in_words(each.orders)}.")
    return found


def _ranking(looks: Sequence[Look], against: Sequence[Disagreement]) -> list[str]:
    """All models in one sentence, best first, where they read the same tokens."""
    if len(against) < 2 or len(against) < len(looks) - 1 or any(each.unit != "token" for each in against):
        return []
    sound = [each for each in looks if each.predictions.is_normalized]
    ranked = sorted(sound, key=lambda each: float(each.predictions.bits.mean()))
    told = [f"{each.name} {each.predictions.bits.mean():.2f}" for each in ranked]
    return [f"Bits per token, the fewest first: {', '.join(told).replace('inf', '∞')}."]


# Pictures.


def _figures(looks: Sequence[Look], against: Sequence[Disagreement]) -> tuple[Figure, ...]:
    """Texts, curves, tables."""
    readings = [_reading(each, _numbered("reading", i)) for i, each in enumerate(looks)]
    tables = [_table(each, _numbered("disagreement", i)) for i, each in enumerate(against)]
    backed_off = [each for each in looks if each.orders is not None]
    texts = [_orders_text(each, _numbered("orders-text", i)) for i, each in enumerate(backed_off)]
    bars = [_orders(each, _numbered("orders", i)) for i, each in enumerate(backed_off)]
    return (*readings, *_calibration(looks), *tables, *bars, *texts)


def _reading(each: Look, name: str) -> Figure:
    sample, tokenizer = each.sample, each.sample.model.tokenizer
    names = tokenizer.texts(range(tokenizer.vocab_size))
    score = "" if each.predictions.is_normalized else " These are bits of a score, not of a probability."
    unknown = (
        " Words in ⟨ ⟩ are unknown to the model; the bits are those of any unknown word." if sample.text.oov else ""
    )
    caption = (
        f"{bold(each.name)}: the deeper a token's colour, the more bits it cost, −log₂ p; {_shown_of(sample)}. "
        "Point at a token, or move with the arrow keys, to see what was expected there and how unsure the model "
        f"was (entropy): a surprise where it was sure is a mistake, one where it was unsure is not.{unknown}{score}"
    )
    drawing = reading_html(sample.running, each.predictions, names, sample.text.eos, is_apart=_is_apart(sample))
    return Figure(name=name, drawing=drawing, caption=caption, is_wide=True)


def _is_apart(sample: Sample) -> bool:
    """Whether blanks stand between tokens, which are words then."""
    return sample.model.tokenizer.config.kind == "whitespace"


def _calibration(looks: Sequence[Look]) -> list[Figure]:
    """Both curves of all models that give probabilities."""
    sound = [each for each in looks if each.all_tokens]
    if not sound:
        return []
    everything = {each.name: each.all_tokens for each in sound}
    guesses = {each.name: each.best_guesses for each in sound}
    errors = "; ".join(
        f"{bold(each.name)} {100 * calibration.expected_calibration_error(each.best_guesses):.1f} "
        f"({100 * calibration.floor(each.best_guesses).mean:.1f} by chance)"
        for each in sound
    )
    left_out = [bold(each.name) for each in looks if not each.predictions.is_normalized]
    note = f" Not drawn: {', '.join(left_out)}, which gives a score, not a probability." if left_out else ""
    return [
        Figure(
            name="calibration",
            drawing=calibration_plot.all_tokens(everything, title="Calibration over all tokens"),
            caption="Every token of the vocabulary at every place, in bins that should hold as many hits each: the "
            "probability said, across, and the share that came, up. On the dashed line the model is right about "
            "itself; below it, it is overconfident. Bars: two standard errors of chance; a triangle: never came."
            + note,
        ),
        Figure(
            name="confidence",
            drawing=calibration_plot.best_guesses(guesses, title="Calibration of the best guess"),
            caption="The most probable token at every place, in bins of equal width: the confidence in it and how "
            "often it came. Expected calibration error, the mean distance from the dashed line, in percentage "
            f"points (in brackets that of a perfectly calibrated model of the same confidences): {errors}.{note}",
        ),
    ]


def _table(found: Disagreement, name: str) -> Figure:
    how = (
        "Both models cut the text alike, so tokens are compared."
        if found.unit == "token"
        else "The models cut the text differently, so the bits of all tokens of a word are summed, those of the "
        "blank before it among them, and where a word is unknown also those of its spelling."
    )
    balance = disagreement.balance(found, bold(found.first), bold(found.second))
    caption = (
        f"The {disagreement.SHOWN} {found.unit}s with the largest difference log₂ p either way, with those around. "
        f"{how} The balance: {balance}{'' if found.is_probability else ', by a score, not a probability'}."
    )
    return Figure(name=name, drawing=disagreement.table_html(found), caption=caption, is_wide=True)


def _orders(each: Look, name: str) -> Figure:
    assert each.orders is not None
    caption = (
        f"{bold(each.name)}: the share of tokens for which an n-gram of this length was the longest stored, and "
        "the mean bits of those tokens. Long n-grams are sure of themselves; what they do not know costs more."
    )
    drawing = depth.bars(each.orders, title=f"Orders that answered, {each.name}")
    return Figure(name=name, drawing=drawing, caption=caption)


def _orders_text(each: Look, name: str) -> Figure:
    assert each.orders is not None
    caption = (
        f"{bold(each.name)}: the deeper a token's colour, the longer the n-gram that answered it, up to "
        f"{each.orders.order} words; {_shown_of(each.sample)}. Below: why no longer one was used, "
        "over all tokens; an n-gram that was pruned counts as not seen."
    )
    is_end = each.sample.ids == each.sample.text.eos
    drawing = depth.orders_html(each.sample.running, each.orders, is_end, _is_apart(each.sample))
    return Figure(name=name, drawing=drawing, caption=caption, is_wide=True)


def _numbered(name: str, i: int) -> str:
    """The first has the plain name: reading, reading-2, reading-3."""
    return f"{name}-{i + 1}" if i else name


def _shown_of(sample: Sample) -> str:
    N = len(sample.tokens)
    return f"the first {SHOWN:,} of {N:,} tokens" if N > SHOWN else f"{N:,} token{'' if N == 1 else 's'}"


# Numbers.


def _to_json(each: Look) -> dict[str, Any]:
    found = {"name": each.name} | summary(each.predictions)
    if each.all_tokens:
        found["calibration"] = {
            "expected_calibration_error": calibration.expected_calibration_error(each.best_guesses),
            "expected_by_chance": calibration.floor(each.best_guesses).mean,
            "all_tokens": [asdict(each_bin) for each_bin in each.all_tokens],
            "best_guesses": [asdict(each_bin) for each_bin in each.best_guesses],
        }
    if each.orders is not None:
        found["orders"] = [asdict(answered) for answered in depth.shares(each.orders)]
    return found


def _arrays(each: Look) -> dict[str, Floats]:
    predictions = each.predictions
    found: dict[str, Floats] = {"bits": predictions.bits, "rank": predictions.rank.astype(np.float64)}
    if predictions.is_normalized:
        found |= {"entropy_bits": predictions.entropy_bits, "confidence": predictions.confidence}
    if each.orders is not None:
        found["order"] = each.orders.found.astype(np.float64)
    return found
