"""Incremental decoding against decoding all ids at once."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.decoding.detokenizer import REPLACEMENT, Continuation
from chainrule.tokenizers.tokenizer import Tokenizer
from server.http_client import KINDS, train_trigram

STOPS: Final = ("t", "e c", "ees the", "ees", "ö", "猫", " ", "he", "🐭 a")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("continuations")
    return {kind: train_trigram(folder, kind).tokenizer for kind in KINDS}


def settled(text: str, stops: list[str]) -> str:
    """What no further id can change of a text, by definition."""
    position = min((text.index(stop) for stop in stops if stop in text), default=None)
    if position is not None:
        return text[:position]
    closed = text.rstrip(REPLACEMENT)
    ends = [n for stop in stops for n in range(1, len(stop) + 1) if n <= len(closed) and closed.endswith(stop[:n])]
    return closed[: len(closed) - max(ends, default=0)]


@pytest.mark.parametrize("is_likely", [True, False], ids=["likely ids", "any ids"])
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_growing_text_is_the_decoding_of_all_ids(
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
    growing, is_stopped = continuation.incremental_decoder(), continuation.stop_check()
    released, count = "", 0
    for count, id_ in enumerate(ids, 1):
        words = [i for i in ids[:count] if i != tokenizer.eos]
        text = tokenizer.decode([*line, *words])[len(before) :]
        growing.add(id_)
        released += growing.release()
        assert released == settled(text, stops)
        assert growing.is_stopped == any(stop in text for stop in stops)
        assert is_stopped(id_) == continuation.is_stopped(ids[:count]) == growing.is_stopped
        if growing.is_stopped:
            break
    assert released + growing.end() == continuation.text(ids[:count])


def test_only_the_end_of_a_text_is_decoded(tokenizers: dict[str, Tokenizer]) -> None:
    """Ids decoded for a text of 200 ids: two for each, three more while a character is open."""
    tokenizer, decoded = tokenizers["byte"], []

    class Counted:
        bos, eos, vocab_size = tokenizer.bos, tokenizer.eos, tokenizer.vocab_size
        encode, encode_prompt, tokens = tokenizer.encode, tokenizer.encode_prompt, tokenizer.tokens

        def decode(self, ids: list[int]) -> str:
            decoded.append(len(ids))
            return tokenizer.decode(ids)

    growing = Continuation(Counted(), "the ").incremental_decoder()  # type: ignore[arg-type]
    ids = tokenizer.encode("the 🐭 " * 25).tolist()
    for id_ in ids:
        growing.add(id_)
    assert growing.release() == "the 🐭 " * 25
    assert max(decoded[2:]) == 5
