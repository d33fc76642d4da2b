"""Incremental decoding against decoding all ids at once."""

import codecs
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding.detokenizer import Continuation
from chainrule.tokenizers.tokenizer import Tokenizer
from server.http_client import KINDS, train_trigram

STOPS: Final = ("t", "e c", "ees the", "ees", "ö", "猫", " ", "he", "🐭 a")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("continuations")
    return {kind: train_trigram(folder, kind).tokenizer for kind in KINDS}


def bytes_of(tokenizer: Tokenizer, ids: list[int], previous: int | None = None) -> bytes:
    return b"".join(tokenizer.token_bytes(b, i) for b, i in zip([previous, *ids], ids, strict=False))


def final_text(content: bytes, stops: list[str]) -> str:
    """The part of a text that no further id can change, by definition."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(content)
    position = min((text.index(stop) for stop in stops if stop in text), default=None)
    if position is not None:
        return text[:position]
    ends = [n for stop in stops for n in range(1, len(stop) + 1) if n <= len(text) and text.endswith(stop[:n])]
    return text[: len(text) - max(ends, default=0)]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_token_bytes_concatenate_to_the_decoded_line(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    words = st.integers(0, tokenizer.vocab_size - 1).filter(lambda i: i not in (tokenizer.bos, tokenizer.eos))
    ids = data.draw(st.lists(words, max_size=12))
    assert bytes_of(tokenizer, ids).decode("utf-8", "replace") == tokenizer.decode(ids)


def test_token_text_escapes_incomplete_characters(tokenizers: dict[str, Tokenizer]) -> None:
    assert [tokenizers["byte"].token_text(None, i) for i in "ö".encode()] == ["\\xc3", "\\xb6"]
    words = tokenizers["word"]
    (cat,) = words.encode("cat").tolist()
    assert (words.token_text(None, cat), words.token_text(cat, cat)) == ("cat", " cat")
    assert words.token_text(words.eos, cat) == "cat"
    assert words.token_text(cat, words.eos) == "</s>"


@pytest.mark.parametrize("is_likely", [True, False], ids=["likely ids", "any ids"])
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_incremental_decoding_equals_decoding_all_ids(
    tokenizers: dict[str, Tokenizer], kind: str, is_likely: bool, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    likely = sorted(set(tokenizer.encode("the cat sees a dög 猫 🐭").tolist()))
    possible = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos)]
    ids = data.draw(st.lists(st.sampled_from(likely if is_likely else possible), max_size=12))
    ids += [tokenizer.eos] * data.draw(st.booleans())
    stops = data.draw(st.lists(st.sampled_from(STOPS), max_size=3))
    prompt = data.draw(st.sampled_from(["", "the", "the ", "the\n", "a\nthe d", "🐭"]))
    continuation = Continuation(tokenizer, prompt, stops)
    line = tokenizer.encode(prompt.rpartition("\n")[2]).tolist()
    before = tokenizer.decode(line)
    growing, is_stopped = continuation.detokenizer(), continuation.stop_check()
    released, count = "", 0
    for count, id_ in enumerate(ids, 1):
        words = [i for i in ids[:count] if i != tokenizer.eos]
        text = tokenizer.decode([*line, *words])[len(before) :]
        growing.add(id_)
        released += growing.release()
        assert released == final_text(bytes_of(tokenizer, words, line[-1] if line else None), stops)
        stopped = growing.stop_start is not None
        assert stopped == any(stop in text for stop in stops)
        assert is_stopped(id_) == continuation.is_stopped(ids[:count]) == stopped
        if stopped:
            break
    growing.end()
    assert released + growing.release() == continuation.text(ids[:count])
