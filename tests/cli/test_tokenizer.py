"""`chainrule tokenizer`: merges worked by hand, and text that comes back."""

from pathlib import Path

import pytest

from cli.command import call, done, english, refused, write
from cli.pipes import dialogue


def test_merges_worked_by_hand(tmp_path: Path) -> None:
    # Pre-tokens: "aab", " aab", " ab". Pairs: a+b 3, a+a 2, ␣+a 2; so a+b first.
    # Then "a ab", "␣ a ab", "␣ ab": a+ab 2, ␣+a 1, ␣+ab 1; so a+ab second.
    text = write(tmp_path / "t.txt", "aab aab ab\n")
    train = ("tokenizer", "train", text, "--tokenizer", "bpe", "--vocab-size", 258, "--trace", "--out")
    outcome = done(*train, tmp_path / "bpe")
    assert outcome.out == "257\t3\t'a' + 'b' -> 'ab'\n258\t2\t'a' + 'ab' -> 'aab'\n"
    assert outcome.err == f"saved {tmp_path / 'bpe'}: 260 ids, <s> and </s> among them\n"
    first, second = done(*train, tmp_path / "bpe", "--json").json_lines()
    assert first == {"schema_version": 1, "pair": ["a", "b"], "count": 3, "symbol": "ab", "vocab_size": 257}
    assert second == {"schema_version": 1, "pair": ["a", "ab"], "count": 2, "symbol": "aab", "vocab_size": 258}


def test_merges_are_counted_by_occurrence(tmp_path: Path) -> None:
    # "abab" twice: a+b stands four times; then ab+ab twice.
    text = write(tmp_path / "t.txt", "abab\nabab\n")
    options = ("--tokenizer", "bpe", "--vocab-size", 258, "--trace", "--out", tmp_path / "bpe")
    outcome = done("tokenizer", "train", text, *options)
    assert outcome.out == "257\t4\t'a' + 'b' -> 'ab'\n258\t2\t'ab' + 'ab' -> 'abab'\n"
    assert done("tokenizer", "encode", tmp_path / "bpe", "--tokens", stdin="ababab\n").out == "'abab' 'ab'\n"


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "unigram", "wordpiece", "word", "whitespace"])
def test_text_comes_back(tmp_path: Path, kind: str) -> None:
    lines = "the cat sees a dog\n\none <s> bird\n"
    text = write(tmp_path / "t.txt", english() + lines.replace("<s>", "<t>"))
    size = ("--vocab-size", 300) if kind in ("bpe", "unigram") else ("--vocab-size", 600) * (kind == "wordpiece")
    done("tokenizer", "train", text, "--tokenizer", kind, "--out", tmp_path / "t", *size)
    wanted = lines if kind in ("byte", "bpe", "unigram", "wordpiece") else lines.replace("<s>", "<t>")
    ids = done("tokenizer", "encode", tmp_path / "t", stdin=wanted).out
    assert len(ids.splitlines()) == 3
    assert done("tokenizer", "decode", tmp_path / "t", stdin=ids).out == wanted


@pytest.mark.parametrize(
    ("text", "message", "tokens"),
    [
        (
            'He said, "go!"\n',
            "tokenizer: word (punctuation is split from words)\n",
            "'He' 'said' '\uffed,' '\"\uffed' 'go' '\uffed!' '\uffed\"'\n",
        ),
        (
            'He said , " go ! "\n',
            "tokenizer: whitespace (the text looks pre-tokenised: its punctuation is separated by blanks)\n",
            "'He' 'said' ',' '\"' 'go' '!' '\"'\n",
        ),
    ],
)
def test_word_says_whether_it_splits_punctuation(tmp_path: Path, text: str, message: str, tokens: str) -> None:
    file = write(tmp_path / "t.txt", text)
    outcome = done("tokenizer", "train", file, "--tokenizer", "word", "--out", tmp_path / "t")
    assert message in outcome.err
    assert done("tokenizer", "encode", tmp_path / "t", "--tokens", stdin=text).out == tokens
    ids = done("tokenizer", "encode", tmp_path / "t", stdin=text).out
    assert done("tokenizer", "decode", tmp_path / "t", stdin=ids).out == text
    piped = done("tokenizer", "train", "-", "--tokenizer", "word", "--out", tmp_path / "piped", stdin=text)
    assert message in piped.err
    kind = "word" if "split" in message else "whitespace"
    trained = done("train", "ngram", file, "--order", 1, "--smoothing", "laplace", "--out", tmp_path / "m")
    assert message in trained.err
    assert done("info", tmp_path / "m", "--json").json()["tokenizer"]["kind"] == kind
    vectors = done("vectors", "train", file, "--method", "one-hot", "--min-count", 1, "--out", tmp_path / "v")
    assert message in vectors.err
    assert done("info", tmp_path / "v", "--json").json()["config"]["tokenizer"] == kind
    names = (tmp_path / "v" / "words.txt").read_text(encoding="utf-8").split("\n")
    assert set(names) == {"He", "said", ",", '"', "go", "!", ""}


def test_whitespace_is_taken_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", 'He said, "go!"\n')
    outcome = done("tokenizer", "train", file, "--tokenizer", "whitespace", "--out", tmp_path / "t")
    assert "tokenizer:" not in outcome.err
    assert done("tokenizer", "encode", tmp_path / "t", "--tokens", stdin="He said,").out == "'He' 'said,'\n"


def test_turkish_lower_case(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", "ISPARTA, İzmir\n")
    options = ("--tokenizer", "word", "--lowercase", "--lowercase-locale", "tr", "--out", tmp_path / "t")
    done("tokenizer", "train", file, *options)
    tokens = done("tokenizer", "encode", tmp_path / "t", "--tokens", stdin="Isparta izmir").out
    assert tokens == "'ısparta' 'izmir'\n"
    settings = ("--lowercase", "--set", "locale=tr", "--order", 1, "--smoothing", "laplace")
    done("train", "ngram", file, *settings, "--out", tmp_path / "m")
    assert done("info", tmp_path / "m", "--json").json()["tokenizer"]["locale"] == "tr"


def test_every_string_comes_back_from_bytes(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "plain\n")
    done("tokenizer", "train", text, "--tokenizer", "byte", "--out", tmp_path / "t")
    odd = "naïve  \t 日本 \U0001f600 a\u2028b <s></s><unk>\n"
    found = done("tokenizer", "encode", tmp_path / "t", "--json", stdin=odd).json()
    assert found.keys() == {"schema_version", "text", "ids", "tokens"}
    assert len(found["ids"]) == len(odd.removesuffix("\n").encode())  # <s> is three bytes, not one symbol
    ids = " ".join(map(str, found["ids"]))
    assert done("tokenizer", "decode", tmp_path / "t", stdin=ids).out == odd
    again = done("tokenizer", "decode", tmp_path / "t", "--json", stdin=ids).json()
    assert again == {"schema_version": 1, "ids": found["ids"], "text": odd.removesuffix("\n")}


def test_words_by_rank(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "b a c\na b\na <s>\n")
    done("tokenizer", "train", text, "--tokenizer", "whitespace", "--vocab-size", 2, "--out", tmp_path / "t")
    # <unk> is 0, then by count: a (3), b (2); c is left out, and so is the text's own <s>.
    assert done("tokenizer", "encode", tmp_path / "t", stdin="a b c <s>\n").out == "1 2 0 0\n"


def test_a_model_folder_serves_too(closed: Path) -> None:
    ids = done("tokenizer", "encode", closed, stdin="i love mice\n").out
    assert done("tokenizer", "decode", closed, stdin=ids).out == "i love mice\n"


@pytest.mark.parametrize("word", ["264", "-1", "1.5", "x", "٣", "9" * 5000])
def test_what_is_no_id(tmp_path: Path, word: str) -> None:
    text = write(tmp_path / "t.txt", "aab aab ab\n")
    options = ("--tokenizer", "bpe", "--vocab-size", 258, "--out", tmp_path / "t")
    done("tokenizer", "train", text, *options)
    outcome = refused_after_first_line(tmp_path / "t", f"97\n1 {word} 2\n")
    assert f"line 2: '{word[:40]}' is not an id of this tokenizer; ids are 0 to 259" in outcome


def refused_after_first_line(folder: Path, ids: str) -> str:
    """The message of a decoding that ends in status 3."""
    outcome = call("tokenizer", "decode", folder, stdin=ids)
    assert outcome.status == 3
    assert outcome.out.count("\n") == 1  # the first line was good
    return outcome.err


def test_wrong_usage(tmp_path: Path, toy_text: Path) -> None:
    out = ("--out", tmp_path / "t")
    message = refused(2, "tokenizer", "train", toy_text, "--tokenizer", "word", "--trace", *out)
    assert "--trace follows the merges of a bpe tokenizer" in message
    assert "needs 256 symbols" in refused(2, "tokenizer", "train", toy_text, "--vocab-size", 9, *out)
    assert "choose one of word" in refused(2, "tokenizer", "train", toy_text, "--tokenizer", "emoji", *out)
    assert not (tmp_path / "t").exists()
    refused(4, "tokenizer", "train", tmp_path / "nowhere.txt", *out)
    refused(4, "tokenizer", "encode", tmp_path / "nowhere")
    refused(3, "tokenizer", "decode", tmp_path)


def test_a_line_is_encoded_and_decoded_before_the_next_is_written(model: Path) -> None:
    lines = [b"the cat sees a dog now", b"one bird"]
    with dialogue("tokenizer", "encode", model) as conversation:
        ids = [conversation.ask(line)[0] for line in lines]
    with dialogue("tokenizer", "decode", model) as conversation:
        texts = [conversation.ask(line)[0] for line in ids]
    wanted = done("tokenizer", "encode", model, stdin=b"\n".join([*lines, b""])).out
    assert b"\n".join([*ids, b""]).decode() == wanted
    assert b"\n".join([*texts, b""]).decode() == done("tokenizer", "decode", model, stdin=wanted).out


@pytest.mark.parametrize("options", [(), ("--tokens",), ("--json",)])
@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
def test_long_lines_are_encoded_in_pieces(
    kind: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write(tmp_path / "t.txt", english(20))
    size = ("--vocab-size", 300) if kind == "bpe" else ()
    done("tokenizer", "train", text, "--tokenizer", kind, *size, "--out", tmp_path / "tok")
    lines = "the cat sees a dog now\n\none bird likes the zebra\n"
    wanted = done("tokenizer", "encode", tmp_path / "tok", *options, stdin=lines).out
    monkeypatch.setattr("chainrule.text.lines.FRAGMENT", 7)
    monkeypatch.setattr("chainrule.tokenizers.encode.CHARACTERS_PER_BATCH", 1)
    assert done("tokenizer", "encode", tmp_path / "tok", *options, stdin=lines).out == wanted


@pytest.mark.parametrize("command", [("tokenizer", "train"), ("train", "ngram"), ("vectors", "train")])
@pytest.mark.parametrize("kind", ["word", "wordpiece", "char"])
def test_one_huge_word_is_refused_where_words_are_learnt(
    command: tuple[str, str], kind: str, tmp_path: Path
) -> None:
    text = write(tmp_path / "t.txt", "a b\n" * 9 + "x" * 200_000 + "\n")
    if command[0] == "vectors":
        options: tuple[object, ...] = ("--min-count", 1)
    else:
        options = ("--tokenizer", kind, *(("--vocab-size", 600) if kind == "wordpiece" else ()))
    if kind == "char" and command[0] != "vectors":
        assert done(*command, text, *options, "--out", tmp_path / "m")
        return
    said = refused(3, *command, text, *options, "--out", tmp_path / "m")
    assert f"error: {text}, line 10 has a word of more than 65,536 characters; " in said
