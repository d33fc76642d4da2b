"""HTML of text coloured by surprisal, with inline styles only, for light and dark pages and notebooks."""

import html
import math
from collections.abc import Sequence
from typing import Final

from chainrule.tokenizers.punctuation import without_joiners

FULL_BITS: Final = 16.0
"""Surprisal of full colour; the same scale for all models."""

MAX_OPACITY: Final = 0.62
"""Opacity of full colour; text keeps a contrast above 5 in light and dark mode."""

CONTROL_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Control characters as Unicode control pictures: a line feed is ␊. U+0080 to U+009F become �."""

BIDI_CONTROLS: Final[dict[int, int | str]] = {
    code: f"⟨U+{code:04X}⟩" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Names of bidirectional control characters, for plain text that cannot be isolated as in HTML."""

_TOKEN_STYLE: Final = "padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext;"
_IMPOSSIBLE_STYLE: Final = "outline:.12em dashed #d55e00;outline-offset:-.12em;"
_UNSEEN_STYLE: Final = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


def surprisal_html(tokens: Sequence[str], bits: Sequence[float]) -> str:
    """Return the tokens coloured by bits, with the number on hover and for screen readers; joiners are removed.

    >>> "9.50 bits" in surprisal_html(["mice"], [9.5])
    True
    """
    spans = (_token_html(token, cost) for token, cost in zip(tokens, bits, strict=True))
    return f'<span dir="auto" style="display:block;line-height:1.9">{" ".join(spans)}</span>'


def format_bits(cost: float) -> str:
    """Format the bits of a token."""
    return f"{cost:.2f} bits" if math.isfinite(cost) else "impossible: infinitely many bits"


def _token_html(token: str, cost: float) -> str:
    depth = MAX_OPACITY * min(max(cost, 0.0) / FULL_BITS, 1.0)
    style = f"{_TOKEN_STYLE}background:rgba(213,94,0,{depth:.2f});"
    if not math.isfinite(cost):
        style += _IMPOSSIBLE_STYLE
    text = html.escape(without_joiners(token).translate(CONTROL_PICTURES))
    # <bdi>, so that dir=auto of the whole ignores the tooltip text.
    hidden = f'<bdi style="{_UNSEEN_STYLE}"> ({format_bits(cost)})</bdi>'
    return f'<span style="{style}" title="{format_bits(cost)}">{text}{hidden}</span>'
