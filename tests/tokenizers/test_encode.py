import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.text import lines as text_lines
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import encode as encoding
from chainrule.tokenizers.config import KINDS, Kind, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.train import from_words, train

LINES = ["the cat  sat ", "", " on\tthe mat", "naïve zebra 日本"]
LINE = st.text(st.sampled_from("ab\té \u00a0日"), max_size=12)


def test_encode_ids_and_sizes_worked_by_hand() -> None:
    tokenizer = from_words(["the", "cat", "sat", "on"], TokenizerConfig(kind="whitespace"))
    text = encode(Corpus.from_lines(LINES), tokenizer)
    # <unk> 0, the 1, cat 2, sat 3, on 4, <s> 5, </s> 6
    assert text.ids.tolist() == [1, 2, 3, 6, 6, 4, 1, 0, 6, 0, 0, 0, 6]
    assert text.spellings == ["mat", "naïve", "zebra", "日本"]
    assert (text.tokens, text.lines, text.oov, text.words) == (13, 4, 4, 9)
    # Size of the canonical text "the cat sat\n\non the mat\nnaïve zebra 日本\n"
    assert text.characters == 12 + 1 + 11 + 15
    assert text.bytes == 12 + 1 + 11 + 20


def test_encode_splits_punctuation_worked_by_hand() -> None:
    tokenizer = from_words(["the", "cat", "\uffed,", "(\uffed"], TokenizerConfig())
    text = encode(Corpus.from_lines(["the  cat, (the", "日本!"]), tokenizer)
    # <unk> 0, the 1, cat 2, ￭, 3, (￭ 4, <s> 5, </s> 6
    assert text.ids.tolist() == [1, 2, 3, 4, 1, 6, 0, 0, 0, 6]
    assert text.spellings == ["日", "\uffed本", "\uffed!"]
    # Words and sizes are those of "the cat, (the\n日本!\n".
    assert (text.tokens, text.lines, text.oov, text.words) == (10, 2, 3, 4)
    assert text.characters == 14 + 4
    assert text.bytes == 14 + 8


def test_byte_tokenizer_counts_every_space() -> None:
    text = encode(Corpus.from_lines(LINES), train(Corpus.from_lines(LINES), TokenizerConfig(kind="byte")))
    assert text.bytes == text.tokens == len("\n".join([*LINES, ""]).encode())
    assert text.spellings == []


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(lines=st.lists(LINE, min_size=1, max_size=6))
def test_encoding_does_not_depend_on_fragments_or_batches(kind: str, lines: list[str]) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=None if kind in ("word", "whitespace", "char", "byte") else 600)  # type: ignore[arg-type]
    tokenizer = train(Corpus.from_lines(["ab é ba", "a\tb"]), config)
    long = [" x ".join(["ab é"] * 30), *(blank.join([*lines, "ab"] * 9) for blank in (" ", "\t", "  ", " \t"))]
    uncut = encode(Corpus.from_lines(long), tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines.cut_lines, "__defaults__", (64,))
        patch.setattr(encoding, "CHARACTERS_PER_BATCH", 20)
        assert len(list(Corpus.from_lines(long).fragments())) > len(long)
        cut = encode(Corpus.from_lines(long), tokenizer)
    assert cut.ids.tolist() == uncut.ids.tolist()
    assert (cut.words, cut.characters, cut.bytes) == (uncut.words, uncut.characters, uncut.bytes)
    assert cut.spellings == uncut.spellings
    canonical_lines = [tokenizer.canonicalize(line) for line in long]
    assert uncut.bytes == sum(len(line.encode()) + 1 for line in canonical_lines)
    assert uncut.characters == sum(len(line) + 1 for line in canonical_lines)


@pytest.mark.parametrize("kind", ["word", "whitespace"])
@given(line=LINE, is_lower=st.booleans())
def test_dictionary_encoding_equals_the_tokenizers_library(kind: Kind, line: str, is_lower: bool) -> None:
    config = TokenizerConfig(kind=kind, lowercase=is_lower)
    tokenizer = train(Corpus.from_lines(["ab é <unk> b\u00a0a", "A <s>"]), config)
    for text in (line, line.upper(), f"<unk> {line} <s>\t</s>  B"):
        encoded = encode(Corpus.from_lines([text]), tokenizer)
        assert encoded.ids.tolist() == [*tokenizer.encode(text).tolist(), tokenizer.eos]


def test_oov_spellings_are_lower_cased() -> None:
    tokenizer = train(Corpus.from_lines(["a b"]), TokenizerConfig(lowercase=True))
    assert encode(Corpus.from_lines(["ÄRGER A"]), tokenizer).spellings == ["ärger"]
    tokenizer = train(Corpus.from_lines(["a b i"]), TokenizerConfig(kind="char", lowercase=True))
    # İ becomes "i", which is known, and a combining dot, which is not.
    assert encode(Corpus.from_lines(["aİbÄ"]), tokenizer).spellings == ["\u0307", "ä"]
    tokenizer = train(Corpus.from_lines(["a b"]), TokenizerConfig(kind="wordpiece", lowercase=True))
    assert encode(Corpus.from_lines(["A " + "X" * 300]), tokenizer).spellings == ["x" * 300]


def test_encode_of_an_empty_corpus() -> None:
    tokenizer = from_words(["a"], TokenizerConfig())
    text = encode(Corpus.from_lines([]), tokenizer)
    assert (text.tokens, text.lines, text.bytes) == (0, 0, 0)
    assert text.ids.dtype == np.int32
