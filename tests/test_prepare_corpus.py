"""Corpora prepared by the compiled extension and by the Python implementation are identical."""

import bz2
import gzip
import hashlib
import json
import lzma
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from chainrule.data.encoded import EncodedText
from chainrule.errors import ChainruleError
from chainrule.lm import Batch
from chainrule.prepared_corpus import MemoryLimit, PreparedCorpus, prepare_corpus
from chainrule.text import compiled_reader
from chainrule.text.corpus import Corpus
from chainrule.text.lines import FRAGMENT
from chainrule.text.partitions import TextPartition, partition_corpus
from chainrule.text.readers import Errors
from chainrule.tokenizers import encode
from chainrule.tokenizers.config import Kind, TokenizerConfig
from chainrule.tokenizers.train import from_words
from ngram.reference import TableModel

pytestmark = pytest.mark.native

ODD = [
    *"ab \n\t",
    "\r",
    "\ufeff",
    "\u2028",
    "\x85",
    "\xa0",
    "\0",
    "\x1c",
    "\v",
    "é",
    "日",
    "😀",
    "\ufffd",
    "  ",
    "\n\n",
]
WORDS = [
    "<unk>",
    "<s>",
    *".,'(",
    "U.S.",
    "man's",
    "</s>",
    "of",
    "eight888",
    "ninechars",
    "a line that is long enough to be judged\n",
]
PIECE = st.sampled_from([*(text.encode() for text in (*ODD, *WORDS)), b"\xff", b"\xed\xa0\x80", b"\x1f\x8b"])
PLAIN = st.sampled_from([text.encode() for text in (*ODD, *WORDS) if text not in ("\r", "\ufeff")])
FILE = st.lists(PLAIN, max_size=40).map(b"".join) | st.lists(PIECE, max_size=12).map(b"".join)
CONFIG = st.builds(
    TokenizerConfig,
    kind=st.sampled_from(["word", "whitespace"]),
    min_count=st.sampled_from([1, 2]),
    vocab_size=st.sampled_from([None, 2]),
    top_percent=st.sampled_from([None, 40.0]),
    unk=st.sampled_from(["<unk>", "of"]),
    lowercase=st.booleans(),
) | st.builds(TokenizerConfig, closed=st.just(True))


@contextmanager
def python_implementation() -> Iterator[None]:
    with (
        mock.patch.object(encode, "open_reader", return_value=None),
        mock.patch("chainrule.text.fingerprint.open_reader", return_value=None),
    ):
        yield


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    with mock.patch("chainrule.system.thread_count", return_value=threads):
        yield


def parts(text: EncodedText) -> tuple[object, ...]:
    assert text.ids.dtype == np.int32
    sizes = text.words, text.characters, text.bytes, text.lines, text.oov, text.replaced
    return (text.ids.tolist(), text.eos, text.unk, *sizes, text.spellings)


def outcome(corpus: Corpus, config: TokenizerConfig) -> tuple[object, ...]:
    """Everything that is prepared, or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result: PreparedCorpus | None = prepare_corpus(corpus, config, valid=corpus)
            error = ""
        except ChainruleError as raised:
            result, error = None, f"{type(raised).__name__}: {raised}"
    messages = [str(warning.message) for warning in warned]
    if result is None:
        return error, messages
    assert result.valid is not None
    mark = result.fingerprint
    assert result.valid_fingerprint is not None
    assert mark.sketch.dtype == result.valid_fingerprint.sketch.dtype == np.uint64
    return (
        messages,
        result.tokenizer.to_json(),
        parts(result.train),
        parts(result.valid),
        result.speller and result.speller.to_bytes(),
        (mark.sha256, mark.sketch.tolist(), mark.lines),
        result.valid_fingerprint.sketch.tolist(),
    )


@settings(max_examples=150)
@given(files=st.lists(FILE, min_size=1, max_size=3), config=CONFIG, errors=st.sampled_from(["strict", "replace"]))
@example(files=[b"a b\n\n b", b"c"], config=TokenizerConfig(), errors="strict")
@example(files=[b"\n \n"], config=TokenizerConfig(), errors="strict")
@example(files=[b"a <s> </s> <unk> a\n"], config=TokenizerConfig(), errors="strict")
@example(files=[b"a <unk>"], config=TokenizerConfig(closed=True), errors="strict")
def test_compiled_preparation_equals_python(files: list[bytes], config: TokenizerConfig, errors: Errors) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.txt" for number in range(len(files))]
        for path, content in zip(paths, files, strict=True):
            path.write_bytes(content)
        corpus = Corpus.of(paths, errors=errors)
        fast = outcome(corpus, config)
        with python_implementation():
            assert outcome(corpus, config) == fast


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
PIECES: list[str] = [*ODD, *WORDS, "\ud800", "\udc00", "\\", '"', "/", "\b"]
DOCUMENTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=6)
LINE = st.sampled_from(
    [
        "",
        " \t",
        "\xa0",
        '{"text": "of"}\r',
        '{"text":\r"of"}',
        '{"te\\u0078t" : "a" }  ',
        '{"text": 1, "text": "b", "n": [1, -0.5e+3, {}, [], true, false, null, NaN, -Infinity, "\\n"]}',
        '{"n": {"text": 5}, "text": "\\ud83d\\ude00 \\/ \\b\\f\\r\\n\\t\\\\"}',
        '{"text": "last", "text": null}',
        '{"text": "\\udc00\\ud800"}',
        '{"text": "a"} x',
        '{"text": "a", }',
        '{"text": "a", "n": 01}',
        '{"text": "a", "n": .5}',
        '{"text": "a", "n": ' + "1" * 5000 + "}",
        '{"text": "a", "n": ' + "[" * 70 + "]" * 70 + "}",
        '{"text": "\t"}',
        '{"text": "\\x"}',
        '{"text": "\\u12g4"}',
        '{"text": "a',
        '{"body": "a"}',
        '["text"]',
    ]
)
LAST_ROWS: list[list[bytes | None]] = [[], [None], [b"a\xff"], [b"of"]]


@st.composite
def stored_file(draw: st.DrawFn) -> tuple[str, bytes]:
    """The suffix and the content of a file of any format, with or without faults."""
    kind = draw(st.sampled_from(["txt", "jsonl", "parquet"]))
    texts = draw(DOCUMENTS)
    if kind == "parquet":
        rows: list[bytes | None] = [text.encode(errors="surrogatepass") for text in texts]
        rows += draw(st.sampled_from(LAST_ROWS))
        groups = draw(st.integers(1, 3))
        content = pyarrow.BufferOutputStream()
        column = pyarrow.array(rows, pyarrow.binary()).view(pyarrow.string())
        parquet.write_table(pyarrow.table({"id": range(len(rows)), "text": column}), content, row_group_size=groups)
        return ".parquet", content.getvalue().to_pybytes()
    packing = draw(st.sampled_from(list(PACKINGS)))
    if kind == "txt":
        data = draw(FILE)
    else:
        records = [
            json.dumps({"text": text}, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
            for text in texts
        ]
        records += [line.encode() for line in draw(st.lists(LINE, max_size=2))]
        data = draw(st.sampled_from([b"\n", b"\r\n"])).join(draw(st.permutations(records)))
        data = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"])) + data
    packed = PACKINGS[packing](data)
    return f".{kind}{packing}", packed[: draw(st.sampled_from([None, None, None, -1]))]


@settings(max_examples=300)
@given(
    files=st.lists(stored_file(), min_size=1, max_size=3),
    config=CONFIG,
    errors=st.sampled_from(["strict", "replace"]),
    drops_blank_lines=st.booleans(),
    block=st.sampled_from([1, 7, 40, 1 << 20]),
)
def test_compiled_preparation_of_any_format_equals_python(
    files: list[tuple[str, bytes]], config: TokenizerConfig, errors: Errors, drops_blank_lines: bool, block: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(compiled_reader, "BLOCK", block):
        paths = [Path(folder) / f"{number}{suffix}" for number, (suffix, _) in enumerate(files)]
        for path, (_, content) in zip(paths, files, strict=True):
            path.write_bytes(content)
        corpus = Corpus.of(paths, errors=errors, drop_blank_lines=drops_blank_lines)
        fast = outcome(corpus, config)
        with python_implementation():
            assert outcome(corpus, config) == fast
        blocks = outcome_of(lambda: b"".join(text for _, text in TextPartition(corpus).blocks(block)).decode())
        assert blocks == outcome_of(lambda: "".join(corpus.blocks()))
        partitions = outcome_of(
            lambda: "".join(text.decode() for part in partition_corpus(corpus, block) for _, text in part.blocks())
        )
        assert partitions == blocks


def outcome_of(function: Callable[[], str]) -> str:
    """The result, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except ChainruleError as error:
            return f"{type(error).__name__}: {error}"


@settings(max_examples=40)
@given(texts=DOCUMENTS, config=CONFIG, errors=st.sampled_from(["strict", "replace"]), block=st.sampled_from([1, 9]))
def test_compiled_preparation_of_texts_in_memory_and_tables_equals_python(
    texts: list[str], config: TokenizerConfig, errors: Errors, block: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(compiled_reader, "BLOCK", block):
        table = Path(folder) / "table.csv"
        rows = "".join('{},"{}"\n'.format(i, text.replace('"', '""')) for i, text in enumerate(texts))
        table.write_bytes(f"id,text\n{rows}".encode(errors="replace"))
        in_memory = replace(Corpus.from_lines(texts), errors=errors)
        for corpus in (in_memory, Corpus.of(table, column="text", errors=errors)):
            fast = outcome(corpus, config)
            with python_implementation():
                assert outcome(corpus, config) == fast


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
@pytest.mark.parametrize("seed", range(4))
def test_long_lines_are_cut_as_in_python(tmp_path: Path, suffix: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    blanks = [" ", "\t", "\xa0", "\u2028", "\u2003", "\x1c", "\x85", "  ", " \u3000"]
    lines = []
    for length in (FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 3 * FRAGMENT, 10, 5 * FRAGMENT):
        longest = int(rng.choice([3, 1000, FRAGMENT]))
        line = ""
        while len(line) < length:
            line += blanks[rng.integers(len(blanks))] * int(rng.choice([1, 1, 1, 50, FRAGMENT // 2]))
            line += "xé日😀,."[rng.integers(6)] * int(rng.integers(1, longest))
        lines.append(line[:length])
    path = tmp_path / f"long{suffix}"
    stored = "\n".join(lines) if suffix == ".txt" else "".join(json.dumps({"text": line}) + "\n" for line in lines)
    path.write_text(stored, encoding="utf-8", newline="")
    corpus = Corpus.of(path)
    for config in (TokenizerConfig(kind="whitespace"), TokenizerConfig()):
        fast = outcome(corpus, config)
        with python_implementation():
            slow = outcome(corpus, config)
        assert fast == slow
    tokenizer = from_words(["x"], TokenizerConfig())  # encodes words of any length
    for ids_file in (None, tmp_path / "ids"):
        text, mark = encode.encode_with_fingerprint(corpus, tokenizer, ids_file=ids_file)
        with python_implementation():
            expected, expected_mark = encode.encode_with_fingerprint(corpus, tokenizer)
        if ids_file is not None:  # unknown words are counted instead of listed
            assert text.spelled.counts() == Counter(expected.spellings)
            text = replace(text, spellings=expected.spellings)
        assert parts(text) == parts(expected)
        assert (mark.sha256, mark.lines, mark.sketch.tolist()) == (
            expected_mark.sha256,
            expected_mark.lines,
            expected_mark.sketch.tolist(),
        )


def long_text() -> str:
    """Four million bytes of lines of all lengths, short and long words, and characters of one to four bytes."""
    rng = np.random.default_rng(5)
    words = [f"{'é日😀ab'[n % 5]}{n}" * (1 + n % 3) for n in range(5000)]
    lines = [
        " ".join(words[int(n)] for n in np.minimum(rng.geometric(0.003, size), 4999))
        for size in rng.integers(0, 60, 14000)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "config",
    [TokenizerConfig(), TokenizerConfig(min_count=3, unk="é0"), TokenizerConfig(kind="whitespace")],
)
def test_preparation_does_not_depend_on_threads(tmp_path: Path, config: TokenizerConfig, threads: int) -> None:
    (tmp_path / "one.txt").write_text(long_text(), encoding="utf-8")
    (tmp_path / "two.txt").write_text("é0 of the last file")
    corpus = Corpus.of(tmp_path)
    assert sum(file.size for file in corpus.files) > 3 << 20  # several pieces of 1 MiB
    with on_threads(threads):
        assert encode.count_words(corpus, config) is not None
        fast = outcome(corpus, config)
    with python_implementation():
        assert outcome(corpus, config) == fast


def within(folder: Path, limit: int = 1 << 40) -> MemoryLimit:
    return MemoryLimit(limit=limit, folder=folder, minimum=lambda tokens, words, has_words: 0)


def test_encode_words_writes_ids_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("b of\n\n c b b\n")
    tokenizer = from_words(["b", "c"], TokenizerConfig())
    corpus = Corpus.of(tmp_path / "text")
    result = encode.encode_words(corpus, tokenizer, tmp_path / "ids")
    assert result is not None
    text, _ = result
    # <unk> 0, b 1, c 2, <s> 3, </s> 4
    assert (tmp_path / "ids").read_bytes() == np.array([1, 0, 4, 4, 2, 1, 1, 4], dtype=np.int32).tobytes()
    assert text.ids.tolist() == [1, 0, 4, 4, 2, 1, 1, 4]
    assert text.spelled.counts() == {"of": 1}
    assert (text.words, text.characters, text.bytes) == (5, 12, 12)  # "b of\n\nc b b\n"


@pytest.mark.parametrize("text", ["a b a\n\nb c c\n", "a b a\r\n\r\nb c c\r\n"])
def test_prepared_ids_are_memory_mapped_if_a_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "text").write_bytes(text.encode())
    corpus = Corpus.of(tmp_path / "text")
    prepared = prepare_corpus(corpus, TokenizerConfig(), memory=within(tmp_path))
    assert isinstance(prepared.train.ids, np.memmap)
    in_memory = prepare_corpus(corpus, TokenizerConfig())
    assert parts(prepared.train) == parts(in_memory.train)
    assert (tmp_path / "ids").read_bytes() == in_memory.train.ids.tobytes()


def test_speller_is_trained_on_words_that_occur_once(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abc abc abd abd\nxyz\n")
    prepared = prepare_corpus(Corpus.of(tmp_path / "text"), TokenizerConfig())
    assert prepared.speller is not None
    assert prepared.speller.lm.alphabet == "xyz"


def test_speller_log_probs_equal_its_model(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abcabd abcabc xaxa\nb\n")
    speller = prepare_corpus(Corpus.of(tmp_path / "text"), TokenizerConfig()).speller
    assert speller is not None
    words = ["abcabd", "abcabcabc", "?", "xa?xa", "b"]
    for word, log_prob in zip(words, speller.log_probs(words), strict=True):
        ids = np.array([speller.lm.alphabet.find(c) for c in word])
        ids[ids < 0] = speller.lm.vocabulary.unk
        line = np.append(ids, speller.lm.vocabulary.eos)[None, :]
        batch = Batch(np.insert(line[:, :-1], 0, speller.lm.vocabulary.bos, axis=1), line, line >= 0)
        lm = TableModel(speller.lm.tables, speller.lm.vocabulary)
        scores, _ = lm.score(batch, lm.start(1))
        # Each unknown character shares with all but a, b, c, d, x, the two spaces and the two line breaks.
        others = np.log(0x110000 - 0x800 - 9) * word.count("?")
        assert log_prob == pytest.approx(scores.sum() - others - speller.log_outside, abs=1e-9)


@pytest.mark.data
def test_preparation_of_the_penn_treebank(data_folder: Path) -> None:
    path = data_folder / "ptb" / "ptb.train.txt"
    prepared = prepare_corpus(Corpus.of(path), TokenizerConfig())
    lines = path.read_text().splitlines()
    counts = Counter(word for line in lines for word in line.split())
    del counts["<unk>"]
    order = sorted(counts, key=lambda word: (-counts[word], word))
    ids = {"<unk>": 0} | {word: i for i, word in enumerate(order, start=1)}
    expected = [i for line in lines for i in (*(ids[word] for word in line.split()), len(ids) + 1)]
    assert prepared.train.ids.tolist() == expected
    assert prepared.fingerprint.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    digests = {hashlib.blake2b(line.encode(), digest_size=8).digest() for line in lines if len(line) >= 20}
    smallest = sorted(int.from_bytes(digest, "little") for digest in digests)[: 1 << 16]
    assert prepared.fingerprint.sketch.tolist() == smallest


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
@pytest.mark.parametrize("unk", ["<unk>", "UNKNOWN"])
def test_placeholder_is_not_a_spelling_example(kind: Kind, unk: str) -> None:
    """If all rare words are one placeholder, spelling is learned from the vocabulary's rare words."""
    words = [
        f"{a}{b}{c}" for a in ("kit", "mit", "bat", "rot") for b in ("te", "ta", "to") for c in ("n", "r", "d")
    ]
    text = [f"the {word} of the {unk} in a {word}" for word in words * 3]
    speller = prepare_corpus(Corpus.from_lines(text), TokenizerConfig(kind=kind, unk=unk)).speller
    assert speller is not None
    assert speller.placeholder == unk
    placeholder, word, gibberish = speller.log_probs([unk, "kitte", "qwzx"])
    assert placeholder == pytest.approx(-1 / 109, rel=1e-2)  # 108 of 108: ε = 1/109
    assert word > -25
    assert word > gibberish + 20


@pytest.mark.parametrize("text", [["<unk> <unk>"], ["<unk> a", "a <unk> a"]])
def test_preparation_of_a_text_of_placeholders(text: list[str]) -> None:
    speller = prepare_corpus(Corpus.from_lines(text), TokenizerConfig()).speller
    assert speller is not None
    assert np.isfinite(speller.log_probs(["<unk>", "kitten"])).all()
    assert speller.log_probs(["<unk>"])[0] > speller.log_probs(["kitten"])[0]


def test_speller_also_learns_from_rare_vocabulary_words() -> None:
    """One word is below the cut-off: the rare words of a large vocabulary are used too."""
    words = [f"{a}{b}{c}" for a in "bcdfgm" for b in ("an", "en", "in") for c in ("ter", "ner")]
    lines = [f"{word} {word} {word}" for word in words]
    both = prepare_corpus(Corpus.from_lines([*lines, "xx <unk> <unk>"]), TokenizerConfig(min_count=2)).speller
    assert both is not None
    assert both.log_probs(["<unk>"])[0] == pytest.approx(np.log(1 - 2 / 4))  # one of three is another word
    assert both.log_probs(["minner"])[0] > -20
    assert set("xbcdfgm") <= set(both.lm.alphabet)
