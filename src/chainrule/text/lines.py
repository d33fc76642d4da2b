"""Split text into lines, in fragments of bounded size."""

import io
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

FRAGMENT: Final = 1 << 16
"""Largest number of characters in a fragment."""

BLANKS: Final = " \t"

_LAST_CUT: Final = re.compile(rf".*[{BLANKS}](?=\S)", re.DOTALL)
"""Text up to the last blank that is not followed by white space. One greedy repeat: backtracking is linear."""


class Fragment(NamedTuple):
    """Part of a line; the concatenation of the fragments up to one with `ends_line` is the line."""

    text: str
    ends_line: bool


def cut_lines(chunks: Iterable[str], limit: int = FRAGMENT) -> Iterator[Fragment]:
    r"""Split a document into lines, each in fragments of at most `limit` characters, cut between words if possible.

    Only LF, CRLF and CR end a line; the last line need not be terminated. The result does not depend on how the
    text is divided into chunks.

    >>> [fragment.text for fragment in cut_lines(["one\r", "\ntwo"])]
    ['one', 'two']
    """
    rest = ""  # rest of the unterminated line; never empty after a fragment of that line was yielded
    for chunk in _translate_breaks(chunks):
        *ended, rest = (rest + chunk).split("\n")
        for line in ended:
            *heads, tail = _divide(line, limit)
            yield from (Fragment(head, ends_line=False) for head in heads)
            yield Fragment(tail, ends_line=True)
        *heads, rest = _divide(rest, limit)
        yield from (Fragment(head, ends_line=False) for head in heads)
    if rest:
        yield Fragment(rest, ends_line=True)


def end_lines(chunks: Iterable[str]) -> Iterator[str]:
    r"""Yield the chunks of a document with LF after each line, including the last.

    >>> list(end_lines(["one\r", "\ntwo"]))
    ['one', '\ntwo', '\n']
    """
    last = "\n"
    for chunk in filter(None, _translate_breaks(chunks)):
        yield chunk
        last = chunk[-1]
    if last != "\n":
        yield "\n"


def join_lines(fragments: Iterable[Fragment]) -> Iterator[str]:
    """Join fragments into whole lines."""
    pieces: list[str] = []
    for text, ends_line in fragments:
        pieces.append(text)
        if ends_line:
            yield "".join(pieces)
            pieces.clear()


def drop_blank_lines(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """Drop the fragments of blank lines."""
    pending: list[Fragment] = []  # fragments of a line that is blank so far
    is_blank = True
    for fragment in fragments:
        if is_blank and not fragment.text.strip(BLANKS):
            # A line of a hundred million spaces consists of equal fragments: share one object.
            pending.append(pending[-1] if pending and pending[-1] == fragment else fragment)
        else:
            yield from pending
            yield fragment
            pending.clear()
            is_blank = False
        if fragment.ends_line:
            pending.clear()
            is_blank = True


def _translate_breaks(chunks: Iterable[str]) -> Iterator[str]:
    """Convert CRLF and CR to LF, even if a chunk ends between CR and LF."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    for chunk in chunks:
        yield newlines.decode(chunk)
    yield newlines.decode("", final=True)


def _divide(line: str, limit: int) -> list[str]:
    pieces, start = [], 0
    while len(line) - start > limit:
        end = _find_cut(line, start, start + limit)
        pieces.append(line[start:end])
        start = end
    return [*pieces, line[start:]]


def _find_cut(line: str, start: int, end: int) -> int:
    """Return the last position up to `end` between words, before the last blank of a run; `end` if there is none.

    The blank is not followed by any white space: some tokenizers keep such runs together.
    """
    words = line[start + 1 : end + 1].rstrip()  # skips a run of blanks in one step
    head = _LAST_CUT.match(line, start + 1, start + 1 + len(words))
    return head.end() - 1 if head else end
