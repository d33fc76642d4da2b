"""`chainrule tokenizer`: merges worked by hand, and round trips."""

from pathlib import Path

import pytest

from cli.command import call, english, run_error, run_ok, write
from cli.pipes import dialogue


def test_tokenizer_trace_worked_by_hand(tmp_path: Path) -> None:
    # Pre-tokens: "aab", " aab", " ab". Pairs: a+b 3, a+a 2, ␣+a 2; so a+b first. Then "a ab", "␣ a ab", "␣ ab":
    # a+ab 2, ␣+a 1, ␣+ab 1; so a+ab second.
    text = write(tmp_path / "t.txt", "aab aab ab\n")
    train = ("tokenizer", "train", text, "--tokenizer", "bpe", "--vocab-size", 258, "--trace", "--out")
    outcome = run_ok(*train, tmp_path / "bpe")
    assert outcome.out == "257\t3\t'a' + 'b' -> 'ab'\n258\t2\t'a' + 'ab' -> 'aab'\n"
    assert outcome.err == f"saved {tmp_path / 'bpe'}: 260 ids, <s> and </s> among them\n"
    first, second = run_ok(*train, tmp_path / "bpe", "--json").json_lines()
    assert first == {"schema_version": 1, "pair": ["a", "b"], "count": 3, "symbol": "ab", "vocab_size": 257}
    assert second == {"schema_version": 1, "pair": ["a", "ab"], "count": 2, "symbol": "aab", "vocab_size": 258}


def test_tokenizer_merges_are_counted_by_occurrence(tmp_path: Path) -> None:
    # "abab" twice: a+b occurs four times; then ab+ab twice.
    text = write(tmp_path / "t.txt", "abab\nabab\n")
    options = ("--tokenizer", "bpe", "--vocab-size", 258, "--trace", "--out", tmp_path / "bpe")
    outcome = run_ok("tokenizer", "train", text, *options)
    assert outcome.out == "257\t4\t'a' + 'b' -> 'ab'\n258\t2\t'ab' + 'ab' -> 'abab'\n"
    assert run_ok("tokenizer", "encode", tmp_path / "bpe", "--tokens", stdin="ababab\n").out == "'abab' 'ab'\n"


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "unigram", "wordpiece", "word", "whitespace"])
def test_tokenizer_encode_decode_round_trip(tmp_path: Path, kind: str) -> None:
    lines = "the cat sees a dog\n\none <s> bird\n"
    text = write(tmp_path / "t.txt", english() + lines.replace("<s>", "<t>"))
    size = ("--vocab-size", 300) if kind in ("bpe", "unigram") else ("--vocab-size", 600) * (kind == "wordpiece")
    run_ok("tokenizer", "train", text, "--tokenizer", kind, "--out", tmp_path / "t", *size)
    expected = lines if kind in ("byte", "bpe", "unigram", "wordpiece") else lines.replace("<s>", "<t>")
    ids = run_ok("tokenizer", "encode", tmp_path / "t", stdin=expected).out
    assert len(ids.splitlines()) == 3
    assert run_ok("tokenizer", "decode", tmp_path / "t", stdin=ids).out == expected


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
            "tokenizer: whitespace (the text looks pre-tokenized: its punctuation is separated by blanks)\n",
            "'He' 'said' ',' '\"' 'go' '!' '\"'\n",
        ),
    ],
)
def test_word_tokenizer_reports_whether_it_splits_punctuation(
    tmp_path: Path, text: str, message: str, tokens: str
) -> None:
    file = write(tmp_path / "t.txt", text)
    outcome = run_ok("tokenizer", "train", file, "--tokenizer", "word", "--out", tmp_path / "t")
    assert message in outcome.err
    assert run_ok("tokenizer", "encode", tmp_path / "t", "--tokens", stdin=text).out == tokens
    ids = run_ok("tokenizer", "encode", tmp_path / "t", stdin=text).out
    assert run_ok("tokenizer", "decode", tmp_path / "t", stdin=ids).out == text
    piped = run_ok("tokenizer", "train", "-", "--tokenizer", "word", "--out", tmp_path / "piped", stdin=text)
    assert message in piped.err
    kind = "word" if "split" in message else "whitespace"
    trained = run_ok("train", "ngram", file, "--order", 1, "--smoothing", "laplace", "--out", tmp_path / "m")
    assert message in trained.err
    assert run_ok("info", tmp_path / "m", "--json").json()["tokenizer"]["kind"] == kind
    vectors = run_ok("vectors", "train", file, "--method", "one-hot", "--min-count", 1, "--out", tmp_path / "v")
    assert message in vectors.err
    assert run_ok("info", tmp_path / "v", "--json").json()["config"]["tokenizer"] == kind
    names = (tmp_path / "v" / "words.txt").read_text(encoding="utf-8").split("\n")
    assert set(names) == {"He", "said", ",", '"', "go", "!", ""}


def test_whitespace_tokenizer_does_not_split_punctuation(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", 'He said, "go!"\n')
    outcome = run_ok("tokenizer", "train", file, "--tokenizer", "whitespace", "--out", tmp_path / "t")
    assert "tokenizer:" not in outcome.err
    assert run_ok("tokenizer", "encode", tmp_path / "t", "--tokens", stdin="He said,").out == "'He' 'said,'\n"


def test_tokenizer_turkish_lower_case(tmp_path: Path) -> None:
    file = write(tmp_path / "t.txt", "ISPARTA, İzmir\n")
    options = ("--tokenizer", "word", "--lowercase", "--lowercase-locale", "tr", "--out", tmp_path / "t")
    run_ok("tokenizer", "train", file, *options)
    tokens = run_ok("tokenizer", "encode", tmp_path / "t", "--tokens", stdin="Isparta izmir").out
    assert tokens == "'ısparta' 'izmir'\n"
    settings = ("--lowercase", "--set", "locale=tr", "--order", 1, "--smoothing", "laplace")
    run_ok("train", "ngram", file, *settings, "--out", tmp_path / "m")
    assert run_ok("info", tmp_path / "m", "--json").json()["tokenizer"]["locale"] == "tr"


def test_byte_tokenizer_round_trips_any_string(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "plain\n")
    run_ok("tokenizer", "train", text, "--tokenizer", "byte", "--out", tmp_path / "t")
    odd = "naïve  \t 日本 \U0001f600 a\u2028b <s></s><unk>\n"
    document = run_ok("tokenizer", "encode", tmp_path / "t", "--json", stdin=odd).json()
    assert document.keys() == {"schema_version", "text", "ids", "tokens"}
    assert len(document["ids"]) == len(odd.removesuffix("\n").encode())  # <s> is three bytes, not one symbol
    ids = " ".join(map(str, document["ids"]))
    assert run_ok("tokenizer", "decode", tmp_path / "t", stdin=ids).out == odd
    again = run_ok("tokenizer", "decode", tmp_path / "t", "--json", stdin=ids).json()
    assert again == {"schema_version": 1, "ids": document["ids"], "text": odd.removesuffix("\n")}


def test_tokenizer_vocabulary_is_sorted_by_count(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "b a c\na b\na <s>\n")
    run_ok("tokenizer", "train", text, "--tokenizer", "whitespace", "--vocab-size", 2, "--out", tmp_path / "t")
    # <unk> is 0, then by count: a (3), b (2); c is left out, and so is the <s> in the text.
    assert run_ok("tokenizer", "encode", tmp_path / "t", stdin="a b c <s>\n").out == "1 2 0 0\n"


def test_tokenizer_accepts_a_model_folder(closed: Path) -> None:
    ids = run_ok("tokenizer", "encode", closed, stdin="i love mice\n").out
    assert run_ok("tokenizer", "decode", closed, stdin=ids).out == "i love mice\n"


@pytest.mark.parametrize("word", ["264", "-1", "1.5", "x", "٣", "9" * 5000])
def test_tokenizer_decode_rejects_invalid_ids(tmp_path: Path, word: str) -> None:
    text = write(tmp_path / "t.txt", "aab aab ab\n")
    options = ("--tokenizer", "bpe", "--vocab-size", 258, "--out", tmp_path / "t")
    run_ok("tokenizer", "train", text, *options)
    outcome = decode_error(tmp_path / "t", f"97\n1 {word} 2\n")
    assert f"line 2: '{word[:40]}' is not an id of this tokenizer; ids are 0 to 259" in outcome


def decode_error(folder: Path, ids: str) -> str:
    """The message of a decoding that exits with status 3."""
    outcome = call("tokenizer", "decode", folder, stdin=ids)
    assert outcome.status == 3
    assert outcome.out.count("\n") == 1  # the first line was valid
    return outcome.err


def test_tokenizer_wrong_usage(tmp_path: Path, toy_text: Path) -> None:
    out = ("--out", tmp_path / "t")
    message = run_error(2, "tokenizer", "train", toy_text, "--tokenizer", "word", "--trace", *out)
    assert "--trace follows the merges of a bpe tokenizer" in message
    assert "needs 256 symbols" in run_error(2, "tokenizer", "train", toy_text, "--vocab-size", 9, *out)
    assert "choose one of word" in run_error(2, "tokenizer", "train", toy_text, "--tokenizer", "emoji", *out)
    assert not (tmp_path / "t").exists()
    run_error(4, "tokenizer", "train", tmp_path / "nowhere.txt", *out)
    run_error(4, "tokenizer", "encode", tmp_path / "nowhere")
    run_error(3, "tokenizer", "decode", tmp_path)


def test_tokenizer_answers_line_by_line(model: Path) -> None:
    lines = [b"the cat sees a dog now", b"one bird"]
    with dialogue("tokenizer", "encode", model) as conversation:
        ids = [conversation.ask(line)[0] for line in lines]
    with dialogue("tokenizer", "decode", model) as conversation:
        texts = [conversation.ask(line)[0] for line in ids]
    expected = run_ok("tokenizer", "encode", model, stdin=b"\n".join([*lines, b""])).out
    assert b"\n".join([*ids, b""]).decode() == expected
    assert b"\n".join([*texts, b""]).decode() == run_ok("tokenizer", "decode", model, stdin=expected).out


@pytest.mark.parametrize("options", [(), ("--tokens",), ("--json",)])
@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
def test_tokenizer_encodes_long_lines_in_pieces(
    kind: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write(tmp_path / "t.txt", english(20))
    size = ("--vocab-size", 300) if kind == "bpe" else ()
    run_ok("tokenizer", "train", text, "--tokenizer", kind, *size, "--out", tmp_path / "tok")
    lines = "the cat sees a dog now\n\none bird likes the zebra\n"
    expected = run_ok("tokenizer", "encode", tmp_path / "tok", *options, stdin=lines).out
    monkeypatch.setattr("chainrule.text.lines.FRAGMENT", 7)
    monkeypatch.setattr("chainrule.tokenizers.encode.CHARACTERS_PER_BATCH", 1)
    assert run_ok("tokenizer", "encode", tmp_path / "tok", *options, stdin=lines).out == expected


@pytest.mark.parametrize("command", [("tokenizer", "train"), ("train", "ngram"), ("vectors", "train")])
@pytest.mark.parametrize("kind", ["word", "wordpiece", "char"])
def test_training_rejects_a_huge_word(command: tuple[str, str], kind: str, tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "a b\n" * 9 + "x" * 200_000 + "\n")
    if command[0] == "vectors":
        options: tuple[object, ...] = ("--min-count", 1)
    else:
        options = ("--tokenizer", kind, *(("--vocab-size", 600) if kind == "wordpiece" else ()))
    if kind == "char" and command[0] != "vectors":
        assert run_ok(*command, text, *options, "--out", tmp_path / "m")
        return
    message = run_error(3, *command, text, *options, "--out", tmp_path / "m")
    assert f"error: {text}, line 10 has a word of more than 65,536 characters; " in message
