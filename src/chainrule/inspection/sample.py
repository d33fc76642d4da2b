"""The first tokens of a text, encoded for one model."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from chainrule.data.encoded import EncodedText
from chainrule.errors import InputError
from chainrule.lm import Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.encode import encode

LINES_AT_ONCE = 64
LONGEST_LINE = 1 << 16  # characters read of a line if few tokens are requested
LONGEST_TOKEN = 32  # assumed characters per token of longer lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A language model and the first tokens of a text."""

    name: str  # display name of the model
    model: Model
    text: EncodedText
    tokens: tuple[str, ...]  # (N,) vocabulary entries; `</s>` ends a line
    source: str = ""  # name of the text

    @property
    def ids(self) -> Ids:
        """(N,) token ids."""
        return self.text.ids

    @property
    def source_tokens(self) -> tuple[str, ...]:
        """(N,) tokens with unknown words as spelled in the text."""
        spellings = iter(self.text.spellings)
        pairs = zip(self.ids.tolist(), self.tokens, strict=True)
        return tuple(next(spellings, token) if i == self.text.unk else token for i, token in pairs)

    @property
    def display_tokens(self) -> tuple[str, ...]:
        """(N,) tokens without joiners, unknown words in ⟨ ⟩."""
        tokens = self.source_tokens
        if self.model.tokenizer.config.splits_punctuation:
            tokens = tuple(map(punctuation.without_joiners, tokens))
        pairs = zip(self.ids.tolist(), tokens, strict=True)
        return tuple(f"⟨{text}⟩" if i == self.text.unk else text for i, text in pairs)

    @property
    def running_tokens(self) -> tuple[str, ...]:
        """(N,) display tokens with a preceding blank unless they are joined to the token before.

        Only for tokenizers that split punctuation; otherwise the same as `display_tokens`.
        """
        if not self.model.tokenizer.config.splits_punctuation:
            return self.display_tokens
        parts: list[str] = []
        is_joined = True  # to the previous token
        for i, token in zip(self.ids.tolist(), self.source_tokens, strict=True):
            left, right = punctuation.joined_sides(token)
            text = punctuation.without_joiners(token)
            text = f"⟨{text}⟩" if i == self.text.unk else text
            parts.append(text if is_joined or left or i == self.text.eos else f" {text}")
            is_joined = right or i == self.text.eos
        return tuple(parts)


def take_sample(model: Model, corpus: Corpus, *, name: str, tokens: int, source: str = "") -> Sample:
    """Return the first `tokens` of a text, or all of it if it is shorter; the last line may be cut."""
    beginnings = _beginnings(corpus, max(LONGEST_LINE, LONGEST_TOKEN * tokens))
    batch = list(islice(beginnings, LINES_AT_ONCE))
    lines: list[str] = []
    remaining = tokens
    while batch and remaining > 0:
        encoded = encode(Corpus.from_lines(batch), model.tokenizer)
        ended = int((encoded.ids[: remaining - 1] == encoded.eos).sum())  # lines that end before the last token
        lines += batch[: ended + 1]
        remaining -= encoded.tokens
        batch = list(islice(beginnings, LINES_AT_ONCE))
    whole = encode(Corpus.from_lines(lines), model.tokenizer)
    if not whole.tokens:
        raise InputError("the text is empty; give one with at least one line")
    ids = whole.ids[:tokens].tolist()
    return Sample(
        name=name,
        model=model,
        text=_cut(whole, tokens),
        tokens=tuple(model.tokenizer.tokens(ids)),
        source=source,
    )


def _beginnings(corpus: Corpus, most: int) -> Iterator[str]:
    """Yield the first `most` characters of every line, without reading longer lines into memory."""
    line = ""
    for piece, ends_line in corpus.fragments():
        line += piece[: most - len(line)]
        if ends_line:
            yield line
            line = ""


def _cut(text: EncodedText, tokens: int) -> EncodedText:
    """Return the first tokens; word, character and byte counts remain those of the whole."""
    ids = text.ids[:tokens]
    oov = 0 if text.unk is None else int((ids == text.unk).sum())
    return EncodedText(ids, text.eos, text.unk, text.words, text.characters, text.bytes, text.spellings[:oov])
