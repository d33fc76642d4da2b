"""Text -> lines, in pieces of bounded size.

Lives here: what ends a line, what is blank, where a long line may be cut. Not here: files and their bytes.
"""

import io
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

FRAGMENT: Final = 1 << 16
"""The most characters of a line that are handed over at once."""

BLANKS: Final = " \t"

_LAST_CUT: Final = re.compile(rf".*[{BLANKS}](?=\S)", re.DOTALL)
"""Everything up to the last blank that no white space follows. One greedy repeat: backtracking is linear."""


class Fragment(NamedTuple):
    """A piece of a line; the pieces up to one that `ends_line`, put together, are exactly the line."""

    text: str
    ends_line: bool


def cut_lines(chunks: Iterable[str], limit: int = FRAGMENT) -> Iterator[Fragment]:
    r"""One document's lines, each in as few pieces of at most `limit` characters as the places to cut allow.

    LF, CRLF and CR end a line and nothing else does; the last line need not be ended. Where the chunks
    were divided makes no difference.

    >>> [fragment.text for fragment in cut_lines(["one\r", "\ntwo"])]
    ['one', 'two']
    """
    rest = ""  # of the line that has not ended; never empty once some of that line was handed over
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
    r"""One document's text with LF after each line, the last one too, in chunks as they come.

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
    """The whole lines that these are the pieces of."""
    pieces: list[str] = []
    for text, ends_line in fragments:
        pieces.append(text)
        if ends_line:
            yield "".join(pieces)
            pieces.clear()


def drop_blanks(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """The fragments of those lines that hold more than blanks."""
    held: list[Fragment] = []  # a line that is blank so far
    is_blank = True
    for fragment in fragments:
        if is_blank and not fragment.text.strip(BLANKS):
            # A line of a hundred million spaces is one piece, many times over: keep it once.
            held.append(held[-1] if held and held[-1] == fragment else fragment)
        else:
            yield from held
            yield fragment
            held.clear()
            is_blank = False
        if fragment.ends_line:
            held.clear()
            is_blank = True


def _translate_breaks(chunks: Iterable[str]) -> Iterator[str]:
    """CRLF and CR become LF, also where a chunk ends between CR and LF."""
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
    """The last place up to `end` between words: before the last blank of a run; `end` where there is none.

    What follows the blank is no white space of any kind: some tokenizers keep such runs together.
    """
    words = line[start + 1 : end + 1].rstrip()  # a run of blanks is passed over at once
    head = _LAST_CUT.match(line, start + 1, start + 1 + len(words))
    return head.end() - 1 if head else end
