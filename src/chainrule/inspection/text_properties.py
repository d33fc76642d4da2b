"""Text properties by token, such as being inside quotes, for comparison with cell activations. N tokens.

A binary property holds for a token if it holds for any of its characters; lengths are measured at its last
character. Quotes include the opening mark and exclude the closing one. Quotes and brackets end at a line break if
every line starts a new context, otherwise at a blank line, so that an unclosed one does not invert the rest.
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
class AlignedText:
    """The characters of a text and the character span of each token."""

    text: str
    first: Ids  # (N,)
    last: Ids  # (N,) exclusive; tokens within one character share it
    is_line: bool = False  # every line starts a new context

    @classmethod
    def from_bytes(cls, pieces: Sequence[bytes], is_apart: Sequence[bool], *, is_line: bool = False) -> Self:
        """Build from the UTF-8 bytes of each token and whether a blank precedes it."""
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        end = np.cumsum(sizes + np.array(is_apart, dtype=np.int64))
        whole = b"".join(b" " * apart + piece for piece, apart in zip(pieces, is_apart, strict=True))
        text = whole.decode("utf-8", "surrogateescape")  # invalid bytes become lone surrogates
        of_byte = np.repeat(np.arange(len(text)), _byte_counts(text))  # character index of each byte
        of_byte = np.append(of_byte, len(text))
        first = of_byte[end - sizes]
        last = np.where(sizes > 0, of_byte[np.maximum(end - 1, 0)] + 1, first)
        return cls(text, first, last, is_line)

    def value_at_end(self, values: Floats) -> Floats:
        """Return the value at the last character of each token: (characters,) -> (N,)."""
        result: Floats = np.append(values, 0.0)[np.maximum(self.last - 1, 0)].astype(np.float64)
        return result

    def max_over_token(self, values: Floats) -> Floats:
        """Return the largest value over the characters of each token: (characters,) -> (N,)."""
        bounds = np.stack([self.first, np.maximum(self.last, self.first)], axis=1).ravel()
        result: Floats = np.maximum.reduceat(np.append(values, 0.0), bounds)[::2].astype(np.float64)
        return result

    def token_texts(self) -> list[str]:
        """Return the text split at tokens (N,), with preceding blanks; a split character goes to its last token."""
        following = np.append(self.first[1:], len(self.text))
        ends = np.where(following < self.last, self.last - 1, self.last)
        starts = [0, *ends[:-1].tolist()]
        readable = _STRAY_BYTE.sub("\ufffd", self.text)
        return [readable[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def _byte_counts(text: str) -> Ids:
    """Return the UTF-8 length of each character; 1 for a lone surrogate."""
    code = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts: Ids = 1 + (code >= 0x80).astype(np.int64) + (code >= 0x800) + (code >= 0x10000)
    return np.where((code >= 0xDC80) & (code <= 0xDCFF), 1, counts)


class Property(NamedTuple):
    """A text property with a value at every token."""

    label: str  # completes "a cell follows …"
    values: Callable[[AlignedText], Floats]  # (N,)


def quotes(aligned: AlignedText) -> Floats:
    """Return 1 inside quotation marks."""
    steps, is_inside = [(0, 0)], False
    for mark in _QUOTES.finditer(aligned.text):
        if mark[0] == '"':
            is_inside = not is_inside
        elif mark[0][0] == "\n":
            is_inside = is_inside and not (aligned.is_line or len(mark[0]) > 1)
        else:
            is_inside = mark[0] in ("“", "„", "«", "``")
        steps.append((mark.end() - 1, int(is_inside)))
    return aligned.max_over_token(_step_function(len(aligned.text), steps))


def brackets(aligned: AlignedText) -> Floats:
    """Return 1 inside brackets of any depth."""
    steps, depth = [(0, 0)], 0
    for mark in _BRACKETS.finditer(aligned.text):
        if mark[0][0] == "\n":
            depth = 0 if aligned.is_line or len(mark[0]) > 1 else depth
        else:
            depth = depth + 1 if mark[0] in "([{" else max(0, depth - 1)
        steps.append((mark.end() - 1, int(depth > 0)))
    return aligned.max_over_token(_step_function(len(aligned.text), steps))


def frequent_words(aligned: AlignedText) -> Floats:
    """Return 1 on the most frequent words of the text."""
    words = [(match[0].lower(), match.span()) for match in _WORD.finditer(aligned.text)]
    counts = Counter(word for word, _ in words)
    frequent = set(sorted(counts, key=lambda word: (-counts[word], word))[:MOST_FREQUENT])
    return mark_spans(aligned, (span for word, span in words if word in frequent))


def mark_spans(aligned: AlignedText, spans: Iterable[tuple[int, int]]) -> Floats:
    """Return 1 on tokens that overlap one of the spans."""
    values = np.zeros(len(aligned.text))
    for first, last in spans:
        values[first:last] = 1.0
    return aligned.max_over_token(values)


def _step_function(length: int, steps: Sequence[tuple[int, int]]) -> Floats:
    """Return the value of the last step at or before each index, (length,)."""
    values = np.zeros(length)
    for (first, value), (last, _) in zip(steps, [*steps[1:], (length, 0)], strict=True):
        values[first:last] = value
    return values


def _characters_since(aligned: AlignedText, is_mark: Mask) -> Floats:
    """Return the number of characters since the last mark; 0 at a mark."""
    indices = np.arange(len(aligned.text))
    marks = np.maximum.accumulate(np.where(is_mark, indices, -1))
    return aligned.value_at_end((indices - marks).astype(np.float64))


def _precedes(aligned: AlignedText, marks: Sequence[int]) -> Floats:
    """Return 1 if one of the marks is at most `NEAR` characters ahead."""
    ends = aligned.last - 1
    following = np.append(np.array(marks, dtype=np.int64), np.iinfo(np.int64).max // 2)
    ahead = following[np.searchsorted(following, ends)] - ends
    return (ahead <= NEAR).astype(np.float64)


def _character_mask(aligned: AlignedText, holds: Callable[[str], bool]) -> Mask:
    """Return a mask of the characters for which the predicate holds."""
    return np.fromiter((holds(character) for character in aligned.text), dtype=bool, count=len(aligned.text))


def _tokens_with(holds: Callable[[str], bool]) -> Callable[[AlignedText], Floats]:
    """Return a property that is 1 on tokens with such a character."""
    return lambda aligned: aligned.max_over_token(_character_mask(aligned, holds).astype(np.float64))


def _sentence_ends(aligned: AlignedText) -> list[int]:
    return [match.start() for match in _SENTENCE_END.finditer(aligned.text)]


def _since_sentence(aligned: AlignedText) -> Floats:
    is_end = np.zeros(len(aligned.text), dtype=bool)
    is_end[_sentence_ends(aligned)] = True
    return _characters_since(aligned, is_end)


def _line_tokens(aligned: AlignedText) -> Floats:
    """Return the number of tokens since the line began; 0 at its end."""
    is_break = aligned.max_over_token(_character_mask(aligned, lambda c: c == "\n").astype(np.float64)) > 0
    indices = np.arange(len(is_break))
    count: Floats = (indices - np.maximum.accumulate(np.where(is_break, indices, -1))).astype(np.float64)
    return count


PROPERTIES: Final[Mapping[str, Property]] = {
    "quotes": Property("text inside quotes", quotes),
    "brackets": Property("text inside brackets", brackets),
    "line-position": Property(
        "the length of the line so far",
        lambda aligned: _characters_since(aligned, _character_mask(aligned, "\n".__eq__)),
    ),
    "line-tokens": Property("the number of tokens in the line so far", _line_tokens),
    "since-blank": Property(
        "the number of characters since the last blank",
        lambda aligned: _characters_since(aligned, _character_mask(aligned, str.isspace)),
    ),
    "sentence-position": Property("the length of the sentence so far", _since_sentence),
    "upper-case": Property("upper-case letters", _tokens_with(str.isupper)),
    "digits": Property("digits", _tokens_with(str.isdigit)),
    "punctuation": Property("punctuation", _tokens_with(lambda c: not (c.isalnum() or c.isspace()))),
    "frequent-words": Property(f"the {MOST_FREQUENT} most frequent words", frequent_words),
    "sentence-end": Property(
        f"the end of a sentence within {NEAR} characters",
        lambda aligned: _precedes(aligned, _sentence_ends(aligned)),
    ),
    "line-end": Property(
        f"the end of a line within {NEAR} characters",
        lambda aligned: _precedes(aligned, [i for i, c in enumerate(aligned.text) if c == "\n"]),
    ),
}
"""Text properties by the name that selects them."""


def parse_property(spec: str) -> Property:
    """Return a property of `PROPERTIES` by name, or one for the matches of `/regex/`."""
    if len(spec) > 2 and spec.startswith("/") and spec.endswith("/"):
        try:
            pattern = re.compile(spec[1:-1], re.MULTILINE)
        except re.error as error:
            raise UsageError(f"track is '{spec}', not a valid regular expression: {error}") from error
        return Property(
            f"matches of {spec}",
            lambda aligned: mark_spans(aligned, (match.span() for match in pattern.finditer(aligned.text))),
        )
    name = spec.strip().lower().replace("_", "-")
    if name in PROPERTIES:
        return PROPERTIES[name]
    matches = difflib.get_close_matches(name, PROPERTIES, n=1)
    hint = f"did you mean '{matches[0]}'? " if matches else ""
    raise UsageError(f"track is '{spec}'; {hint}choose one of {', '.join(PROPERTIES)}, or /a regular expression/")
