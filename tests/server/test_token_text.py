"""Tokens as pieces of text: against the tokenizer's own decoding and decoding/continuation.py."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding.detokenizer import REPLACEMENT, Continuation
from chainrule.decoding.stop_strings import StopStrings
from chainrule.server.errors import ApiError
from chainrule.server.token_text import (
    IncrementalDetokenizer,
    TokenDecoder,
    decode_ids,
    encode_lines,
    encode_prompt,
    prompt_from_ids,
    stop_checks,
)
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer
from server.http_client import KINDS, train_trigram

TEXTS: Final = (
    "",
    "\n",
    "the cat",
    "the  cat\t sees ",
    "the cat\r\n\r\na dög\rthe 猫\n",
    " the\u2028cat\u0085 <s> 🐭",
    "zebra 猫猫 x",
    "the " * 30_000,  # longer than the pieces in which lines are read
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("pieces")
    return {kind: train_trigram(folder, kind).tokenizer for kind in KINDS}


def bytes_of(pieces: TokenDecoder, ids: list[int], previous: int | None = None) -> bytes:
    return b"".join(pieces.bytes(b, i) for b, i in zip([previous, *ids], ids, strict=False))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_bytes_of_a_line_are_what_it_decodes_to(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    words = st.integers(0, tokenizer.vocab_size - 1).filter(lambda i: i not in (tokenizer.bos, tokenizer.eos))
    ids = data.draw(st.lists(words, max_size=12))
    assert bytes_of(TokenDecoder(tokenizer), ids).decode("utf-8", "replace") == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_text_grows_as_a_continuation_does(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer, pieces = tokenizers[kind], TokenDecoder(tokenizers[kind])
    likely = sorted(set(tokenizer.encode("the cat sees a dög 猫 🐭").tolist()))
    ids = data.draw(st.lists(st.sampled_from(likely), min_size=1, max_size=12))
    stops = data.draw(st.lists(st.sampled_from(["t", "e c", "ees the", "ö", "猫", " "]), max_size=2))
    prompt = data.draw(st.sampled_from(["", "the", "the ", "the\n", "a\nthe d"]))
    other = Continuation(tokenizer, prompt, stops)
    begun = encode_prompt(prompt, tokenizer, is_continued=True)
    assert (begun.ids, begun.text) == (other.prompt_ids, other.prompt)
    writing = IncrementalDetokenizer(pieces, begun.last, StopStrings(stops))
    checks = stop_checks(pieces, begun.last, StopStrings(stops))
    assert (checks is None) == (not stops)
    is_stopped_by = checks() if checks is not None else lambda id_: False
    settled, at_least, growing = "", "", other.incremental_decoder()
    for length in range(1, len(ids) + 1):
        writing.add(ids[length - 1])
        settled += writing.release(writing.stable_length)
        growing.add(ids[length - 1])
        at_least += growing.release()
        assert settled.startswith(at_least.rstrip(REPLACEMENT))
        assert other.text(ids).startswith(settled)
        # Bytes that can be no character are settled here at once, there with the next character.
        assert settled == at_least or REPLACEMENT in settled
        assert (writing.stop_start is not None) == other.is_stopped(ids[:length])
        assert is_stopped_by(ids[length - 1]) == other.is_stopped(ids[:length])
        if writing.stop_start is not None:
            break
    writing.end()
    settled += writing.release(writing.length if writing.stop_start is None else writing.stop_start)
    assert settled == other.text(ids[:length])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_is_cut_as_evaluation_cuts_it(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    laid = encode_lines(text, tokenizer)
    assert list(laid.ids) == encode(Corpus.from_lines([text]), tokenizer).ids.tolist()
    assert list(laid.offsets) == sorted(laid.offsets)
    assert all(0 <= begin <= len(text) for begin in laid.offsets)
    assert laid.offsets[0] == 0


def test_a_token_inside_a_character_begins_where_that_does(tokenizers: dict[str, Tokenizer]) -> None:
    # a (1 byte) blank (1) 🐭 (4) ö (2) </s> b </s>, and a line break of two characters behind the first line
    laid = encode_lines("a 🐭ö\r\nb", tokenizers["byte"])
    assert laid.offsets == (0, 1, 2, 2, 2, 2, 3, 3, 4, 6, 7)
    # Words: a blank belongs to the word behind it; what is behind the last belongs to </s>.
    assert encode_lines("a  dög \nthe", tokenizers["word"]).offsets == (0, 1, 6, 8, 11)


def test_ids_become_the_text_they_came_from(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in KINDS:
        pieces = TokenDecoder(tokenizers[kind])
        for text in ("the cat\na dög 🐭", "\n\nthe\n", ""):
            whole = encode_prompt(text, tokenizers[kind])
            assert decode_ids(whole.ids, pieces) == text
            assert prompt_from_ids(whole.ids, pieces) == whole


def test_the_start_symbol_may_be_first_and_only_there(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, pieces = tokenizers["word"], TokenDecoder(tokenizers["word"])
    ids = tokenizer.encode("the cat").tolist()
    begun = prompt_from_ids([tokenizer.bos, *ids], pieces)
    assert (begun.has_bos, list(begun.ids), begun.text) == (True, ids, "the cat")
    for wrong in ([*ids, tokenizer.bos], [tokenizer.vocab_size], [-1]):
        with pytest.raises(ApiError, match=str(wrong[-1])):
            prompt_from_ids(wrong, pieces)


def test_names_show_what_is_no_character(tokenizers: dict[str, Tokenizer]) -> None:
    pieces = TokenDecoder(tokenizers["byte"])
    assert [pieces.text(None, i) for i in "ö".encode()] == ["\\xc3", "\\xb6"]
    words = TokenDecoder(tokenizers["word"])
    (cat,) = tokenizers["word"].encode("cat").tolist()
    assert (words.text(None, cat), words.text(cat, cat)) == ("cat", " cat")
    assert words.text(words.tokenizer.eos, cat) == "cat"
    assert words.text(cat, words.tokenizer.eos) == "</s>"
