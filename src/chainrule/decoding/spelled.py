"""Unknown words in generated text: a spelling in place of `<unk>`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.decoding.codec import Codec
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary

Spell = Callable[[np.random.Generator], str]
"""Draws the spelling of a word outside the vocabulary."""
UNSPELLED: Final = "\N{OBJECT REPLACEMENT CHARACTER}"
"""The text of an unknown word whose spelling is not drawn yet; no stop string is found in it."""


def required_spell(vocabulary: Vocabulary, settings: Decoding, spell: Spell | None) -> Spell | None:
    """Return what draws the spellings of a generation; None where no unknown word is spelled.

    Raises ConfigError where the settings need a speller and the model has none.
    """
    if settings.unk != "spell" or vocabulary.unk is None or vocabulary.closed:
        return None
    if spell is None:
        raise ConfigError("unk is 'spell', but this model has no speller; choose exclude or keep")
    return spell


def spelling_generators(seed: int | None, num: int) -> list[np.random.Generator]:
    """One generator of spellings for each of `num` texts, independent of those that draw the tokens."""
    return [np.random.default_rng(child.spawn(1)[0]) for child in np.random.SeedSequence(seed).spawn(num)]


@dataclass(slots=True)
class SpelledCodec:
    """A codec in which the ids from V on stand for unknown words with a spelling; V is the vocabulary size.

    The model reads and predicts `<unk>`; only the text differs.
    """

    codec: Codec
    unk: int
    spell: Spell
    spellings: list[str] = field(default_factory=list)  # of the ids V, V + 1, …

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

    def spelled(self, token: int, rng: np.random.Generator) -> int:
        """Return the id of a new spelling for `<unk>`, and any other id unchanged."""
        if token != self.unk:
            return token
        self.spellings.append(self.spell(rng))
        return self.vocab_size + len(self.spellings) - 1

    def encode(self, text: str) -> Ids:
        """The ids of a line or its beginning."""
        return self.codec.encode(text)

    def encode_prompt(self, text: str) -> Ids:
        """The ids of the beginning of a line that is to be continued."""
        return self.codec.encode_prompt(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids: the spelling of each spelled word, `UNSPELLED` for `<unk>` itself."""
        V = self.vocab_size
        plain = [self.unk if i >= V else i for i in ids]
        name = self.codec.decode([self.unk])
        text, first, parts = self.codec.decode(plain), 0, []
        for place in (place for place, i in enumerate(plain) if i == self.unk):
            end = len(self.codec.decode(plain[: place + 1]))  # decoding appends, see `Codec`
            spelling = self.spellings[ids[place] - V] if ids[place] >= V else UNSPELLED
            parts += [text[first : end - len(name)], spelling]
            first = end
        return "".join([*parts, text[first:]])

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each id; that of a spelled word is the one of `<unk>`."""
        return self.codec.tokens([self.unk if i >= self.vocab_size else i for i in ids])
