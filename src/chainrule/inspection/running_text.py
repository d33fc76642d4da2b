"""A text as characters run on, which of them each token is, and properties of the text that a cell may follow.

Lives here: one number a token for each property. Not here: the cells (cells.py). Letter: N tokens.

What holds of a character holds of a token that has one such; lengths are those after its last. Text is inside
quotes from the mark that opens them to the character before the one that closes them. Where every line starts
anew, so do quotes and brackets; else they end with the paragraph at the latest, lest one that was forgotten turns
all that follows inside out.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from chainrule.errors import UsageError
from chainrule.lm import Floats, Ids, Mask

NEAR: Final = 10  # characters
MOST_FREQUENT: Final = 20  # words

_QUOTES: Final = re.compile(r"[\"“„«”»]|``|''|\n+")
_BRACKETS: Final = re.compile(r"[()\[\]{}]|\n+")
_WORD: Final = re.compile(r"\w+")
_STRAY_BYTE: Final = re.compile("[\udc80-\udcff]")
_SENTENCE_END: Final = re.compile(r"[.!?。！？؟](?=[\s\"'”’»)\]]|$)")


@dataclass(frozen=True, slots=True)
class RunningText:
    """The characters of a text, and from which to which of them each token goes."""

    text: str
    first: Ids  # (N,)
    last: Ids  # (N,) the one after; bytes of one character share it
    is_line: bool = False  # every line starts anew

    @classmethod
    def of(cls, pieces: Sequence[bytes], is_apart: Sequence[bool], *, is_line: bool = False) -> Self:
        """From each token's bytes in UTF-8, and whether a blank stands before it, which is no part of it."""
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        end = np.cumsum(sizes + np.array(is_apart, dtype=np.int64))
        whole = b"".join(b" " * apart + piece for piece, apart in zip(pieces, is_apart, strict=True))
        text = whole.decode("utf-8", "surrogateescape")  # bytes that are no character stay by themselves
        of_byte = np.repeat(np.arange(len(text)), _byte_counts(text))  # which character it belongs to
        of_byte = np.append(of_byte, len(text))
        first = of_byte[end - sizes]
        last = np.where(sizes > 0, of_byte[np.maximum(end - 1, 0)] + 1, first)
        return cls(text, first, last, is_line)

    def at_end(self, values: Floats) -> Floats:
        """(characters,) -> (N,) what holds after each token's last character."""
        found: Floats = np.append(values, 0.0)[np.maximum(self.last - 1, 0)].astype(np.float64)
        return found

    def anywhere(self, values: Floats) -> Floats:
        """(characters,) -> (N,) the largest value of each token's characters."""
        pairs = np.stack([self.first, np.maximum(self.last, self.first)], axis=1).ravel()
        found: Floats = np.maximum.reduceat(np.append(values, 0.0), pairs)[::2].astype(np.float64)
        return found

    def shown(self) -> list[str]:
        """(N,) the text cut between tokens, blanks before a word with it, a character at the last of its tokens."""
        following = np.append(self.first[1:], len(self.text))
        ends = np.where(following < self.last, self.last - 1, self.last)
        starts = [0, *ends[:-1].tolist()]
        readable = _STRAY_BYTE.sub("\ufffd", self.text)
        return [readable[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def _byte_counts(text: str) -> Ids:
    """(characters,) of UTF-8; a byte that is no character counts as one."""
    code = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts: Ids = 1 + (code >= 0x80).astype(np.int64) + (code >= 0x800) + (code >= 0x10000)
    return np.where((code >= 0xDC80) & (code <= 0xDCFF), 1, counts)


class Property(NamedTuple):
    """Something about a text that has a value at every token."""

    label: str  # a cell follows …
    values: Callable[[RunningText], Floats]  # (N,)


def quotes(run: RunningText) -> Floats:
    """1 inside quotation marks."""
    steps, is_inside = [(0, 0)], False
    for mark in _QUOTES.finditer(run.text):
        if mark[0] == '"':
            is_inside = not is_inside
        elif mark[0][0] == "\n":
            is_inside = is_inside and not (run.is_line or len(mark[0]) > 1)
        else:
            is_inside = mark[0] in ("“", "„", "«", "``")
        steps.append((mark.end() - 1, int(is_inside)))
    return run.anywhere(_steps(len(run.text), steps))


def brackets(run: RunningText) -> Floats:
    """1 inside brackets, however deep."""
    steps, depth = [(0, 0)], 0
    for mark in _BRACKETS.finditer(run.text):
        if mark[0][0] == "\n":
            depth = 0 if run.is_line or len(mark[0]) > 1 else depth
        else:
            depth = depth + 1 if mark[0] in "([{" else max(0, depth - 1)
        steps.append((mark.end() - 1, int(depth > 0)))
    return run.anywhere(_steps(len(run.text), steps))


def frequent_words(run: RunningText) -> Floats:
    """1 on words that are among the most frequent of the text."""
    words = [(match[0].lower(), match.span()) for match in _WORD.finditer(run.text)]
    times = Counter(word for word, _ in words)
    chosen = set(sorted(times, key=lambda word: (-times[word], word))[:MOST_FREQUENT])
    return covered(run, (span for word, span in words if word in chosen))


def covered(run: RunningText, spans: Iterable[tuple[int, int]]) -> Floats:
    """1 on tokens of which a character lies in one of the spans."""
    values = np.zeros(len(run.text))
    for first, last in spans:
        values[first:last] = 1.0
    return run.anywhere(values)


def _steps(length: int, steps: Sequence[tuple[int, int]]) -> Floats:
    """(length,) the value of the last step at or before each place."""
    values = np.zeros(length)
    for (first, value), (last, _) in zip(steps, [*steps[1:], (length, 0)], strict=True):
        values[first:last] = value
    return values


def _since(run: RunningText, is_mark: Mask) -> Floats:
    """Characters since the last mark; 0 at one."""
    places = np.arange(len(run.text))
    marks = np.maximum.accumulate(np.where(is_mark, places, -1))
    return run.at_end((places - marks).astype(np.float64))


def _is_before(run: RunningText, marks: Sequence[int]) -> Floats:
    """1 where one of the marks is at most `NEAR` characters ahead."""
    ends = run.last - 1
    following = np.append(np.array(marks, dtype=np.int64), np.iinfo(np.int64).max // 2)
    ahead = following[np.searchsorted(following, ends)] - ends
    return (ahead <= NEAR).astype(np.float64)


def _where(run: RunningText, holds: Callable[[str], bool]) -> Mask:
    """(characters,) where a claim about the character holds."""
    return np.fromiter((holds(character) for character in run.text), dtype=bool, count=len(run.text))


def _having(holds: Callable[[str], bool]) -> Callable[[RunningText], Floats]:
    """1 on tokens with such a character."""
    return lambda run: run.anywhere(_where(run, holds).astype(np.float64))


def _sentence_ends(run: RunningText) -> list[int]:
    return [match.start() for match in _SENTENCE_END.finditer(run.text)]


def _since_sentence(run: RunningText) -> Floats:
    is_end = np.zeros(len(run.text), dtype=bool)
    is_end[_sentence_ends(run)] = True
    return _since(run, is_end)


def _line_tokens(run: RunningText) -> Floats:
    """Tokens since the line began; 0 at its end."""
    is_break = run.anywhere(_where(run, lambda c: c == "\n").astype(np.float64)) > 0
    places = np.arange(len(is_break))
    found: Floats = (places - np.maximum.accumulate(np.where(is_break, places, -1))).astype(np.float64)
    return found


PROPERTIES: Final[Mapping[str, Property]] = {
    "quotes": Property("text inside quotes", quotes),
    "brackets": Property("text inside brackets", brackets),
    "line-position": Property("the length of the line so far", lambda run: _since(run, _where(run, "\n".__eq__))),
    "line-tokens": Property("the number of tokens in the line so far", _line_tokens),
    "since-blank": Property(
        "the number of characters since the last blank", lambda run: _since(run, _where(run, str.isspace))
    ),
    "sentence-position": Property("the length of the sentence so far", _since_sentence),
    "upper-case": Property("upper-case letters", _having(str.isupper)),
    "digits": Property("digits", _having(str.isdigit)),
    "punctuation": Property("punctuation", _having(lambda c: not (c.isalnum() or c.isspace()))),
    "frequent-words": Property(f"the {MOST_FREQUENT} most frequent words", frequent_words),
    "sentence-end": Property(
        f"the end of a sentence within {NEAR} characters", lambda run: _is_before(run, _sentence_ends(run))
    ),
    "line-end": Property(
        f"the end of a line within {NEAR} characters",
        lambda run: _is_before(run, [i for i, c in enumerate(run.text) if c == "\n"]),
    ),
}
"""What cells are searched for, by the name that asks for it."""


def property_of(wanted: str) -> Property:
    """One of `PROPERTIES` by its name, or of `/regex/` whether a match covers the token."""
    if len(wanted) > 2 and wanted.startswith("/") and wanted.endswith("/"):
        try:
            pattern = re.compile(wanted[1:-1], re.MULTILINE)
        except re.error as error:
            raise UsageError(f"track is '{wanted}', no regular expression: {error}") from error
        return Property(
            f"matches of {wanted}",
            lambda run: covered(run, (match.span() for match in pattern.finditer(run.text))),
        )
    name = wanted.strip().lower().replace("_", "-")
    if name in PROPERTIES:
        return PROPERTIES[name]
    near = difflib.get_close_matches(name, PROPERTIES, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UsageError(f"track is '{wanted}'; {hint}choose one of {', '.join(PROPERTIES)}, or /a regular expression/")
