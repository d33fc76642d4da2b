"""The senses of an ambiguous word as a picture: a point for each sentence, and one point for the static vector.

Lives here: the figure, alone as SVG or in a page with its numbers, light and dark. Not here: the numbers
(senses.py).
"""

import html
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from chainrule.inspection import labels, plots
from chainrule.inspection.foreign import plain_text
from chainrule.inspection.senses import Separation, best, majority, principal
from chainrule.lm import Floats

WIDTH: Final = 680  # pixels
HEIGHT: Final = 500
NEAR: Final = 2  # words on either side that a label shows
SMALL: Final = 9.0  # its letters
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
class Picture:
    """All that is shown of a word."""

    word: str
    model: str
    senses: Sequence[str]  # of each of n occurrences
    sentences: Sequence[Sequence[str]]
    places: Sequence[int]
    found: Sequence[Separation]
    vectors: Floats  # (n, D) of the best layer

    @property
    def title(self) -> str:
        """What the figure is called."""
        return f"“{self.word}” in {len(self.senses)} sentences, layer {best(self.found).layer} of {self.model}"

    @property
    def is_static(self) -> bool:
        """Whether the word's own vector is the same in all sentences."""
        return any(each.layer == 0 and each.different == 1 for each in self.found)


def context(words: Sequence[str], place: int, near: int) -> str:
    """The word with its neighbours.

    >>> context(["we", "sat", "on", "the", "bank", "of", "the", "river"], 4, 2)
    '… on the bank of the …'
    """
    first, last = max(0, place - near), place + near + 1
    return " ".join(["…"] * (first > 0) + list(words[first:last]) + ["…"] * (last < len(words)))


def draw(picture: Picture) -> str:
    """An `<svg>` element in the colours of the page; a point that is pointed at shows its sentence."""
    points, shares = principal(picture.vectors)
    times = Counter(picture.senses)

    def paint(axes: Any) -> None:
        for place, sense in enumerate(times):
            rows = [i for i, each in enumerate(picture.senses) if each == sense]
            colour, mark = plots.PALETTE[place % len(plots.PALETTE)], MARKS[place % len(MARKS)]
            drawn = axes.scatter(*points[rows].T, s=44, c=colour, marker=mark, linewidths=0, clip_on=False)
            drawn.set(label=f"{plain_text(sense)} ({len(rows)})", urls=[f"#{i}" for i in rows], zorder=3)
        if picture.is_static:  # its own principal components are 0: nothing varies
            static = axes.scatter([0.0], [0.0], s=130, marker="*", c=plots.PALETTE[-1], linewidths=0)
            static.set(label=f"static vector: all {len(points)} in one point", zorder=2)
        axes.margins(0.12)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"first principal component, {100 * shares[0]:.0f} % of the variance")
        axes.set_ylabel(f"second, {100 * shares[1]:.0f} %")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handletextpad=0.2)
        _name_points(axes, picture, points)

    margins = plots.Margins(left=30, right=20, top=30 + 18 * (-(-len(times) // 3)), bottom=30)
    drawn = plots.render(paint, plain_text(picture.title), _description(picture), margins, HEIGHT, WIDTH)
    return _with_sentences(drawn, picture)


def page(picture: Picture) -> str:
    """One self-contained HTML document: figure, numbers of every layer, sentences."""
    title = html.escape(plain_text(picture.title))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"<p>{html.escape(_description(picture))}</p>\n<figure>{draw(picture)}</figure>\n"
        f"{_table(picture)}\n{_sentences(picture)}\n</body></html>\n"
    )


def _description(picture: Picture) -> str:
    sense, rate = majority(picture.senses)
    words = (
        f"Each point is the vector of “{picture.word}” in a sentence. The nearest centroid of the other sentences "
        f"names the sense of {100 * best(picture.found).accuracy:.1f} % of them; always saying “{sense}” names "
        f"{100 * rate:.1f} %."
    )
    static = " The static vector is the same in every sentence and lies in the middle, whatever the sense."
    return plain_text(words + static * picture.is_static)


def _name_points(axes: Any, picture: Picture, points: Floats) -> None:
    """A few words of the sentence beside each point that has room for them."""
    axes.autoscale_view()
    box = axes.get_window_extent()
    frame = labels.Box(box.x0, box.y0, WIDTH - 2, box.y1)
    centres = [labels.Point(*axes.transData.transform(point)) for point in [*points, (0.0, 0.0)]]
    taken = [labels.Box(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    rows = zip(picture.sentences, picture.places, strict=True)
    names = [plain_text(context(words, place, NEAR)) for words, place in rows]
    widths = [0.5 * SMALL * len(name) for name in names]
    places = labels.place(centres[:-1], widths, SMALL + 2, taken, frame)
    for name, centre, room in zip(names, centres, places, strict=False):
        if room is None:
            continue
        is_left = room.right < centre.x
        at = (room.right if is_left else room.left, (room.bottom + room.top) / 2)
        look = {"ha": "right" if is_left else "left", "va": "center", "fontsize": SMALL, "alpha": 0.8}
        axes.annotate(name, at, xycoords="figure pixels", annotation_clip=False, **look)


def _with_sentences(drawn: str, picture: Picture) -> str:
    """Every point, drawn as a link to its number, becomes a group with its sentence as title."""

    def titled(match: re.Match[str]) -> str:
        i = int(match[1])
        words = html.escape(plain_text(f"{picture.senses[i]}: {' '.join(picture.sentences[i])}"))
        return f"<g><title>{words}</title>{match[2]}</g>"

    return re.sub(r'<a href="#(\d+)"[^>]*>(.*?)</a>', titled, drawn, flags=re.DOTALL)


def _table(picture: Picture) -> str:
    chosen = best(picture.found)
    rate = majority(picture.senses)[1]
    rows = "".join(
        f"<tr{' class=best' if each is chosen else ''}>"
        f"<td>{each.layer}{' (static)' if each.layer == 0 else ''}</td>"
        f"<td>{100 * each.accuracy:.1f} %</td><td>{100 * rate:.1f} %</td>"
        f"<td>{each.within:.3f}</td><td>{each.across:.3f}</td><td>{each.gap:+.3f}</td></tr>"
        for each in picture.found
    )
    header = ("layer", "accuracy", "majority", "cosine within senses", "across", "difference")
    names = "".join(f"<th>{name}</th>" for name in header)
    return f"<div><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>"


def _sentences(picture: Picture) -> str:
    parts = []
    for sense in dict.fromkeys(picture.senses):
        items = []
        for own, words, place in zip(picture.senses, picture.sentences, picture.places, strict=True):
            if own == sense:
                before, word, after = (
                    html.escape(plain_text(" ".join(part)))
                    for part in (words[:place], words[place : place + 1], words[place + 1 :])
                )
                items.append(f'<li dir="auto">{before} <mark>{word}</mark> {after}</li>')
        parts.append(f"<h2>{html.escape(plain_text(sense))}</h2><ul>{''.join(items)}</ul>")
    return "\n".join(parts)
