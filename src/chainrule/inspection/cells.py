"""What the cells of a recurrent layer do over a text: gates, saturation, memory, and which cell follows what.

Lives here: arrays in, numbers out. Not here: reading the text (neural/states.py), its properties
(running_text.py), pictures (cells_plot.py). Letters: N tokens, D cells, P properties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.lm import Floats

BINS: Final = 20
SHUT: Final = 0.1  # a gate below it is left-saturated
OPEN: Final = 0.9  # a gate above it is right-saturated (Karpathy et al. 2015)
NEARLY_ALWAYS: Final = 0.9  # of the tokens
SATURATED: Final = 0.99  # |tanh| above it has almost no slope left: 1 − 0.99² = 0.02

LEAST: Final = 0.3  # |r| on the second half, below which a cell is not said to follow anything
MOST_CHANCE: Final = 0.01
FEWEST: Final = 5  # tokens in each half on either side of a property that holds or does not
ALIKE: Final = 0.95  # |r| of two properties above which one says what the other does
APART: Final = 20  # a shift of less than this part of the half still meets the same stretch of text


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStates:
    """Gates and states of one layer, each (N, D): token by token."""

    layer: int  # the first is 1
    h: Floats
    c: Floats | None = None  # an LSTM's
    gates: Mapping[str, Floats] = field(default_factory=dict)  # i, f, g, o or r, z, n
    nonlinearity: str = "tanh"  # that h went through last

    @property
    def keeping(self) -> str | None:
        """The gate that keeps the past: an LSTM's f, a GRU's z."""
        return next((name for name in ("f", "z") if name in self.gates), None)

    @property
    def openings(self) -> dict[str, Floats]:
        """The gates proper, between 0 and 1; the candidates g and n are none."""
        return {name: values for name, values in self.gates.items() if name not in ("g", "n")}

    @property
    def shown(self) -> Floats:
        """(N, D) what the cells hold: tanh(c) of an LSTM, else h."""
        return self.h if self.c is None else np.tanh(self.c)


@dataclass(frozen=True, slots=True)
class Opening:
    """One gate of a layer over a text."""

    mean: Floats  # (D,)
    left: Floats  # (D,) share of the tokens at which it is below `SHUT`
    right: Floats  # (D,) above `OPEN`
    histogram: Floats  # (BINS,) share of all values between 0 and 1, tokens and cells together

    @property
    def always_open(self) -> float:
        """The share of cells whose gate is open at nearly all tokens."""
        return float((self.right > NEARLY_ALWAYS).mean())


@dataclass(frozen=True, slots=True)
class Follower:
    """A cell, and how well it follows a property of the text; chosen on the first half."""

    layer: int  # the first is 1
    cell: int  # the first is 1
    first: float  # Pearson's r on the first half
    second: float  # on the second, which had no part in the choice
    chance: float  # share of shifts of the text against the cell that give such an |r|

    @property
    def judged(self) -> str:
        """How well, in words."""
        return f"r = {signed(self.second)} on text it was not chosen on"

    @property
    def is_found(self) -> bool:
        """Whether it holds on text the cell was not chosen on, by more than chance."""
        return self.first * self.second > 0 and abs(self.second) >= LEAST and self.chance <= MOST_CHANCE


def signed(r: float) -> str:
    """A correlation with two digits and a minus as long as a plus."""
    return f"{r:.2f}".replace("-", "−")


def opening(values: Floats) -> Opening:
    """Of one gate, (N, D) numbers between 0 and 1."""
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, 1.0))
    return Opening(
        mean=values.mean(axis=0, dtype=np.float64),
        left=(values < SHUT).mean(axis=0),
        right=(values > OPEN).mean(axis=0),
        histogram=counts / values.size,
    )


def time_constants(mean: Floats) -> Floats:
    """Tokens after which 1/e of what a cell holds is left, where its gate stays at this mean: −1 / log f̄.

    A gate that is always 1 keeps for ever: inf; one that is always 0 keeps nothing: 0.

    >>> time_constants(np.array([0.9])).round(4).tolist()
    [9.4912]
    """
    with np.errstate(divide="ignore"):
        log = np.log(np.clip(mean.astype(np.float64), 0.0, 1.0))
        found: Floats = np.where(log < 0, -1.0 / log, np.inf)
    return found


def saturation(layer: LayerStates) -> float:
    """The share of states with no slope to speak of: |h| > 0.99 of tanh, either end of a sigmoid, 0 of a ReLU."""
    h = layer.h
    if layer.nonlinearity == "relu":
        return float((h <= 0).mean())
    if layer.nonlinearity == "sigmoid":
        return float(((h > SATURATED) | (h < 1 - SATURATED)).mean())
    return float((np.abs(h) > SATURATED).mean()) if layer.nonlinearity == "tanh" else 0.0


def correlations(x: Floats, properties: Floats) -> Floats:
    """(N, D), (N, P) -> (D, P) Pearson's r over tokens; 0 where one of the two does not vary."""
    found: Floats = _standard(x).T @ _standard(properties)
    return found


def is_alike(x: Floats, y: Floats) -> bool:
    """Whether two properties, (N,) each, go together so closely that a cell which follows one follows both."""
    return bool(abs(correlations(x[:, None], y[:, None])[0, 0]) > ALIKE)


def varying(properties: Mapping[str, Floats]) -> dict[str, Floats]:
    """Those, (N,) each, that vary in both halves of the text and are not another under a second name."""
    kept: dict[str, Floats] = {}
    for name, values in properties.items():
        halves = np.split(values, [len(values) // 2])
        is_new = not any(np.array_equal(values, other) for other in kept.values())
        if is_new and all(_varies(half) for half in halves):
            kept[name] = values
    return kept


def followers(
    layers: list[LayerStates], properties: Mapping[str, Floats], top: int = 1
) -> dict[str, list[Follower]]:
    """The `top` cells of all layers for each property, (N,) that varies: best first by the first half's |r|."""
    if not properties:
        return {}
    P = np.stack(list(properties.values()), axis=1)  # (N, P)
    middle = len(P) // 2
    shown = [layer.shown for layer in layers]
    first = np.concatenate([correlations(x[:middle], P[:middle]) for x in shown])  # (all D, P)
    second = np.concatenate([correlations(x[middle:], P[middle:]) for x in shown])
    places = [(k, d) for k, x in enumerate(shown) for d in range(x.shape[1])]
    found: dict[str, list[Follower]] = {}
    for p, name in enumerate(properties):
        best = np.argsort(-np.abs(first[:, p]), kind="stable")[:top]
        found[name] = [
            Follower(
                layer=layers[k].layer,
                cell=d + 1,
                first=float(first[i, p]),
                second=float(second[i, p]),
                chance=chance(shown[k][middle:, d], P[middle:, p]),
            )
            for i, (k, d) in ((i, places[i]) for i in best.tolist())
        ]
    return found


def chance(x: Floats, values: Floats) -> float:
    """The share of shifts, the end joined to the beginning, at which |r| is as large as where the two belong.

    A shift keeps how slowly either changes, so that a slow cell which meets a slow property by luck is seen as
    such; shifts of less than 1/20 of the text, which still meet the same words, are left out.
    """
    n = len(x)
    a, b = np.fft.rfft(_standard(x[:, None])[:, 0]), np.fft.rfft(_standard(values[:, None])[:, 0])
    r = np.fft.irfft(a * np.conj(b), n)  # (n,) by shift
    near = max(1, n // APART)
    shifted = np.abs(r[near : n - near + 1])
    return float((1 + (shifted >= abs(r[0]) - 1e-9).sum()) / (1 + len(shifted)))


def _standard(x: Floats) -> Floats:
    """(N, D) -> (N, D) of mean 0 and length 1 down each column; a column that does not vary becomes 0."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0)
    x -= mean
    length = np.linalg.norm(x, axis=0)
    varies = length > 1e-6 * np.sqrt(len(x)) * np.maximum(np.abs(mean), 1e-3)
    x *= np.where(varies, 1.0 / np.where(varies, length, 1.0), 0.0)
    return x


def _varies(values: Floats) -> bool:
    """Whether it changes; of one that only holds or does not, whether either is so often enough to count."""
    kinds, times = np.unique(values, return_counts=True)
    return len(kinds) > 1 and (len(kinds) > 2 or int(times.min()) >= FEWEST)
