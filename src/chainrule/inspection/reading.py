"""A text as a model reads it: before each token, what it expects; at each, how surprised it is.

Lives here: asking any model for its distributions, a few rows at a time; the record kept of them; the coloured text
that opens a panel. Not here: the colours' scale (surprisal.py), the panel's program (reading.js).

Everything goes through the contract, so that any family can be read.
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

from chainrule.inspection.foreign import plain_text
from chainrule.inspection.surprisal import DEEPEST, FULL_BITS, words_for
from chainrule.lm import AnyModel, Batch, Floats, Ids, Mask, State
from chainrule.progress import Progress, silent

CELLS_AT_ONCE: Final = 1 << 21
"""Numbers K · V of the distributions that are held at a time: 16 MB."""

MOST_ROWS: Final = 32
SHORTEST_ROW: Final = 16
"""Rows in which a text is read side by side, and tokens of one: weights are fetched once for all of them."""

TOP: Final = 10
SHOWN: Final = 400  # tokens of a text that are coloured

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
"""The looks of coloured text and tables, whatever the page's own; in every one, so that each can be shown alone."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model expected before each of N tokens; log-probabilities, or scores, in nats."""

    ids: Ids  # (N,)  what came
    log_prob: Floats  # (N,)  of what came
    rank: Ids  # (N,)  1 where nothing was more probable
    entropy: Floats  # (N,)  of the whole distribution, nats
    top_ids: Ids  # (N, ≤10)  the most probable, the first first
    top_log_probs: Floats  # (N, ≤10)
    choices: int  # how many tokens could have come
    is_normalized: bool = True  # False: scores that are no probabilities, and no entropy

    @property
    def bits(self) -> Floats:
        """(N,) −log₂ p of what came; what is certain has 0, not −0."""
        return np.asarray(np.maximum(-self.log_prob / math.log(2), 0.0) + 0.0)

    @property
    def confidence(self) -> Floats:
        """(N,) the probability of the best guess."""
        return np.asarray(np.minimum(np.exp(self.top_log_probs[:, 0]), 1.0))

    @property
    def entropy_bits(self) -> Floats:
        """(N,) the bits a token costs on average if the model is right about what may come."""
        return np.asarray(self.entropy / math.log(2))


def distributions(lm: AnyModel, ids: Ids, progress: Progress = silent) -> Iterator[tuple[Ids, Floats]]:
    """Where in `ids` (K,), and (K, V) log p of what comes there; every place once.

    The text is cut into as many rows of equal length as memory is given to, and these are read side by side. It may
    break off in the middle of a line.
    """
    N = len(ids)
    rows = max(1, min(MOST_ROWS, CELLS_AT_ONCE // lm.vocabulary.size, N // SHORTEST_ROW))
    length = -(-N // rows)
    starts = np.arange(0, N, length)
    before = np.concatenate([[lm.vocabulary.bos], ids[:-1]]).astype(np.int64)  # (N,) what is read before each
    state = _states(lm, before, ids, starts)
    done = 0
    for t in range(length):
        if starts[-1] + t == N:  # the last row is shorter than the others
            starts, state = starts[:-1], state.select(np.arange(len(starts) - 1))
        places = starts + t
        log_p, state = lm.step(state, before[places])
        yield places, log_p
        done += len(places)
        progress("reading", done, N)


def _states(lm: AnyModel, before: Ids, ids: Ids, starts: Ids) -> State:
    """The state at the start of every row: the last one forked, and the copy alone reads on to the next start."""
    state: State = lm.start(1)
    for row in range(1, len(starts)):
        state = state.select(np.minimum(np.arange(row + 1), row - 1))
        piece = slice(starts[row - 1], starts[row])
        shape = (row + 1, piece.stop - piece.start)
        mask = np.zeros(shape, dtype=bool)
        mask[row] = True
        targets = np.broadcast_to(ids[piece], shape).astype(np.int64)
        _, state = lm.score(Batch(np.broadcast_to(before[piece], shape).copy(), targets, mask), state)
    return state


class Recorder:
    """Fills a record of predictions from distributions that come in any order."""

    def __init__(self, lm: AnyModel, ids: Ids) -> None:
        N = len(ids)
        self.ids, self.is_normalized = ids, lm.is_normalized
        self.choices = int(lm.vocabulary.predictable.sum())
        top = min(TOP, self.choices)
        self.log_prob, self.entropy, self.rank = np.zeros(N), np.zeros(N), np.zeros(N, dtype=np.int64)
        self.top_ids, self.top_log_probs = np.zeros((N, top), dtype=np.int64), np.zeros((N, top))

    def add(self, places: Ids, log_p: Floats) -> None:
        """(K,) places and (K, V) log p there."""
        row = np.arange(len(places))[:, None]
        truth = log_p[row, self.ids[places, None]]  # (K, 1)
        self.log_prob[places] = truth[:, 0]
        self.rank[places] = 1 + np.count_nonzero(log_p > truth, axis=1)
        p = np.exp(log_p)
        self.entropy[places] = -np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0).sum(axis=1)
        top = self.top_ids.shape[1]
        best = np.sort(np.argpartition(-log_p, top - 1, axis=1)[:, :top], axis=1)  # equals by their ids
        best = np.take_along_axis(best, np.argsort(-log_p[row, best], axis=1, kind="stable"), axis=1)
        self.top_ids[places], self.top_log_probs[places] = best, log_p[row, best]

    def finish(self) -> Predictions:
        """All that was recorded."""
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


def in_words(tokens: Sequence[str], predictions: Predictions) -> str:
    """The mean bits and the most surprising token, or what is held impossible; "it" is the model."""
    bits = predictions.bits
    possible = np.isfinite(bits)
    N, lost = len(bits), int(np.count_nonzero(~possible))
    mean = float(bits[possible].mean()) if possible.any() else math.inf
    if lost:
        rest = f"; the others cost {mean:.2f} bits each" if possible.any() else ""
        first = plain_text(tokens[int(np.argmin(possible))])
        return f"it holds {lost:,} of {N:,} tokens impossible, the first “{first}”{rest}."
    at = int(np.argmax(bits))
    most = f"the most surprising is “{plain_text(tokens[at])}” ({bits[at]:.1f} bits, {_place(predictions, at)})"
    if not predictions.is_normalized:
        return (
            f"it gives a score, not a probability: {mean:.2f} bits per token by that score over {N:,} tokens, "
            f"not to be compared with other models; {most}."
        )
    choices = f", as if it chose among {2**mean:,.1f} at each" if mean < 64 else ""
    return f"it needs {mean:.2f} bits per token over {N:,} tokens{choices}; {most}."


def summary(predictions: Predictions) -> dict[str, Any]:
    """The means as plain numbers, null where there is none."""
    bits = predictions.bits
    lost = int(np.count_nonzero(~np.isfinite(bits)))
    return {
        "is_probability": predictions.is_normalized,
        "tokens": len(bits),
        "impossible": lost,
        "bits_per_token": None if lost else float(bits.mean()),
        "mean_entropy_bits": float(predictions.entropy_bits.mean()) if predictions.is_normalized else None,
        "mean_rank": float(predictions.rank.mean()),
    }


def reading_html(
    tokens: Sequence[str], predictions: Predictions, names: Sequence[str], eos: int, *, is_apart: bool = True
) -> str:
    """The first tokens coloured by their bits, numbers on hover; with reading.js a token opens what was expected.

    `names` are the vocabulary's (V,), as they are shown; `is_apart`: blanks stand between tokens, as between words.
    """
    N = min(len(tokens), SHOWN)
    bits = predictions.bits
    pieces = [coloured(tokens[t], float(bits[t]), remark_on(predictions, t)) for t in range(N)]
    data = embedded(panel_data(tokens[:N], predictions, names))
    return (
        f'<div class="read-text">{text_html(pieces, predictions.ids[:N] == eos, is_apart)}'
        f'<div class="read-panel" hidden></div><script type="application/json">{data}</script></div>'
    )


def text_html(pieces: Sequence[str], is_end: Sequence[bool] | Mask, is_apart: bool = True) -> str:
    """Tokens that are HTML already, in lines of their own direction."""
    lines: list[list[str]] = [[]]
    for piece, ends in zip(pieces, is_end, strict=True):
        lines[-1].append(piece)
        if ends:
            lines.append([])
    gap, kind = (" ", "read-tokens") if is_apart else ("<wbr>", "read-tokens read-glued")
    rows = "".join(f'<div class="read-line" dir="auto">{gap.join(line)}</div>' for line in lines if line)
    return f'<div class="{kind}"><style>{STYLE}</style>{rows}</div>'


def remark_on(predictions: Predictions, t: int) -> str:
    """The numbers of one token: how surprising, its place among all, how unsure the model was."""
    surprise = words_for(float(predictions.bits[t]))
    place = _place(predictions, t)
    if not predictions.is_normalized:  # no distribution, no entropy
        return f"{surprise} by a score, not a probability; {place}"
    return f"{surprise}, {place}; entropy {predictions.entropy_bits[t]:.2f} bits"


def _place(predictions: Predictions, t: int) -> str:
    return f"rank {predictions.rank[t]:,} of {predictions.choices:,}"


def coloured(token: str, bits: float, remark: str) -> str:
    """One token on a background as deep as its bits."""
    depth = DEEPEST * min(max(bits, 0.0) / FULL_BITS, 1.0)
    return painted(token, f"rgba(213,94,0,{depth:.2f})", remark, is_possible=math.isfinite(bits))


def painted(token: str, colour: str, remark: str, *, is_possible: bool = True) -> str:
    """One token on this background, with a remark on hover and for screen readers; dashed where impossible."""
    said, kind = html.escape(remark), "read-token" if is_possible else "read-token none"
    text = html.escape(plain_text(token))
    # <bdi>, because dir=auto of the line must look at the tokens and not at this remark.
    return f'<span class="{kind}" style="background:{colour}" title="{said}">{text}<bdi> ({said})</bdi></span>'


def panel_data(tokens: Sequence[str], predictions: Predictions, names: Sequence[str]) -> dict[str, Any]:
    """What the program is told: the names used, and for each token its numbers and row after row of top ids.

    Probabilities are in millionths; bits in hundredths, null where infinite; `came` is −1 where not among the top.
    """
    N = len(tokens)
    used, places = np.unique(predictions.top_ids[:N], return_inverse=True)
    is_truth = predictions.top_ids[:N] == predictions.ids[:N, None]
    millionths = np.rint(np.exp(predictions.top_log_probs[:N]) * 1e6).astype(int)
    return {
        "names": [plain_text(names[int(i)]) for i in used],
        "tokens": [plain_text(token) for token in tokens],
        "is_probability": predictions.is_normalized,
        "choices": predictions.choices,
        "bits": _hundredths(predictions.bits[:N]),
        "entropy": _hundredths(predictions.entropy_bits[:N]),
        "rank": predictions.rank[:N].tolist(),
        "width": predictions.top_ids.shape[1],
        "top": places.ravel().tolist(),
        "p": millionths.ravel().tolist(),
        "came": np.where(is_truth.any(axis=1), is_truth.argmax(axis=1), -1).tolist(),
    }


def embedded(value: object) -> str:
    """JSON that cannot end the script element it stands in, whatever the words are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@cache
def script() -> str:
    """The program of the panels, to stand once in a page after all readings."""
    return Path(__file__).with_name("reading.js").read_text(encoding="utf-8")


def _hundredths(values: Floats) -> list[int | None]:
    return [round(100 * float(value)) if math.isfinite(value) else None for value in values]
