"""Texts and tokenizers supported by the compiled extension; test_prepare_corpus.py compares its results."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule
from chainrule import system
from chainrule.errors import ChainruleError
from chainrule.text.compiled_reader import LONGEST, open_reader
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import SHORTEST_LINE, fingerprint
from chainrule.text.lines import FRAGMENT
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import count_words, encode_words, scan_text
from chainrule.tokenizers.train import from_words, train

pytestmark = pytest.mark.native
WORDS = TokenizerConfig(kind="whitespace")


def corpus_of(tmp_path: Path, content: bytes, name: str = "text.txt") -> Corpus:
    (tmp_path / name).write_bytes(content)
    return Corpus.of(tmp_path / name)


def test_count_words_is_in_vocabulary_order(tmp_path: Path) -> None:
    # Ties are in code point order: z before é, and 日 before 😀, whose UTF-16 begins with U+D83D.
    corpus = corpus_of(tmp_path, "é z b \ufffd 😀 b\nlonger-than-eight longer-than-eight b".encode())
    expected = [("b", 3), ("longer-than-eight", 2), ("z", 1), ("é", 1), ("\ufffd", 1), ("😀", 1)]
    assert list(count_words(corpus, WORDS).counts().items()) == expected


@pytest.mark.parametrize("length", [FRAGMENT, FRAGMENT + 1])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_overlong_words_use_the_python_path(tmp_path: Path, length: int, letter: str) -> None:
    corpus = corpus_of(tmp_path, f"a\n{letter * length}\nb\n".encode())
    assert (count_words(corpus, WORDS) is not None) == (length <= FRAGMENT)
    assert (scan_text(corpus, WORDS) is not None) == (length <= FRAGMENT)


def test_overlong_lines_use_the_python_path(tmp_path: Path) -> None:
    line = b"a b " * (LONGEST // 4)
    assert count_words(corpus_of(tmp_path, line), WORDS).counts() == {"a": LONGEST // 4, "b": LONGEST // 4}
    assert count_words(corpus_of(tmp_path, 2 * line), WORDS) is None


@pytest.mark.parametrize("config", [TokenizerConfig(kind="char"), TokenizerConfig(lowercase=True)])
def test_other_tokenizers_use_the_python_path(tmp_path: Path, config: TokenizerConfig) -> None:
    corpus = corpus_of(tmp_path, b"a B\n")
    assert count_words(corpus, config) is None
    assert scan_text(corpus, config) is None
    assert encode_words(corpus, train(corpus, config), tmp_path / "ids") is None
    assert encode_words(corpus, train(corpus, WORDS), tmp_path / "ids") is not None


def test_missing_or_truncated_file(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"a b\n")
    (tmp_path / "text.txt").write_bytes(b"")
    assert count_words(corpus, WORDS).counts() == {}
    (tmp_path / "text.txt").unlink()
    for read in (partial(count_words, config=WORDS), fingerprint):
        with pytest.raises(ChainruleError, match=r"text\.txt cannot be read: No such file"):
            read(corpus)


def test_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"a b\n", "text-\udcff")
    assert count_words(corpus, WORDS).counts() == {"a": 1, "b": 1}


def test_missing_output_folder_for_ids_is_reported(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, b"a b\n")
    with pytest.raises(ChainruleError, match="cannot be written"):
        encode_words(corpus, train(corpus, WORDS), tmp_path / "nowhere" / "ids")


def test_scan_gives_counts_fingerprint_and_ids_of_one_pass(tmp_path: Path) -> None:
    content = "b of\n\n c b b\nthe line that is long enough to be hashed"
    corpus = corpus_of(tmp_path, content.encode())
    scan = scan_text(corpus, WORDS)
    assert scan is not None
    assert list(scan.counted([]).counts().items())[:2] == [("b", 3), ("be", 1)]
    tokenizer = from_words(["b", "c"], WORDS)  # <unk> 0, b 1, c 2, <s> 3, </s> 4
    text = scan.encode(tokenizer)
    assert text.ids.tolist() == [1, 0, 4, 4, 2, 1, 1, 4, *[0] * 9, 4]
    assert text.spellings == ["of", *["the", "line", "that", "is", "long", "enough", "to", "be", "hashed"]]
    assert (text.words, text.lines) == (14, 4)
    assert text.bytes == len("b of\n\nc b b\nthe line that is long enough to be hashed\n")
    assert scan.fingerprint.sha256 == hashlib.sha256(f"{content}\n".encode()).hexdigest()
    assert scan.fingerprint.lines == 4
    assert scan.fingerprint.sketch.tolist() == fingerprint(corpus).sketch.tolist()
    with pytest.raises(ChainruleError, match="already encoded"):
        scan.encode(tokenizer)


def test_training_and_evaluation_read_a_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, calls = system.load_extension(), []

    def recorded(name: str) -> Callable[..., object]:
        function = getattr(core, name)

        def call(*arguments: object) -> object:
            calls.append(name)
            return function(*arguments)

        return call

    readers = (
        "count_plain_words",
        "encode_plain_text",
        "encode_plain_words",
        "sketch_plain_lines",
        "scan_plain_text",
    )
    for name in readers:
        monkeypatch.setattr(core, name, recorded(name))
    text, held_out = tmp_path / "text.txt", tmp_path / "held_out.txt"
    text.write_text("i love cats\ni love dogs\n")
    held_out.write_text("i love mice\n")
    model = chainrule.train("ngram", text, valid=held_out, order=2, smoothing="witten-bell")
    assert calls == ["scan_plain_text", "encode_plain_text"]
    calls.clear()
    model.evaluate(held_out)
    assert calls == ["encode_plain_text"]


@given(line=st.text(st.sampled_from("ab é日"), min_size=SHORTEST_LINE, max_size=700))
def test_line_hash_equals_blake2b(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    corpus = corpus_of(tmp_path_factory.mktemp("hash"), line.encode())
    expected = int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest(), "little")
    assert fingerprint(corpus).sketch.tolist() == [expected]


@pytest.mark.parametrize("length", [SHORTEST_LINE, 127, 128, 129, 255, 256, 257, 1000])
def test_line_hash_at_blake2b_block_boundaries(tmp_path: Path, length: int) -> None:
    line = b"abcdefghij" * 100
    expected = int.from_bytes(hashlib.blake2b(line[:length], digest_size=8).digest(), "little")
    assert fingerprint(corpus_of(tmp_path, line[:length])).sketch.tolist() == [expected]


@pytest.mark.parametrize("threads", [0, -1, 1 << 20])
def test_thread_count_out_of_range_is_rejected(tmp_path: Path, threads: int) -> None:
    reader = open_reader(corpus_of(tmp_path, b"a\n"))
    assert reader is not None
    with pytest.raises(ChainruleError, match="threads is"):
        system.load_extension().count_plain_words(reader.text, threads)
