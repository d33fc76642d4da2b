"""Text that is not ours, such as a model's name, made fit to stand among our own words.

Lives here: one piece of HTML. Not here: tokens on a page (surprisal.py, reading.py).
"""

import html

from chainrule.inspection.surprisal import CONTROL_PICTURES


def isolated(text: str) -> str:
    """Escaped, control characters shown, and set apart from the direction of the words around it.

    >>> isolated("a<b")
    '<bdi>a&lt;b</bdi>'
    """
    return f"<bdi>{html.escape(text.translate(CONTROL_PICTURES))}</bdi>"
