"""Escape untrusted text (model names, tokens) for display and HTML."""

import html

from chainrule.inspection.surprisal import CONTROL_PICTURES


def to_printable(text: str) -> str:
    r"""Replace control characters by symbols and lone surrogates by question marks; does not escape HTML.

    >>> to_printable("a\n"), to_printable("\udc80")
    ('a␊', '?')
    """
    return text.translate(CONTROL_PICTURES).encode("utf-8", "replace").decode("utf-8")


def escape(text: str) -> str:
    """Return HTML in a `<bdi>` element: printable, escaped and isolated from the surrounding text direction.

    >>> escape("a<b")
    '<bdi>a&lt;b</bdi>'
    """
    return f"<bdi>{html.escape(to_printable(text))}</bdi>"


def bold(name: str) -> str:
    """Return `escape(name)` in bold."""
    return f"<b>{escape(name)}</b>"
