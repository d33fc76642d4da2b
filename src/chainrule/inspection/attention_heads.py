"""Attention heads: distance, entropy and weight on particular tokens, with their maps, curves and tables.

H heads, T query tokens, S key tokens, d head dimension.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from chainrule.inspection.attention_scaling import HeadScores, draw_measured
from chainrule.inspection.report import Figure
from chainrule.lm import Floats, Ids
from chainrule.neural.probes.measurements import AttentionRecord
from chainrule.plots import figures
from chainrule.plots.html import escape, html_table, to_printable

MIN_SHARE: Final = 0.5  # weight share from which a head is named after one token
MIN_EVENNESS: Final = 0.9  # fraction of the maximum entropy from which a head is called broad
ITSELF, PREVIOUS, FIRST = "own token", "previous token", "first token"
BROAD, MIXED = "broad", "mixed"
SHARE_FIELDS: Final = {PREVIOUS: "previous", FIRST: "first", ITSELF: "itself"}
TARGET_NAMES: Final = {PREVIOUS: "the previous token", FIRST: "the first token", ITSELF: "the current token"}
DESCRIPTIONS: Final = {
    PREVIOUS: ("attends to the previous token", "attend to the previous token"),
    FIRST: ("attends to the first token", "attend to the first token"),
    ITSELF: ("attends to the current token", "attend to the current token"),
    BROAD: ("has nearly uniform weights", "have nearly uniform weights"),
}
"""Predicates for one head of a kind and for several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Attention statistics of one head, averaged over the queries that see at least two tokens."""

    layer: int  # from 0
    head: int  # from 0
    distance: float  # tokens: Σ_l α_{t,l} |t − l|
    entropy: float  # bits: −Σ_l α log2 α
    possible: float  # bits: log2 of the number of visible tokens
    itself: float  # weight on the current token
    previous: float  # weight on the previous token
    first: float  # weight on the first token, if it is two or more back
    by_distance: Floats  # (K,) mean weight on a visible token k positions back
    pairs: Floats  # (K,) number of visible pairs at that distance

    @property
    def evenness(self) -> float:
        """Entropy divided by its maximum, 0 to 1; 0 if only one token is visible."""
        return self.entropy / self.possible if self.possible > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the scalar statistics; layers and heads are counted from 1."""
        fields = ("distance", "entropy", "possible", "evenness", "itself", "previous", "first")
        values = {name: getattr(self, name) for name in fields}
        return {"layer": self.layer + 1, "head": self.head + 1, "name": self.name, **values}

    @property
    def name(self) -> str:
        """The kind of head: the token it mostly attends to, "broad" or "mixed"."""
        if self.evenness >= MIN_EVENNESS:
            return BROAD
        shares = {PREVIOUS: self.previous, FIRST: self.first, ITSELF: self.itself}
        best = max(shares, key=shares.__getitem__)
        return best if shares[best] >= MIN_SHARE else MIXED


@dataclass(frozen=True, slots=True)
class AttentionSums:
    """Sums over segments; index 0 of the leading axis covers queries with a choice, index 1 all queries.

    The five quantities are distance, entropy, and the weights on the current, the previous and the first token.
    """

    totals: Floats  # (2, 5, H)
    counts: Floats  # (2, 5)
    possible: Floats  # (2,)  bits
    weights: Floats  # (H, K)  by distance
    pairs: Floats  # (K,)
    even: Floats  # (K,)  uniform weights

    def __add__(self, other: "AttentionSums") -> "AttentionSums":
        K = max(len(self.pairs), len(other.pairs))
        curves = ((self.weights, other.weights), (self.pairs, other.pairs), (self.even, other.even))
        padded = [_pad_last_axis(a, K) + _pad_last_axis(b, K) for a, b in curves]
        return AttentionSums(
            self.totals + other.totals, self.counts + other.counts, self.possible + other.possible, *padded
        )


def accumulate(record: AttentionRecord) -> AttentionSums:
    """Return the sums of one segment."""
    offset = record.query_positions[:, None] - record.key_positions  # (T, S)  tokens back
    distance, mask = np.abs(offset), record.mask
    visible = mask.sum(axis=1)  # (T,)
    targets = (
        mask & (offset == 0),
        mask & (offset == 1),
        mask & (record.key_positions == record.first) & (distance >= 2),
    )
    rows = np.stack(
        [
            np.einsum("hts,ts->ht", record.weights, distance, optimize=True),
            entropy(record.weights),
            *(np.einsum("hts,ts->ht", record.weights, target, optimize=True) for target in targets),
        ]
    ).astype(np.float64)  # (5, H, T)
    is_defined = np.stack([visible > 0] * 2 + [target.any(axis=1) for target in targets])  # (5, T)
    is_counted = np.stack([visible > 1, visible > 0])  # (2, T)
    counted = (is_counted[:, None] & is_defined).astype(np.float64)  # (2, 5, T)
    bits = np.log2(np.maximum(visible, 1))
    return AttentionSums(
        np.einsum("qht,cqt->cqh", rows, counted),
        counted.sum(axis=2),
        is_counted @ bits,
        *_curves(record, distance, visible),
    )


def head_statistics(sums: AttentionSums, layer: int) -> list[Head]:
    """Return the mean statistics of each head of a layer; 0 if nothing was counted."""
    row = 0 if sums.counts[0, 0] else 1
    counts = sums.counts[row]
    means = sums.totals[row] / np.maximum(counts, 1)[:, None]  # (5, H)
    possible = float(sums.possible[row] / max(counts[0], 1))
    curves = sums.weights / np.maximum(sums.pairs, 1)
    return [
        Head(
            layer=layer,
            head=h,
            distance=float(means[0, h]),
            entropy=float(means[1, h]),
            possible=possible,
            itself=float(means[2, h]),
            previous=float(means[3, h]),
            first=float(means[4, h]),
            by_distance=curves[h],
            pairs=sums.pairs,
        )
        for h in range(len(curves))
    ]


def uniform_curve(sums: AttentionSums) -> Floats:
    """Return the mean weight at each distance, (K,), under uniform attention."""
    curve: Floats = sums.even / np.maximum(sums.pairs, 1)
    return curve


def summarize(records: Iterable[AttentionRecord]) -> list[Head]:
    """Return the statistics of every head, ordered by layer."""
    total: dict[int, AttentionSums] = {}
    for record in records:
        sums = accumulate(record)
        total[record.layer] = total[record.layer] + sums if record.layer in total else sums
    return [head for layer in sorted(total) for head in head_statistics(total[layer], layer)]


def entropy(weights: Floats) -> Floats:
    """−Σ α log2 α in bits over the last axis: (…, S) -> (…).

    >>> float(entropy(np.array([0.5, 0.25, 0.25, 0.0])))
    1.5
    """
    logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
    # Avoid −0 when a single weight is 1.
    return np.maximum(-(weights * logs).sum(axis=-1), 0.0)  # type: ignore[no-any-return]


def diagonal_distance(weights: Floats) -> Floats:
    """Return the mean distance of the weights from the diagonal, in source tokens: (…, T, S) -> (…).

    Target token t of T corresponds to source position (t + ½) S / T.
    """
    T, S = weights.shape[-2:]
    offset = np.abs(np.arange(S) + 0.5 - (np.arange(T) + 0.5)[:, None] * S / T)  # (T, S)
    distance: Floats = (weights * offset).sum(axis=-1).mean(axis=-1)
    return distance


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossHead:
    """Cross-attention statistics of one head, averaged over the target tokens."""

    layer: int  # from 0
    head: int  # from 0
    entropy: float  # bits
    possible: float  # bits: log2 of the source length
    strongest: float  # largest weight
    diagonal: float  # distance from the diagonal, in source tokens

    def as_json(self) -> dict[str, Any]:
        """Return the statistics; layers and heads are counted from 1."""
        return asdict(self) | {"layer": self.layer + 1, "head": self.head + 1}


def summarize_cross(pairs: Sequence[Floats]) -> list[CrossHead]:
    """Return the statistics of every head over several pairs, each (L, H, T, S) with equal L and H."""
    tokens = sum(pair.shape[2] for pair in pairs)
    total = sum(
        np.stack(
            [
                entropy(pair).sum(axis=-1),
                np.full(pair.shape[:2], pair.shape[2] * np.log2(pair.shape[3])),
                pair.max(axis=-1).sum(axis=-1),
                diagonal_distance(pair) * pair.shape[2],
            ]
        )
        for pair in pairs
    )  # (4, L, H)
    means = np.moveaxis(np.asarray(total) / tokens, 0, -1)  # (L, H, 4)
    names = ("entropy", "possible", "strongest", "diagonal")
    return [
        CrossHead(layer=k, head=h, **dict(zip(names, means[k, h].tolist(), strict=True)))
        for k, h in np.ndindex(means.shape[:2])
    ]


def select_representative(heads: Sequence[Head], most: int) -> list[Head]:
    """Return at most `most` heads to plot: the least even head of each kind, then the others by evenness."""
    order = (PREVIOUS, FIRST, ITSELF, MIXED, BROAD)
    clearest: dict[str, Head] = {}
    for head in sorted(heads, key=lambda head: head.evenness):
        clearest.setdefault(head.name, head)
    chosen = [clearest[name] for name in order if name in clearest]
    rest = [head for head in sorted(heads, key=lambda head: head.evenness) if head not in chosen]
    return (chosen + rest)[:most]


def describe(heads: Sequence[Head]) -> list[str]:
    """Describe the heads in clauses without model name and full stop, most important first."""
    distance, bits, possible = (
        float(np.mean([getattr(head, name) for head in heads])) for name in ("distance", "entropy", "possible")
    )
    statistics = f"{distance:.1f} tokens and a mean entropy of {bits:.1f} bits (uniform attention: {possible:.1f})"
    if len(heads) == 1:
        kind = f"{DESCRIPTIONS[heads[0].name][0]}; it " if heads[0].name in DESCRIPTIONS else ""
        return [f"its head {kind}has a mean distance of {statistics}"]
    counts = {name: sum(head.name == name for head in heads) for name in DESCRIPTIONS}
    clear = [f"{number} {DESCRIPTIONS[name][number > 1]}" for name, number in counts.items() if number]
    listed = f"{', '.join(clear[:-1])} and {clear[-1]}" if len(clear) > 1 else "".join(clear)
    summary = f"of its {len(heads)} heads {listed or 'none focuses on one particular token'}"
    clauses = [f"{summary}; the heads have a mean distance of {statistics}"]
    for head in select_representative(heads, 2):
        if head.name in SHARE_FIELDS:
            share = getattr(head, SHARE_FIELDS[head.name])
            clauses.append(
                f"head {head.head + 1} of layer {head.layer + 1} puts {100 * share:.0f} % of its weight on "
                f"{TARGET_NAMES[head.name]}"
            )
    return clauses


def describe_cross(heads: Sequence[CrossHead]) -> list[str]:
    """Describe the cross-attention of a translation model in sentences."""
    names = ("strongest", "entropy", "possible", "diagonal")
    strongest, bits, possible, distance = (
        float(np.mean([getattr(head, name) for head in heads])) for name in names
    )
    sentences = [
        f"On average a target token puts {100 * strongest:.0f} % of its attention on one source token, with an "
        f"entropy of {bits:.1f} bits (uniform attention: {possible:.1f}).",
        f"The mean distance of the weights from the diagonal is {distance:.1f} source tokens.",
    ]
    if len(heads) > 1:
        best = max(heads, key=lambda head: head.strongest)
        where = f"Head {best.head + 1} of layer {best.layer + 1}"
        sentences.append(f"{where} is the sharpest: {100 * best.strongest:.0f} % of its weight is on one token.")
    return sentences


def _curves(record: AttentionRecord, distance: Ids, visible: Ids) -> tuple[Floats, Floats, Floats]:
    """Return sums by distance: weights (H, K), pairs (K,), uniform weights (K,)."""
    distances = distance[record.mask]
    K = int(distances.max()) + 1 if len(distances) else 1
    uniform = np.broadcast_to(1 / np.maximum(visible, 1)[:, None], distance.shape)[record.mask]
    by_head = [np.bincount(distances, alpha[record.mask], minlength=K) for alpha in record.weights]
    pairs: Floats = np.bincount(distances, minlength=K).astype(np.float64)
    even: Floats = np.bincount(distances, uniform, minlength=K).astype(np.float64)
    return np.stack(by_head), pairs, even


def _pad_last_axis(values: Floats, K: int) -> Floats:
    """Zero-pad the last axis to length K."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, K - values.shape[-1])])


WIDTH: Final = 680  # pixels of the grid of maps
SMALLEST, LARGEST = 26, 132  # pixels of one map in the grid
GAP: Final = 6
CELL: Final = 15  # pixels of one weight in an enlarged map
LETTERS: Final = 12  # maximum length of a token label
FARTHEST: Final = 48  # largest distance of a curve, in tokens
FAINTEST: Final = 1e-5  # smallest weight of a curve
STRONGEST: Final = 5  # weights named in a description
_BLANK: Final = re.compile(r"\s")


def token_label(token: str) -> str:
    r"""Return a short axis label for a token, with whitespace and control characters made visible.

    >>> token_label("a\n"), token_label(" "), token_label("incomprehensibly")
    ('a␊', '␣', 'incomprehen…')
    """
    return figures.shorten(_BLANK.sub("␣", to_printable(token)), LETTERS)


def draw_grid(weights: Sequence[Floats], *, model: str) -> str:
    """Return an `<svg>` grid of small maps, one row per layer and one column per head: L of (H, T, S)."""
    columns = max(len(layer) for layer in weights)
    side = int(np.clip((WIDTH - 40) // columns - GAP, SMALLEST, LARGEST))
    height, width = len(weights) * (side + GAP), columns * (side + GAP)

    def paint(axes: Any) -> None:
        for row, layer in enumerate(weights):
            for column, alpha in enumerate(layer):
                left, top = column * (side + GAP), row * (side + GAP)
                _draw_weights(axes, alpha, (left, left + side, top + side, top))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.set_xticks([h * (side + GAP) + side / 2 for h in range(columns)], range(1, columns + 1))
        axes.set_yticks([k * (side + GAP) + side / 2 for k in range(len(weights))], range(1, len(weights) + 1))
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("head", loc="left")
        axes.set_ylabel("layer", loc="top")
        _hide_frame(axes)

    T = weights[0].shape[1]
    description = (
        f"{len(weights)} layers of {columns} heads over {T} tokens. In each map the rows are queries, the first at "
        "the top, and the columns keys; a stronger colour means more weight."
    )
    margins = figures.Margins(left=40, right=2, top=36, bottom=2)
    return figures.render(
        paint, f"Attention maps of {short_name(model)}", description, margins, height + 38, width + 42
    )


def draw_head(alpha: Floats, queries: Sequence[str], keys: Sequence[str], *, title: str) -> str:
    """Return an `<svg>` of one (T, S) map: queries as rows, keys as columns."""
    T, S = alpha.shape
    row_labels, column_labels = [token_label(token) for token in queries], [token_label(token) for token in keys]

    def paint(axes: Any) -> None:
        _draw_weights(axes, alpha, (0, S, T, 0))
        axes.set_xticks(
            np.arange(S) + 0.5, column_labels, rotation=90, rotation_mode="anchor", ha="left", va="center"
        )
        axes.set_yticks(np.arange(T) + 0.5, row_labels)
        axes.tick_params(labelsize=9, pad=2)
        axes.xaxis.tick_top()
        _hide_frame(axes)

    left, top = (12 + max(map(figures.text_width, names)) for names in (row_labels, column_labels))
    margins = figures.Margins(left=left, right=8, top=top, bottom=4)
    size = (top + 4 + CELL * T, left + 8 + CELL * S)
    return figures.render(
        paint, short_name(title, 80), _strongest(alpha, row_labels, column_labels), margins, *size
    )


def draw_by_distance(curves: Mapping[str, Floats], even: Floats | None, *, title: str) -> str:
    """Return an `<svg>` of mean weight by distance, one line per curve; `even` (uniform weights) is dotted.

    A curve has shape (K,) and starts with the weight on the current token. Weights below `FAINTEST` are not drawn.
    """
    shown = {name: _points(curve) for name, curve in curves.items()}
    farthest = max([1.0, *(points[0][-1] for points in shown.values() if len(points[0]))])

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for index, (name, (xs, ys)) in enumerate(shown.items()):
            dash = figures.DASHES[index // len(figures.PALETTE) % len(figures.DASHES)]
            colour = figures.PALETTE[index % len(figures.PALETTE)]
            axes.plot(xs, ys, ls=dash, lw=1.6, marker="o", ms=3, mew=0, color=colour, label=short_name(name))
        if even is not None:
            axes.plot(*_points(even), ls=":", lw=1.4, color=figures.PALETTE[-1], label="uniform weights")
        axes.set_xlim(-0.5, farthest + 0.5)
        axes.yaxis.set_major_formatter("{x:.4g}")
        axes.minorticks_off()
        axes.set_xlabel("tokens back")
        axes.set_title("mean weight on a token", loc="left", fontsize=figures.FONT_SIZE, x=-0.1)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.02))

    parts = "; ".join(f"{short_name(name)}: {_describe_curve(curve)}" for name, curve in curves.items())
    names = max(map(figures.text_width, ["uniform weights", *map(short_name, shown)]))
    margins = figures.Margins(left=58, right=50 + names)
    return figures.render(paint, title, f"Mean weight by distance. {parts}.", margins, width=figures.WIDTH + 60)


def short_name(name: str, most: int = 28) -> str:
    """Shorten a name for a legend or a title."""
    return figures.shorten(to_printable(name), most)


def heads_table(heads: Sequence[Head]) -> str:
    """Return a `<table>` of heads: kind, distance and entropy."""
    names = ("kind", "distance, tokens", "entropy, bits", "of maximum", "own token", "previous", "first")
    rows = [
        (
            *(head.name, f"{head.distance:.1f}", f"{head.entropy:.2f}"),
            *(f"{100 * share:.0f} %" for share in (head.evenness, head.itself, head.previous, head.first)),
        )
        for head in heads
    ]
    return _table("Attention heads", names, heads, rows)


def cross_table(heads: Sequence[CrossHead]) -> str:
    """Return a `<table>` of cross-attention heads."""
    names = ("entropy, bits", "maximum, bits", "largest weight", "distance from the diagonal, tokens")
    rows = [
        (f"{head.entropy:.2f}", f"{head.possible:.2f}", f"{100 * head.strongest:.0f} %", f"{head.diagonal:.1f}")
        for head in heads
    ]
    return _table("Cross-attention heads", names, heads, rows)


def score_table(scores: Sequence[HeadScores]) -> str:
    """Return a `<table>` of the spread of scores with and without √d, and the predicted variance."""
    spread = ("d", "std of qᵀk", "std of qᵀk / √d", "variance of qᵀk")
    names = (*spread, "over all pairs", "predicted", "variance / predicted")
    rows = []
    for head in scores:
        numbers = (head.deviation, head.scaled_deviation, head.visible, head.every, head.predicted)
        ratio = "–" if head.ratio is None else f"{head.ratio:.2f}"
        rows.append((str(head.width), *(f"{number:,.4g}" for number in numbers), ratio))
    return _table("Spread of attention scores", names, scores, rows)


def _table(
    label: str,
    names: Sequence[str],
    heads: Sequence[Head | CrossHead | HeadScores],
    rows: Sequence[tuple[str, ...]],
) -> str:
    """Return a table whose rows begin with the layer and the number of the head, counted from 1."""
    cells = [(str(head.layer + 1), str(head.head + 1), *row) for head, row in zip(heads, rows, strict=True)]
    header = ("layer", "head", *names)
    numbers = [column for column, name in enumerate(header) if name != "kind"]
    return html_table(header, cells, label=label, numbers=numbers)


def _draw_weights(axes: Any, alpha: Floats, extent: tuple[float, float, float, float]) -> None:
    """Draw one map from transparent to full colour, without interpolation, in a thin frame."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    pixels = np.empty((*alpha.shape, 4))
    pixels[..., :3] = to_rgb(figures.PALETTE[0])
    pixels[..., 3] = np.sqrt(np.clip(alpha, 0.0, 1.0))  # square root, so that small weights stay visible
    left, right, bottom, top = extent
    axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto")
    frame = Rectangle((left, top), right - left, bottom - top, fill=False, lw=0.5, edgecolor=(0.5, 0.5, 0.5, 0.5))
    axes.add_patch(frame)


def _hide_frame(axes: Any) -> None:
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _strongest(alpha: Floats, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Describe the largest weights of a map as alternative text."""
    order = np.argsort(-alpha, axis=None, kind="stable")[:STRONGEST]
    cells = [divmod(int(i), alpha.shape[1]) for i in order]
    best = "; ".join(
        f"{rows[t]} (row {t + 1}) to {columns[s]} (column {s + 1}), {100 * alpha[t, s]:.0f} %" for t, s in cells
    )
    return f"Rows are queries, columns are keys. The largest weights: {best}."


def _points(curve: Floats) -> tuple[Floats, Floats]:
    """Return the distances and weights that fit on a log scale."""
    xs = np.flatnonzero(curve[: FARTHEST + 1] > FAINTEST)
    return xs.astype(np.float64), curve[xs]


def _describe_curve(curve: Floats) -> str:
    current, previous, tenth = (f"{100 * curve[k]:.1f} %" if k < len(curve) else "none" for k in (0, 1, 10))
    return f"{current} on the current token, {previous} one back, {tenth} ten back"


def distance_figure(curves: Mapping[str, Floats], even: Floats | None, prefix: str) -> Figure:
    """Return `draw_by_distance` with a caption that begins with `prefix`, in HTML."""
    dotted = "; dotted: uniform attention" if even is not None else ""
    return Figure(
        name="by distance",
        drawing=draw_by_distance(curves, even, title="Attention by distance"),
        caption=(
            f"{prefix}: mean attention weight by distance in tokens, over visible tokens; 0 is the current token. "
            f"A steep line means local attention{dotted}."
        ),
    )


def score_figures(scores: Sequence[HeadScores], model: str) -> Iterator[Figure]:
    """Yield the variance of the scores by width and a table of heads."""
    name, d = escape(model), scores[0].width
    yield Figure(
        name=f"{model}: score variance",
        drawing=draw_measured(scores, model=short_name(model)),
        caption=(
            f"{name}: variance of qᵀk over visible pairs if only 1 … {d} dimensions of a head are used (averaged "
            "over all orderings); the line is the median head, the band the middle 80 % of heads. Dotted: "
            "uncorrelated dimensions, for which the raw variance grows with d and that of qᵀk / √d is constant; a "
            "line above its dotted one has positively correlated dimensions."
        ),
    )
    yield Figure(
        name=f"{model}: scores",
        drawing=score_table(scores),
        caption=(
            f"{name}: spread of the attention scores over visible pairs. Predicted: the variance of qᵀk if queries "
            "and keys with these means and covariances were independent: "
            "tr(Σ_q Σ_k) + μ_qᵀ Σ_k μ_q + μ_kᵀ Σ_q μ_k. "
            "A last column above 1 means that scores vary more than that. “All pairs” includes masked pairs."
        ),
        is_wide=True,
    )


def heads_figure(heads: Sequence[Head], name: str, prefix: str) -> Figure:
    """Return `heads_table` with a caption that begins with `prefix`, in HTML."""
    return Figure(
        name=name,
        drawing=heads_table(heads),
        caption=(
            f"{prefix}. Distance: mean number of tokens between query and key, weighted by attention. Entropy: 0 "
            "bits if all weight is on one token, maximal for uniform weights. The last three columns are shares of "
            "the weight; that of the first token is measured where it is at least two tokens back."
        ),
        is_wide=True,
    )


def scores_json(scores: HeadScores) -> dict[str, Any]:
    """Return the score statistics of a head as JSON; variances are those of qᵀk."""
    fields = ("width", "mean", "visible", "every", "predicted", "deviation", "scaled_deviation", "ratio")
    curve = {"by_width": scores.by_width.tolist()}
    values = {name: getattr(scores, name) for name in fields}
    return {"layer": scores.layer + 1, "head": scores.head + 1, **values, **curve}


ALIGNMENT_CELL = 22  # pixels


def draw_alignment(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], *, title: str
) -> str:
    """Return an `<svg>` heat map of (T, S) weights between 0 and 1."""

    def draw_heatmap(axes: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        red, green, blue, _ = to_rgba(figures.PALETTE[0])
        colormap = LinearSegmentedColormap.from_list("fade", [(red, green, blue, 0.03), (red, green, blue, 1.0)])
        axes.pcolormesh(weights, cmap=colormap, vmin=0.0, vmax=1.0, edgecolors=(0.5, 0.5, 0.5, 0.15), linewidth=0.5)
        axes.set_xticks([i + 0.5 for i in range(len(source))], list(source), rotation=60, ha="left")
        axes.set_yticks([i + 0.5 for i in range(len(target))], list(target))
        axes.xaxis.tick_top()
        axes.invert_yaxis()
        axes.grid(visible=False)

    left = 14 + max(figures.text_width(token) for token in target)
    top = 26 + max(figures.text_width(token) for token in source)
    margins = figures.Margins(left=left, right=60, top=top, bottom=8)
    width = left + 60 + ALIGNMENT_CELL * len(source)
    return figures.render(
        draw_heatmap,
        f"Alignment of “{title}”",
        "Rows are the translation.",
        margins,
        top + 8 + ALIGNMENT_CELL * len(target),
        width,
    )


def alignment_figure(number: int, source: Sequence[str], target: Sequence[str], weights: Floats) -> Figure:
    """Return the alignment of one pair, (T, S) weights averaged over all heads, with its caption."""
    source_labels, target_labels = ([token_label(token) for token in tokens] for tokens in (source, target))
    return Figure(
        name=f"alignment {number}",
        drawing=draw_alignment(source_labels, target_labels, weights.tolist(), title=" ".join(source_labels)),
        caption=(
            f"Attention of each target token (rows) to the source tokens (columns) of <q>{escape(' '.join(source))}"
            "</q>, averaged over layers and heads; darker means more weight. A monotonic alignment follows the "
            "diagonal."
        ),
    )
