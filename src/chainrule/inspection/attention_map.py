"""Pictures of attention: maps of every head, one head large, weights by distance, a table of heads.

Lives here: `<svg>` and `<table>` elements. Not here: the numbers (attention.py), alignments (alignment.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from chainrule.inspection import plots
from chainrule.inspection.attention import Across, Head
from chainrule.inspection.foreign import isolated, plain_text
from chainrule.inspection.score_law import HeadScores, draw_measured
from chainrule.inspection.section import Figure
from chainrule.inspection.table import html_table
from chainrule.lm import Floats

WIDTH: Final = 680  # pixels of the grid of maps
SMALLEST, LARGEST = 26, 132  # pixels of one map in it
GAP: Final = 6
CELL: Final = 15  # pixels of one weight in a large map
LETTERS: Final = 12  # of a token that is a label
FARTHEST: Final = 48  # tokens back that a curve shows
FAINTEST: Final = 1e-5  # weight that a curve shows
STRONGEST: Final = 5  # weights that a description names
_BLANK: Final = re.compile(r"\s")


def label(token: str) -> str:
    r"""A token as it is written beside a map: short, and nothing in it unseen.

    >>> label("a\n"), label(" "), label("incomprehensibly")
    ('a␊', '␣', 'incomprehen…')
    """
    return plots.shorten(_BLANK.sub("␣", plain_text(token)), LETTERS)


def draw_grid(weights: Sequence[Floats], *, model: str) -> str:
    """An `<svg>` of small maps, a row a layer, a column a head: L of (H, T, S)."""
    columns = max(len(layer) for layer in weights)
    side = int(np.clip((WIDTH - 40) // columns - GAP, SMALLEST, LARGEST))
    height, width = len(weights) * (side + GAP), columns * (side + GAP)

    def paint(axes: Any) -> None:
        for row, layer in enumerate(weights):
            for column, alpha in enumerate(layer):
                left, top = column * (side + GAP), row * (side + GAP)
                _show(axes, alpha, (left, left + side, top + side, top))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.set_xticks([h * (side + GAP) + side / 2 for h in range(columns)], range(1, columns + 1))
        axes.set_yticks([k * (side + GAP) + side / 2 for k in range(len(weights))], range(1, len(weights) + 1))
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("head", loc="left")
        axes.set_ylabel("layer", loc="top")
        _bare(axes)

    T = weights[0].shape[1]
    words = (
        f"{len(weights)} layers of {columns} heads over {T} tokens. In each map the rows are the tokens that look, "
        "from the first at the top, and the columns the tokens looked at; the stronger the colour the more weight."
    )
    margins = plots.Margins(left=40, right=2, top=36, bottom=2)
    return plots.render(paint, f"Attention maps of {label_of(model)}", words, margins, height + 38, width + 42)


def draw_head(alpha: Floats, queries: Sequence[str], keys: Sequence[str], *, title: str) -> str:
    """An `<svg>` of one (T, S) map, the tokens that look down, those looked at across."""
    T, S = alpha.shape
    down, across = [label(token) for token in queries], [label(token) for token in keys]

    def paint(axes: Any) -> None:
        _show(axes, alpha, (0, S, T, 0))
        axes.set_xticks(np.arange(S) + 0.5, across, rotation=90, rotation_mode="anchor", ha="left", va="center")
        axes.set_yticks(np.arange(T) + 0.5, down)
        axes.tick_params(labelsize=9, pad=2)
        axes.xaxis.tick_top()
        _bare(axes)

    left, top = (12 + max(map(plots.text_width, names)) for names in (down, across))
    margins = plots.Margins(left=left, right=8, top=top, bottom=4)
    size = (top + 4 + CELL * T, left + 8 + CELL * S)
    return plots.render(paint, label_of(title, 80), _strongest(alpha, down, across), margins, *size)


def draw_by_distance(curves: Mapping[str, Floats], even: Floats | None, *, title: str) -> str:
    """An `<svg>` of mean weights by distance, one line a name; dotted what equal shares would give.

    A curve is (K,), the weight on the token itself first; lines begin where something was seen.
    """
    shown = {name: _points(curve) for name, curve in curves.items()}
    farthest = max([1.0, *(points[0][-1] for points in shown.values() if len(points[0]))])

    def paint(axes: Any) -> None:
        axes.set_yscale("log")
        for place, (name, (xs, ys)) in enumerate(shown.items()):
            dash = plots.DASHES[place // len(plots.PALETTE) % len(plots.DASHES)]
            colour = plots.PALETTE[place % len(plots.PALETTE)]
            axes.plot(xs, ys, ls=dash, lw=1.6, marker="o", ms=3, mew=0, color=colour, label=label_of(name))
        if even is not None:
            axes.plot(*_points(even), ls=":", lw=1.4, color=plots.PALETTE[-1], label="equal shares")
        axes.set_xlim(-0.5, farthest + 0.5)
        axes.yaxis.set_major_formatter("{x:.4g}")
        axes.minorticks_off()
        axes.set_xlabel("tokens back")
        axes.set_title("mean weight on a token", loc="left", fontsize=plots.FONT_SIZE, x=-0.1)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.02))

    parts = "; ".join(f"{label_of(name)}: {_in_words(curve)}" for name, curve in curves.items())
    names = max(map(plots.text_width, ["equal shares", *map(label_of, shown)]))
    margins = plots.Margins(left=58, right=50 + names)
    return plots.render(paint, title, f"Mean weight by distance. {parts}.", margins, width=plots.WIDTH + 60)


def label_of(name: str, most: int = 28) -> str:
    """A name short enough for a legend or a title."""
    return plots.shorten(plain_text(name), most)


def table(found: Sequence[Head]) -> str:
    """A `<table>` of heads: what each looks at, how far and how evenly."""
    names = ("looks at", "distance, tokens", "entropy, bits", "of the possible", "own token", "previous", "first")
    return _table(
        "Heads of attention",
        names,
        [
            (
                *(each.layer, each.head, each.name, f"{each.distance:.1f}", f"{each.entropy:.2f}"),
                *(f"{100 * share:.0f} %" for share in (each.evenness, each.itself, each.previous, each.first)),
            )
            for each in found
        ],
    )


def across_table(found: Sequence[Across]) -> str:
    """A `<table>` of heads that look at another text."""
    names = ("entropy, bits", "possible, bits", "most looked at", "from the diagonal, tokens")
    return _table(
        "Heads that look at another text",
        names,
        [
            (
                *(each.layer, each.head, f"{each.entropy:.2f}", f"{each.possible:.2f}"),
                *(f"{100 * each.strongest:.0f} %", f"{each.diagonal:.1f}"),
            )
            for each in found
        ],
    )


def score_table(found: Sequence[HeadScores]) -> str:
    """A `<table>` of the spread of scores: with √d and without, beside the law of independent vectors."""
    spread = ("d", "deviation of qᵀk", "of qᵀk / √d", "variance of qᵀk")
    names = (*spread, "over every pair", "by the law", "variance / law")
    return _table(
        "Spread of the scores of heads",
        names,
        [
            (
                *(each.layer, each.head, str(each.width)),
                *(f"{number:,.4g}" for number in (each.deviation, each.scaled_deviation)),
                *(f"{number:,.4g}" for number in (each.visible, each.every, each.predicted)),
                "–" if each.ratio is None else f"{each.ratio:.2f}",
            )
            for each in found
        ],
    )


def _table(label: str, names: Sequence[str], rows: Sequence[tuple[int | str, ...]]) -> str:
    """Rows begin with the layer and the head, from 0."""
    numbered = [(str(int(layer) + 1), str(int(head) + 1), *map(str, cells)) for layer, head, *cells in rows]
    return html_table(("layer", "head", *names), numbered, label=label)


def _show(axes: Any, alpha: Floats, extent: tuple[float, float, float, float]) -> None:
    """One picture of weights, from see-through to full colour, its pixels kept sharp, in a thin frame."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    pixels = np.empty((*alpha.shape, 4))
    pixels[..., :3] = to_rgb(plots.PALETTE[0])
    pixels[..., 3] = np.sqrt(np.clip(alpha, 0.0, 1.0))  # faint weights are to be seen as well
    left, right, bottom, top = extent
    axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto")
    frame = Rectangle((left, top), right - left, bottom - top, fill=False, lw=0.5, edgecolor=(0.5, 0.5, 0.5, 0.5))
    axes.add_patch(frame)


def _bare(axes: Any) -> None:
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _strongest(alpha: Floats, down: Sequence[str], across: Sequence[str]) -> str:
    """What a map shows, for whoever cannot see it."""
    order = np.argsort(-alpha, axis=None, kind="stable")[:STRONGEST]
    places = [divmod(int(i), alpha.shape[1]) for i in order]
    best = "; ".join(
        f"{down[t]} (row {t + 1}) at {across[s]} (column {s + 1}), {100 * alpha[t, s]:.0f} %" for t, s in places
    )
    return f"Rows are the tokens that look, columns those looked at. The strongest: {best}."


def _points(curve: Floats) -> tuple[Floats, Floats]:
    """Distances and weights that can be shown on a log scale."""
    xs = np.flatnonzero(curve[: FARTHEST + 1] > FAINTEST)
    return xs.astype(np.float64), curve[xs]


def _in_words(curve: Floats) -> str:
    own, one, ten = (f"{100 * curve[k]:.1f} %" if k < len(curve) else "none" for k in (0, 1, 10))
    return f"{own} on the token itself, {one} one back, {ten} ten"


def distance_figure(curves: Mapping[str, Floats], even: Floats | None, whose: str) -> Figure:
    """`draw_by_distance` with its caption, which begins with whose lines they are, in HTML."""
    dotted = "; dotted: all that can be seen alike" if even is not None else ""
    return Figure(
        name="by distance",
        drawing=draw_by_distance(curves, even, title="Attention by distance"),
        caption=(
            f"{whose}: the mean weight on a token so many back, of those that can be seen; 0 is the token that "
            f"looks. A line that falls steeply looks close by{dotted}."
        ),
    )


def score_figures(found: Sequence[HeadScores], model: str) -> Iterator[Figure]:
    """How the variance goes with the width, and a table of heads."""
    name, d = isolated(model), found[0].width
    yield Figure(
        name=f"{model}: score variance",
        drawing=draw_measured(found, model=label_of(model)),
        caption=(
            f"{name}: the variance of qᵀk over tokens that may look at one another, if only 1 … {d} of a head's "
            "dimensions are used (the mean over all orders of them); the line is the median head, the band the "
            "middle 80 % of heads. Dotted: if dimensions had nothing in common. Then the raw variance rises with d "
            "and the one divided by √d stays level; a line above its dots has dimensions that pull together."
        ),
    )
    yield Figure(
        name=f"{model}: scores",
        drawing=score_table(found),
        caption=(
            f"{name}: how far scores spread. The law says what the variance of qᵀk would be if queries and keys "
            "with these means and covariances were independent: tr(Σ_q Σ_k) + μ_qᵀ Σ_k μ_q + μ_kᵀ Σ_q μ_k. Where "
            "the last column is above 1, tokens that may look at one another differ more than that; “every pair” "
            "takes in those that may not."
        ),
        is_wide=True,
    )


def heads_figure(found: Sequence[Head], name: str, whose: str) -> Figure:
    """`table` with its caption, which begins with whose heads they are, in HTML."""
    return Figure(
        name=name,
        drawing=table(found),
        caption=(
            f"{whose}. Distance is the mean number of tokens between the one that looks and those it looks at, "
            "weighted by attention; entropy is 0 bits where all weight is on one token and as large as possible "
            "where all have the same; the last three are shares of the weight, that of the first token where it "
            "stands two or more away."
        ),
        is_wide=True,
    )


def score_data(scores: HeadScores) -> dict[str, Any]:
    """The scores of a head as JSON; variances are of qᵀk."""
    numbers = ("width", "mean", "visible", "every", "predicted", "deviation", "scaled_deviation", "ratio")
    curve = {"by_width": scores.by_width.tolist()}
    found = {name: getattr(scores, name) for name in numbers}
    return {"layer": scores.layer + 1, "head": scores.head + 1, **found, **curve}
