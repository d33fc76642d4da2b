"""Encode prompts and detokenize generated ids, with stop strings and incomplete characters handled."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.decoding.stop_strings import StopSearch, StopStrings
from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary


class Codec(Protocol):
    """Conversion between text and ids.

    `decode` must be incremental: further ids only append text, except that U+FFFD characters at the very end, which
    stand for an incomplete character, may change.
    """

    @property
    def bos(self) -> int:
        """The id of `<s>`."""
        ...

    @property
    def eos(self) -> int:
        """The id of `</s>`."""
        ...

    @property
    def vocab_size(self) -> int:
        """V, special tokens included."""
        ...

    def encode(self, text: str) -> Ids:
        """Return the ids of a line or its beginning, without `<s>` and `</s>`."""
        ...

    def encode_prompt(self, text: str) -> Ids:
        """Return the ids of the beginning of a line to be continued; the last id may differ from `encode`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token string of each id."""
        ...


REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"  # decoded from invalid or incomplete bytes


class Continuation:
    """Convert generated ids to the text that they append to the prompt.

    Attributes:
        prompt: Prompt text, without trailing blanks that the tokenizer does not encode.
        prompt_ids: Ids of the prompt, with `</s>` for each line break.

    """

    def __init__(self, codec: Codec, prompt: str, stops: Sequence[str] = ()) -> None:
        *lines, last = re.split(r"\r\n|\r|\n", prompt)
        self._codec = codec
        self._stops = tuple(stops)
        self._automaton = StopStrings(stops)
        self._line: list[int] = codec.encode_prompt(last).tolist()
        self._before = codec.decode(self._line)
        blanks = last[len(last.rstrip(" \t")) :]
        self.prompt = prompt if self._before.endswith(blanks) else prompt.removesuffix(blanks)
        ended = (i for line in lines for i in (*codec.encode(line).tolist(), codec.eos))
        self.prompt_ids: tuple[int, ...] = (*ended, *self._line)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of the generated ids, truncated before the first stop string."""
        added = self._added(ids)
        return added[: self._stop_position(added)]

    def is_stopped(self, ids: Sequence[int]) -> bool:
        """Return whether the text of the generated ids contains a stop string."""
        return bool(self._stops) and self._stop_position(self._added(ids)) is not None

    def incremental_decoder(self) -> "IncrementalDecoder":
        """Return a decoder for one continuation of the prompt."""
        return IncrementalDecoder(self._codec, self._line, self._automaton)

    def stop_check(self) -> Callable[[int], bool]:
        """Return a function to call with each id of one continuation; it returns True once a stop string occurs."""
        decoder = self.incremental_decoder()

        def is_stopped(id_: int) -> bool:
            decoder.add(id_)
            return decoder.is_stopped

        return is_stopped

    def _added(self, ids: Sequence[int]) -> str:
        words = ids[:-1] if ids and ids[-1] == self._codec.eos else ids
        return self._codec.decode([*self._line, *words])[len(self._before) :]

    def _stop_position(self, added: str) -> int | None:
        return min((added.index(stop) for stop in self._stops if stop in added), default=None)


class IncrementalDecoder:
    """Decode one continuation id by id, in time per id that does not depend on the length of the text.

    Only the ids after the last complete character are decoded again, preceded by one id of context. This is
    sufficient because decoding is incremental (see `Codec`) and the blank before a token depends only on the
    previous token.

    Attributes:
        is_stopped: Whether the text contains a stop string.

    """

    def __init__(self, codec: Codec, line: Sequence[int], stops: StopStrings) -> None:
        self.is_stopped = False
        self._codec = codec
        self._ids = list(line)  # context, then the ids since the last complete character
        self._context_length = len(codec.decode(self._ids))  # characters
        self._search = StopSearch(stops)
        self._is_open = False  # the text ends with U+FFFD, which a further id may change
        self._read = 0  # characters after the context that the stop search has read
        self._pending = ""  # text not yet returned by `release`
        self._released = 0  # characters returned by `release`

    def add(self, id_: int) -> None:
        """Add one id; `</s>` adds no text."""
        if id_ == self._codec.eos:
            return
        self._ids.append(id_)
        added = self._codec.decode(self._ids)[self._context_length :]
        complete = added.rstrip(REPLACEMENT)
        self._append(complete[self._read :])
        self._read = max(self._read, len(complete))
        self._is_open = len(complete) < len(added)
        if not self._is_open:
            self._ids = [id_]
            self._context_length = len(self._codec.decode(self._ids))
            self._read = 0

    def release(self) -> str:
        """Return the new text that further ids cannot change.

        Incomplete characters and possible beginnings of stop strings are held back.
        """
        end = self._search.length - self._search.held_back if self._search.start is None else self._search.start
        text = self._pending[: max(0, end - self._released)]
        self._pending = self._pending[len(text) :]
        self._released += len(text)
        return text

    def end(self) -> str:
        """Return the remaining text, truncated before the first stop string."""
        if self._is_open:
            self._append(self._codec.decode(self._ids)[self._context_length + self._read :])
        if self._search.start is None:
            return self._pending
        return self._pending[: max(0, self._search.start - self._released)]

    def _append(self, text: str) -> None:
        self._pending += text
        self._search.feed(text)
        self.is_stopped = self._search.start is not None


SpellingSampler = Callable[[np.random.Generator], str]
"""Function that samples the spelling of a word outside the vocabulary."""
UNSPELLED: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Text of an unknown word without a spelling yet; stop strings do not match it."""


def resolve_speller(
    vocabulary: Vocabulary, settings: Decoding, spell: SpellingSampler | None
) -> SpellingSampler | None:
    """Return the spelling sampler to use, or None if unknown words are not spelled.

    Raise ConfigError if the settings require a speller and the model has none.
    """
    if settings.unk != "spell" or vocabulary.unk is None or vocabulary.closed:
        return None
    if spell is None:
        raise ConfigError("unk is 'spell', but this model has no speller; choose exclude or keep", "unk")
    return spell


def spawn_spelling_generators(seed: int | None, num: int) -> list[np.random.Generator]:
    """Return one generator per text for spellings, independent of the generators of the tokens."""
    return [np.random.default_rng(child.spawn(1)[0]) for child in np.random.SeedSequence(seed).spawn(num)]


@dataclass(slots=True)
class SpelledCodec:
    """Tokenizer wrapper in which ids from the vocabulary size V on represent unknown words with a spelling.

    The model reads and predicts `<unk>`; only the decoded text differs.
    """

    codec: Codec
    unk: int
    spell: SpellingSampler
    spellings: list[str] = field(default_factory=list)  # spellings of the ids V, V + 1, …

    @property
    def bos(self) -> int:
        """The id of `<s>`."""
        return self.codec.bos

    @property
    def eos(self) -> int:
        """The id of `</s>`."""
        return self.codec.eos

    @property
    def vocab_size(self) -> int:
        """V, without the spelled words."""
        return self.codec.vocab_size

    def assign_spelling(self, token: int, rng: np.random.Generator) -> int:
        """Sample a spelling for `<unk>` and return its id; return any other id unchanged."""
        if token != self.unk:
            return token
        self.spellings.append(self.spell(rng))
        return self.vocab_size + len(self.spellings) - 1

    def encode(self, text: str) -> Ids:
        """Return the ids of a line or its beginning."""
        return self.codec.encode(text)

    def encode_prompt(self, text: str) -> Ids:
        """Return the ids of the beginning of a line to be continued."""
        return self.codec.encode_prompt(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids; `<unk>` without a spelling becomes `UNSPELLED`."""
        V = self.vocab_size
        plain = [self.unk if i >= V else i for i in ids]
        name = self.codec.decode([self.unk])
        text, first, parts = self.codec.decode(plain), 0, []
        for position in (position for position, i in enumerate(plain) if i == self.unk):
            end = len(self.codec.decode(plain[: position + 1]))  # decoding is incremental, see `Codec`
            spelling = self.spellings[ids[position] - V] if ids[position] >= V else UNSPELLED
            parts += [text[first : end - len(name)], spelling]
            first = end
        return "".join([*parts, text[first:]])

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token string of each id; `<unk>` for spelled words."""
        return self.codec.tokens([self.unk if i >= self.vocab_size else i for i in ids])
