"""Encoding of prompts with character offsets, against evaluation and generation."""

from typing import Final

import pytest

from chainrule.decoding.detokenizer import Continuation
from chainrule.server.errors import ApiError
from chainrule.server.prompt_encoding import decode_ids, encode_lines, encode_prompt, prompt_from_ids
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
    "the " * 30_000,  # longer than the fragments in which lines are read
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("pieces")
    return {kind: train_trigram(folder, kind).tokenizer for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", ["", "the", "the ", "the\n", "a\nthe d", "the cat,"])
def test_prompt_is_encoded_as_for_generation(tokenizers: dict[str, Tokenizer], kind: str, prompt: str) -> None:
    encoded, continuation = (
        encode_prompt(prompt, tokenizers[kind], is_continued=True),
        Continuation(tokenizers[kind], prompt),
    )
    assert (encoded.ids, encoded.text) == (continuation.prompt_ids, continuation.prompt)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_text_is_encoded_as_in_evaluation(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    laid = encode_lines(text, tokenizer)
    assert list(laid.ids) == encode(Corpus.from_lines([text]), tokenizer).ids.tolist()
    assert list(laid.offsets) == sorted(laid.offsets)
    assert all(0 <= begin <= len(text) for begin in laid.offsets)
    assert laid.offsets[0] == 0


def test_token_inside_a_character_starts_where_the_character_does(tokenizers: dict[str, Tokenizer]) -> None:
    # a (1 byte) space (1) 🐭 (4) ö (2) </s> b </s>, and a line break of two characters after the first line
    laid = encode_lines("a 🐭ö\r\nb", tokenizers["byte"])
    assert laid.offsets == (0, 1, 2, 2, 2, 2, 3, 3, 4, 6, 7)
    # Words: a space belongs to the next word; spaces after the last belong to </s>.
    assert encode_lines("a  dög \nthe", tokenizers["word"]).offsets == (0, 1, 6, 8, 11)


def test_decode_ids_restores_the_prompt(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in KINDS:
        for text in ("the cat\na dög 🐭", "\n\nthe\n", ""):
            whole = encode_prompt(text, tokenizers[kind])
            assert decode_ids(whole.ids, tokenizers[kind]) == text
            assert prompt_from_ids(whole.ids, tokenizers[kind]) == whole


def test_bos_is_allowed_only_first_in_a_prompt(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["word"]
    ids = tokenizer.encode("the cat").tolist()
    begun = prompt_from_ids([tokenizer.bos, *ids], tokenizer)
    assert (begun.has_bos, list(begun.ids), begun.text) == (True, ids, "the cat")
    for wrong in ([*ids, tokenizer.bos], [tokenizer.vocab_size], [-1]):
        with pytest.raises(ApiError, match=str(wrong[-1])):
            prompt_from_ids(wrong, tokenizer)
