"""Separation of the senses of an ambiguous word by its contextual vectors. n occurrences, D layer width."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from chainrule.errors import InputError
from chainrule.lm import Floats
from chainrule.plots import figures
from chainrule.plots.html import to_printable

TIE: Final = 1e-9
"""Cosines within this distance are ties, so that rounding decides nothing."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Sense separation of the vectors of one layer."""

    layer: int
    accuracy: float  # leave-one-out nearest-centroid classification
    within: float  # mean cosine within senses
    across: float  # mean cosine across senses
    different: int  # number of distinct vectors; 1 if the layer ignores context

    @property
    def gap(self) -> float:
        """Difference of the mean cosines within and across senses."""
        return self.within - self.across if self.different > 1 else 0.0


def measure_separation(layers: Mapping[int, Floats], senses: Sequence[str]) -> list[Separation]:
    """Return the separation for every layer, (n, D) each, given the sense of each occurrence."""
    check_senses(senses)
    separations = []
    for layer, vectors in sorted(layers.items()):
        x = unit_vectors(vectors)
        within, across = mean_cosines(x, senses)
        different = len(np.unique(vectors, axis=0))
        separations.append(Separation(layer, accuracy(x, senses), within, across, different))
    return separations


def best_layer(separations: Sequence[Separation]) -> Separation:
    """Return the layer of highest accuracy, ties by gap; layer 0 only if there is no other."""
    candidates = [separation for separation in separations if separation.layer > 0] or list(separations)
    return max(candidates, key=lambda separation: (separation.accuracy, separation.gap))


def check_senses(senses: Sequence[str]) -> None:
    """Raise unless there are at least two senses with two sentences each."""
    counts = Counter(senses)
    if len(counts) < 2:
        raise InputError(f"there is only one sense, '{senses[0]}'; give sentences of two or more")
    for sense, n in counts.items():
        if n < 2:
            raise InputError(f"sense '{sense}' has only one sentence; give two or more")


def majority_sense(senses: Sequence[str]) -> tuple[str, float]:
    """Return the most frequent sense (the first among ties) and its share."""
    sense, count = Counter(senses).most_common(1)[0]
    return sense, count / len(senses)


def unit_vectors(vectors: Floats) -> Floats:
    """Normalize rows to length 1, (n, D); zero rows stay zero."""
    x = vectors.astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1.0)


def accuracy(x: Floats, senses: Sequence[str]) -> float:
    """Return the leave-one-out accuracy of the nearest centroid by cosine for unit vectors (n, D).

    Ties go to the more frequent sense, so identical vectors reach the majority rate and no more.
    """
    names = [name for name, _ in Counter(senses).most_common()]  # ties go to the first
    is_of = np.array([[sense == name for name in names] for sense in senses])  # (n, S)
    sums = is_of.T.astype(np.float64) @ x  # (S, D)
    correct = 0
    for i, vector in enumerate(x):
        # The sum has the same direction as the mean.
        others = sums - is_of[i][:, None] * vector
        cosines = unit_vectors(others) @ vector  # (S,)
        nearest = int(np.flatnonzero(cosines >= cosines.max() - TIE)[0])
        correct += bool(is_of[i, nearest])
    return correct / len(senses)


def mean_cosines(x: Floats, senses: Sequence[str]) -> tuple[float, float]:
    """Return the mean cosine within and across senses over all pairs of unit vectors (n, D)."""
    cosines = x @ x.T  # (n, n)
    names = np.array(senses)
    is_same = names[:, None] == names
    is_pair = np.triu(np.ones(is_same.shape, dtype=bool), k=1)
    return float(cosines[is_pair & is_same].mean()), float(cosines[is_pair & ~is_same].mean())


def principal_components(vectors: Floats) -> tuple[Floats, Floats]:
    """Return the first two principal components (n, 2) of normalized vectors, and their variance shares (2,).

    Signs are chosen so that the largest loading is positive. Without variance everything is 0.
    """
    x = unit_vectors(vectors)
    x = x - x.mean(axis=0)
    U, S, V = np.linalg.svd(x, full_matrices=False)
    if len(S) < 2:
        U, S, V = np.pad(U, ((0, 0), (0, 1))), np.pad(S, (0, 1)), np.pad(V, ((0, 1), (0, 0)))
    signs = np.where(np.take_along_axis(V, np.abs(V).argmax(axis=1, keepdims=True), axis=1)[:, 0] < 0, -1.0, 1.0)
    total = (S**2).sum()
    if total < TIE:  # identical vectors
        return np.zeros((len(x), 2)), np.zeros(2)
    return (U * S * signs)[:, :2], (S**2 / total)[:2]


WIDTH: Final = 680  # pixels
HEIGHT: Final = 500
NEAR: Final = 2  # context words on either side in a label
SMALL: Final = 9.0  # font size of labels
MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "p")
STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{max-width:48em;margin:2em auto;padding:0 1em;font:1rem/1.5 system-ui,sans-serif}"
    "h1{font-size:1.4rem}figure{margin:0;overflow-x:auto}svg{width:100%;min-width:38em;height:auto}"
    "div{overflow-x:auto}table{border-collapse:collapse;margin:1em 0}"
    "th,td{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}"
    "tr.best{font-weight:600}mark{background:none;color:inherit;font-weight:700}li{margin:.15em 0}"
)


@dataclass(frozen=True, slots=True)
class SensePlot:
    """Data of the plot of one word."""

    word: str
    model: str
    senses: Sequence[str]  # of each of n occurrences
    sentences: Sequence[Sequence[str]]
    positions: Sequence[int]
    separations: Sequence[Separation]
    vectors: Floats  # (n, D) of the best layer

    @property
    def title(self) -> str:
        """The title of the figure."""
        layer = best_layer(self.separations).layer
        return f"“{self.word}” in {len(self.senses)} sentences, layer {layer} of {self.model}"

    @property
    def is_static(self) -> bool:
        """Whether layer 0 has the same vector in all sentences."""
        return any(separation.layer == 0 and separation.different == 1 for separation in self.separations)


def context(words: Sequence[str], position: int, width: int) -> str:
    """Return the word with `near` neighbours on either side.

    >>> context(["we", "sat", "on", "the", "bank", "of", "the", "river"], 4, 2)
    '… on the bank of the …'
    """
    first, last = max(0, position - width), position + width + 1
    return " ".join(["…"] * (first > 0) + list(words[first:last]) + ["…"] * (last < len(words)))


def draw(picture: SensePlot) -> str:
    """Return an `<svg>` element in the colours of the page; hovering over a point shows its sentence."""
    points, shares = principal_components(picture.vectors)
    counts = Counter(picture.senses)

    def paint(axes: Any) -> None:
        for index, sense in enumerate(counts):
            rows = [i for i, other in enumerate(picture.senses) if other == sense]
            colour, marker = figures.PALETTE[index % len(figures.PALETTE)], MARKS[index % len(MARKS)]
            drawn = axes.scatter(*points[rows].T, s=44, c=colour, marker=marker, linewidths=0, clip_on=False)
            drawn.set(label=f"{to_printable(sense)} ({len(rows)})", urls=[f"#{i}" for i in rows], zorder=3)
        if picture.is_static:  # its own principal components are 0: nothing varies
            static = axes.scatter([0.0], [0.0], s=130, marker="*", c=figures.PALETTE[-1], linewidths=0)
            static.set(label=f"static vector: all {len(points)} in one point", zorder=2)
        axes.margins(0.12)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"first principal component, {100 * shares[0]:.0f} % of the variance")
        axes.set_ylabel(f"second, {100 * shares[1]:.0f} %")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handletextpad=0.2)
        _name_points(axes, picture, points)

    margins = figures.Margins(left=30, right=20, top=30 + 18 * (-(-len(counts) // 3)), bottom=30)
    drawn = figures.render(paint, to_printable(picture.title), _description(picture), margins, HEIGHT, WIDTH)
    return _with_sentences(drawn, picture)


def render_page(picture: SensePlot) -> str:
    """Return a self-contained HTML document: figure, table of layers, sentences."""
    title = html.escape(to_printable(picture.title))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"<p>{html.escape(_description(picture))}</p>\n<figure>{draw(picture)}</figure>\n"
        f"{_table(picture)}\n{_sentences(picture)}\n</body></html>\n"
    )


def _description(picture: SensePlot) -> str:
    sense, rate = majority_sense(picture.senses)
    text = (
        f"Each point is the vector of “{picture.word}” in a sentence. The nearest centroid of the other sentences "
        f"identifies the sense of {100 * best_layer(picture.separations).accuracy:.1f} % of them; always choosing "
        f"“{sense}” is right for {100 * rate:.1f} %."
    )
    static = " The static vector is the same in every sentence and lies at the origin, whatever the sense."
    return to_printable(text + static * picture.is_static)


def _name_points(axes: Any, picture: SensePlot, points: Floats) -> None:
    """Label each point with a few words of its sentence if there is room."""
    axes.autoscale_view()
    box = axes.get_window_extent()
    frame = figures.Box(box.x0, box.y0, WIDTH - 2, box.y1)
    centres = [figures.Point(*axes.transData.transform(point)) for point in [*points, (0.0, 0.0)]]
    occupied = [figures.Box(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    rows = zip(picture.sentences, picture.positions, strict=True)
    names = [to_printable(context(words, index, NEAR)) for words, index in rows]
    widths = [0.5 * SMALL * len(name) for name in names]
    boxes = figures.place_labels(centres[:-1], widths, SMALL + 2, occupied, frame)
    for name, centre, label_box in zip(names, centres, boxes, strict=False):
        if label_box is None:
            continue
        is_left = label_box.right < centre.x
        position = (label_box.right if is_left else label_box.left, (label_box.bottom + label_box.top) / 2)
        style = {"ha": "right" if is_left else "left", "va": "center", "fontsize": SMALL, "alpha": 0.8}
        axes.annotate(name, position, xycoords="figure pixels", annotation_clip=False, **style)


def _with_sentences(drawn: str, picture: SensePlot) -> str:
    """Turn every point, drawn as a link to its number, into a group with its sentence as title."""

    def add_title(match: re.Match[str]) -> str:
        i = int(match[1])
        title = html.escape(to_printable(f"{picture.senses[i]}: {' '.join(picture.sentences[i])}"))
        return f"<g><title>{title}</title>{match[2]}</g>"

    return re.sub(r'<a href="#(\d+)"[^>]*>(.*?)</a>', add_title, drawn, flags=re.DOTALL)


def _table(picture: SensePlot) -> str:
    best = best_layer(picture.separations)
    rate = majority_sense(picture.senses)[1]
    rows = "".join(
        f"<tr{' class=best' if separation is best else ''}>"
        f"<td>{separation.layer}{' (static)' if separation.layer == 0 else ''}</td>"
        f"<td>{100 * separation.accuracy:.1f} %</td><td>{100 * rate:.1f} %</td>"
        f"<td>{separation.within:.3f}</td><td>{separation.across:.3f}</td><td>{separation.gap:+.3f}</td></tr>"
        for separation in picture.separations
    )
    header = ("layer", "accuracy", "majority", "cosine within senses", "across", "difference")
    names = "".join(f"<th>{name}</th>" for name in header)
    return f"<div><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>"


def _sentences(picture: SensePlot) -> str:
    parts = []
    for sense in dict.fromkeys(picture.senses):
        items = []
        for other, words, position in zip(picture.senses, picture.sentences, picture.positions, strict=True):
            if other == sense:
                before, word, after = (
                    html.escape(to_printable(" ".join(part)))
                    for part in (words[:position], words[position : position + 1], words[position + 1 :])
                )
                items.append(f'<li dir="auto">{before} <mark>{word}</mark> {after}</li>')
        parts.append(f"<h2>{html.escape(to_printable(sense))}</h2><ul>{''.join(items)}</ul>")
    return "\n".join(parts)
