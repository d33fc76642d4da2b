"""Text that is not ours, such as a model's name or a token, made fit to stand among our own words.

Lives here: the text itself, and pieces of HTML around it. Not here: which symbols stand for control characters
(surprisal.py), tokens in colour (reading.py).
"""

import html

from chainrule.inspection.surprisal import CONTROL_PICTURES


def plain_text(text: str) -> str:
    r"""As a page can hold it, not yet escaped: control characters as symbols, what is no text as a question mark.

    >>> plain_text("a\n"), plain_text("\udc80")
    ('a␊', '?')
    """
    return text.translate(CONTROL_PICTURES).encode("utf-8", "replace").decode("utf-8")


def isolated(text: str) -> str:
    """Escaped, control characters shown, and set apart from the direction of the words around it.

    >>> isolated("a<b")
    '<bdi>a&lt;b</bdi>'
    """
    return f"<bdi>{html.escape(plain_text(text))}</bdi>"


def bold(name: str) -> str:
    """The same in bold."""
    return f"<b>{isolated(name)}</b>"
