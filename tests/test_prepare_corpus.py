"""Corpora prepared by the compiled extension and by the Python implementation are identical."""

import hashlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.data.encoded import EncodedText
from chainrule.errors import ChainruleError
from chainrule.lm import Batch
from chainrule.prepared_corpus import PreparedCorpus, prepare_corpus
from chainrule.text import corpus as plain
from chainrule.text.corpus import Corpus
from chainrule.text.readers import Errors
from chainrule.tokenizers import encode as plain_words
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
        mock.patch.object(plain_words, "find_plain_files", return_value=None),
        mock.patch("chainrule.text.fingerprint.find_plain_files", return_value=None),
    ):
        yield


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    find_plain_files = plain.find_plain_files

    def with_threads(corpus: Corpus) -> plain.PlainFiles | None:
        files = find_plain_files(corpus)
        return files and plain.PlainFiles(files.names, threads)

    with (
        mock.patch.object(plain_words, "find_plain_files", with_threads),
        mock.patch("chainrule.text.fingerprint.find_plain_files", with_threads),
    ):
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


def is_plain(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and "\r" not in text and not text.startswith("\ufeff")


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
        is_taken = plain_words.count_words(corpus, config) is not None
        assert is_taken == (all(map(is_plain, files)) and not config.lowercase)
        fast = outcome(corpus, config)
        with python_implementation():
            assert outcome(corpus, config) == fast


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
        assert plain_words.count_words(corpus, config) is not None
        fast = outcome(corpus, config)
    with python_implementation():
        assert outcome(corpus, config) == fast


def test_encode_words_writes_ids_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("b of\n\n c b b\n")
    tokenizer = from_words(["b", "c"], TokenizerConfig())
    corpus = Corpus.of(tmp_path / "text")
    text = plain_words.encode_words(corpus, tokenizer, tmp_path / "ids")
    assert text is not None
    # <unk> 0, b 1, c 2, <s> 3, </s> 4
    assert (tmp_path / "ids").read_bytes() == np.array([1, 0, 4, 4, 2, 1, 1, 4], dtype=np.int32).tobytes()
    assert text.ids.tolist() == [1, 0, 4, 4, 2, 1, 1, 4]
    assert text.spellings == ["of"]
    assert (text.words, text.characters, text.bytes) == (5, 12, 12)  # "b of\n\nc b b\n"


@pytest.mark.parametrize("text", ["a b a\n\nb c c\n", "a b a\r\n\r\nb c c\r\n"])
def test_prepared_ids_are_memory_mapped_if_a_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "text").write_bytes(text.encode())
    corpus = Corpus.of(tmp_path / "text")
    prepared = prepare_corpus(corpus, TokenizerConfig(), ids_file=tmp_path / "ids")
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
