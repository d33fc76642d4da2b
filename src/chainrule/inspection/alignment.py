"""Plot the alignment of a translation: target tokens as rows, source tokens as columns."""

from collections.abc import Sequence
from typing import Any

from chainrule.inspection import attention_map, plots
from chainrule.inspection.foreign import escape
from chainrule.inspection.section import Figure
from chainrule.lm import Floats

CELL = 22  # pixels


def draw(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], *, title: str) -> str:
    """Return an `<svg>` heat map of (T, S) weights between 0 and 1."""

    def draw_heatmap(axes: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        red, green, blue, _ = to_rgba(plots.PALETTE[0])
        colormap = LinearSegmentedColormap.from_list("fade", [(red, green, blue, 0.03), (red, green, blue, 1.0)])
        axes.pcolormesh(weights, cmap=colormap, vmin=0.0, vmax=1.0, edgecolors=(0.5, 0.5, 0.5, 0.15), linewidth=0.5)
        axes.set_xticks([i + 0.5 for i in range(len(source))], list(source), rotation=60, ha="left")
        axes.set_yticks([i + 0.5 for i in range(len(target))], list(target))
        axes.xaxis.tick_top()
        axes.invert_yaxis()
        axes.grid(visible=False)

    left = 14 + max(plots.text_width(token) for token in target)
    top = 26 + max(plots.text_width(token) for token in source)
    margins = plots.Margins(left=left, right=60, top=top, bottom=8)
    width = left + 60 + CELL * len(source)
    return plots.render(
        draw_heatmap,
        f"Alignment of “{title}”",
        "Rows are the translation.",
        margins,
        top + 8 + CELL * len(target),
        width,
    )


def make_figure(number: int, source: Sequence[str], target: Sequence[str], weights: Floats) -> Figure:
    """Return the alignment of one pair, (T, S) weights averaged over all heads, with its caption."""
    source_labels, target_labels = (
        [attention_map.token_label(token) for token in tokens] for tokens in (source, target)
    )
    return Figure(
        name=f"alignment {number}",
        drawing=draw(source_labels, target_labels, weights.tolist(), title=" ".join(source_labels)),
        caption=(
            f"Attention of each target token (rows) to the source tokens (columns) of <q>{escape(' '.join(source))}"
            "</q>, averaged over layers and heads; darker means more weight. A monotonic alignment follows the "
            "diagonal."
        ),
    )
