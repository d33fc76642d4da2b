"""Built-in texts: an embedded novel (the default) and the language reference of the running Python."""

import lzma
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from chainrule.errors import NotFoundError, UsageError
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import SHORTEST_LINE
from chainrule.text.lines import BLANKS, cut_lines, drop_blank_lines, join_lines

NOVEL: Final = Path(__file__).parent / "embedded" / "pride-and-prejudice.txt.xz"


def default_corpus(name: str = "novel") -> Corpus:
    """Return the text `novel` or `python` as a corpus with a title.

    >>> default_corpus().name
    'Pride and Prejudice (embedded)'
    """
    if name not in _TEXTS:
        raise UsageError(f"text is '{name}'; choose one of {', '.join(_TEXTS)}, or name a file of your own")
    title, read = _TEXTS[name]
    return Corpus.from_lines(read(), title=title)


def default_text() -> list[str]:
    """Return the paragraphs of Jane Austen's *Pride and Prejudice*, one per line, the same on every Python.

    Source and licence are in `embedded/README.md`.

    >>> default_text()[0][:38]
    'It is a truth universally acknowledged'
    """
    return list(_paragraphs())


@cache
def _paragraphs() -> tuple[str, ...]:
    return tuple(lzma.decompress(NOVEL.read_bytes()).decode("ascii").splitlines())


def python_reference() -> list[str]:
    """Return the lines of the running Python's language reference (the topics of `help()`), sorted by topic.

    Blank lines and trailing blanks are removed. Topics repeat whole pages: of equal lines of at least
    `SHORTEST_LINE` characters only the first is kept, so that the test set is not contained in the training set.
    The text differs between Python releases.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise NotFoundError("this Python comes without its language reference; name a text of your own") from None
    texts: dict[str, str] = topics
    fragments = (piece for topic in sorted(texts) for piece in cut_lines([texts[topic]]))
    lines = [line.rstrip(BLANKS) for line in join_lines(drop_blank_lines(fragments))]
    first = {line.strip(BLANKS): index for index, line in reversed(list(enumerate(lines)))}
    return [
        line for index, line in enumerate(lines) if len(line) < SHORTEST_LINE or first[line.strip(BLANKS)] == index
    ]


_TEXTS: Final[Mapping[str, tuple[str, Callable[[], list[str]]]]] = {
    "novel": ("Pride and Prejudice (embedded)", default_text),
    "python": ("the Python language reference", python_reference),
}
