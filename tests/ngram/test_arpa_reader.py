"""Every maker's ARPA file is read as documented, every damaged one refused with its line."""

import gzip
import lzma
import re
import tracemalloc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chainrule.errors import ChainruleWarning, InputError, NotFoundError
from chainrule.lm import Batch, Vocabulary
from chainrule.ngram.arpa_reader import Arpa, read
from chainrule.ngram.model import NgramModel

TINY = r"""\data\
ngram 1=5
ngram 2=2
ngram 3=1

\1-grams:
-1	<unk>
-99	<s>	-0.5
-0.6	</s>
-0.3	a	-0.2
-0.4	b	-0.1

\2-grams:
-0.1	<s> a
-0.2	a b	-0.05

\3-grams:
-0.07	<s> a b

\end\
"""


def model_of(arpa: Arpa) -> NgramModel:
    V = len(arpa.words) + 3
    return NgramModel(arpa.tables, Vocabulary(V, bos=V - 2, eos=V - 1, unk=0, closed=not arpa.has_unk))


def read_text(folder: Path, text: str | bytes) -> Arpa:
    path = folder / "model.arpa"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def log10_scores(arpa: Arpa, sentence: str) -> list[float]:
    """log10 p of each word and of the end."""
    lm = model_of(arpa)
    names = [arpa.unk, *arpa.words, "<s>", "</s>"]
    ids = np.array([[names.index(word) if word in names else 0 for word in [*sentence.split(), "</s>"]]])
    inputs = np.insert(ids[:, :-1], 0, lm.vocabulary.bos, axis=1)
    log_p, _ = lm.score(Batch(inputs, ids, np.ones(ids.shape, dtype=bool)), lm.start(1))
    return (log_p[0] / np.log(10)).tolist()  # type: ignore[no-any-return]


def expect(arpa: Arpa, sentence: str, log10: list[float]) -> None:
    assert_allclose(log10_scores(arpa, sentence), log10, rtol=1e-6)


def test_a_tiny_file_by_hand(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY)
    assert (arpa.words, arpa.has_unk, arpa.unk) == (["a", "b"], True, "<unk>")
    assert [len(level) for level in arpa.tables.levels] == [5, 2, 1]
    # p(a | <s>); p(b | <s> a), the trigram; weight(a b) weight(b) p(</s>) = -0.05 - 0.1 - 0.6
    expect(arpa, "a b", [-0.1, -0.07, -0.75])
    # weight(<s>) p(b) = -0.5 - 0.4; <s> b was never seen: weight(b) p(</s>) = -0.1 - 0.6
    expect(arpa, "b", [-0.9, -0.7])
    # weight(<s>) p(<unk>) = -0.5 - 1; p(<unk>) as a context weighs 1: p(a); weight(a) p(a); weight(a) p(</s>)
    expect(arpa, "zebra a a", [-1.5, -0.3, -0.5, -0.8])


def test_keys_are_sorted_and_single_precision(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY)
    # V = 5, <unk> a b <s> </s> = 0 … 4: a b = 1·5 + 2, <s> a = 3·5 + 1; <s> a is bigram row 1: 1·5 + 2
    assert [level.key.tolist() for level in arpa.tables.levels] == [[0, 1, 2, 3, 4], [7, 16], [7]]
    for level in arpa.tables.levels:
        assert level.key.dtype == np.int64
        assert level.log_prob.dtype == level.log_backoff.dtype == np.float32


@pytest.mark.parametrize(
    "text",
    [
        TINY.replace("\n", "\r\n"),
        "\ufeff" + TINY,
        TINY.replace("\t", "   "),
        TINY.replace("\t", " \t ").replace("<s> a", "<s>\t a"),
        TINY.replace("\n", " \n"),
        TINY.replace("\n", "\n\n"),
        TINY.replace("\n\n", "\n").removesuffix("\n"),
        "iARPA made by hand\n\n1-grams: five\n" + TINY,
        TINY.replace("ngram 1=5", "ngram  1 =  5"),
        TINY + "what follows \0 is not read\n\\1-grams:\n",
        TINY.replace("-99", "-inf"),
        TINY.replace("-99", "-104.5"),
        TINY.replace("-99", "-1.2"),
        TINY.replace("<s> a b", "<s> a b\t0"),
        TINY.replace("-0.07", "-7E-2"),
    ],
    ids=lambda text: repr(text[:24]),
)
def test_all_ways_to_write_it_are_one_model(tmp_path: Path, text: str) -> None:
    for ours, theirs in zip(
        read_text(tmp_path, TINY).tables.levels, read_text(tmp_path, text).tables.levels, strict=True
    ):
        assert ours.key.tolist() == theirs.key.tolist()
        assert ours.log_prob.tolist() == theirs.log_prob.tolist()
        assert ours.log_backoff.tolist() == theirs.log_backoff.tolist()


def test_packed_files(tmp_path: Path) -> None:
    for packed in (gzip.compress(TINY.encode()), lzma.compress(TINY.encode())):
        expect(read_text(tmp_path, packed), "b", [-0.9, -0.7])


def test_zeros(tmp_path: Path) -> None:
    text = TINY.replace("-0.4\tb\t-0.1", "-99\tb\t-inf")
    # p(b) = 0, and after b nothing but what was seen is possible: weight(b) = 0
    arpa = read_text(tmp_path, text)
    assert log10_scores(arpa, "b") == [-np.inf, -np.inf]
    assert_allclose(log10_scores(arpa, "a b"), [-0.1, -0.07, -np.inf], rtol=1e-6)


def test_a_one_that_was_rounded_up(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("-0.07", "4.3e-7"))
    assert arpa.tables.levels[2].log_prob.tolist() == [0.0]


def test_the_start_is_never_predicted(tmp_path: Path) -> None:
    text = TINY.replace("-99", "-0.2").replace("a b\t-0.05", "a <s>\t-0.05")
    levels = read_text(tmp_path, text).tables.levels
    assert levels[0].log_prob[3] == -np.inf
    assert levels[1].log_prob[levels[1].key.tolist().index(1 * 5 + 3)] == -np.inf


def test_words_of_other_blanks_and_marks(tmp_path: Path) -> None:
    odd = ["a\u00a0b", "\x0c", "c\u2028d", "\\1-grams:", "-1", "x\x85"]
    entries = "".join(f"-1\t{word}\n" for word in odd)
    arpa = read_text(tmp_path, f"\\data\\\nngram 1=7\n\n\\1-grams:\n-1\t</s>\n{entries}\n\\end\\\n")
    assert arpa.words == odd


def test_no_unknown_word(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("1=5", "1=4").replace("-1\t<unk>\n", ""))
    assert (arpa.has_unk, arpa.unk) == (False, "<unk>")
    assert log10_scores(arpa, "zebra")[0] == -np.inf
    expect(arpa, "b", [-0.9, -0.7])


def test_the_other_spelling_of_the_unknown_word(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("<unk>", "<UNK>"))
    assert (arpa.has_unk, arpa.unk, arpa.words) == (True, "<UNK>", ["a", "b"])
    expect(arpa, "zebra", [-1.5, -0.6])
    both = read_text(tmp_path, TINY.replace("1=5", "1=6").replace("-1\t<unk>", "-2\t<UNK>\n-1\t<unk>"))
    assert (both.unk, both.words) == ("<unk>", ["<UNK>", "a", "b"])


def test_no_start(tmp_path: Path) -> None:
    text = "\\data\\\nngram 1=2\nngram 2=1\n\\1-grams:\n-0.6 </s>\n-0.3 a -0.2\n\\2-grams:\n-0.1 a a\n\\end\\\n"
    # <s> as a context weighs 1: p(a); p(a | a); weight(a) p(</s>)
    expect(read_text(tmp_path, text), "a a", [-0.3, -0.1, -0.8])


def test_no_end(tmp_path: Path) -> None:
    text = TINY.replace("1=5", "1=4").replace("-0.6\t</s>\n", "")
    with pytest.warns(ChainruleWarning, match="every line is impossible"):
        arpa = read_text(tmp_path, text)
    assert log10_scores(arpa, "a b")[-1] == -np.inf


def test_an_empty_highest_order(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("3=1", "3=0").replace("-0.07\t<s> a b\n", ""))
    # p(b | <s> a) = p(b | a), <s> a weighing 1; the weight of a b still counts, as in the first test.
    expect(arpa, "a b", [-0.1, -0.2, -0.75])


def test_progress_and_the_ways_to_name_no_file(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (tmp_path / "model.arpa").write_text(TINY)
    read(tmp_path / "model.arpa", lambda *call: seen.append(call))
    assert seen == [
        ("reading 1-grams", 5, 5),
        ("reading 2-grams", 2, 2),
        ("reading 3-grams", 1, 1),
        ("building tables", 0, None),
    ]
    with pytest.raises(NotFoundError):
        read(tmp_path / "absent.arpa")
    (tmp_path / "second.arpa").write_text(TINY)
    with pytest.raises(InputError, match="holds 2 files; name one"):
        read(tmp_path)


PRUNED = r"""\data\
ngram 1=5
ngram 2=1
ngram 3=0
ngram 4=1
\1-grams:
-1 </s>
-0.9 <s> -0.5
-0.8 a -0.3
-0.7 b -0.2
-0.6 c -0.1
\2-grams:
-0.4 b c -0.15
\3-grams:
\4-grams:
-0.2 a b c </s>
\end\
"""


def test_missing_contexts_by_hand(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, PRUNED)
    assert [len(level) for level in arpa.tables.levels] == [6, 2, 1, 1]
    # p(a | <s>) = weight(<s>) p(a) = -0.5 - 0.8.  p(b | <s> a) = weight(a) p(b) = -0.3 - 0.7, also stored as a b.
    # p(c | a b) = p(c | b) = -0.4, a b weighing 1; stored as a b c.  p(</s> | a b c) = -0.2, listed.
    expect(arpa, "a b c", [-1.3, -1.0, -0.4, -0.2])
    # After a b c anything but </s> backs off with weight(a b c) = 1: weight(b c) weight(c) p(a) = -0.15 - 0.1 - 0.8
    expect(arpa, "a b c a", [-1.3, -1.0, -0.4, -1.05, -1.3])


def test_a_missing_context_is_at_most_certain(tmp_path: Path) -> None:
    # weight(a) p(b) = 10^(0.9 - 0.7), more than 1: a b is stored with probability 1. V = 6, a = 1, b = 2.
    bigrams = read_text(tmp_path, PRUNED.replace("a -0.3", "a 0.9")).tables.levels[1]
    assert bigrams.log_prob[bigrams.key.tolist().index(1 * 6 + 2)] == 0


Entries = dict[tuple[str, ...], tuple[float, float]]


def spelled(entries: Entries, order: int) -> str:
    """An ARPA text of n-grams: (log10 p, log10 weight)."""
    by_order = [{g: v for g, v in entries.items() if len(g) == n} for n in range(1, order + 1)]
    lines = ["\\data\\", *(f"ngram {n}={len(some)}" for n, some in enumerate(by_order, start=1))]
    for n, some in enumerate(by_order, start=1):
        lines.append(f"\\{n}-grams:")
        lines += [f"{p}\t{' '.join(g)}" + (f"\t{b}" if n < order else "") for g, (p, b) in some.items()]
    return "\n".join([*lines, "\\end\\"])


def backed_off(entries: Entries, h: tuple[str, ...], w: str) -> float:
    """The definition: the listed log10 p(w | h), else weight(h) p(w | shorter h), a missing weight being 1."""
    if (*h, w) in entries:
        return entries[*h, w][0]
    return entries.get(h, (0.0, 0.0))[1] + backed_off(entries, h[1:], w)


GRAMS = [gram for n in (2, 3, 4) for gram in product("ab", repeat=n)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    listed=st.sets(st.sampled_from(GRAMS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_set_of_ngrams_scores_by_the_definition(
    tmp_path: Path, listed: set[tuple[str, ...]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    entries = {
        gram: (-round(float(rng.uniform(0.5, 2)), 3), -round(float(rng.uniform(0, 0.5)), 3))
        for gram in [("<s>",), ("</s>",), ("a",), ("b",), *sorted(listed)]
    }
    arpa = read_text(tmp_path, spelled(entries, 4))
    for words in product("ab", repeat=6):
        read_so_far = ["<s>", *words]
        expected = [backed_off(entries, tuple(read_so_far[max(0, t - 3) : t]), read_so_far[t]) for t in range(1, 7)]
        assert_allclose(log10_scores(arpa, " ".join(words))[:-1], expected, rtol=1e-5)


FAULTS = [
    # what, instead of what, line, message
    ("ngram 1=-5", "ngram 1=5", 2, "'ngram 1=-5' is not a count"),
    ("ngram 1=1e3", "ngram 1=5", 2, "is not a count"),
    ("ngram 1=" + "9" * 5000, "ngram 1=5", 2, "is not a count"),
    ("ngram 2=five", "ngram 2=2", 3, "is not a count"),
    ("ngram 3=2", "ngram 3=1", 20, "line 4 counts 2 3-grams, but 1 were listed"),
    ("ngram 3=999999999999999999", "ngram 3=1", 20, "line 4 counts 999999999999999999 3-grams"),
    ("ngram 1=6", "ngram 1=5", 13, "line 2 counts 6 1-grams, but 5 were listed"),
    ("ngram 1=4", "ngram 1=5", 11, "line 2 counts 4 1-grams, but here is one more"),
    ("ngram 2=0", "ngram 2=2", 14, "line 3 counts 0 2-grams, but here is one more"),
    ("ngram 4=1", "ngram 3=1", 4, "counts order 4 where order 3 comes next"),
    ("ngram 2=1", "ngram 3=1", 4, "counts order 2 where order 3 comes next"),
    ("ngrams: 3", "ngram 3=1", 4, "expected 'ngram 3=COUNT'"),
    ("\\3-grams:", "\\2-grams:", 13, "expected \\2-grams: but found '\\\\3-grams:'"),
    ("\\2-gram", "\\2-grams:", 13, "expected \\2-grams:"),
    ("\\4-grams:", "\\end\\", 20, "expected \\end\\ but found"),
    ("nan\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("inf\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("0.2\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("2e-6\ta b", "-0.2\ta b", 15, "not a number of 0 or less"),
    ("-0,2\ta b", "-0.2\ta b", 15, "'-0,2' is not a number"),
    ("-1_0\ta b", "-0.2\ta b", 15, "'-1_0' is not a number"),
    ("-٢\ta b", "-0.2\ta b", 15, "is not a number"),
    ("a b\tnan", "a b\t-0.05", 15, "back-off weight is not a finite number"),
    ("a b\tinf", "a b\t-0.05", 15, "back-off weight is not a finite number"),
    ("a b\tlow", "a b\t-0.05", 15, "'low' is not a number"),
    ("<s> a b\t-1", "<s> a b", 18, "a back-off weight in the highest order"),
    ("-0.2\ta", "-0.2\ta b\t-0.05", 15, "2 fields; an entry here has a log-probability, 2 words"),
    ("-0.2", "-0.2\ta b\t-0.05", 15, "1 fields"),
    ("a b b\t-0.05", "a b\t-0.05", 15, "5 fields"),
    ("a b\t-0.05\t-0.3", "a b\t-0.05", 15, "5 fields"),
    ("-0.4\tb c d", "-0.4\tb\t-0.1", 11, "4 fields"),
    ("-1\ta", "-1\t<unk>", 10, "the same n-gram as in line 7"),
    ("<s> a\t-0.05", "a b\t-0.05", 15, "the same n-gram as in line 14"),
    ("a z\t-0.05", "a b\t-0.05", 15, "a word of 'a z' is not among the 1-grams"),
    ("<s> a\u00a0b", "<s> a b", 18, "3 fields"),
    ("a\0b", "a b", 15, "NUL"),
    ("\0", "-0.4\tb", 11, "NUL"),
]


@pytest.mark.parametrize(("wrong", "right", "line", "message"), FAULTS, ids=[repr(f[0][:20]) for f in FAULTS])
def test_faults_have_their_line(tmp_path: Path, wrong: str, right: str, line: int, message: str) -> None:
    text = TINY.replace(right, wrong, 1)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_text(tmp_path, text)
    assert f"model.arpa, line {line}: " in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty; it is not an ARPA file"),
        (b"It was a dark\nand stormy night.", "has no \\data\\ in its 2 lines"),
        (b"\\data\\\n", "line 1: the file ends in its header"),
        (b"\\data\\\n\\1-grams:\n", "line 2: the header counts no n-grams"),
        (b"\\data\\\nngram 1=0\n\\1-grams:\n\\end\\\n", "lists no words"),
        (TINY.encode("utf-16"), "line 1: holds a NUL byte"),
        (TINY.replace("\tb\t", "\tb\xe9\t").encode("latin-1"), "line 11: not UTF-8"),
        (TINY.replace("a b\t", "a \xe9\t").encode("latin-1"), "line 15: not UTF-8"),
        (TINY.removesuffix("\\end\\\n").encode(), "line 19: the file ends in its 3-grams, without \\end\\"),
        (TINY.split("-0.2\ta b")[0].encode(), "line 14: the file ends in its 2-grams, without \\end\\"),
        (gzip.compress(TINY.encode(), mtime=0)[:60], "gzip data cut short"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_whole_files_that_are_none(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read_text(tmp_path, text)


def test_among_many_the_later_of_two_is_refused(tmp_path: Path) -> None:
    words = [f"w{i % 499}" for i in range(500)]
    text = "\n".join(["\\data\\", "ngram 1=500", "\\1-grams:", *(f"-3 {word}" for word in words), "\\end\\"])
    with pytest.raises(InputError, match="line 503: the same n-gram as in line 4"):
        read_text(tmp_path, text)


def test_the_highest_order_there_is(tmp_path: Path) -> None:
    entries: Entries = {("</s>",): (-0.5, 0.0), ("a",): (-0.5, 0.0), ("a",) * 32: (-0.1, 0.0)}
    assert read_text(tmp_path, spelled(entries, 32)).tables.order == 32
    with pytest.raises(InputError, match="line 34: order 33 is above 32"):
        read_text(tmp_path, spelled(entries, 33))


@contextmanager
def at_most(mebibytes: float) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < mebibytes * 2**20
    finally:
        tracemalloc.stop()


def test_a_claim_takes_no_memory(tmp_path: Path) -> None:
    huge = re.sub("=[0-9]", "=1000000000000", TINY)
    with at_most(4), pytest.raises(InputError, match="line 2 counts 1000000000000 1-grams"):
        read_text(tmp_path, huge)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("line", [1, 14])
def test_a_long_line_takes_no_memory(tmp_path: Path, line: int, is_packed: bool) -> None:
    lines = TINY.encode().split(b"\n")
    lines[line - 1] = b"-0.2 " + b"a" * 40_000_000
    text = b"\n".join(lines)
    (tmp_path / "model.arpa").write_bytes(gzip.compress(text, 1) if is_packed else text)
    with at_most(8), pytest.raises(InputError, match=f"line {line}: longer than 1048576 bytes"):
        read(tmp_path / "model.arpa")


Edit = tuple[int, int, bytes]  # at this byte, instead of so many, this


def edited(text: bytes, edits: Sequence[Edit], length: int) -> bytes:
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    return text[:length]


PIECES = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([b"\n", b"\t", b"-", b"9", b"nan", b"\\end\\\n", b"<s> ", b"\n-0.1\ta b\n", b"\n\\4-grams:\n"]),
)


@settings(deadline=2000, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, len(PRUNED)), st.integers(0, 3), PIECES), max_size=3),
    length=st.one_of(st.just(1 << 20), st.integers(0, len(PRUNED))),
    text=st.sampled_from([TINY.encode(), PRUNED.encode()]),
)
@example(edits=[], length=1 << 20, text=TINY.encode())
@example(edits=[(TINY.index("-0.5"), 1, b"")], length=1 << 20, text=TINY.encode())
def test_an_edited_file_is_a_model_or_an_error(tmp_path: Path, edits: list[Edit], length: int, text: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        try:
            arpa = read_text(tmp_path, edited(text, edits, length))
        except InputError:
            return
    for level in arpa.tables.levels:
        assert (level.log_prob <= 0).all()
        assert (level.log_backoff < np.inf).all()
        assert (np.diff(level.key) > 0).all()
    assert not np.isnan(log10_scores(arpa, "a b c a")).any()


def test_the_unedited_files_are_models(tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    assert {read_text(tmp_path, text).tables.order for text in (TINY, PRUNED)} == {3, 4}
