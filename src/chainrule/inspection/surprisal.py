"""Text coloured by how much each token surprised a model.

Lives here: one piece of HTML with inline styles alone, for a page or a notebook, light or dark. Not here: the
numbers, which come from a model's scores.
"""

import html
import math
from collections.abc import Sequence
from typing import Final

from chainrule.tokenizers.punctuation import without_joiners

FULL_BITS: Final = 16.0
"""From here on a token has the full colour; one scale for all models, so that the eye can compare them."""

DEEPEST: Final = 0.62
"""Opacity of the full colour; dark text on light paper and light on dark keep a contrast above 5."""

CONTROL_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Control characters, which HTML may not hold, as the symbols Unicode has for them: a line feed is ␊.

Those from U+0080 to U+009F have none and are shown as �.
"""

TURNS: Final[dict[int, int | str]] = {
    code: f"⟨U+{code:04X}⟩" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that turn the direction of writing by name, for where a text cannot be kept apart as in HTML."""

_TOKEN_STYLE: Final = "padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext;"
_IMPOSSIBLE_STYLE: Final = "outline:.12em dashed #d55e00;outline-offset:-.12em;"
_UNSEEN_STYLE: Final = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


def surprisal_html(tokens: Sequence[str], bits: Sequence[float]) -> str:
    """The tokens, each on a background as deep as its bits; the number on hover and for screen readers.

    Punctuation marks are shown without joiners.

    >>> "9.50 bits" in surprisal_html(["mice"], [9.5])
    True
    """
    spans = (_token_html(token, cost) for token, cost in zip(tokens, bits, strict=True))
    return f'<span dir="auto" style="display:block;line-height:1.9">{" ".join(spans)}</span>'


def words_for(cost: float) -> str:
    """The bits of a token in words."""
    return f"{cost:.2f} bits" if math.isfinite(cost) else "impossible: infinitely many bits"


def _token_html(token: str, cost: float) -> str:
    depth = DEEPEST * min(max(cost, 0.0) / FULL_BITS, 1.0)
    style = f"{_TOKEN_STYLE}background:rgba(213,94,0,{depth:.2f});"
    if not math.isfinite(cost):
        style += _IMPOSSIBLE_STYLE
    text = html.escape(without_joiners(token).translate(CONTROL_PICTURES))
    # <bdi>, because dir=auto of the whole must look at the tokens and not at this remark.
    remark = f'<bdi style="{_UNSEEN_STYLE}"> ({words_for(cost)})</bdi>'
    return f'<span style="{style}" title="{words_for(cost)}">{text}{remark}</span>'
