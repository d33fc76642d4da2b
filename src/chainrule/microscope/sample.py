"""The piece of text a model is looked at with, in the model's own tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chainrule.data.encoded import Encoded
from chainrule.errors import InputError
from chainrule.lm import Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import punctuation
from chainrule.tokenizers.encode import encode

LONGEST_LINE = 1 << 16  # characters of a line that are looked at, where few tokens are wanted
LONGEST_TOKEN = 32  # characters, on average of a line that is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A language model and the first tokens of a text."""

    name: str  # what the model is called in figures
    model: Model
    text: Encoded
    tokens: tuple[str, ...]  # (N,) as they are shown; `</s>` where a line ends
    source: str = ""  # what the text is

    @property
    def ids(self) -> Ids:
        """(N,) the tokens as numbers."""
        return self.text.ids

    @property
    def written(self) -> tuple[str, ...]:
        """(N,) the tokens with unknown words as the text has them."""
        spellings = iter(self.text.spellings)
        pairs = zip(self.ids.tolist(), self.tokens, strict=True)
        return tuple(next(spellings, token) if i == self.text.unk else token for i, token in pairs)

    @property
    def shown(self) -> tuple[str, ...]:
        """(N,) the same without joiners, unknown words in brackets: the model read them as `<unk>`."""
        pairs = zip(self.ids.tolist(), map(self.model.tokenizer.text_of, self.written), strict=True)
        return tuple(f"⟨{text}⟩" if i == self.text.unk else text for i, text in pairs)

    @property
    def running(self) -> tuple[str, ...]:
        """(N,) the same as parts of a running text: joiners are left out, and a blank stands before other tokens.

        For a tokenizer that splits punctuation; the tokens of others are as they are shown.
        """
        if not self.model.tokenizer.config.splits_punctuation:
            return self.shown
        parts: list[str] = []
        is_joined = True  # to the token before
        for i, written in zip(self.ids.tolist(), self.written, strict=True):
            left, right = punctuation.joins(written)
            text = punctuation.without_joiners(written)
            text = f"⟨{text}⟩" if i == self.text.unk else text
            parts.append(text if is_joined or left or i == self.text.eos else f" {text}")
            is_joined = right or i == self.text.eos
        return tuple(parts)


def take(model: Model, corpus: Corpus, *, name: str, tokens: int, source: str = "") -> Sample:
    """The first `tokens` of a text, or all of it where it is shorter; a line that begins is cut where they end."""
    lines: list[str] = []
    budget = tokens
    for line in _beginnings(corpus, max(LONGEST_LINE, LONGEST_TOKEN * tokens)):
        lines.append(line)
        budget -= encode(Corpus.from_lines([line]), model.tokenizer).tokens
        if budget <= 0:
            break
    whole = encode(Corpus.from_lines(lines), model.tokenizer)
    if not whole.tokens:
        raise InputError("the text is empty; give one with at least one line")
    return Sample(
        name=name, model=model, text=_cut(whole, tokens), tokens=_shown(model, whole.ids[:tokens]), source=source
    )


def _beginnings(corpus: Corpus, most: int) -> Iterator[str]:
    """The first `most` characters of every line; no more of a line is held at once."""
    line = ""
    for piece, ends_line in corpus.fragments():
        line += piece[: most - len(line)]
        if ends_line:
            yield line
            line = ""


def _cut(text: Encoded, tokens: int) -> Encoded:
    """The first tokens; what counts words and bytes is of the whole, and is not used here."""
    ids = text.ids[:tokens]
    oov = 0 if text.unk is None else int((ids == text.unk).sum())
    return Encoded(ids, text.eos, text.unk, text.words, text.characters, text.bytes, text.spellings[:oov])


def _shown(model: Model, ids: Sequence[int] | Ids) -> tuple[str, ...]:
    return tuple(model.tokenizer.tokens([int(i) for i in ids]))
