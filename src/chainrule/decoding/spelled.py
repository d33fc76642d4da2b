"""Replace `<unk>` in generated text by sampled spellings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainrule.decoding.codec import Codec
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Ids, Vocabulary

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
        raise ConfigError("unk is 'spell', but this model has no speller; choose exclude or keep")
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
