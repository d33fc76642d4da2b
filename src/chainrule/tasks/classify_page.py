"""Why texts got their labels, as a page: every token on a ground as deep as its weight, blue for, orange against.

Lives here: one self-contained HTML document, light or dark. Not here: the weights (Classifier.explain).
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chainrule.inspection.surprisal import CONTROL_PICTURES, DEEPEST

FOR: Final = "0,114,178"
AGAINST: Final = "213,94,0"
STYLE: Final = (
    ":root{color-scheme:light dark}body{max-width:60em;margin:2em auto;padding:0 1em;font:1rem/1.9 sans-serif}"
    "span{padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext}"
    "article{border-top:1px solid;padding:.5em 0}"
)
NOTE: Final = (
    "Blue speaks for the label found, orange against it; the deeper, the more, within each text. "
    "The number of a token shows when it is pointed at."
)


@dataclass(frozen=True, slots=True)
class Explained:
    """One text's label, and what each of its tokens did for it."""

    label: str
    probability: float
    tokens: list[tuple[str, float]]

    @property
    def shades(self) -> list[tuple[str, float]]:
        """The tokens, what cannot be shown as symbols, and weights as parts of the largest, −1 to 1."""
        largest = max((abs(weight) for _, weight in self.tokens), default=0.0)
        return [(token.translate(CONTROL_PICTURES), _part(weight, largest)) for token, weight in self.tokens]


def page(explained: Sequence[Explained]) -> str:
    """The document."""
    articles = "\n".join(map(_article, explained))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Why these labels</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>Why these labels</h1><p>{NOTE}</p>\n{articles}\n</body></html>\n"
    )


def _article(one: Explained) -> str:
    spans = (
        f'<span style="background:rgba({FOR if shade > 0 else AGAINST},{DEEPEST * abs(shade):.2f})"'
        f' title="{weight:+.4f}">{html.escape(token)}</span>'
        for (token, shade), (_, weight) in zip(one.shades, one.tokens, strict=True)
    )
    head = f"<strong>{html.escape(one.label)}</strong> {one.probability:.3f}"
    return f'<article>{head}<div dir="auto">{" ".join(spans)}</div></article>'


def _part(weight: float, largest: float) -> float:
    """Of the largest; where that is infinite, all or nothing."""
    if largest == float("inf"):
        return float(weight == largest) - float(weight == -largest)
    return weight / largest if largest else 0.0
