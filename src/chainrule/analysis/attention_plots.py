"""Plots and tables of attention: maps of every head, one head enlarged, weights by distance, head statistics."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.analysis.attention import CrossHead, Head
from chainrule.analysis.attention_scaling import HeadScores, draw_measured
from chainrule.analysis.section import Figure
from chainrule.lm import Floats
from chainrule.plots import figures
from chainrule.plots.html import escape, html_table, to_printable

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
    names = ("attends to", "distance, tokens", "entropy, bits", "of maximum", "own token", "previous", "first")
    return _table(
        "Attention heads",
        names,
        [
            (
                *(head.layer, head.head, head.name, f"{head.distance:.1f}", f"{head.entropy:.2f}"),
                *(f"{100 * share:.0f} %" for share in (head.evenness, head.itself, head.previous, head.first)),
            )
            for head in heads
        ],
    )


def cross_table(heads: Sequence[CrossHead]) -> str:
    """A `<table>` of heads that look at another text."""
    names = ("entropy, bits", "maximum, bits", "largest weight", "distance from the diagonal, tokens")
    return _table(
        "Heads that look at another text",
        names,
        [
            (
                *(head.layer, head.head, f"{head.entropy:.2f}", f"{head.possible:.2f}"),
                *(f"{100 * head.strongest:.0f} %", f"{head.diagonal:.1f}"),
            )
            for head in heads
        ],
    )


def score_table(scores: Sequence[HeadScores]) -> str:
    """Return a `<table>` of the spread of scores with and without √d, and the predicted variance."""
    spread = ("d", "std of qᵀk", "std of qᵀk / √d", "variance of qᵀk")
    names = (*spread, "over all pairs", "predicted", "variance / predicted")
    return _table(
        "Spread of attention scores",
        names,
        [
            (
                *(head.layer, head.head, str(head.width)),
                *(f"{number:,.4g}" for number in (head.deviation, head.scaled_deviation)),
                *(f"{number:,.4g}" for number in (head.visible, head.every, head.predicted)),
                "–" if head.ratio is None else f"{head.ratio:.2f}",
            )
            for head in scores
        ],
    )


def _table(label: str, names: Sequence[str], rows: Sequence[tuple[int | str, ...]]) -> str:
    """Build a table whose rows begin with layer and head, counted from 0."""
    numbered = [(str(int(layer) + 1), str(int(head) + 1), *map(str, cells)) for layer, head, *cells in rows]
    return html_table(("layer", "head", *names), numbered, label=label)


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


def draw(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], *, title: str) -> str:
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


def make_figure(number: int, source: Sequence[str], target: Sequence[str], weights: Floats) -> Figure:
    """Return the alignment of one pair, (T, S) weights averaged over all heads, with its caption."""
    source_labels, target_labels = ([token_label(token) for token in tokens] for tokens in (source, target))
    return Figure(
        name=f"alignment {number}",
        drawing=draw(source_labels, target_labels, weights.tolist(), title=" ".join(source_labels)),
        caption=(
            f"Attention of each target token (rows) to the source tokens (columns) of <q>{escape(' '.join(source))}"
            "</q>, averaged over layers and heads; darker means more weight. A monotonic alignment follows the "
            "diagonal."
        ),
    )
