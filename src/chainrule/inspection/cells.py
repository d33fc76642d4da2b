"""Activity of recurrent cells over a text: gate statistics, saturation, memory, correlation with text properties.

N tokens, D cells, P properties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.lm import Floats

BINS: Final = 20
SHUT: Final = 0.1  # a gate below it is left-saturated (closed)
OPEN: Final = 0.9  # a gate above it is right-saturated (open) (Karpathy et al. 2015)
NEARLY_ALWAYS: Final = 0.9  # share of the tokens
SATURATED: Final = 0.99  # |tanh| above it has almost no slope: 1 − 0.99² = 0.02

MIN_CORRELATION: Final = 0.3  # smallest |r| on the second half that is reported
MAX_P_VALUE: Final = 0.01
MIN_TOKENS: Final = 5  # per half, with and without a binary property
REDUNDANT: Final = 0.95  # |r| above which two properties are redundant
MIN_SHIFT_DIVISOR: Final = 20  # shifts below 1/20 of the half overlap the same passage


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStates:
    """Gate activations and states of one layer, (N, D) each."""

    layer: int  # the first is 1
    h: Floats
    c: Floats | None = None  # an LSTM's
    gates: Mapping[str, Floats] = field(default_factory=dict)  # i, f, g, o or r, z, n
    nonlinearity: str = "tanh"  # activation function of h

    @property
    def memory_gate(self) -> str | None:
        """The gate that retains the state: f of an LSTM, z of a GRU."""
        return next((name for name in ("f", "z") if name in self.gates), None)

    @property
    def sigmoid_gates(self) -> dict[str, Floats]:
        """The gates with values between 0 and 1, without the candidates g and n."""
        return {name: values for name, values in self.gates.items() if name not in ("g", "n")}

    @property
    def cell_values(self) -> Floats:
        """(N, D) tanh(c) of an LSTM, otherwise h."""
        return self.h if self.c is None else np.tanh(self.c)


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """Statistics of one gate of a layer over a text."""

    mean: Floats  # (D,)
    closed_share: Floats  # (D,) share of tokens with the gate below `SHUT`
    open_share: Floats  # (D,) share of tokens with the gate above `OPEN`
    histogram: Floats  # (BINS,) distribution of all values between 0 and 1

    @property
    def always_open(self) -> float:
        """Share of cells whose gate is open at nearly all tokens."""
        return float((self.open_share > NEARLY_ALWAYS).mean())


@dataclass(frozen=True, slots=True)
class CorrelatedCell:
    """A cell and its correlation with a text property; the cell is selected on the first half of the text."""

    layer: int  # the first is 1
    cell: int  # the first is 1
    r_first: float  # Pearson's r on the first half
    r_second: float  # Pearson's r on the held-out second half
    p_value: float  # share of circular shifts with at least this |r|

    @property
    def description(self) -> str:
        """The held-out correlation in words."""
        return f"r = {format_correlation(self.r_second)} on held-out text"

    @property
    def is_significant(self) -> bool:
        """Whether the correlation holds on the second half, beyond chance."""
        return (
            self.r_first * self.r_second > 0
            and abs(self.r_second) >= MIN_CORRELATION
            and self.p_value <= MAX_P_VALUE
        )


def format_correlation(r: float) -> str:
    """Format a correlation with two digits and a typographic minus sign."""
    return f"{r:.2f}".replace("-", "−")


def gate_statistics(values: Floats) -> GateStatistics:
    """Return the statistics of one gate, (N, D) values between 0 and 1."""
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, 1.0))
    return GateStatistics(
        mean=values.mean(axis=0, dtype=np.float64),
        closed_share=(values < SHUT).mean(axis=0),
        open_share=(values > OPEN).mean(axis=0),
        histogram=counts / values.size,
    )


def time_constants(mean: Floats) -> Floats:
    """Return the number of tokens after which a cell has decayed to 1/e at its mean gate value f̄: −1 / log f̄.

    Infinite for a gate that is always 1, and 0 for a gate that is always 0.

    >>> time_constants(np.array([0.9])).round(4).tolist()
    [9.4912]
    """
    with np.errstate(divide="ignore"):
        log = np.log(np.clip(mean.astype(np.float64), 0.0, 1.0))
        constants: Floats = np.where(log < 0, -1.0 / log, np.inf)
    return constants


def saturation(layer: LayerStates) -> float:
    """Return the share of saturated states: |h| > 0.99 for tanh, either end of a sigmoid, 0 for a ReLU."""
    h = layer.h
    if layer.nonlinearity == "relu":
        return float((h <= 0).mean())
    if layer.nonlinearity == "sigmoid":
        return float(((h > SATURATED) | (h < 1 - SATURATED)).mean())
    return float((np.abs(h) > SATURATED).mean()) if layer.nonlinearity == "tanh" else 0.0


def correlations(x: Floats, properties: Floats) -> Floats:
    """Return Pearson's r over tokens: (N, D), (N, P) -> (D, P); 0 if either column is constant."""
    r: Floats = _standardize(x).T @ _standardize(properties)
    return r


def are_redundant(x: Floats, y: Floats) -> bool:
    """Return whether two properties, (N,) each, are so correlated that a cell follows both or neither."""
    return bool(abs(correlations(x[:, None], y[:, None])[0, 0]) > REDUNDANT)


def select_varying(properties: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the properties, (N,) each, that vary in both halves of the text and are not duplicates."""
    selected: dict[str, Floats] = {}
    for name, values in properties.items():
        halves = np.split(values, [len(values) // 2])
        is_new = not any(np.array_equal(values, other) for other in selected.values())
        if is_new and all(_varies(half) for half in halves):
            selected[name] = values
    return selected


def find_correlated_cells(
    layers: list[LayerStates], properties: Mapping[str, Floats], top: int = 1
) -> dict[str, list[CorrelatedCell]]:
    """Return the `top` cells of all layers for each property (N,), ordered by |r| on the first half."""
    if not properties:
        return {}
    P = np.stack(list(properties.values()), axis=1)  # (N, P)
    middle = len(P) // 2
    cell_values = [layer.cell_values for layer in layers]
    first = np.concatenate([correlations(x[:middle], P[:middle]) for x in cell_values])  # (all D, P)
    second = np.concatenate([correlations(x[middle:], P[middle:]) for x in cell_values])
    cells = [(k, d) for k, x in enumerate(cell_values) for d in range(x.shape[1])]
    result: dict[str, list[CorrelatedCell]] = {}
    for p, name in enumerate(properties):
        best = np.argsort(-np.abs(first[:, p]), kind="stable")[:top]
        result[name] = [
            CorrelatedCell(
                layer=layers[k].layer,
                cell=d + 1,
                r_first=float(first[i, p]),
                r_second=float(second[i, p]),
                p_value=shift_p_value(cell_values[k][middle:, d], P[middle:, p]),
            )
            for i, (k, d) in ((i, cells[i]) for i in best.tolist())
        ]
    return result


def shift_p_value(x: Floats, values: Floats) -> float:
    """Return the share of circular shifts at which |r| is at least that of the aligned series.

    A shift preserves the autocorrelation of both series, so slow cells that match slow properties by accident are
    detected. Shifts of less than 1/20 of the text, which still overlap the same words, are excluded.
    """
    n = len(x)
    a, b = np.fft.rfft(_standardize(x[:, None])[:, 0]), np.fft.rfft(_standardize(values[:, None])[:, 0])
    r = np.fft.irfft(a * np.conj(b), n)  # (n,) by shift
    margin = max(1, n // MIN_SHIFT_DIVISOR)
    shifted = np.abs(r[margin : n - margin + 1])
    return float((1 + (shifted >= abs(r[0]) - 1e-9).sum()) / (1 + len(shifted)))


def _standardize(x: Floats) -> Floats:
    """Return (N, D) with columns of mean 0 and norm 1; constant columns become 0."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0)
    x -= mean
    length = np.linalg.norm(x, axis=0)
    varies = length > 1e-6 * np.sqrt(len(x)) * np.maximum(np.abs(mean), 1e-3)
    x *= np.where(varies, 1.0 / np.where(varies, length, 1.0), 0.0)
    return x


def _varies(values: Floats) -> bool:
    """Return whether a property varies; for a binary one, whether both values are frequent enough."""
    unique, counts = np.unique(values, return_counts=True)
    return len(unique) > 1 and (len(unique) > 2 or int(counts.min()) >= MIN_TOKENS)
