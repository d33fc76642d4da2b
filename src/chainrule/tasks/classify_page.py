"""Why texts got their labels: the pieces of a text as typed, each with its weight, and a page that shows them.

Lives here: from tokens to characters of the text; one self-contained HTML document, light or dark, every piece on
a ground as deep as its weight. Not here: the weights (Classifier.pieces).
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from chainrule.inspection.surprisal import CONTROL_PICTURES, DEEPEST

FOR: Final = "0,114,178"
AGAINST: Final = "213,94,0"
STYLE: Final = (
    ":root{color-scheme:light dark}body{max-width:60em;margin:2em auto;padding:0 1em;font:1rem/1.9 sans-serif}"
    "span{padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext}"
    "article{border-top:1px solid;padding:.5em 0}article div{white-space:pre-wrap}"
    ".unknown{text-decoration:underline dotted}.unread{opacity:.5}"
)
LEGENDS: Final[Mapping[str, str]] = {
    "gradient": (
        "Blue speaks for the label found, orange for the next most probable one; the deeper, the more, within each "
        "text. A number is in nats, by integrated gradients."
    ),
    "evidence": (
        "Blue speaks for the label found, orange for the next most probable one; the deeper, the more, within each "
        "text. A number is in nats: log p(token | label found) − log p(token | next), given the tokens before it."
    ),
    "attention": (
        "The deeper the blue, the more the network looked there, within each text; that speaks neither for the "
        "label nor against it. A number is the part of the text's vector that comes from the token."
    ),
}
"""What is true of the weights, by the way they were found."""
NOTE: Final = (
    "The number shows when a piece is pointed at. Dotted lines mark what the model does not know and reads as "
    "&lt;unk&gt;; what is pale was not read; &lt;/s&gt; is the end."
)
KEPT: Final = {code: symbol for code, symbol in CONTROL_PICTURES.items() if chr(code) not in "\t\n"}

Span = tuple[int, int]


class Piece(NamedTuple):
    """A piece of a text as typed, text[start:end]; the end of a text, or line, is `</s>` and holds no character."""

    text: str
    weight: float
    start: int
    end: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """One text, its label, and the weight of each of its pieces; `way` is how the weights were found."""

    text: str
    label: str
    probability: float
    pieces: list[Piece]
    way: str = "gradient"

    @property
    def shades(self) -> list[tuple[str, float]]:
        """The pieces, what cannot be shown as symbols, and weights as parts of the largest, −1 to 1."""
        largest = max((abs(piece.weight) for piece in self.pieces), default=0.0)
        return [(piece.text.translate(CONTROL_PICTURES), _part(piece.weight, largest)) for piece in self.pieces]


def cut(
    text: str, spans: Sequence[Span], weights: Sequence[float], is_known: Sequence[bool], end: str
) -> list[Piece]:
    """The text in the pieces that its tokens stand for, without the blanks around a word.

    Tokens of the same character (bytes, or what lower-casing makes of it) are one piece: their weights are summed,
    and it is known if all are. `end` is what a token without characters is called.
    """
    pieces: list[Piece] = []
    for (start, stop), weight, known in zip(spans, weights, is_known, strict=True):
        if pieces and start < pieces[-1].end:
            last = pieces.pop()
            start, weight, known = last.start, last.weight + weight, last.is_known and known
            stop = max(stop, last.end)
        start, stop = _without_blanks(text, start, stop)
        pieces.append(Piece(text[start:stop] or end, weight, start, stop, known))
    return pieces


def page(explained: Sequence[Explained]) -> str:
    """The document."""
    articles = "\n".join(map(_article, explained))
    legend = " ".join(html.escape(LEGENDS[way]) for way in dict.fromkeys(one.way for one in explained))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Why these labels</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>Why these labels</h1><p>{legend} {NOTE}</p>\n"
        f"{articles}\n</body></html>\n"
    )


def _article(one: Explained) -> str:
    written, at = "", 0
    for piece, (shown, shade) in zip(one.pieces, one.shades, strict=True):
        kind, remark = ("", "") if piece.is_known else (' class="unknown"', ", unknown")
        ground = f"rgba({FOR if shade > 0 else AGAINST},{DEEPEST * abs(shade):.2f})"
        title = f"{piece.weight:+.4f}{remark}"
        written += _plain(one.text[at : piece.start]) + " " * (piece.start == piece.end)
        written += f'<span{kind} style="background:{ground}" title="{title}">{html.escape(shown)}</span>'
        at = piece.end
    rest = _plain(one.text[at:])
    if rest.strip():
        rest = f'<span class="unread" title="not read: the text is too long">{rest}</span>'
    head = f"<strong>{html.escape(one.label)}</strong> {one.probability:.3f}"
    return f'<article>{head}<div dir="auto">{written}{rest}</div></article>'


def _plain(text: str) -> str:
    return html.escape(text.replace("\r\n", "\n").replace("\r", "\n").translate(KEPT))


def _without_blanks(text: str, start: int, end: int) -> Span:
    """The span of the words in it; blanks alone are kept."""
    inner = text[start:end].strip(" \t\r\n")
    if not inner:
        return start, end
    start = text.index(inner, start)
    return start, start + len(inner)


def _part(weight: float, largest: float) -> float:
    """Of the largest; where that is infinite, all or nothing."""
    if largest == float("inf"):
        return float(weight == largest) - float(weight == -largest)
    return weight / largest if largest else 0.0
