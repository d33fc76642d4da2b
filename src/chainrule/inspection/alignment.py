"""An alignment as a picture: the translation down, the source across, darker where it looked more."""

from collections.abc import Sequence
from typing import Any

from chainrule.inspection import attention_map, plots
from chainrule.inspection.foreign import isolated
from chainrule.inspection.section import Figure
from chainrule.lm import Floats

CELL = 22  # pixels


def draw(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], *, title: str) -> str:
    """An `<svg>` element of (T, S) weights between 0 and 1."""

    def paint(axes: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        red, green, blue, _ = to_rgba(plots.PALETTE[0])
        fading = LinearSegmentedColormap.from_list("fading", [(red, green, blue, 0.03), (red, green, blue, 1.0)])
        axes.pcolormesh(weights, cmap=fading, vmin=0.0, vmax=1.0, edgecolors=(0.5, 0.5, 0.5, 0.15), linewidth=0.5)
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
        paint, f"Alignment of “{title}”", "Rows are the translation.", margins, top + 8 + CELL * len(target), width
    )


def figure(number: int, source: Sequence[str], target: Sequence[str], weights: Floats) -> Figure:
    """The mean (T, S) of all heads of one pair, with what it shows."""
    across, down = ([attention_map.label(token) for token in tokens] for tokens in (source, target))
    return Figure(
        name=f"alignment {number}",
        drawing=draw(across, down, weights.tolist(), title=" ".join(across)),
        caption=(
            f"Where each token of a translation (a row) looked in its source (the columns, <q>"
            f"{isolated(' '.join(source))}</q>), the mean over layers and heads: the darker the more weight. "
            "Words in the same order lie along the diagonal."
        ),
    )
