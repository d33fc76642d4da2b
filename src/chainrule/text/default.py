"""The text chainrule learns from when none is given: CPython's own language reference."""

from chainrule.errors import NotFoundError
from chainrule.text.fingerprint import SHORT
from chainrule.text.lines import BLANKS, cut_lines, drop_blanks, join_lines


def default_text() -> list[str]:
    """The lines of every topic in the order of their names, without blank lines and trailing blanks.

    Topics repeat whole pages of each other: a longer line that stood before is left out, so that what is tested
    on was not learnt from. The text differs a little from one Python release to the next.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise NotFoundError("this Python comes without its language reference; name a text of your own") from None
    texts: dict[str, str] = topics
    fragments = (piece for topic in sorted(texts) for piece in cut_lines([texts[topic]]))
    lines = [line.rstrip(BLANKS) for line in join_lines(drop_blanks(fragments))]
    first = {line.strip(BLANKS): place for place, line in reversed(list(enumerate(lines)))}
    return [line for place, line in enumerate(lines) if len(line) < SHORT or first[line.strip(BLANKS)] == place]
