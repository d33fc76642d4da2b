"""Figures as SVG: plain numbers in, one `<svg>` element out, legible on light and dark pages.

The only module that imports matplotlib, inside functions. All numbers are finite. Series are ordered best first:
the first is emphasized, and colours follow the order.
"""

import html
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle
from typing import Any, Final, NamedTuple

from chainrule.errors import MissingExtra


class Point(NamedTuple):
    """A position in the figure."""

    x: float
    y: float


class Box(NamedTuple):
    """An axis-aligned rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: "Box") -> bool:
        """Return whether the boxes share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def contains(self, other: "Box") -> bool:
        """Return whether the other box lies within this one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )


def spread_labels(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return heights close to the targets, at least `gap` apart, within low … high if there is room.

    Least squares under an order constraint (pool adjacent violators).

    >>> spread_labels([0.0, 10.0, 11.0], gap=3.0, low=-9.0, high=99.0)
    [0.0, 9.0, 12.0]
    """
    order = sorted(range(len(targets)), key=lambda i: targets[i])
    pools: list[tuple[float, int]] = []  # (sum of target heights less the gaps below, count)
    for rank, i in enumerate(order):
        total, count = targets[i] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            below = pools.pop()
            total, count = total + below[0], count + below[1]
        pools.append((total, count))
    ceiling = high - gap * (len(order) - 1)
    heights = [max(low, min(total / count, ceiling)) for total, count in pools for _ in range(count)]
    placed = {i: heights[rank] + rank * gap for rank, i in enumerate(order)}
    return [placed[i] for i in range(len(targets))]


def place_labels(
    anchors: Sequence[Point], widths: Sequence[float], height: float, occupied: Sequence[Box], frame: Box
) -> list[Box | None]:
    """Return a free box at a corner of each anchor, in order; None if all four corners are occupied.

    Below left is tried first: on a Pareto front of costs that corner is always empty.
    """
    all_boxes, boxes = list(occupied), list[Box | None]()
    for anchor, width in zip(anchors, widths, strict=True):
        corners = (_corner(anchor, x * width, y * height) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)))
        free = (
            box for box in corners if frame.contains(box) and not any(box.overlaps(other) for other in all_boxes)
        )
        boxes.append(chosen := next(free, None))
        if chosen:
            all_boxes.append(chosen)
    return boxes


def _corner(anchor: Point, dx: float, dy: float, distance: float = 5.0) -> Box:
    x = anchor.x + (distance if dx > 0 else -distance)
    y = anchor.y + (distance if dy > 0 else -distance)
    return Box(min(x, x + dx), min(y, y + dy), max(x, x + dx), max(y, y + dy))


INK: Final = "#0a0b0c"
"""Placeholder colour, replaced by the text colour of the page."""

COLOURS: Final = ("#fff", "#1b1f24", "#111418", "#e8eaed")
"""Background and text colour of a standalone figure, light then dark."""

_FONT: Final = re.compile(r"font-family: [^;\"]*;? ?")
_ROOT: Final = re.compile(r"<svg [^>]*>")
_VIEW_BOX: Final = re.compile(r'viewBox="([^"]*)"')
_STYLE: Final = re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)
_CLIP: Final = re.compile(r' clip-path="[^"]*"|<defs>\s*<clipPath.*?</clipPath>\s*</defs>', re.DOTALL)
_ID: Final = re.compile(r' id="([^"]*)"')
_DOT: Final = re.compile(r"M ([-\d.]+) ([-\d.]+) *\n?L \1 \2(?![\d.]) *\n?")
_PATH: Final = re.compile(r' d="(M [^"]*)"')


def adapt(svg: str, title: str, description: str) -> str:
    """Return one `<svg>` element that inherits colour and font, scales with the page, and has a description.

    Drops ids without references, since several figures share a page, and clip paths, which clip nothing here.
    """
    root = _ROOT.search(svg)
    assert root is not None
    view_box = _VIEW_BOX.search(root[0])
    assert view_box is not None
    body = _STYLE.sub("", svg[root.end() :]).replace("xlink:href", "href").replace(INK, "currentColor")
    body = _CLIP.sub("", _FONT.sub("", body))
    used = set(re.findall(r'href="#([^"]+)"', body))
    body = _ID.sub(lambda match: match[0] if match[1] in used else "", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box[1]}" role="img" '
        f'font-family="system-ui, sans-serif" fill="currentColor" stroke-linejoin="round" '
        f'aria-label="{html.escape(f"{title}. {description}")}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>{body.strip()}"
    )


def standalone(svg: str) -> str:
    """Return the SVG as a file whose colours follow the light or dark mode of the reader."""
    background, text, dark_background, dark_text = COLOURS
    style = (
        f"<style>:root{{background:{background};color:{text}}}"
        f"@media(prefers-color-scheme:dark){{:root{{background:{dark_background};color:{dark_text}}}}}</style>"
    )
    return _ROOT.sub(lambda match: match[0] + style, svg, count=1) + "\n"


Axes = Any
Series = Mapping[str, Sequence[tuple[float, float]]]

WIDTH: Final = 460  # pixels; narrow enough that text stays legible on a phone
HEIGHT: Final = 350
LABEL_GAP: Final = 15.0
MOST_LABELS: Final = 16
FONT_SIZE: Final = 11.0

PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#b8629b", "#a87b00", "#3a8fc4", "#8a6fd1", "#7f7f7f")
"""After Okabe & Ito (2008), light colours darkened: contrast above 3 on white and on near-black."""

DASHES: Final = ("-", (0, (4, 1.5)), (0, (1, 1.2)))


MISSING_MATPLOTLIB: Final = "drawing needs matplotlib: pip install 'chainrule[plots]'"
_NOTES: ContextVar[bool] = ContextVar("notes", default=False)


@contextmanager
def allow_missing_matplotlib() -> Iterator[None]:
    """Within the block, render a note in place of a figure if matplotlib is not installed."""
    token = _NOTES.set(True)
    try:
        yield
    finally:
        _NOTES.reset(token)


class Dot(NamedTuple):
    """One model in a scatter plot."""

    name: str
    group: str
    x: float
    y: float


class LineEnd(NamedTuple):
    """The last point of a line and its label."""

    name: str
    x: float
    y: float
    colour: str


class Margins(NamedTuple):
    """Margins around the axes, in pixels."""

    left: float = 46
    right: float = 16
    top: float = 34
    bottom: float = 44


def plot_by_facet(
    series: Series, *, title: str, facet: str, quantity: str, is_log_y: bool = False, description: str = ""
) -> str:
    """Plot a metric by an integer setting such as the order, one line per series."""

    def paint(axes: Axes) -> None:
        axes.set_xticks(sorted({x for points in series.values() for x, _ in points}))
        axes.xaxis.set_major_formatter("{x:.0f}")
        _draw_lines(axes, series, facet, quantity, is_log_y)

    return render(paint, title, description, _label_margins(series))


def plot_learning_curves(
    series: Series,
    *,
    title: str,
    quantity: str,
    description: str = "",
    extrapolated: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Plot a metric by bytes of training text on a log scale; dashed lines lead to extrapolated points."""

    def paint(axes: Axes) -> None:
        axes.set_xscale("log")
        for colour, (name, points) in zip(cycle(PALETTE), series.items(), strict=False):
            if extrapolated and name in extrapolated:
                xs, ys = zip(points[-1], extrapolated[name], strict=True)
                axes.plot(xs, ys, ls=(0, (3, 2)), lw=1.3, color=colour, alpha=0.8, clip_on=False)
        _draw_lines(axes, series, "bytes of training text", quantity)
        _tick_decades(axes.xaxis, _ticker("EngFormatter", unit="B"))

    return render(paint, title, description, _label_margins(series))


def plot_curves(series: Series, *, title: str, x_label: str, quantity: str, description: str = "") -> str:
    """Plot a metric by a count, one line per series."""

    def paint(axes: Axes) -> None:
        _draw_lines(axes, series, x_label, quantity)

    return render(paint, title, description, _label_margins(series))


def plot_bars(values: Mapping[str, float], *, title: str, quantity: str, description: str = "") -> str:
    """Plot one horizontal bar per name from zero, the first at the top and emphasized, labelled with its value."""

    def paint(axes: Axes) -> None:
        labels = [f"{value:.3f}" for value in values.values()]
        draw_bars(axes, values, labels, quantity, [0.95] + [0.45] * (len(values) - 1))
        axes.set_xlim(0, max(values.values()) * 1.02 or 1)
        axes.xaxis.set_major_locator(_ticker("MaxNLocator", nbins=5))

    left = 16 + max(map(text_width, values))
    height = 58 + 26 * len(values)
    return render(paint, title, description, Margins(left=left, right=52, top=8), height)


def draw_bars(
    axes: Axes,
    values: Mapping[str, float],
    labels: Sequence[str],
    quantity: str,
    opacities: Sequence[float],
    colour: str = PALETTE[0],
) -> None:
    """Draw one horizontal labelled bar per name, the first at the top."""
    rows = range(len(values))
    drawn = axes.barh(rows, list(values.values()), height=0.66, color=colour)
    for bar, opacity in zip(drawn, opacities, strict=True):
        bar.set(alpha=opacity, clip_on=False)
    axes.bar_label(drawn, labels, padding=4, fontsize=FONT_SIZE)
    axes.set_yticks(rows, [shorten(name) for name in values])
    axes.invert_yaxis()
    axes.set_xlabel(quantity)
    axes.grid(visible=False)


def plot_cost_quality(
    dots: Sequence[Dot],
    *,
    title: str,
    cost: str,
    unit: str,
    quantity: str,
    most_labels: int = 6,
    description: str = "",
) -> str:
    """Plot a metric by a cost on a log scale; the Pareto front is emphasized and partly labelled.

    The legend is below the axes.
    """
    front = pareto_front(dots)
    names = list(dict.fromkeys(dot.group for dot in dots))
    columns = 3
    legend_rows = math.ceil(len(names) / columns) if len(names) > 1 else 0
    height = HEIGHT + 18 * legend_rows

    def paint(axes: Axes) -> None:
        axes.set_xscale("log")
        for colour, group in zip(cycle(PALETTE), dict.fromkeys(dot.group for dot in dots), strict=False):
            members = [dot for dot in dots if dot.group == group]
            style = {"mew": 0, "color": colour, "clip_on": False}
            axes.plot([dot.x for dot in members], [dot.y for dot in members], "o", ms=5, alpha=0.65, **style)
            best = [dot for dot in members if dot in front]
            axes.plot([dot.x for dot in best], [dot.y for dot in best], "o", ms=7.5, label=group, **style)
        axes.margins(x=0.12, y=0.12)
        axes.autoscale_view()
        _tick_decades(axes.xaxis, _ticker("EngFormatter", unit=unit))
        label_axes(axes, cost, quantity)
        _label_dots(axes, front[::-1], dots, most_labels)
        if legend_rows:
            below = axes.transAxes.inverted().transform((0, axes.get_window_extent().y0 - Margins().bottom))
            corner = (0, float(below[1]))
            axes.legend(
                frameon=False,
                loc="upper left",
                bbox_to_anchor=corner,
                borderaxespad=0,
                ncols=columns,
                handletextpad=0.1,
            )

    margins = Margins(bottom=Margins().bottom + 18 * legend_rows)
    return render(paint, title, description, margins, height)


def pareto_front(dots: Sequence[Dot]) -> list[Dot]:
    """Return the Pareto-optimal dots for minimal x and y, by ascending x."""
    front: list[Dot] = []
    for dot in sorted(dots, key=lambda dot: (dot.x, dot.y)):
        if not front or dot.y < front[-1].y:
            front.append(dot)
    return front


def render(
    paint: Callable[[Axes], None],
    title: str,
    description: str,
    margins: Margins,
    height: float = HEIGHT,
    width: float = WIDTH,
    *,
    is_compact: bool = False,
) -> str:
    """Draw on axes with these margins and return an `<svg>`; equal input gives equal bytes."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        if _NOTES.get():
            return f'<p class="note">{html.escape(MISSING_MATPLOTLIB)}</p>'
        raise MissingExtra(MISSING_MATPLOTLIB) from error

    with mpl.rc_context(_settings(title)), warnings.catch_warnings():
        # The page's font is used for display, so glyphs missing from the measuring font do not matter.
        warnings.filterwarnings("ignore", message="(Glyph|Matplotlib currently does not support)")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        axes_width, axes_height = width - margins.left - margins.right, height - margins.top - margins.bottom
        box = (margins.left / width, margins.bottom / height, axes_width / width, axes_height / height)
        paint(figure.add_axes(box))
        _simplify_log_ticks(figure)
        drawn = io.StringIO()
        figure.savefig(
            drawn,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )
    svg = adapt(drawn.getvalue(), title, description)
    return compact_paths(svg) if is_compact else svg


def compact_paths(drawn: str) -> str:
    """Round path coordinates in an SVG to a tenth of a pixel and abbreviate points."""

    def shorten(match: re.Match[str]) -> str:
        path = re.sub(r"-?\d+\.\d\d+", lambda number: f"{float(number[0]):.1f}", match[1])
        return f' d="{_DOT.sub(lambda dot: f"M{dot[1]} {dot[2]}h0", path)}"'

    return _PATH.sub(shorten, drawn)


def draw_dots(axes: Axes, x: Any, y: Any, colour: str, size: float = 3.0) -> None:
    """Draw round points as one path, which `is_compact` shortens to a dozen bytes each."""
    import numpy as np
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = np.stack([x, y], axis=1)[:, None].repeat(2, axis=1).reshape(-1, 2)  # each twice: a line of length 0
    path = Path(points, np.tile([Path.MOVETO, Path.LINETO], len(x)))
    path.should_simplify = False
    axes.add_patch(PathPatch(path, fill=False, lw=size, color=colour, capstyle="round", alpha=0.8, clip_on=False))


def _settings(title: str) -> dict[str, Any]:
    """Return the matplotlib settings of all figures; the title salts the SVG ids."""
    text_keys = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.labelcolor", "ytick.labelcolor")
    return dict.fromkeys(text_keys, INK) | {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "text.parse_math": False,
        "font.size": FONT_SIZE,
        "axes.labelsize": FONT_SIZE,
        "xtick.labelsize": FONT_SIZE - 1,
        "ytick.labelsize": FONT_SIZE - 1,
        "legend.fontsize": FONT_SIZE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.linewidth": 0.6,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": INK,
        "grid.alpha": 0.14,
        "grid.linewidth": 0.7,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
    }


def _draw_lines(axes: Axes, series: Series, x_label: str, y_label: str, is_log_y: bool = False) -> None:
    if is_log_y:
        axes.set_yscale("log")
    for index, (colour, points) in enumerate(zip(cycle(PALETTE), series.values(), strict=False)):
        xs, ys = zip(*points, strict=True)
        dash = DASHES[index // len(PALETTE) % len(DASHES)]
        weight = 2.4 if index == 0 else 1.3
        style = {"zorder": 3 if index == 0 else 2, "clip_on": False}
        axes.plot(xs, ys, "o", ls=dash, lw=weight, ms=weight + 3, mew=0, color=colour, **style)
    label_axes(axes, x_label, y_label)
    axes.margins(x=0.03, y=0.06)
    axes.autoscale_view()
    if is_log_y:
        _tick_decades(axes.yaxis, "{x:,.12g}")
    coloured = zip(series.items(), cycle(PALETTE), strict=False)
    ends = [LineEnd(name, *points[-1], colour) for (name, points), colour in coloured]
    label_line_ends(axes, ends[:MOST_LABELS], away=22, is_ranked=True)


def label_axes(axes: Axes, x_label: str, y_label: str, above: float = 18) -> None:
    """Label x below the axis, and y horizontally, `above` pixels over it."""
    axes.set_xlabel(x_label)
    axes.annotate(
        y_label, (2, axes.get_window_extent().y1 + above), xycoords="figure pixels", annotation_clip=False
    )


def label_line_ends(
    axes: Axes, ends: Sequence[LineEnd], *, away: float, gap: float = LABEL_GAP, is_ranked: bool = False
) -> None:
    """Label each line to the right of its last point, moving labels apart vertically.

    `away` is the distance from the axes and `gap` the least distance between labels, in pixels; if ranked, the
    first label is bold.
    """
    box = axes.get_window_extent()
    targets = [float(axes.transData.transform((end.x, end.y))[1]) for end in ends]
    heights = spread_labels(targets, gap, box.y0, box.y1 + gap / 2)
    for index, (end, height) in enumerate(zip(ends, heights, strict=True)):
        axes.annotate(
            shorten(end.name),
            (end.x, end.y),
            xytext=(box.x1 + away, height),
            textcoords="figure pixels",
            va="center",
            weight="bold" if is_ranked and index == 0 else "normal",
            arrowprops=_leader(end.colour),
        )


def _leader(colour: str) -> dict[str, Any]:
    """Return the style of the dotted leader from a line's end to its label."""
    style = {"arrowstyle": "-", "color": colour, "alpha": 0.7, "lw": 0.8, "linestyle": (0, (1, 3))}
    return style | {"shrinkA": 0, "shrinkB": 5, "relpos": (0, 0.5)}


def _label_dots(axes: Axes, candidates: Sequence[Dot], dots: Sequence[Dot], most: int) -> None:
    """Label at most `most` dots that have room, in order, and only the first of dots that nearly touch."""
    box = axes.get_window_extent()
    frame = Box(box.x0, box.y0, WIDTH, box.y1)
    centres = {dot: Point(*axes.transData.transform((dot.x, dot.y))) for dot in dots}
    occupied = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in centres.values()]
    apart: list[Dot] = []
    for dot in candidates:
        if all(math.dist(centres[dot], centres[other]) > 1.5 * LABEL_GAP for other in apart):
            apart.append(dot)
    widths = [text_width(dot.name) for dot in apart]
    boxes = place_labels([centres[dot] for dot in apart], widths, FONT_SIZE + 2, occupied, frame)
    placed = [(dot, label_box) for dot, label_box in zip(apart, boxes, strict=True) if label_box]
    for dot, label_box in placed[:most]:
        is_left = label_box.right < centres[dot].x
        position = (label_box.right if is_left else label_box.left, (label_box.bottom + label_box.top) / 2)
        alignment = {"ha": "right" if is_left else "left", "va": "center"}
        axes.annotate(shorten(dot.name), position, xycoords="figure pixels", annotation_clip=False, **alignment)


def _simplify_log_ticks(figure: Any) -> None:
    """Replace the ticks of log axes whose labels are mathtext or of which fewer than two are visible."""
    from matplotlib.ticker import LogFormatter, NullFormatter

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if axis.get_scale() != "log":
            continue
        low, high = sorted(axis.get_view_interval())
        shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
        if isinstance(axis.get_major_formatter(), LogFormatter) or len(shown) < 2:
            _tick_decades(axis, "{x:g}")
        if isinstance(axis.get_minor_formatter(), LogFormatter):
            axis.set_minor_formatter(NullFormatter())


def _tick_decades(axis: Axes, formatter: Any) -> None:
    """Set readable ticks on a log axis, whether it spans decades or less than one."""
    low, high = sorted(axis.get_view_interval())
    set_log_ticks(axis, (1.0, 3.0), formatter, below=3)
    if high / low < 10:  # too short for powers of ten
        axis.set_major_locator(_ticker("MaxNLocator", nbins=4))


def set_log_ticks(
    axis: Axes, multiples: Sequence[float], formatter: Any = "{x:g}", *, below: float, most: int | None = None
) -> None:
    """Set at most `most` ticks of a log axis at powers of ten, without minor ticks.

    An axis of fewer than `below` decades has ticks at these multiples of the powers.
    """
    low, high = sorted(axis.get_view_interval())
    subs = multiples if math.log10(high / low) < below else (1.0,)
    axis.set_major_locator(_ticker("LogLocator", subs=subs, numticks=most))
    axis.set_minor_locator(_ticker("NullLocator"))
    axis.set_major_formatter(formatter)


def _ticker(kind: str, **settings: object) -> Any:
    """Return a matplotlib locator or formatter."""
    from matplotlib import ticker

    return getattr(ticker, kind)(**settings)


def _label_margins(series: Series) -> Margins:
    return Margins(right=42 + max(map(text_width, series)))


def shorten(name: str, most: int = 28) -> str:
    """Truncate a name to `most` characters, ending in an ellipsis.

    >>> shorten("abc", 3), shorten("abcd", 3)
    ('abc', 'ab…')
    """
    return name if len(name) <= most else f"{name[: most - 1]}…"


def text_width(name: str) -> float:
    """Estimate the width of a label in pixels, generously, since the page's font is unknown."""
    return 0.56 * FONT_SIZE * len(shorten(name))
