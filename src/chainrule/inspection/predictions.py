"""Next-token predictions of a model over a text: surprisal, rank, entropy, and an interactive coloured text.

Uses only the `LanguageModel` protocol, so it works for every family.
"""

import html
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule.lm import AnyModel, Batch, Floats, Ids, Mask
from chainrule.plots import figures
from chainrule.plots.html import (
    BLUE,
    FULL_BITS,
    MAX_OPACITY,
    ORANGE,
    READ,
    Group,
    Markup,
    escape,
    escape_all,
    format_bits,
    html_table,
    json_for_script,
    to_printable,
    to_printable_all,
)
from chainrule.progress import Progress, silent
from chainrule.storage.strict_json import replace_nonfinite
from chainrule.tokenizers.punctuation import joined_sides

CELLS_AT_ONCE: Final = 1 << 19
"""Largest number T · V of probabilities held at a time: 4 MB, and a few times as much while they are reduced."""

TOP: Final = 10
MAX_SHOWN: Final = 400  # tokens that are coloured

STYLE: Final = (
    ".read-line{line-height:1.9;overflow-wrap:anywhere}"
    ".read-token{padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext}"
    ".read-glued .read-token{padding:.1em 0}"
    ".read-token.none{outline:.12em dashed #d55e00;outline-offset:-.12em}"
    ".read-token>bdi{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}"
    ".read-tokens{position:relative}"
    ".read-table{width:auto!important;border-collapse:collapse}"
    ".read-table :is(th,td){width:auto!important;min-width:0!important;max-width:none!important;padding:.15em .9em "
    ".15em 0;text-align:start!important;vertical-align:baseline}"
    ".read-table td{color:inherit!important;font-weight:inherit!important}"
    ".read-table .read-number{text-align:end!important;white-space:nowrap;font-variant-numeric:tabular-nums}"
)
"""CSS of coloured text and tables, independent of the page; included in each so that it can be shown alone."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for N tokens; log-probabilities, or scores, in nats."""

    ids: Ids  # (N,)  observed tokens
    log_prob: Floats  # (N,)  of the observed token
    rank: Ids  # (N,)  1 if no token was more probable
    entropy: Floats  # (N,)  of the distribution, nats
    top_ids: Ids  # (N, ≤10)  most probable tokens, descending
    top_log_probs: Floats  # (N, ≤10)
    choices: int  # number of predictable tokens
    is_normalized: bool = True  # False: scores are not probabilities, and entropy is NaN

    @property
    def bits(self) -> Floats:
        """(N,) surprisal −log₂ p of the observed tokens; +0 for probability 1."""
        return np.asarray(np.maximum(-self.log_prob / math.log(2), 0.0) + 0.0)

    @property
    def confidence(self) -> Floats:
        """(N,) probability of the most probable token."""
        return np.asarray(np.minimum(np.exp(self.top_log_probs[:, 0]), 1.0))

    @property
    def entropy_bits(self) -> Floats:
        """(N,) entropy of the distribution in bits."""
        return np.asarray(self.entropy / math.log(2))


def next_token_distributions(lm: AnyModel, ids: Ids, progress: Progress = silent) -> Iterator[tuple[Ids, Floats]]:
    """Yield positions (T,) in `ids` and log p there (T, V), block by block; the last line may be cut."""
    N, T = len(ids), max(1, CELLS_AT_ONCE // lm.vocabulary.size)
    targets = ids[None].astype(np.int64)  # (1, N)
    inputs = np.concatenate([[[lm.vocabulary.bos]], targets[:, :-1]], axis=1)
    mask = np.ones((1, N), dtype=bool)
    state = lm.start(1)
    for first in range(0, N, T):
        positions = np.arange(first, min(first + T, N))
        log_p, state = lm.distributions(
            Batch(inputs[:, positions], targets[:, positions], mask[:, positions]), state
        )
        yield positions, log_p[0]
        progress("reading", int(positions[-1]) + 1, N)


class PredictionRecorder:
    """Collects predictions from distributions that arrive block by block."""

    def __init__(self, lm: AnyModel, ids: Ids) -> None:
        N = len(ids)
        self.ids, self.is_normalized = ids, lm.is_normalized
        self.choices = int(lm.vocabulary.predictable.sum())
        top = min(TOP, self.choices)
        self.log_prob, self.entropy, self.rank = np.zeros(N), np.zeros(N), np.zeros(N, dtype=np.int64)
        self.top_ids, self.top_log_probs = np.zeros((N, top), dtype=np.int64), np.zeros((N, top))

    def add(self, positions: Ids, log_p: Floats) -> None:
        """Record log p (T, V) at positions (T,)."""
        row = np.arange(len(positions))[:, None]
        truth = log_p[row, self.ids[positions, None]]  # (T, 1)
        self.log_prob[positions] = truth[:, 0]
        self.rank[positions] = 1 + np.count_nonzero(log_p > truth, axis=1)
        p = np.exp(log_p)
        self.entropy[positions] = -np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0).sum(axis=1)
        top = self.top_ids.shape[1]
        best = np.sort(np.argpartition(-log_p, top - 1, axis=1)[:, :top], axis=1)  # ties by id
        best = np.take_along_axis(best, np.argsort(-log_p[row, best], axis=1, kind="stable"), axis=1)
        self.top_ids[positions], self.top_log_probs[positions] = best, log_p[row, best]

    def finish(self) -> Predictions:
        """Return everything recorded."""
        entropy = np.maximum(self.entropy, 0.0) if self.is_normalized else np.full(len(self.ids), np.nan)
        return Predictions(
            self.ids,
            self.log_prob,
            self.rank,
            entropy,
            self.top_ids,
            self.top_log_probs,
            self.choices,
            self.is_normalized,
        )


def describe_predictions(tokens: Sequence[str], predictions: Predictions) -> str:
    """Describe the surprisal and the most surprising token, or the tokens of probability 0; "it" is the model."""
    bits = predictions.bits
    possible = np.isfinite(bits)
    N, impossible = len(bits), int(np.count_nonzero(~possible))
    mean = float(bits[possible].mean()) if possible.any() else math.inf
    if impossible:
        others = f"; the others have {mean:.2f} bits each" if possible.any() else ""
        first = to_printable(tokens[int(np.argmin(possible))])
        return f"it gives {impossible:,} of {N:,} tokens probability 0, the first “{first}”{others}."
    index = int(np.argmax(bits))
    rank = _format_rank(predictions, index)
    surprise = f"the most surprising token is “{to_printable(tokens[index])}” ({bits[index]:.1f} bits, {rank})"
    if not predictions.is_normalized:
        return (
            f"its scores are not probabilities: {mean:.2f} bits per token by score over {N:,} tokens, not "
            f"comparable with other models; {surprise}."
        )
    perplexity = f" (perplexity {2**mean:,.1f})" if mean < 64 else ""
    return f"its surprisal is {mean:.2f} bits per token over {N:,} tokens{perplexity}; {surprise}."


def summary(predictions: Predictions) -> dict[str, Any]:
    """Return the means; None if undefined."""
    bits = predictions.bits
    impossible = int(np.count_nonzero(~np.isfinite(bits)))
    return {
        "is_probability": predictions.is_normalized,
        "tokens": len(bits),
        "impossible": impossible,
        "bits_per_token": None if impossible else float(bits.mean()),
        "mean_entropy_bits": float(predictions.entropy_bits.mean()) if predictions.is_normalized else None,
        "mean_rank": float(predictions.rank.mean()),
    }


def predictions_html(
    tokens: Sequence[str], predictions: Predictions, names: Sequence[str], eos: int, *, is_apart: bool = True
) -> str:
    """Colour the first tokens by surprisal, with numbers on hover; reading.js adds a panel of predictions.

    `names` are the display names of the vocabulary (V,); `is_apart` inserts blanks between tokens.
    """
    N = min(len(tokens), MAX_SHOWN)
    bits = predictions.bits[:N]
    opacity = MAX_OPACITY * np.clip(bits / FULL_BITS, 0.0, 1.0)
    spans = token_spans(tokens[:N], ORANGE, opacity, describe_tokens(predictions, N), np.isfinite(bits))
    data = json_for_script(panel_data(tokens[:N], predictions, names))
    return (
        f'<div class="read-text">{lines_html(spans, predictions.ids[:N] == eos, is_apart)}'
        f'<div class="read-panel" hidden></div><script type="application/json">{data}</script></div>'
    )


def lines_html(spans: Sequence[str], is_end: Sequence[bool] | Mask, is_apart: bool = True) -> str:
    """Wrap token HTML in lines, each with automatic text direction."""
    lines: list[list[str]] = [[]]
    for span, ends in zip(spans, is_end, strict=True):
        lines[-1].append(span)
        if ends:
            lines.append([])
    gap, kind = (" ", "read-tokens") if is_apart else ("<wbr>", "read-tokens read-glued")
    rows = "".join(f'<div class="read-line" dir="auto">{gap.join(line)}</div>' for line in lines if line)
    return f'<div class="{kind}"><style>{STYLE}</style>{rows}</div>'


def describe_tokens(predictions: Predictions, N: int) -> list[str]:
    """Return the surprisal, rank and entropy at each of the first N tokens."""
    surprisals = format_bits(predictions.bits[:N].tolist())
    ranks = [_format_rank(predictions, t) for t in range(N)]
    if not predictions.is_normalized:  # no entropy
        return [f"{bits} by score, not probability; {rank}" for bits, rank in zip(surprisals, ranks, strict=True)]
    entropy = predictions.entropy_bits[:N].tolist()
    return [
        f"{bits}, {rank}; entropy {H:.2f} bits" for bits, rank, H in zip(surprisals, ranks, entropy, strict=True)
    ]


def _format_rank(predictions: Predictions, t: int) -> str:
    return f"rank {predictions.rank[t]:,} of {predictions.choices:,}"


def token_spans(
    tokens: Sequence[str], colour: str, opacity: Floats, tooltips: Sequence[str], is_possible: Mask
) -> list[str]:
    """Return tokens with a background colour and a tooltip that screen readers read; outlined if impossible."""
    # <bdi>, so that dir=auto of the line ignores the tooltip text.
    return [
        f'<span class="{"read-token" if possible else "read-token none"}" '
        f'style="background:rgba({colour},{depth:.2f})" title="{tooltip}">{text}<bdi> ({tooltip})</bdi></span>'
        for text, depth, tooltip, possible in zip(
            escape_all(tokens), opacity.tolist(), map(html.escape, tooltips), is_possible.tolist(), strict=True
        )
    ]


def panel_data(tokens: Sequence[str], predictions: Predictions, names: Sequence[str]) -> dict[str, Any]:
    """Return the data of the panel: vocabulary names used, and for each token its numbers and top ids.

    Probabilities are in millionths and bits in hundredths, null if infinite; `came` is the index of the observed
    token among the top, or −1.
    """
    N = len(tokens)
    used, indices = np.unique(predictions.top_ids[:N], return_inverse=True)
    is_truth = predictions.top_ids[:N] == predictions.ids[:N, None]
    millionths = np.rint(np.exp(predictions.top_log_probs[:N]) * 1e6).astype(int)
    return {
        "names": to_printable_all([names[i] for i in used.tolist()]),
        "tokens": to_printable_all(tokens),
        "is_probability": predictions.is_normalized,
        "choices": predictions.choices,
        "bits": _hundredths(predictions.bits[:N]),
        "entropy": _hundredths(predictions.entropy_bits[:N]),
        "rank": predictions.rank[:N].tolist(),
        "width": predictions.top_ids.shape[1],
        "top": indices.ravel().tolist(),
        "p": millionths.ravel().tolist(),
        "came": np.where(is_truth.any(axis=1), is_truth.argmax(axis=1), -1).tolist(),
    }


@cache
def load_script() -> str:
    """Return the panel script, to be included once after all texts."""
    return Path(__file__).with_name("predictions.js").read_text(encoding="utf-8")


def _hundredths(values: Floats) -> list[int | None]:
    return [round(100 * float(value)) if math.isfinite(value) else None for value in values]


SHOWN: Final = 15  # largest differences shown in each direction
NEAR: Final = 5  # context units on either side
BLANKS: Final = " \t"
END: Final = "</s>"

WordPosition = tuple[int, int]
"""(line, word index); the index after the last word is the end of the line."""


@dataclass(frozen=True, slots=True)
class WordBits:
    """The words of a text and their surprisal."""

    names: dict[WordPosition, str]
    bits: dict[WordPosition, float]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Surprisal of two models on N units of one text."""

    first: str  # name of model A
    second: str  # name of model B
    unit: str  # "token" or "word"
    names: Sequence[str]  # (N,)
    first_bits: Floats  # (N,)  −log₂ p_A
    second_bits: Floats  # (N,)  −log₂ p_B
    is_probability: bool = True  # False if one of the models is not normalized

    @property
    def gain(self) -> Floats:
        """log₂ p_A − log₂ p_B, (N,): bits by which A predicts the unit better; 0 if both give probability 0."""
        is_lost = np.isposinf(self.first_bits) & np.isposinf(self.second_bits)
        with np.errstate(invalid="ignore"):
            return np.where(is_lost, 0.0, self.second_bits - self.first_bits)

    @property
    def mean_gain(self) -> float:
        """Mean gain in bits over the units of nonzero probability under both models; 0 if there are none."""
        gain = self.gain[np.isfinite(self.first_bits) & np.isfinite(self.second_bits)]
        return float(gain.mean()) if len(gain) else 0.0

    @property
    def impossible(self) -> tuple[int, int]:
        """Number of units of probability 0 under A and under B."""
        first, second = (int(np.count_nonzero(np.isposinf(bits))) for bits in (self.first_bits, self.second_bits))
        return first, second

    @property
    def shared(self) -> int:
        """Number of units of nonzero probability under both models."""
        return int(np.count_nonzero(np.isfinite(self.first_bits) & np.isfinite(self.second_bits)))

    @property
    def one_sided(self) -> int:
        """Number of units of nonzero probability under exactly one model."""
        return int(np.count_nonzero(np.isinf(self.gain)))

    def largest(self, sign: int, most: int = SHOWN) -> list[int]:
        """Return the indices of the units that A (sign 1) or B (sign −1) predicts best relative to the other."""
        gain = sign * self.gain
        order = np.argsort(-gain, kind="stable")[:most]
        return [int(i) for i in order if gain[i] > 0]


def word_positions(tokens: Sequence[str], is_end: Mask, kind: str) -> list[WordPosition]:
    """Return the word of each token, following the word-boundary convention of this kind of tokenizer.

    >>> word_positions(["the", "cat", "s", " sat", "</s>"], np.array([0, 0, 0, 0, 1], bool), "bpe")
    [(0, 0), (0, 0), (0, 0), (0, 1), (0, 2)]
    """
    positions: list[WordPosition] = []
    joins_next = False
    line, word, is_apart = 0, -1, True  # is_apart: the next token begins a word
    for token, ends in zip(tokens, is_end, strict=True):
        if ends:
            positions.append((line, word + 1))
            line, word, is_apart, joins_next = line + 1, -1, True, False
        elif kind == "word":
            left, right = joined_sides(token)
            word += not (left or joins_next) or word < 0
            joins_next = right
            positions.append((line, word))
        elif kind in ("whitespace", "wordpiece"):
            word += kind == "whitespace" or not token.startswith("##") or word < 0
            positions.append((line, word))
        else:
            parts = [part for part in token.replace("\t", " ").split(" ") if part]
            begins = is_apart or token[:1] in BLANKS
            word += len(parts) - (not begins) if parts else 0
            positions.append((line, word if parts else word + 1))
            is_apart = token[-1:] in BLANKS
    return positions


def group_words(
    tokens: Sequence[str],
    bits: Sequence[float] | Floats,
    is_end: Mask,
    kind: str,
    spell: Callable[[list[int]], str],
) -> WordBits:
    """Group tokens into words; `spell` decodes the tokens at the given indices.

    The last word is dropped if the text is cut off before its end.
    """
    positions = word_positions(tokens, is_end, kind)
    members: dict[WordPosition, list[int]] = {}
    for i, position in enumerate(positions):
        members.setdefault(position, []).append(i)
    if positions and not is_end[-1] and kind != "whitespace":
        del members[positions[-1]]
    costs = {position: math.fsum(float(bits[i]) for i in indices) for position, indices in members.items()}
    return WordBits(
        {position: END if is_end[indices[-1]] else spell(indices) for position, indices in members.items()}, costs
    )


def compare_words(first: str, second: str, first_words: WordBits, second_words: WordBits) -> Disagreement:
    """Compare the words that both texts contain completely, in text order, named as in the first."""
    shared = [position for position in first_words.bits if position in second_words.bits]
    bits, other_bits = (
        np.array([words.bits[position] for position in shared], dtype=float)
        for words in (first_words, second_words)
    )
    names = [first_words.names[position] for position in shared]
    return Disagreement(first, second, "word", names, bits, other_bits)


def table_html(comparison: Disagreement) -> str:
    """Return a table of the largest differences in both directions, each unit in context."""
    names = [escape(name) for name in (comparison.first, comparison.second)]
    groups = [
        Group(Markup(f"better predicted by {name}"), [_row(comparison, i) for i in comparison.largest(sign)])
        for name, sign in zip(names, (1, -1), strict=True)
    ]
    bits = [Markup(f"bits, {name}") for name in names]
    header = (f"{comparison.unit} in its context", *bits, "difference, bits")
    table = html_table(header, label="Largest differences", groups=groups, style=READ, numbers=(1, 2, 3))
    return f'<div style="overflow-x:auto"><style>{STYLE}</style>{table}</div>'


def describe_disagreement(comparison: Disagreement) -> str:
    """State which model predicts the text better, by how much, and where the two differ most.

    A model that gives probability 0 to units the other allows is never called better.
    """
    largest = max(
        (*comparison.largest(1, 1), *comparison.largest(-1, 1)), key=lambda i: abs(comparison.gain[i]), default=None
    )
    if largest is None:
        impossible = (
            f"; both give {comparison.impossible[0]:,} of them probability 0" if any(comparison.impossible) else ""
        )
        both = f"{comparison.first} and {comparison.second}"
        return f"{both} give every {comparison.unit} the same probability{impossible}."
    caveat = "" if comparison.is_probability else " (by score, not probability)"
    largest_clause = f"they differ most on “{to_printable(comparison.names[largest])}”"
    impossible_first, impossible_second = comparison.impossible
    if impossible_first and impossible_second:
        head = f"Both {comparison.first} and {comparison.second} give parts of this text probability 0{caveat}"
        return f"{head}: {describe_balance(comparison, comparison.first, comparison.second)}; {largest_clause}."
    gain = comparison.mean_gain
    is_first = not impossible_first if impossible_first or impossible_second else gain >= 0
    better, worse = (comparison.first, comparison.second) if is_first else (comparison.second, comparison.first)
    head = f"{better} predicts this text better than {worse}{caveat}"
    if impossible_first or impossible_second:
        return f"{head}: {describe_balance(comparison, comparison.first, comparison.second)}; {largest_clause}."
    units = _several(len(comparison.names), comparison.unit)
    return f"{head}, by {abs(gain):.2f} bits per {comparison.unit} over {units}; {largest_clause}."


def describe_balance(comparison: Disagreement, first: str, second: str) -> str:
    """State the units of probability 0 and the mean gain over the rest; `first` and `second` are display names."""
    N, shared, (impossible_first, impossible_second) = (
        len(comparison.names),
        comparison.shared,
        comparison.impossible,
    )
    direction = "better" if comparison.mean_gain >= 0 else "worse"
    gain = f"{abs(comparison.mean_gain):.2f} bits per {comparison.unit} {direction}"
    if not impossible_first and not impossible_second:
        return f"on average {first} is {gain} than {second}"
    first_count, second_count = (
        f"{impossible:,}" if impossible else "none" for impossible in (impossible_first, impossible_second)
    )
    units = _several(N, comparison.unit)
    impossible = f"{first} gives probability 0 to {first_count} of {units} and {second} to {second_count}"
    if not shared:
        return f"{impossible}; no unit is possible under both"
    rest = f"over the {_several(shared, comparison.unit)} possible under both"
    return f"{impossible}; {rest}, {first} is {gain} than {second}"


def to_json(comparison: Disagreement) -> dict[str, Any]:
    """Return means and largest differences; infinite values are None."""
    rows = [
        {
            "place": i,
            "name": comparison.names[i],
            "context": " ".join(comparison.names[max(0, i - NEAR) : i + NEAR + 1]),
            "bits": replace_nonfinite([comparison.first_bits[i], comparison.second_bits[i]]),
        }
        for i in (*comparison.largest(1), *comparison.largest(-1))
    ]
    return {
        "models": [comparison.first, comparison.second],
        "unit": comparison.unit,
        "is_probability": comparison.is_probability,
        "units": len(comparison.names),
        "mean_gain_bits": comparison.mean_gain,
        "impossible": list(comparison.impossible),
        "possible_to_both": comparison.shared,
        "possible_to_one_only": comparison.one_sided,
        "largest": rows,
    }


def _row(comparison: Disagreement, i: int) -> tuple[str, ...]:
    gain = float(comparison.gain[i])
    costs = format_bits([float(comparison.first_bits[i]), float(comparison.second_bits[i])])
    first, second = (cost.removesuffix(" bits") for cost in costs)
    difference = f"{gain:+.2f}".replace("-", "−") if math.isfinite(gain) else "infinite"
    return Markup(_in_context(comparison.names, i)), first, second, difference


def _in_context(names: Sequence[str], i: int) -> str:
    """Return the unit in bold between its neighbours."""
    first = max(0, i - NEAR)
    units = escape_all(names[first : i + NEAR + 1])
    units[i - first] = f"<b>{units[i - first]}</b>"
    return f"<bdi>{' '.join(units)}</bdi>"


def _several(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


DEEPEST: Final = 0.6  # opacity for the longest n-gram
NAMES: Final = {1: "unigram", 2: "bigram", 3: "trigram"}


@dataclass(frozen=True, slots=True)
class Orders:
    """Length of the n-gram that gave the probability of each of N tokens."""

    order: int  # order of the model
    matched_order: Ids  # (N,)  length of the n-gram that gave the probability
    bits: Floats  # (N,)  −log₂ p
    reason: Ids  # (N,)  why no longer n-gram was used: index into `reasons`
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class OrderStatistics:
    """Tokens scored by n-grams of one length."""

    order: int
    tokens: int
    share: float
    bits: float  # mean over tokens of nonzero probability; 0 if there are none
    impossible: int
    reasons: dict[str, int]  # why no longer n-gram was used, most frequent first


def order_statistics(orders: Orders) -> tuple[OrderStatistics, ...]:
    """Return one entry per order, from the longest down, including unused orders."""
    statistics = []
    for order in range(orders.order, 0, -1):
        indices = np.flatnonzero(orders.matched_order == order)
        finite = orders.bits[indices][np.isfinite(orders.bits[indices])]
        reasons = Counter(orders.reasons[int(i)] for i in orders.reason[indices])
        share = len(indices) / max(len(orders.matched_order), 1)
        mean = float(finite.mean()) if len(finite) else 0.0
        statistics.append(
            OrderStatistics(
                order, len(indices), share, mean, len(indices) - len(finite), dict(reasons.most_common())
            )
        )
    return tuple(statistics)


def ngram_name(order: int) -> str:
    """Return the usual name of an n-gram order.

    >>> ngram_name(2), ngram_name(5)
    ('bigram', '5-gram')
    """
    return NAMES.get(order, f"{order}-gram")


def describe_orders(orders: Orders) -> str:
    """Describe the share and cost of the longest order and of the most frequent shorter one, with its reason."""
    longest, *shorter = order_statistics(orders)
    first = f"{100 * longest.share:.0f} % of tokens were scored by a {ngram_name(longest.order)}{_cost(longest)}"
    most = max(shorter, key=lambda entry: entry.tokens, default=None)
    if most is None or not most.tokens:
        return first
    reason, count = next(iter(most.reasons.items()))
    frequency = "all" if count == most.tokens else "mostly" if 2 * count > most.tokens else "most often"
    impossible = int(np.count_nonzero(~np.isfinite(orders.bits)))
    end = f"; {100 * impossible / len(orders.bits):.0f} % have probability 0" if impossible else ""
    shorter_clause = f"{100 * most.share:.0f} % backed off to {ngram_name(most.order)}s"
    return f"{first}; {shorter_clause}, {frequency} because: {reason}{end}"


def orders_html(tokens: Sequence[str], orders: Orders, is_end: Mask, is_apart: bool = True) -> str:
    """Colour the first tokens by the length of the n-gram used, with the reason on hover; then list all reasons."""
    N = min(len(tokens), MAX_SHOWN)
    matched, bits = orders.matched_order[:N], orders.bits[:N]
    reasons = [orders.reasons[i] for i in orders.reason[:N].tolist()]
    tooltips = [
        f"{ngram_name(order)}, {cost}; {reason}"
        for order, cost, reason in zip(matched.tolist(), format_bits(bits.tolist()), reasons, strict=True)
    ]
    opacity = DEEPEST * (matched - 1) / max(orders.order - 1, 1)
    spans = token_spans(tokens[:N], BLUE, opacity, tooltips, np.isfinite(bits))
    return f"<div>{lines_html(spans, is_end[:N], is_apart)}{reasons_table(orders)}</div>"


def plot_orders(orders: Orders, *, title: str) -> str:
    """Plot the share of tokens scored by each order, labelled with their mean bits."""
    statistics = order_statistics(orders)
    labels = [f"{100 * entry.share:.0f} %{_cost(entry)}" for entry in statistics]
    percent = {ngram_name(entry.order): 100 * entry.share for entry in statistics}

    def paint(axes: Any) -> None:
        opacities = [0.25 + 0.7 * entry.order / orders.order for entry in statistics]
        figures.draw_bars(axes, percent, labels, "share of tokens, %", opacities)
        axes.set_xlim(0, max(percent.values()) * 1.02 or 1.0)

    description = "; ".join(f"{name}: {text}" for name, text in zip(percent, labels, strict=True))
    left, right = (pad + max(map(figures.text_width, texts)) for pad, texts in ((16, percent), (12, labels)))
    margins = figures.Margins(left=left, right=right, top=8)
    return figures.render(paint, title, description, margins, 58 + 26 * len(statistics))


def reasons_table(orders: Orders) -> str:
    """Return an HTML table of how often each order was used for which reason."""
    rows = [
        (ngram_name(entry.order), reason, f"{count:,}")
        for entry in order_statistics(orders)
        for reason, count in entry.reasons.items()
    ]
    header = ("scored by", "reason", "tokens")
    return html_table(header, rows, label="Why no longer n-gram was used", style=READ, numbers=(2,))


def _cost(entry: OrderStatistics) -> str:
    """Format the mean cost of the tokens after a comma; empty if there are no tokens."""
    if not entry.tokens:
        return ""
    impossible = f", {entry.impossible:,} of them impossible" if entry.impossible else ""
    return (f", at {entry.bits:.1f} bits each" if entry.impossible < entry.tokens else "") + impossible
