"""Next-token predictions of a model over a text: surprisal, rank, entropy, and an interactive coloured text.

Uses only the `LanguageModel` protocol, so it works for every family.
"""

import html
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule.inspection.foreign import to_printable
from chainrule.inspection.surprisal import FULL_BITS, MAX_OPACITY, format_bits
from chainrule.lm import AnyModel, Batch, Floats, Ids, Mask, State
from chainrule.progress import Progress, silent

CELLS_AT_ONCE: Final = 1 << 21
"""Largest number K · V of probabilities held at a time: 16 MB."""

MOST_ROWS: Final = 32
SHORTEST_ROW: Final = 16
"""Batch size and minimum row length when a text is split into rows that are read in parallel."""

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
    """Yield positions (K,) in `ids` and log p there (K, V); every position once.

    The text is split into rows of equal length that are read in parallel; it may end in the middle of a line.
    """
    N = len(ids)
    rows = max(1, min(MOST_ROWS, CELLS_AT_ONCE // lm.vocabulary.size, N // SHORTEST_ROW))
    length = -(-N // rows)
    starts = np.arange(0, N, length)
    inputs = np.concatenate([[lm.vocabulary.bos], ids[:-1]]).astype(np.int64)  # (N,) previous tokens
    state = _row_states(lm, inputs, ids, starts)
    done = 0
    for t in range(length):
        if starts[-1] + t == N:  # the last row is shorter than the others
            starts, state = starts[:-1], state.select(np.arange(len(starts) - 1))
        positions = starts + t
        log_p, state = lm.step(state, inputs[positions])
        yield positions, log_p
        done += len(positions)
        progress("reading", done, N)


def _row_states(lm: AnyModel, inputs: Ids, ids: Ids, starts: Ids) -> State:
    """Return the state at the start of every row, by forking the last state and advancing the copy."""
    state: State = lm.start(1)
    for row in range(1, len(starts)):
        state = state.select(np.minimum(np.arange(row + 1), row - 1))
        segment = slice(starts[row - 1], starts[row])
        shape = (row + 1, segment.stop - segment.start)
        mask = np.zeros(shape, dtype=bool)
        mask[row] = True
        targets = np.broadcast_to(ids[segment], shape).astype(np.int64)
        _, state = lm.score(Batch(np.broadcast_to(inputs[segment], shape).copy(), targets, mask), state)
    return state


class PredictionRecorder:
    """Collects predictions from distributions that arrive in any order."""

    def __init__(self, lm: AnyModel, ids: Ids) -> None:
        N = len(ids)
        self.ids, self.is_normalized = ids, lm.is_normalized
        self.choices = int(lm.vocabulary.predictable.sum())
        top = min(TOP, self.choices)
        self.log_prob, self.entropy, self.rank = np.zeros(N), np.zeros(N), np.zeros(N, dtype=np.int64)
        self.top_ids, self.top_log_probs = np.zeros((N, top), dtype=np.int64), np.zeros((N, top))

    def add(self, positions: Ids, log_p: Floats) -> None:
        """Record log p (K, V) at positions (K,)."""
        row = np.arange(len(positions))[:, None]
        truth = log_p[row, self.ids[positions, None]]  # (K, 1)
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


def describe(tokens: Sequence[str], predictions: Predictions) -> str:
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

    `names` are the display names of the vocabulary (V,); `is_apart` puts blanks between tokens.
    """
    N = min(len(tokens), MAX_SHOWN)
    bits = predictions.bits
    spans = [surprisal_span(tokens[t], float(bits[t]), describe_token(predictions, t)) for t in range(N)]
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


def describe_token(predictions: Predictions, t: int) -> str:
    """Return the surprisal, rank and entropy at one token."""
    surprise = format_bits(float(predictions.bits[t]))
    rank = _format_rank(predictions, t)
    if not predictions.is_normalized:  # no entropy
        return f"{surprise} by score, not probability; {rank}"
    return f"{surprise}, {rank}; entropy {predictions.entropy_bits[t]:.2f} bits"


def _format_rank(predictions: Predictions, t: int) -> str:
    return f"rank {predictions.rank[t]:,} of {predictions.choices:,}"


def surprisal_span(token: str, bits: float, tooltip: str) -> str:
    """Return one token coloured by its bits."""
    depth = MAX_OPACITY * min(max(bits, 0.0) / FULL_BITS, 1.0)
    return token_span(token, f"rgba(213,94,0,{depth:.2f})", tooltip, is_possible=math.isfinite(bits))


def token_span(token: str, colour: str, tooltip: str, *, is_possible: bool = True) -> str:
    """Return one token with a background colour and a tooltip that screen readers read; outlined if impossible."""
    escaped, kind = html.escape(tooltip), "read-token" if is_possible else "read-token none"
    text = html.escape(to_printable(token))
    # <bdi>, so that dir=auto of the line ignores the tooltip text.
    return (
        f'<span class="{kind}" style="background:{colour}" title="{escaped}">{text}<bdi> ({escaped})</bdi></span>'
    )


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
        "names": [to_printable(names[int(i)]) for i in used],
        "tokens": [to_printable(token) for token in tokens],
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


def json_for_script(value: object) -> str:
    """Return JSON that is safe inside a `<script>` element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@cache
def load_script() -> str:
    """Return the panel script, to be included once after all texts."""
    return Path(__file__).with_name("reading.js").read_text(encoding="utf-8")


def _hundredths(values: Floats) -> list[int | None]:
    return [round(100 * float(value)) if math.isfinite(value) else None for value in values]
