"""The tokenizer over HTTP: ids as in training and evaluation, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer
from server.http_client import KINDS, TEXT, open_client, post_error, post_ok, train_trigram


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def tokenizers(folder: Path) -> dict[str, Tokenizer]:
    return {kind: train_trigram(folder, kind).tokenizer for kind in KINDS}


@pytest.fixture(scope="module")
def client(tokenizers: dict[str, Tokenizer], folder: Path) -> Iterator[TestClient]:
    with open_client(*(folder / kind for kind in tokenizers)) as client_:
        yield client_


@pytest.mark.parametrize("kind", KINDS)
def test_tokenize_equals_evaluation_and_round_trips(
    tokenizers: dict[str, Tokenizer], client: TestClient, kind: str
) -> None:
    answer = post_ok(client, "/tokenize", model=kind, prompt=TEXT)
    assert answer["tokens"] == encode(Corpus.from_lines([TEXT]), tokenizers[kind]).ids.tolist()
    assert answer["count"] == len(answer["tokens"])
    assert post_ok(client, "/detokenize", model=kind, tokens=answer["tokens"])["prompt"] == TEXT


def test_last_line_without_break_has_no_eos(tokenizers: dict[str, Tokenizer], client: TestClient) -> None:
    eos = tokenizers["char"].eos
    assert post_ok(client, "/tokenize", model="char", prompt="a\nt")["tokens"].count(eos) == 1
    assert post_ok(client, "/tokenize", model="char", prompt="a\nt\n")["tokens"].count(eos) == 2
    assert post_ok(client, "/tokenize", model="char", prompt="")["tokens"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_control_symbol_alone_is_tokenized_as_such(
    tokenizers: dict[str, Tokenizer], client: TestClient, kind: str
) -> None:
    tokenizer = tokenizers[kind]
    assert post_ok(client, "/tokenize", model=kind, prompt="<s>")["tokens"] == [tokenizer.bos]
    assert post_ok(client, "/tokenize", model=kind, prompt="</s>", add_special_tokens=False)["tokens"] == [
        tokenizer.eos
    ]
    for text in ("<s> the", " <s>", "the</s>", "<s></s>"):
        tokens = post_ok(client, "/tokenize", model=kind, prompt=text)["tokens"]
        assert tokens == tokenizer.encode(text).tolist()
        assert not {tokenizer.bos, tokenizer.eos} & set(tokens)


def test_bos_is_added_on_request(tokenizers: dict[str, Tokenizer], client: TestClient) -> None:
    bos = tokenizers["word"].bos
    plain = post_ok(client, "/tokenize", model="word", prompt="the cat", return_token_strs=True)
    begun = post_ok(client, "/tokenize", model="word", prompt="the cat", add_special_tokens=True)
    assert plain["token_strs"] == ["the", "cat"]
    assert begun["tokens"] == [bos, *plain["tokens"]]
    assert post_ok(client, "/tokenize", model="word", prompt="<s>", add_special_tokens=True)["tokens"] == [bos]
    assert post_ok(client, "/detokenize", model="word", tokens=begun["tokens"])["prompt"] == "the cat"


def test_tokenizer_info(tokenizers: dict[str, Tokenizer], client: TestClient) -> None:
    info = client.get("/tokenizer_info").json()  # of the first model
    assert (info["bos_token"], info["eos_token"], info["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert info["tokenizer_class"] == "word"
    info = client.get("/tokenizer_info", params={"model": "byte"}).json()
    assert info["tokenizer_class"] == "byte"
    assert info["unk_token"] is None
    # 256 bytes, <s> and </s>
    assert (info["vocab_size"], info["bos_token_id"], info["eos_token_id"]) == (258, 256, 257)
    assert client.get("/tokenizer_info", params={"model": "none"}).status_code == 404


def test_invalid_token_ids_are_rejected(client: TestClient) -> None:
    for ids in ([-1], [10**6], [1, 2.5], "the"):
        assert post_error(client, "/detokenize", model="word", tokens=ids)["param"] == "tokens"
    assert post_error(client, "/tokenize", model="word")["param"] == "prompt"
