"""Settings of a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import ConfigError

Kind = Literal["word", "whitespace", "char", "byte", "bpe", "wordpiece", "unigram"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Locale = Literal["", "tr", "az"]
LOCALES: Final[tuple[Locale, ...]] = get_args(Locale)
BOS: Final = "<s>"
EOS: Final = "</s>"
SUBWORD_SIZE: Final = 8000
JOINER: Final = "\uffed"
"""Attached by the word tokenizer to a punctuation mark on the sides where the text has no blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """Kind of tokenizer and three vocabulary cut-offs, which may be combined."""

    kind: Kind = setting(
        "word",
        "Tokenizer: word (splits punctuation), whitespace, char, byte, bpe, wordpiece, unigram (training is not "
        "reproducible, even with --seed), or a tokenizer folder.",
        option="--tokenizer",
        shows_default=True,
    )
    vocab_size: int | None = setting(None, "Maximum vocabulary size (number of token types).")
    min_count: int = setting(1, "Minimum count of a word; rarer words become <unk>.", shows_default=True)  # τ
    top_percent: float | None = setting(
        None, "Keep only this percentage of the token types, the most frequent ones."
    )  # α
    vocab: str | None = setting(  # only the name of the file is saved
        None, "Vocabulary file for the word tokenizer, one word per line; all other words are unknown."
    )
    unk: str = setting("<unk>", "Word that marks unknown words in the corpus.", shows_default=True)
    closed: bool = setting(False, "Closed vocabulary: no <unk> token; unknown words have probability 0.")
    lowercase: bool = setting(False, "Lowercase the text.")
    locale: Locale = setting(
        "", "Language of --lowercase: tr or az (I becomes ı, İ becomes i).", option="--lowercase-locale"
    )
    joiner: str = JOINER  # word: stored to recognize folders written before punctuation was split

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"tokenizer is '{self.kind}'; choose one of {', '.join(KINDS)}, or a folder")
        if self.vocab_size is not None and not 1 <= self.vocab_size <= 1 << 30:
            raise ConfigError(f"vocab-size is {self.vocab_size}; choose a whole number from 1 to {1 << 30}")
        if self.min_count < 1:
            raise ConfigError(f"min-count is {self.min_count}; choose 1 or more")
        if self.top_percent is not None and not 0 < self.top_percent <= 100:
            raise ConfigError(f"top-percent is {self.top_percent}; choose a number in (0, 100]")
        if not self.unk or any(blank in self.unk for blank in " \t\r\n") or self.unk in (BOS, EOS):
            raise ConfigError(f"unk is '{self.unk}'; it must be one word, and not {BOS} or {EOS}")
        if self.locale not in LOCALES:
            raise ConfigError(f"locale is '{self.locale}'; choose tr or az, or leave it out")
        if self.locale and not self.lowercase:
            raise ConfigError(f"locale is '{self.locale}', but the text is not lower-cased; add --lowercase")
        is_cut = self.vocab_size is not None or self.min_count > 1 or self.top_percent is not None
        if self.joiner != JOINER:
            raise ConfigError(f"joiner is {self.joiner!r}; it must be {JOINER!r} (U+FFED)")
        if self.vocab is not None and not self.is_word_level:
            raise ConfigError(
                f"vocab is a word list, but a {self.kind} tokenizer has no words; drop it or choose word"
            )
        if self.vocab is not None and is_cut:
            raise ConfigError("vocab fixes the vocabulary; drop it, or vocab-size, min-count and top-percent")
        if self.closed and is_cut and self.tokens_are_text:
            raise ConfigError("--closed allows no words outside the vocabulary; drop it or the vocabulary cut-off")

    @property
    def is_word_level(self) -> bool:
        """Whether tokens are whole words."""
        return self.kind in ("word", "whitespace")

    @property
    def tokens_are_text(self) -> bool:
        """Whether a token is stored as its text rather than in the byte alphabet."""
        return self.is_word_level or self.kind == "char"

    @property
    def splits_punctuation(self) -> bool:
        """Whether punctuation marks and ideographs are separate tokens."""
        return self.kind == "word"

    @property
    def placeholder(self) -> str | None:
        """The word that is not split at punctuation; None if punctuation is not split."""
        return self.unk if self.splits_punctuation else None

    @property
    def collapses_blanks(self) -> bool:
        """Whether runs of blanks are collapsed and leading and trailing blanks are removed."""
        return self.is_word_level or self.kind == "wordpiece"

    @property
    def is_lossless(self) -> bool:
        """Whether decoding restores the text (up to lower-casing) without a speller."""
        return self.kind in ("byte", "bpe", "unigram")

    @property
    def is_ambiguous(self) -> bool:
        """Whether only one of several segmentations of a text is scored, so that its bits are an upper bound."""
        return self.kind in ("bpe", "wordpiece", "unigram")


def saved_settings(saved: Mapping[str, object]) -> dict[str, object]:
    """Convert the stored settings of a tokenizer to the current meaning.

    In folders without `joiner`, written before punctuation was split, `word` means `whitespace`.
    """
    if saved.get("kind", "word") == "word" and "joiner" not in saved:
        return {**saved, "kind": "whitespace"}
    return dict(saved)
