"""The text chainrule learns from when none is given: CPython's own language reference."""

from chainrule.errors import NotFoundError
from chainrule.text.lines import BLANKS, cut_lines, drop_blanks, join_lines


def default_text() -> list[str]:
    """The lines of every topic in the order of their names, without blank lines and trailing blanks.

    They differ a little from one Python release to the next.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise NotFoundError("this Python comes without its language reference; name a text of your own") from None
    texts: dict[str, str] = topics
    fragments = (piece for topic in sorted(texts) for piece in cut_lines([texts[topic]]))
    return [line.rstrip(BLANKS) for line in join_lines(drop_blanks(fragments))]
