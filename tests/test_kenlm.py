"""The kenlm interface, checked against hand-computed numbers and the definition of an ARPA file."""

import bz2
import copy
import gzip
import lzma
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import chainrule
from chainrule import kenlm
from chainrule.applications import convert
from chainrule.errors import ChainruleError
from clients import brute_force

# p: <unk> 0.1, a 0.4, b 0.3, </s> 0.2; p(a | <s>) = 0.7, weight(<s>) = 0.5; p(b | a) = 0.5, p(</s> | a) = 0.2,
# weight(a) = 0.6; p(b | <s> a) = 0.6, weight(<s> a) = 0.8. Entries without weight have weight 1.
ARPA = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1\t<unk>
-99\t<s>\t-0.30103
-0.69897\t</s>
-0.39794\ta\t-0.2218487
-0.5228787\tb

\\2-grams:
-0.154902\t<s> a\t-0.09691
-0.69897\ta </s>
-0.30103\ta b

\\3-grams:
-0.2218487\t<s> a b

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    path = tmp_path / "small.arpa"
    path.write_text(ARPA)
    return path


def log10(*probabilities: float) -> float:
    return sum(math.log10(p) for p in probabilities)


def test_kenlm_sentence_scores_worked_by_hand(arpa: Path) -> None:
    model = kenlm.Model(str(arpa))
    assert model.order == 3
    # p(a | <s>) p(b | <s> a) p(</s> | a b): no context is listed for the last
    assert model.score("a b") == pytest.approx(log10(0.7, 0.6, 0.2), abs=1e-5)
    # p(a) p(b | a)
    assert model.score("a b", bos=False, eos=False) == pytest.approx(log10(0.4, 0.5), abs=1e-5)
    # weight(<s>) p(<unk>), then p(a), then weight(a) of p(a | a)
    expected = [(log10(0.5, 0.1), 1, True), (log10(0.4), 1, False), (log10(0.6, 0.4), 1, False)]
    result = list(model.full_scores("zebra a a", eos=False))
    assert [answer[1:] for answer in result] == [answer[1:] for answer in expected]
    assert_allclose([answer[0] for answer in result], [answer[0] for answer in expected], atol=1e-5)
    assert model.perplexity("a b") == pytest.approx((0.7 * 0.6 * 0.2) ** (-1 / 3), rel=1e-5)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstandard.compress)],
)
def test_kenlm_reads_compressed_arpa_files(
    arpa: Path, tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    """The formats that docs/kenlm.md names."""
    packed = tmp_path / f"packed.arpa{suffix}"
    packed.write_bytes(compress(arpa.read_bytes()))
    assert kenlm.Model(str(packed)).score("a b") == kenlm.Model(str(arpa)).score("a b")


def test_kenlm_states_worked_by_hand(arpa: Path) -> None:
    model = kenlm.Model(arpa)
    begin, one, two = kenlm.State(), kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(begin)
    assert model.BaseScore(begin, "a", one) == pytest.approx(log10(0.7), abs=1e-5)
    answer = model.BaseFullScore(one, "b", two)
    assert (answer.ngram_length, answer.oov) == (3, False)
    assert answer.log_prob == pytest.approx(log10(0.6), abs=1e-5)
    assert repr(answer).startswith("FullScoreReturn(-0.22")
    # nothing continues `b`: the state equals the null context
    empty = kenlm.State()
    model.NullContextWrite(empty)
    assert two == empty == kenlm.State()
    assert hash(two) == hash(empty)
    assert two != one
    assert (one < two) != (two < one)
    assert copy.copy(one) == copy.deepcopy(one) == one
    model.BaseScore(one, "b", one)  # in place
    assert one == two


def test_kenlm_words_are_text_or_bytes(arpa: Path) -> None:
    model = kenlm.Model(bytes(arpa))
    assert "a" in model
    assert b"a" in model
    assert "zebra" not in model
    assert "<unk>" not in model
    assert "</s>" in model
    state, out = kenlm.State(), kenlm.State()
    assert model.BaseScore(state, b"a", out) == model.BaseScore(state, "a", out)
    assert model.score(b" a\tb \n") == model.score("a b")
    with pytest.raises(TypeError):
        model.score(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        model.BaseScore(state, None, out)  # type: ignore[arg-type]


def test_kenlm_model_attributes_and_pickling(arpa: Path) -> None:
    model = kenlm.LanguageModel(str(arpa), kenlm.Config())
    assert model.path == bytes(arpa.resolve())
    assert repr(model) == "<Model from b'small.arpa'>"
    again = pickle.loads(pickle.dumps(model))
    assert isinstance(again, kenlm.LanguageModel)
    assert again.score("a b") == model.score("a b")


def test_kenlm_raises_os_error_for_unreadable_files(tmp_path: Path, toy: Path) -> None:
    binary = tmp_path / "lm.binary"
    binary.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(100))
    for path, message in [
        (tmp_path / "absent.arpa", "No such file"),
        (toy, "data"),
        (binary, "binary file of KenLM"),
        (tmp_path, "manifest"),
    ]:
        with pytest.raises(OSError, match=f"Cannot read model '{path}' .*{message}"):
            kenlm.Model(str(path))


def test_kenlm_unknown_word_without_unk_costs_100(tmp_path: Path) -> None:
    path = tmp_path / "closed.arpa"
    path.write_text(ARPA.replace("-1\t<unk>\n", "").replace("ngram 1=5", "ngram 1=4"))
    model = kenlm.Model(str(path))
    # weight(<s>), then from the null context: p(a) p(</s> | a)
    expected = -100 + log10(0.5, 0.4, 0.2)
    log_prob, length, is_unknown = next(model.full_scores("zebra"))
    assert log_prob == pytest.approx(-100 + log10(0.5), abs=1e-4)
    assert (length, is_unknown) == (1, True)
    assert model.score("zebra a") == pytest.approx(expected, abs=1e-4)
    assert_allclose(model.score_sentences(["zebra a"], threads=1), [expected], atol=1e-4)
    assert_allclose(model.full_score_sentences(["a", "zebra"], threads=1).log_prob[2], log_prob, rtol=1e-6)


def test_kenlm_scores_many_sentences_at_once(arpa: Path, tmp_path: Path) -> None:
    model = kenlm.Model(str(arpa))
    sentences = ["a b", "", "zebra  a\ta\n", "b\na </s> b"] * 200
    for bos, eos in [(True, True), (False, True), (True, False), (False, False)]:
        expected = [model.score(sentence, bos, eos) for sentence in sentences]
        for threads in (1, 3):
            assert_allclose(model.score_sentences(sentences, bos, eos, threads), expected, rtol=1e-12)
        result = model.full_score_sentences(sentences, bos, eos)
        one_by_one = [list(model.full_scores(sentence, bos, eos)) for sentence in sentences]
        assert result.ends.tolist() == np.cumsum([len(answers) for answers in one_by_one]).tolist()
        flat = [answer for answers in one_by_one for answer in answers]
        assert_allclose(result.log_prob, [answer[0] for answer in flat], rtol=1e-6)
        assert result.ngram_length.tolist() == [answer[1] for answer in flat]
        assert result.oov.tolist() == [answer[2] for answer in flat]
    file = tmp_path / "lines.txt"
    file.write_text("a b\nzebra a\n")
    assert_allclose(model.score_file(file), [model.score("a b"), model.score("zebra a")], rtol=1e-12)
    with pytest.raises(TypeError, match="list"):
        model.score_sentences("a b")


# `a b c` and `a b c </s>` are stored, their suffixes `b c` and `c </s>` are not.
GAP = """\\data\\
ngram 1=7
ngram 2=1
ngram 3=1
ngram 4=1

\\1-grams:
-2\t<unk>
-99\t<s>\t-0.1
-1\t</s>
-1.1\ta\t-0.2
-1.2\tb\t-0.3
-1.3\tc\t-0.4
-1.4\td\t-0.5

\\2-grams:
-0.5\ta b\t-0.6

\\3-grams:
-0.25\ta b c\t-0.7

\\4-grams:
-0.125\ta b c </s>

\\end\\
"""


@pytest.mark.parametrize("words", [1, 5, 380, *range(760, 772), 1530, 1534, 5000])
def test_kenlm_long_sentences_over_a_missing_suffix(tmp_path: Path, words: int) -> None:
    path = tmp_path / "gap.arpa"
    path.write_text(GAP)
    model = kenlm.Model(path)
    for end in ("a b c", "a b c d", "a b d c"):
        sentence = "d " * words + end
        by_word = [actual[0] for actual in model.full_scores(sentence)]
        # d first: -1.4 - 0.1; then -1.4 - 0.5 each; a after d: -1.1 - 0.5; b: -0.5; c: -0.25; </s>: -0.125
        if end == "a b c":
            assert sum(by_word) == pytest.approx(-1.5 - 1.9 * (words - 1) - 1.6 - 0.5 - 0.25 - 0.125, rel=1e-6)
        assert model.score(sentence) == pytest.approx(sum(by_word), abs=1e-6)
        assert model.score_sentences(["d", sentence, "a b c"])[1] == pytest.approx(sum(by_word), abs=1e-6)


def test_kenlm_file_lines_are_sentences(arpa: Path, tmp_path: Path) -> None:
    model = kenlm.Model(arpa)
    lines = ["a b", "a\vb", "b\fa", "", " a  x"]
    text = tmp_path / "text.txt"
    for end in ("\n", "\r\n", "\r"):
        text.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
        assert_allclose(model.score_file(text), [model.score(line) for line in lines])
    text.write_bytes(gzip.compress(b"a b\n"))
    with pytest.raises(chainrule.ChainruleError, match="packed"):
        model.score_file(text)


def test_kenlm_impossible_word_costs_100(tmp_path: Path) -> None:
    chainrule.train("ngram", chainrule_lines(tmp_path), order=3, smoothing="mle").save(tmp_path / "mle")
    assert kenlm.Model(tmp_path / "mle").score("c a") == -300  # c after <s>, a after c, </s> after a


def chainrule_lines(folder: Path) -> Path:
    path = folder / "lines.txt"
    path.write_text("a b\na c\n")
    return path


def test_kenlm_page_examples_run(arpa: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arpa.rename("model.arpa")
    Path("test.txt").write_text("a b\nb a\n")
    page = (Path(__file__).parents[1] / "docs" / "kenlm.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]
    known: dict[str, Any] = {}
    exec(block, known)
    # `</s>` after each of three words
    assert known["scores"].ends.tolist() == [4]


@given(
    lines=st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=7), min_size=3, max_size=12),
    queries=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "e", "zebra", "</s>"]), max_size=6), max_size=5),
    order=st.integers(1, 5),
)
@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_kenlm_scores_equal_the_arpa_definition(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], queries: list[list[str]], order: int
) -> None:
    folder = tmp_path_factory.mktemp("arpa")
    (folder / "text").write_text("".join(" ".join(line) + "\n" for line in lines))
    chainrule.train("ngram", folder / "text", order=order).save(folder / "own")
    convert.export_arpa(folder / "own", folder / "own.arpa")
    (folder / "own.arpa.gz").write_bytes(gzip.compress((folder / "own.arpa").read_bytes()))
    expected = brute_force.Model(str(folder / "own.arpa"))
    for name in ("own.arpa", "own.arpa.gz", "own", "own/model.ngram"):
        model = kenlm.Model(folder / name)
        states: list[tuple[kenlm.State, brute_force.State]] = []
        for words in [*queries, *lines]:
            state, reference_state = kenlm.State(), brute_force.State()
            model.BeginSentenceWrite(state)
            expected.BeginSentenceWrite(reference_state)
            for word in words:
                out, wanted_out = kenlm.State(), brute_force.State()
                answer = model.BaseScore(state, word, out)
                assert answer == pytest.approx(expected.BaseScore(reference_state, word, wanted_out), abs=1e-5)
                state, reference_state = out, wanted_out
                states.append((state, reference_state))
            sentence = " ".join(words)
            for actual, reference in zip(model.full_scores(sentence), expected.full_scores(sentence), strict=True):
                assert actual[0] == pytest.approx(reference[0], abs=1e-5)
                assert actual[1:] == reference[1:]
        for one, wanted_one in states:
            for other, wanted_other in states:
                assert (one == other) == (wanted_one == wanted_other)


def test_kenlm_states_belong_to_their_model(arpa: Path, tmp_path: Path) -> None:
    """A state refers to rows of its model, so another model rejects it; a null state fits all."""
    other_file = tmp_path / "other.arpa"
    lines = ARPA.replace("ngram 2=3", "ngram 2=0").replace("ngram 3=1", "ngram 3=0").splitlines()
    other_file.write_text(
        "\n".join(
            line
            for line in lines
            if len(line.split()) < 3 or "\t" not in line or len(line.split("\t")[1].split()) == 1
        )
    )
    model, same, other = kenlm.Model(arpa), kenlm.Model(arpa), kenlm.Model(other_file)
    begin, after, out = kenlm.State(), kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(begin)
    model.BaseScore(begin, "a", after)
    for stranger in (same, other):
        for state in (begin, after):
            with pytest.raises(ChainruleError, match="the state comes from another model"):
                stranger.BaseScore(state, "b", out)
            with pytest.raises(ChainruleError, match="the state comes from another model"):
                stranger.BaseFullScore(copy.copy(state), "b", out)
    assert out == kenlm.State()  # unchanged by the rejected call
    empty = kenlm.State()
    model.NullContextWrite(after)
    assert after == empty
    assert other.BaseScore(after, "a", out) == pytest.approx(log10(0.4), abs=1e-5)
    other.BeginSentenceWrite(begin)  # a state may be reused with any model
    assert math.isfinite(other.BaseScore(begin, "b", out))
