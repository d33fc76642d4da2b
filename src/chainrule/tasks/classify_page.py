"""Render explanations of classified texts as a self-contained HTML page.

Token weights are mapped to character spans of the text; the background opacity of a span shows its relative weight.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from chainrule.inspection.surprisal import CONTROL_PICTURES, MAX_OPACITY

POSITIVE_RGB: Final = "0,114,178"
NEGATIVE_RGB: Final = "213,94,0"
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
"""Legend of the page by explanation method."""
NOTE: Final = (
    "The number shows when a piece is pointed at. Dotted lines mark what the model does not know and reads as "
    "&lt;unk&gt;; what is pale was not read; &lt;/s&gt; is the end."
)
CONTROL_SYMBOLS: Final = {code: symbol for code, symbol in CONTROL_PICTURES.items() if chr(code) not in "\t\n"}

Span = tuple[int, int]


class WeightedSpan(NamedTuple):
    """A span text[start:end] with its weight; `</s>` at the end of a text or line is an empty span."""

    text: str
    weight: float
    start: int
    end: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """One classified text and the weights of its spans; `method` is the explanation method."""

    text: str
    label: str
    probability: float
    spans: list[WeightedSpan]
    method: str = "gradient"

    @property
    def shades(self) -> list[tuple[str, float]]:
        """Printable text and weight relative to the largest, −1 to 1, of each span."""
        largest = max((abs(piece.weight) for piece in self.spans), default=0.0)
        return [
            (piece.text.translate(CONTROL_PICTURES), _relative_weight(piece.weight, largest))
            for piece in self.spans
        ]


def merge_token_weights(
    text: str, spans: Sequence[Span], weights: Sequence[float], is_known: Sequence[bool], end: str
) -> list[WeightedSpan]:
    """Convert token weights to weighted character spans without surrounding white space.

    Tokens that overlap in the text (bytes of one character, or the results of lower-casing it) are merged: their
    weights are summed, and the span is known if all are. `end` is the text of a token without characters.
    """
    pieces: list[WeightedSpan] = []
    for (start, stop), weight, known in zip(spans, weights, is_known, strict=True):
        if pieces and start < pieces[-1].end:
            last = pieces.pop()
            start, weight, known = last.start, last.weight + weight, last.is_known and known
            stop = max(stop, last.end)
        start, stop = _strip_span(text, start, stop)
        pieces.append(WeightedSpan(text[start:stop] or end, weight, start, stop, known))
    return pieces


def render_page(explained: Sequence[Explanation]) -> str:
    """Render the HTML document."""
    articles = "\n".join(map(_article, explained))
    legend = " ".join(
        html.escape(LEGENDS[way]) for way in dict.fromkeys(explanation.method for explanation in explained)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Why these labels</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>Why these labels</h1><p>{legend} {NOTE}</p>\n"
        f"{articles}\n</body></html>\n"
    )


def _article(explanation: Explanation) -> str:
    content, position = "", 0
    for piece, (shown, shade) in zip(explanation.spans, explanation.shades, strict=True):
        css_class, remark = ("", "") if piece.is_known else (' class="unknown"', ", unknown")
        background = f"rgba({POSITIVE_RGB if shade > 0 else NEGATIVE_RGB},{MAX_OPACITY * abs(shade):.2f})"
        title = f"{piece.weight:+.4f}{remark}"
        content += _escape_text(explanation.text[position : piece.start]) + " " * (piece.start == piece.end)
        content += f'<span{css_class} style="background:{background}" title="{title}">{html.escape(shown)}</span>'
        position = piece.end
    rest = _escape_text(explanation.text[position:])
    if rest.strip():
        rest = f'<span class="unread" title="not read: the text is too long">{rest}</span>'
    head = f"<strong>{html.escape(explanation.label)}</strong> {explanation.probability:.3f}"
    return f'<article>{head}<div dir="auto">{content}{rest}</div></article>'


def _escape_text(text: str) -> str:
    return html.escape(text.replace("\r\n", "\n").replace("\r", "\n").translate(CONTROL_SYMBOLS))


def _strip_span(text: str, start: int, end: int) -> Span:
    """Strip white space from a span; a span of white space alone is unchanged."""
    inner = text[start:end].strip(" \t\r\n")
    if not inner:
        return start, end
    start = text.index(inner, start)
    return start, start + len(inner)


def _relative_weight(weight: float, largest: float) -> float:
    """Weight divided by the largest; ±1 or 0 if the largest is infinite."""
    if largest == float("inf"):
        return float(weight == largest) - float(weight == -largest)
    return weight / largest if largest else 0.0
