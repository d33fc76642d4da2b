"""Interactive map of word vectors: PCA or exact t-SNE (van der Maaten & Hinton 2008) as a self-contained page.

Equation numbers are those of the t-SNE paper. The page is drawn by word_map_*.js.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import ConfigError, InputError
from chainrule.lm import Floats
from chainrule.plots.html import CONTROL_PICTURES, json_for_script, security_policy
from chainrule.progress import Progress, as_progress, silent

MOST_WORDS: Final = 10_000
"""Exact t-SNE stores one number per pair of words: 400 MB, and up to 500 MB while computing them."""

BLOCK_ROWS: Final = 32
"""Small enough to stay in the cache and for BLAS to run single-threaded, so that maps do not depend on the number
of processors."""

SCRIPTS: Final = ("word_map_view.js", "word_map_paint.js", "word_map_walk.js")
"""Concatenated in this order; they share one scope."""

GRID_STEPS: Final = 100_000  # integer coordinates span this range
BISECTIONS: Final = 64
ENTROPY_TOLERANCE: Final = 1e-5  # nats


@dataclass(frozen=True, slots=True, kw_only=True)
class MapConfig:
    """Settings of a word map."""

    words: int = 2000  # number of words, most frequent first
    method: Literal["tsne", "pca"] = "tsne"
    neighbors: int = 8  # neighbours listed for every word, by cosine
    perplexity: float = 30.0  # of t-SNE; at most a third of the number of words
    iterations: int = 750
    exaggerated: int = 250  # iterations with early exaggeration
    exaggeration: float = 12.0  # factor of early exaggeration
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in ("tsne", "pca"):
            raise ConfigError(f"map.method is '{self.method}'; choose one of tsne, pca")
        if not 1 <= self.words <= MOST_WORDS:
            raise ConfigError(f"map.words is {self.words}; choose 1 to {MOST_WORDS:,}")
        if self.neighbors < 0:
            raise ConfigError(f"map.neighbors is {self.neighbors}; choose 0 or more")
        if not 1 <= self.perplexity < np.inf:
            raise ConfigError(f"map.perplexity is {self.perplexity}; choose 1 or more, 5 to 50 as a rule")


@dataclass(frozen=True, slots=True)
class WordMap:
    """N words ordered by frequency, their 2-d positions, and the K nearest neighbours in the full space."""

    words: tuple[str, ...]
    counts: tuple[int, ...] | None
    positions: Floats  # (N, 2)
    neighbors: NDArray[np.int64]  # (N, K)  nearest first
    cosines: Floats  # (N, K)
    note: str  # explanation for the reader


def make_map(
    words: Sequence[str],
    unit: Floats,
    counts: NDArray[Any] | None = None,
    config: MapConfig | None = None,
    progress: Progress | bool = silent,
) -> WordMap:
    """Project the most frequent of these words; `unit` (V, D) has rows of length 1.

    Without counts (V,), words are taken in the given order.
    """
    progress = as_progress(progress)
    config = config or MapConfig()
    if not len(words) or unit.ndim != 2 or len(unit) != len(words) or not unit.size:
        raise InputError(f"a map of {len(words)} words needs a vector for each, not an array of shape {unit.shape}")
    order = np.arange(len(words)) if counts is None else np.argsort(-counts.astype(np.float64), kind="stable")
    order = order[: config.words]
    rows = np.asarray(unit[order], dtype=np.float32)  # (N, D)
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise InputError(
            f"the vector of {words[order[is_finite.argmin()]]!r} is not finite; train or export it again"
        )
    neighbors, cosines = nearest_neighbors(rows, config.neighbors)
    positions, note = _project(rows, config, progress)
    selected_counts = None if counts is None else tuple(int(count) for count in counts[order])
    return WordMap(tuple(words[i] for i in order), selected_counts, positions, neighbors, cosines, note)


def nearest_neighbors(unit: Floats, top: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the indices and cosines (N, K) of the nearest other rows; ties by index."""
    top = min(top, len(unit) - 1)
    indices = np.empty((len(unit), top), dtype=np.int64)
    cosines = np.empty((len(unit), top), dtype=np.float32)
    for block in _blocks(len(unit), 256):
        cosine = unit[block] @ unit.T  # (B, N)
        cosine[np.arange(len(cosine)), np.arange(block.start, block.stop)] = -np.inf
        indices[block] = np.argsort(-cosine, axis=1, kind="stable")[:, :top]
        cosines[block] = np.take_along_axis(cosine, indices[block], axis=1)
    return indices, cosines


def pca(rows: Floats) -> Floats:
    """Return the first two principal components, (N, D) -> (N, 2), with the largest entry of each positive.

    Centred X with C = Xᵀ X = V Λ Vᵀ or G = X Xᵀ = U Λ Uᵀ, whichever is smaller: X V = U Λ^½.
    """
    X = rows - rows.mean(axis=0)
    is_tall = len(X) >= X.shape[1]
    values, vectors = np.linalg.eigh(X.T @ X if is_tall else X @ X.T)  # ascending
    axes = vectors[:, ::-1][:, :2]
    Y = X @ axes if is_tall else axes * np.sqrt(np.maximum(values[::-1][:2], 0))
    Y = np.pad(Y, ((0, 0), (0, 2 - Y.shape[1])))  # a single dimension or word
    farthest = Y[np.abs(Y).argmax(axis=0), [0, 1]]
    return np.asarray(Y * np.where(farthest < 0, -1, 1), dtype=rows.dtype)


def tsne(rows: Floats, config: MapConfig, progress: Progress | bool = silent) -> Floats:
    """Project by exact t-SNE, (N, D) -> (N, 2), with momentum and gains as in the paper.

    Initialized by PCA (Kobak & Berens 2019) plus noise that separates equal vectors; the learning rate is
    N / (4 exaggeration) (Belkina et al. 2019), since the p_ij of a word sum to about 1 / N.
    """
    progress = as_progress(progress)
    rng = np.random.default_rng(config.seed)
    P = affinities(rows, config.perplexity, progress)
    Y = pca(rows)
    Y = Y * (1e-4 / (float(Y[:, 0].std()) or 1.0)) + rng.normal(0, 1e-6, Y.shape)
    Y = Y.astype(np.float32)  # (N, 2)
    velocity, gains = np.zeros_like(Y), np.ones_like(Y)
    rate = len(Y) / (4 * config.exaggeration)
    message = "placing the words"
    for t in range(config.iterations):
        is_early = t < config.exaggerated
        G = gradient(P, Y, config.exaggeration if is_early else 1.0)
        gains = np.maximum(np.where(np.sign(G) == np.sign(velocity), gains * 0.8, gains + 0.2), 0.01)
        velocity = (0.5 if is_early else 0.8) * velocity - rate * gains * G  # Y(t) − Y(t−1), algorithm 1
        velocity = velocity.astype(np.float32)
        Y = Y + velocity
        Y -= Y.mean(axis=0)
        if (t + 1) % 50 == 0:
            message = f"placing the words, KL {divergence(P, Y):.2f}"
        progress(message, t + 1, config.iterations)
    return Y


def affinities(rows: Floats, perplexity: float, progress: Progress | bool = silent) -> Floats:
    """Return P (N, N), p_ij = (p_j|i + p_i|j) / 2N: symmetric, summing to 1."""
    progress = as_progress(progress)
    N = len(rows)
    norms = np.einsum("nd,nd->n", rows, rows)
    P = np.empty((N, N), dtype=rows.dtype)
    for block in _blocks(N, 256):
        squared = np.maximum(norms[block, None] + norms - 2 * rows[block] @ rows.T, 0)  # |x_i − x_j|²
        P[block] = conditional_probabilities(squared, np.arange(block.start, block.stop), perplexity)
        progress("measuring neighbourhoods", block.stop, N)
    for block in _blocks(N, 256):  # P + Pᵀ in place
        both = P[block, block.start :] + P[block.start :, block].T
        P[block, block.start :], P[block.start :, block] = both, both.T
    P /= 2 * N
    return P


def conditional_probabilities(squared: Floats, diagonal: NDArray[np.int64], perplexity: float) -> Floats:
    """Return p_j|i = exp(−β_i |x_i − x_j|²) / Σ_k≠i … (eq. 1, β = 1 / 2σ²), (B, N).

    β_i is found by bisection, since the entropy falls with it: H = log Σ_j e_j + β Σ_j d_j p_j|i = log perplexity.
    """
    i = np.arange(len(squared))
    d = squared.astype(np.float64)
    d[i, diagonal] = np.inf
    d -= d.min(axis=1, keepdims=True)  # cancels in p, and keeps the largest e_j at 1
    d[i, diagonal] = 0.0
    low, high = np.zeros(len(d)), np.full(len(d), np.inf)
    beta = 1 / np.maximum(d.mean(axis=1), 1e-12)
    for _ in range(BISECTIONS):
        e = np.exp(-beta[:, None] * d)
        e[i, diagonal] = 0.0
        total = e.sum(axis=1)
        H = np.log(total) + beta * np.einsum("bn,bn->b", d, e) / total
        excess = H - np.log(min(perplexity, (squared.shape[1] - 1) / 3))
        if (np.abs(excess) < ENTROPY_TOLERANCE).all():
            break
        low, high = np.where(excess > 0, beta, low), np.where(excess > 0, high, beta)
        beta = np.where(np.isinf(high), 2 * beta, (low + high) / 2)
    return np.asarray(e / total[:, None])


def gradient(P: Floats, Y: Floats, exaggeration: float = 1.0) -> Floats:
    """Return ∂C/∂Y (N, 2) with p_ij multiplied by `exaggeration` (eq. 5).

    With w_ij = 1 / (1 + |y_i − y_j|²), Z = Σ w_kl over k ≠ l and q_ij = w_ij / Z:
    ∂C/∂y_i = 4 Σ_j (p_ij − q_ij) w_ij (y_i − y_j) = 4 (Σ_j p_ij w_ij (y_i − y_j) − Σ_j w_ij² (y_i − y_j) / Z),
    where Σ_j a_ij (y_i − y_j) = y_i Σ_j a_ij − Σ_j a_ij y_j is one product with the columns (y, 1).
    """
    y1 = np.concatenate([Y, np.ones_like(Y[:, :1])], axis=1)  # (N, 3)
    attraction, repulsion = np.empty_like(y1), np.empty_like(y1)
    Z = 0.0
    for block, w in _similarity_blocks(Y):  # (B, N)
        Z += float(w.sum())
        attraction[block] = (P[block] * w) @ y1
        repulsion[block] = np.square(w, out=w) @ y1
    sums = exaggeration * attraction - repulsion / Z
    return np.asarray(4 * (Y * sums[:, 2:] - sums[:, :2]), dtype=Y.dtype)


def divergence(P: Floats, Y: Floats) -> float:
    """Return the cost C = KL(P‖Q) = Σ p_ij log (p_ij / q_ij) in nats (eq. 2)."""
    Z, cross_entropy = 0.0, 0.0
    tiny = np.finfo(Y.dtype).tiny  # 0 · log 0 = 0
    for block, w in _similarity_blocks(Y):
        Z += float(w.sum())
        p = P[block]
        cross_entropy += float((p * np.log(np.maximum(p, tiny) / np.maximum(w, tiny))).sum(dtype=np.float64))
    return cross_entropy + float(np.log(Z)) * float(P.sum(dtype=np.float64))


def render_page(word_map: WordMap, title: str) -> str:
    """Return a self-contained HTML document; `#word=NAME` in its URL selects a word."""
    script = "\n".join(map(_asset, SCRIPTS))
    text = Template(_asset("word_map.html")).substitute(
        policy=security_policy(script),
        title=html.escape(title.translate(CONTROL_PICTURES)),
        style=_asset("word_map.css"),
        number=f"{len(word_map.words):,}",
        note=html.escape(word_map.note),
        data=json_for_script(page_data(word_map)),
        script=script,
    )
    return text.encode("utf-8", "replace").decode("utf-8")


def page_data(word_map: WordMap) -> dict[str, Any]:
    """Return the data of the script: integer coordinates around the centre, cosines in thousandths, row-major."""
    low, high = word_map.positions.min(axis=0), word_map.positions.max(axis=0)
    extent = float((high - low).max()) or 1.0
    steps = np.rint((word_map.positions - (low + high) / 2) * (GRID_STEPS / extent)).astype(int)
    return {
        "words": [word.translate(CONTROL_PICTURES) for word in word_map.words],
        "counts": word_map.counts,
        "x": steps[:, 0].tolist(),
        "y": steps[:, 1].tolist(),
        "neighbors": word_map.neighbors.ravel().tolist(),
        "cosines": np.rint(word_map.cosines * 1000).astype(int).ravel().tolist(),
    }


def _project(rows: Floats, config: MapConfig, progress: Progress) -> tuple[Floats, str]:
    """Return positions and an explanation; fewer than four words are projected by PCA."""
    width = rows.shape[1]
    if config.method == "tsne" and len(rows) >= 4:
        perplexity = min(config.perplexity, (len(rows) - 1) / 3)
        positions = tsne(rows, config, progress)
        return positions, (
            f"t-SNE of {width} dimensions, perplexity {perplexity:g}: words close together are similar; "
            "distances between clusters and their sizes mean little."
        )
    positions = pca(rows)
    share = float(positions.var(axis=0).sum() / (rows.var(axis=0).sum() or 1.0))
    return positions, (
        f"The first two principal components of {width} dimensions, with {100 * share:.0f} % of the variance: "
        "words far apart are dissimilar, words close together need not be similar."
    )


def _similarity_blocks(Y: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks (B, N) of w_ij = 1 / (1 + |y_i − y_j|²) with w_ii = 0."""
    x, y = np.ascontiguousarray(Y.T)
    for block in _blocks(len(Y), BLOCK_ROWS):
        w = np.subtract(x[block, None], x)
        dy = np.subtract(y[block, None], y)
        w *= w
        dy *= dy
        w += dy
        w += 1
        np.reciprocal(w, out=w)
        w[np.arange(len(w)), np.arange(block.start, block.stop)] = 0
        yield block, w


def _blocks(rows: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
