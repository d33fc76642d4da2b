"""Reading valid ARPA files of all supported tools; invalid files are in test_arpa_sections.py."""

import gzip
import lzma
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chainrule.errors import ChainruleWarning, InputError, NotFoundError
from chainrule.ngram.arpa import read
from ngram.arpa_files import PRUNED, TINY, Entries, arpa_text, expect, log10_scores, read_text


def test_arpa_reader_scores_a_small_file_worked_by_hand(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY)
    assert (arpa.words, arpa.has_unk, arpa.unk) == (["a", "b"], True, "<unk>")
    assert [len(level) for level in arpa.tables.levels] == [5, 2, 1]
    # p(a | <s>); p(b | <s> a), the trigram; weight(a b) weight(b) p(</s>) = -0.05 - 0.1 - 0.6
    expect(arpa, "a b", [-0.1, -0.07, -0.75])
    # weight(<s>) p(b) = -0.5 - 0.4; <s> b was never seen: weight(b) p(</s>) = -0.1 - 0.6
    expect(arpa, "b", [-0.9, -0.7])
    # weight(<s>) p(<unk>) = -0.5 - 1; p(<unk>) as a context weighs 1: p(a); weight(a) p(a); weight(a) p(</s>)
    expect(arpa, "zebra a a", [-1.5, -0.3, -0.5, -0.8])


def test_arpa_reader_sorts_keys_and_uses_float32(tmp_path: Path) -> None:
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
def test_arpa_reader_accepts_equivalent_spellings(tmp_path: Path, text: str) -> None:
    for ours, theirs in zip(
        read_text(tmp_path, TINY).tables.levels, read_text(tmp_path, text).tables.levels, strict=True
    ):
        assert ours.key.tolist() == theirs.key.tolist()
        assert ours.log_prob.tolist() == theirs.log_prob.tolist()
        assert ours.log_backoff.tolist() == theirs.log_backoff.tolist()


def test_arpa_reader_reads_compressed_files(tmp_path: Path) -> None:
    for packed in (gzip.compress(TINY.encode()), lzma.compress(TINY.encode())):
        expect(read_text(tmp_path, packed), "b", [-0.9, -0.7])


def test_arpa_reader_reads_zero_probabilities(tmp_path: Path) -> None:
    text = TINY.replace("-0.4\tb\t-0.1", "-99\tb\t-inf")
    # p(b) = 0, and weight(b) = 0: after b only stored words are possible
    arpa = read_text(tmp_path, text)
    assert log10_scores(arpa, "b") == [-np.inf, -np.inf]
    assert_allclose(log10_scores(arpa, "a b"), [-0.1, -0.07, -np.inf], rtol=1e-6)


def test_arpa_reader_clips_probabilities_rounded_above_one(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("-0.07", "4.3e-7"))
    assert arpa.tables.levels[2].log_prob.tolist() == [0.0]


def test_arpa_reader_never_predicts_bos(tmp_path: Path) -> None:
    text = TINY.replace("-99", "-0.2").replace("a b\t-0.05", "a <s>\t-0.05")
    levels = read_text(tmp_path, text).tables.levels
    assert levels[0].log_prob[3] == -np.inf
    assert levels[1].log_prob[levels[1].key.tolist().index(1 * 5 + 3)] == -np.inf


def test_arpa_reader_accepts_unusual_words(tmp_path: Path) -> None:
    unusual = ["a\u00a0b", "\x0c", "c\u2028d", "\\1-grams:", "-1", "x\x85"]
    entries = "".join(f"-1\t{word}\n" for word in unusual)
    arpa = read_text(tmp_path, f"\\data\\\nngram 1=7\n\n\\1-grams:\n-1\t</s>\n{entries}\n\\end\\\n")
    assert arpa.words == unusual


def test_arpa_reader_without_unk(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("1=5", "1=4").replace("-1\t<unk>\n", ""))
    assert (arpa.has_unk, arpa.unk) == (False, "<unk>")
    assert log10_scores(arpa, "zebra")[0] == -np.inf
    expect(arpa, "b", [-0.9, -0.7])


def test_arpa_reader_accepts_upper_case_unk(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("<unk>", "<UNK>"))
    assert (arpa.has_unk, arpa.unk, arpa.words) == (True, "<UNK>", ["a", "b"])
    expect(arpa, "zebra", [-1.5, -0.6])
    both = read_text(tmp_path, TINY.replace("1=5", "1=6").replace("-1\t<unk>", "-2\t<UNK>\n-1\t<unk>"))
    assert (both.unk, both.words) == ("<unk>", ["<UNK>", "a", "b"])


def test_arpa_reader_without_bos(tmp_path: Path) -> None:
    text = "\\data\\\nngram 1=2\nngram 2=1\n\\1-grams:\n-0.6 </s>\n-0.3 a -0.2\n\\2-grams:\n-0.1 a a\n\\end\\\n"
    # <s> as a context weighs 1: p(a); p(a | a); weight(a) p(</s>)
    expect(read_text(tmp_path, text), "a a", [-0.3, -0.1, -0.8])


def test_arpa_reader_without_eos_warns(tmp_path: Path) -> None:
    text = TINY.replace("1=5", "1=4").replace("-0.6\t</s>\n", "")
    with pytest.warns(ChainruleWarning, match="every line is impossible"):
        arpa = read_text(tmp_path, text)
    assert log10_scores(arpa, "a b")[-1] == -np.inf


def test_arpa_reader_accepts_an_empty_highest_order(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, TINY.replace("3=1", "3=0").replace("-0.07\t<s> a b\n", ""))
    # p(b | <s> a) = p(b | a), weight(<s> a) = 1; weight(a b) still applies, as in the first test.
    expect(arpa, "a b", [-0.1, -0.2, -0.75])


def test_arpa_reader_reports_progress_and_missing_files(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    (tmp_path / "model.arpa").write_text(TINY)
    read(tmp_path / "model.arpa", lambda *call: calls.append(call))
    assert calls == [
        ("reading 1-grams", 5, 5),
        ("reading 2-grams", 2, 2),
        ("reading 3-grams", 1, 1),
        ("building tables", 0, None),
    ]
    with pytest.raises(NotFoundError):
        read(tmp_path / "absent.arpa")
    (tmp_path / "second.arpa").write_text(TINY)
    with pytest.raises(InputError, match="refers to 2 files; give one"):
        read(tmp_path)


def test_arpa_reader_restores_missing_contexts_worked_by_hand(tmp_path: Path) -> None:
    arpa = read_text(tmp_path, PRUNED)
    assert [len(level) for level in arpa.tables.levels] == [6, 2, 1, 1]
    # p(a | <s>) = weight(<s>) p(a) = -0.5 - 0.8. p(b | <s> a) = weight(a) p(b) = -0.3 - 0.7, also stored as a b.
    # p(c | a b) = p(c | b) = -0.4, weight(a b) = 1; stored as a b c. p(</s> | a b c) = -0.2, listed.
    expect(arpa, "a b c", [-1.3, -1.0, -0.4, -0.2])
    # After a b c everything but </s> backs off with weight(a b c) = 1: weight(b c) weight(c) p(a) = -0.15 - 0.1 -
    # 0.8
    expect(arpa, "a b c a", [-1.3, -1.0, -0.4, -1.05, -1.3])


def test_arpa_reader_caps_restored_probabilities_at_one(tmp_path: Path) -> None:
    # weight(a) p(b) = 10^(0.9 - 0.7), more than 1: a b is stored with probability 1. V = 6, a = 1, b = 2.
    bigrams = read_text(tmp_path, PRUNED.replace("a -0.3", "a 0.9")).tables.levels[1]
    assert bigrams.log_prob[bigrams.key.tolist().index(1 * 6 + 2)] == 0


def backed_off(entries: Entries, h: tuple[str, ...], w: str) -> float:
    """By definition: the listed log10 p(w | h), or weight(h) p(w | shorter h), where a missing weight is 1."""
    if (*h, w) in entries:
        return entries[*h, w][0]
    return entries.get(h, (0.0, 0.0))[1] + backed_off(entries, h[1:], w)


GRAMS = [gram for n in (2, 3, 4) for gram in product("ab", repeat=n)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    listed=st.sets(st.sampled_from(GRAMS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_arpa_reader_scores_any_set_of_ngrams_correctly(
    tmp_path: Path, listed: set[tuple[str, ...]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    entries = {
        gram: (-round(float(rng.uniform(0.5, 2)), 3), -round(float(rng.uniform(0, 0.5)), 3))
        for gram in [("<s>",), ("</s>",), ("a",), ("b",), *sorted(listed)]
    }
    arpa = read_text(tmp_path, arpa_text(entries, 4))
    for words in product("ab", repeat=6):
        read_so_far = ["<s>", *words]
        expected = [backed_off(entries, tuple(read_so_far[max(0, t - 3) : t]), read_so_far[t]) for t in range(1, 7)]
        assert_allclose(log10_scores(arpa, " ".join(words))[:-1], expected, rtol=1e-5)


@pytest.mark.parametrize("place", [0, 777, 1500, 2997])
def test_arpa_reader_rejects_an_invalid_backoff_weight(tmp_path: Path, place: int) -> None:
    """3,000 normalised contexts except one, whose back-off weight 10 ** 0.3 makes it sum to about 2."""
    words = [*(f"w{i}" for i in range(2998)), "</s>"]
    log_prob = math.log10(1 / (len(words) + 1))
    weights = ["0"] * len(words)
    weights[place] = "0.3"
    unigrams = [f"{log_prob:.7f}\t{word}\t{weight}" for word, weight in zip(words, weights, strict=True)]
    unigrams += [f"{log_prob:.7f}\t<unk>\t0", "-99\t<s>\t0"]
    bigrams = [f"{log_prob:.7f}\t<s> w5"]
    parts = ["\\data\\", f"ngram 1={len(unigrams)}", "ngram 2=1", "", "\\1-grams:", *unigrams]
    parts += ["", "\\2-grams:", *bigrams, "", "\\end\\", ""]
    path = tmp_path / "bad.arpa"
    path.write_text("\n".join(parts), encoding="utf-8")
    with pytest.warns(ChainruleWarning, match=r"is not normalized: .* sum to 1 ± 0\.99"):
        read(path, check_sums=True)
