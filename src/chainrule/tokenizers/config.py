"""What can be chosen about a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.errors import ConfigError

Kind = Literal["word", "whitespace", "char", "byte", "bpe", "wordpiece", "unigram"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Locale = Literal["", "tr", "az"]
LOCALES: Final[tuple[Locale, ...]] = get_args(Locale)
BOS: Final = "<s>"
EOS: Final = "</s>"
SUBWORD_SIZE: Final = 8000
JOINER: Final = "\uffed"
"""What the word tokenizer attaches to a punctuation mark where the text has no blank beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """Kind of token and which types make it into the vocabulary; three cut-offs, which may be combined."""

    kind: Kind = "word"
    vocab_size: int | None = None  # word, char: keep at most this many types; sub-words: symbols in all
    min_count: int = 1  # τ: word, char: keep types seen this often
    top_percent: float | None = None  # α: word, char: keep this share of the types, the most frequent
    vocab: str | None = None  # word: a file of words, one a line: these and no others; saved by its name alone
    unk: str = "<unk>"  # the word of the corpus that stands for unknown words
    closed: bool = False  # no probability for unknown words
    lowercase: bool = False
    locale: Locale = ""  # whose lower case: tr and az have a dotless ı, the lower case of I
    joiner: str = JOINER  # word: stored, so that folders written before punctuation was split are told apart

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
        if self.vocab is not None and not self.is_words:
            raise ConfigError(f"vocab names words, and a {self.kind} tokenizer has none; drop it or choose word")
        if self.vocab is not None and is_cut:
            raise ConfigError("vocab says which words there are; drop it, or vocab-size, min-count and top-percent")
        if self.closed and is_cut and self.is_names:
            raise ConfigError("--closed leaves no room for words cut from the vocabulary; drop it or the cut-off")

    @property
    def is_words(self) -> bool:
        """Whether tokens are whole words."""
        return self.kind in ("word", "whitespace")

    @property
    def is_names(self) -> bool:
        """Whether a token's name is its text, rather than symbols that stand for bytes."""
        return self.is_words or self.kind == "char"

    @property
    def splits_punctuation(self) -> bool:
        """Whether punctuation marks and ideographs are tokens of their own."""
        return self.kind == "word"

    @property
    def collapses_blanks(self) -> bool:
        """Whether runs of blanks count as one and blanks at the ends as none."""
        return self.is_words or self.kind == "wordpiece"

    @property
    def is_lossless(self) -> bool:
        """Whether decoding gives back every character (but for lower-casing) without a speller's help."""
        return self.kind in ("byte", "bpe", "unigram")

    @property
    def is_ambiguous(self) -> bool:
        """Whether a text can be cut in several ways, one of which is scored: its bits are an upper bound."""
        return self.kind in ("bpe", "wordpiece", "unigram")


def saved_settings(saved: Mapping[str, object]) -> dict[str, object]:
    """Return the stored settings of a tokenizer as they are understood now.

    Before punctuation was split, `word` meant what `whitespace` means; such folders have no `joiner`.
    """
    if saved.get("kind", "word") == "word" and "joiner" not in saved:
        return {**saved, "kind": "whitespace"}
    return dict(saved)
