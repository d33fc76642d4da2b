"""Writing ARPA files: complete round trips and atomic replacement."""

import errno
import gzip
import itertools
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ChainruleError, ConfigError, InputError, UsageError, VocabularyError
from chainrule.lm import Batch, Floats, Ids, Vocabulary
from chainrule.ngram.arpa import read, write
from chainrule.ngram.config import SMOOTHINGS, Config, Smoothing
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import estimate, estimate_lambdas, expand_lambdas
from chainrule.ngram.tables import BackoffLevel, BackoffTables
from ngram.reference import count

NAMES = ["<unk>", "a", "b", "<s>", "</s>"]
VOCABULARY = Vocabulary(size=5, bos=3, eos=4, unk=0)
NORMALIZED = [smoothing for smoothing in SMOOTHINGS if smoothing != "stupid-backoff"]
INF = float("inf")

# Powers of ten, so that all logarithms are integers: p(<unk>) = 10^-3, p(a) = 10^-1, p(b) = 0, p(a | <s>) = 10^-2
# and p(</s> | a) = p(</s> | b) = 1, one of them rounded up; back-off weights: <s> 10^-1, a 0, all others 1.
TEXT = r"""\data\
ngram 1=5
ngram 2=3

\1-grams:
-3	<unk>	0
-1	a	-99
-99	b	0
-99	<s>	-1
-2	</s>	0

\2-grams:
0	a </s>
0	b </s>
-2	<s> a

\end\
"""


def level(key: list[int], log10_p: list[float], log10_weight: list[float]) -> BackoffLevel:
    def natural(log10: list[float]) -> Floats:
        return np.asarray(np.array(log10) * np.log(10), dtype=np.float32)

    return BackoffLevel(np.array(key), natural(log10_p), natural(log10_weight))


def powers_of_ten(vocabulary: Vocabulary = VOCABULARY) -> NgramModel:
    unigrams = level([0, 1, 2, 3, 4], [-3, -1, -INF, -INF, -2], [0, -INF, 0, -1, 0])
    bigrams = level([1 * 5 + 4, 2 * 5 + 4, 3 * 5 + 1], [-0.0, 1e-8, -2], [0, -1, 0])
    return NgramModel.from_tables(BackoffTables((unigrams, bigrams)), vocabulary)


def estimated(lines: list[list[int]], order: int, smoothing: Smoothing, words: int = 6) -> NgramModel:
    """A model of lines over the ids 0 … words; 0 is unknown, `<s>` and `</s>` come last."""
    vocabulary = Vocabulary(words + 3, bos=words + 1, eos=words + 2, unk=0)
    ids = np.array([i for line in lines for i in [*line, vocabulary.eos]])
    counts = count(ids, order, vocabulary)
    config = Config(order=order, smoothing=smoothing, prune=(0, 0, 1)[:order])
    weights = estimate_lambdas(counts, ids, "line", is_bucketed=True)
    return NgramModel.from_tables(estimate(counts, config, expand_lambdas(counts, weights, True)), vocabulary)


def names_of(lm: NgramModel) -> list[str]:
    return ["<unk>", *(f"w{i}" for i in range(1, lm.vocabulary.size - 2)), "<s>", "</s>"]


def scores(lm: NgramModel, targets: Ids) -> Floats:
    starts = np.full((len(targets), 1), lm.vocabulary.bos)
    batch = Batch(np.hstack([starts, targets[:, :-1]]), targets, np.ones(targets.shape, dtype=bool))
    return lm.score(batch, lm.start(len(targets)))[0]


def reread(lm: NgramModel, path: Path) -> NgramModel:
    write(lm, names_of(lm), path)
    arpa = read(path)
    assert arpa.words == names_of(lm)[1:-2]
    return NgramModel(arpa.engine, lm.vocabulary)


def random_lines(seed: int, lines: int = 30) -> list[list[int]]:
    """Word i about twice as frequent as word i + 1, so that counts differ."""
    rng = np.random.default_rng(seed)
    return [np.minimum(rng.geometric(0.5, rng.integers(4, 9)) - 1, 6).tolist() for _ in range(lines)]


def random_targets(lm: NgramModel) -> Ids:
    rng = np.random.default_rng(7)
    predictable = np.flatnonzero(lm.vocabulary.predictable)
    return rng.choice(predictable, size=(20, 15))


def test_arpa_writer_output_matches_exactly(tmp_path: Path) -> None:
    write(powers_of_ten(), NAMES, tmp_path / "new" / "small.arpa")
    assert (tmp_path / "new" / "small.arpa").read_text() == TEXT


def test_arpa_writer_omits_unk_for_a_closed_vocabulary(tmp_path: Path) -> None:
    closed = Vocabulary(size=5, bos=3, eos=4, unk=0, closed=True)
    write(powers_of_ten(closed), NAMES, tmp_path / "closed.arpa")
    expected = TEXT.replace("ngram 1=5", "ngram 1=4").replace("-3\t<unk>\t0\n", "")
    assert (tmp_path / "closed.arpa").read_text() == expected


def test_arpa_writer_omits_ngrams_of_the_excluded_unknown_word(tmp_path: Path) -> None:
    closed = Vocabulary(size=5, bos=3, eos=4, unk=1, closed=True)  # "a" is the unknown word
    write(powers_of_ten(closed), ["x", "<unk>", "b", "<s>", "</s>"], tmp_path / "closed.arpa")
    assert "<unk>" not in (tmp_path / "closed.arpa").read_text()
    assert len(read(tmp_path / "closed.arpa").tables.levels[1]) == 1  # b </s>


@pytest.mark.parametrize(("unk_name", "written"), [("<OOV>", "<unk>"), ("<UNK>", "<UNK>")])
def test_arpa_writer_uses_standard_control_symbols(tmp_path: Path, unk_name: str, written: str) -> None:
    write(powers_of_ten(), [unk_name, "a", "b", "[BOS]", "[EOS]"], tmp_path / "small.arpa")
    assert (tmp_path / "small.arpa").read_text() == TEXT.replace("<unk>", written)


@pytest.mark.parametrize(
    ("name", "magic", "unpack"),
    [("m.arpa.gz", b"\x1f\x8b", gzip.decompress), ("m.arpa.XZ", b"\xfd7zXZ", lzma.decompress)],
)
def test_arpa_writer_compresses_by_suffix_reproducibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, magic: bytes, unpack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(time, "time", itertools.count(1_000_000_000).__next__)
    for folder in ("first", "second"):
        write(powers_of_ten(), NAMES, tmp_path / folder / name)
    first, second = ((tmp_path / folder / name).read_bytes() for folder in ("first", "second"))
    assert first.startswith(magic)
    assert unpack(first) == TEXT.encode()
    assert first == second
    assert read(tmp_path / "first" / name).words == ["a", "b"]


@pytest.mark.parametrize("name", ["", "two words", "tab\there", "line\nend", "carriage\rreturn", "nul\0", "\ud800"])
def test_arpa_writer_rejects_names_that_are_not_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of id 2 is ") as caught:
        write(powers_of_ten(), ["<unk>", "a", name, "<s>", "</s>"], tmp_path / "m.arpa")
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_arpa_round_trips_words_with_unicode_spaces(tmp_path: Path) -> None:
    names = ["<unk>", "a\u00a0b", "c\u2028d\x0c\x0b\x85", "<s>", "</s>"]
    write(powers_of_ten(), names, tmp_path / "m.arpa")
    assert read(tmp_path / "m.arpa").words == names[1:3]


def test_arpa_writer_rejects_duplicate_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ids 1 and 2 are both named 'a'"):
        write(powers_of_ten(), ["<unk>", "a", "a", "<s>", "</s>"], tmp_path / "m.arpa")
    with pytest.raises(InputError, match="ids 1 and 3 are both named '<s>'"):
        write(powers_of_ten(), ["<unk>", "<s>", "b", "[BOS]", "</s>"], tmp_path / "m.arpa")


def test_arpa_writer_rejects_a_wrong_number_of_names(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="5 ids but 4 have names"):
        write(powers_of_ten(), NAMES[:4], tmp_path / "m.arpa")


def test_arpa_writer_rejects_models_the_format_cannot_hold(tmp_path: Path) -> None:
    tables = powers_of_ten().tables
    scores = BackoffTables(tables.levels, log_missing=-0.5)  # a back-off weight for unseen contexts
    with pytest.raises(ConfigError, match="a score, not a probability"):
        write(NgramModel.from_tables(scores, VOCABULARY, is_normalized=False), NAMES, tmp_path / "m.arpa")
    with pytest.raises(ConfigError, match="stream n-gram cannot become ARPA"):
        write(NgramModel.from_tables(tables, VOCABULARY, context="stream"), NAMES, tmp_path / "m.arpa")


def raise_disk_full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("function", ["os.fsync", "chainrule.storage.atomic._exchange"])
def test_arpa_writer_keeps_the_old_file_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "m.arpa"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(function, raise_disk_full)
        with pytest.raises(ChainruleError, match=r"cannot write .*No space"):
            write(powers_of_ten(), NAMES, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_arpa_writer_keeps_the_old_file_when_interrupted(tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int | None) -> None:
        if what == "writing 2-grams":
            raise KeyboardInterrupt

    path = tmp_path / "m.arpa.gz"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write(powers_of_ten(), NAMES, path, interrupt)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_arpa_writer_refuses_folders_and_devices(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="not a file"):
            write(powers_of_ten(), NAMES, path)


def test_arpa_writer_reports_progress_to_the_end(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    write(powers_of_ten(), NAMES, tmp_path / "m.arpa", lambda *call: calls.append(call))
    assert ("writing 1-grams", 5, 5) in calls
    assert calls[-1] == ("writing 2-grams", 3, 3)


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("smoothing", NORMALIZED)
def test_arpa_round_trips_every_smoothing(tmp_path: Path, smoothing: Smoothing, order: int) -> None:
    lm = estimated(random_lines(seed=order), order, smoothing)
    again = reread(lm, tmp_path / "m.arpa")
    targets = random_targets(lm)
    assert_allclose(scores(again, targets), scores(lm, targets), rtol=1e-6)
    for ours, theirs in zip(lm.tables.levels, again.tables.levels, strict=True):
        assert_array_equal(theirs.key, ours.key)
        assert_array_equal(theirs.log_prob, ours.log_prob)  # bit for bit
        assert_array_equal(theirs.log_backoff, ours.log_backoff)


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_arpa_line_order_does_not_matter(tmp_path: Path) -> None:
    lm = estimated(random_lines(seed=1), 4, "modified-kneser-ney")
    write(lm, names_of(lm), tmp_path / "m.arpa")
    head, *sections = (tmp_path / "m.arpa").read_text().split("\n\n")
    end = sections.pop()
    for is_reversed in (False, True):  # sorted by the last word, then the one before it, …, as KenLM does
        mixed = [sections[0]]  # the order of unigrams defines the ids
        for section in sections[1:]:
            mark, *entries = section.split("\n")
            entries.sort(key=lambda entry: entry.split("\t")[1].split(" ")[::-1], reverse=is_reversed)
            mixed.append("\n".join([mark, *entries]))
        (tmp_path / "mixed.arpa").write_text("\n\n".join([head, *mixed, end]))
        levels = zip(read(tmp_path / "mixed.arpa").tables.levels, lm.tables.levels, strict=True)
        for theirs, ours in levels:
            assert_array_equal(theirs.key, ours.key)
            assert_array_equal(theirs.log_prob, ours.log_prob)


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=12),
    order=st.integers(1, 4),
    smoothing=st.sampled_from(NORMALIZED),
)
def test_arpa_round_trips_any_corpus(
    tmp_path: Path, lines: list[list[int]], order: int, smoothing: Smoothing
) -> None:
    lm = estimated(lines, order, smoothing)
    again = reread(lm, tmp_path / "m.arpa")
    targets = random_targets(lm)
    assert_allclose(scores(again, targets), scores(lm, targets), rtol=1e-6, atol=1e-6)
