"""The first tokens of a text, encoded for one model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

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
    batches: list[EncodedText] = []
    remaining = tokens
    while remaining > 0 and (lines := list(islice(beginnings, LINES_AT_ONCE))):
        batches.append(encode(Corpus.from_lines(lines), model.tokenizer))
        remaining -= batches[-1].tokens
    if not batches:
        raise InputError("the text is empty; give one with at least one line")
    text = _first_tokens(batches, tokens)
    return Sample(
        name=name, model=model, text=text, tokens=tuple(model.tokenizer.tokens(text.ids.tolist())), source=source
    )


def _beginnings(corpus: Corpus, most: int) -> Iterator[str]:
    """Yield the first `most` characters of every line, without reading longer lines into memory."""
    line = ""
    for piece, ends_line in corpus.fragments():
        line += piece[: most - len(line)]
        if ends_line:
            yield line
            line = ""


def _first_tokens(batches: Sequence[EncodedText], tokens: int) -> EncodedText:
    """Join encoded lines and cut them after `tokens`; other counts are those of all lines read."""
    ids = np.concatenate([batch.ids for batch in batches])[:tokens]
    unk = batches[0].unk
    oov = 0 if unk is None else int((ids == unk).sum())
    words, characters, n_bytes = np.sum([(b.words, b.characters, b.bytes) for b in batches], axis=0).tolist()
    spellings = [spelling for batch in batches for spelling in batch.spellings]
    return EncodedText(ids, batches[0].eos, unk, words, characters, n_bytes, spellings[:oov])
