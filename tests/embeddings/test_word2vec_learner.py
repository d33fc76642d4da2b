"""The word2vec trainer: input checks, memory and subsampling."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule import system
from chainrule.embeddings import word2vec
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import CountedCorpus, WordVocabulary, build_vocabulary
from chainrule.errors import ChainruleError
from embeddings import reference
from embeddings.small_texts import count
from embeddings.two_clusters import clusters
from interpreter_lock import releases_lock


@pytest.fixture
def text(tmp_path: Path) -> tuple[CountedCorpus, WordVocabulary]:
    counted = count(clusters(150), tmp_path / "numbers")
    return counted, build_vocabulary(counted)


def test_subsampling_worked_by_hand() -> None:
    # Σ n = 1000, sample 0.01: f = n / 10. n = 1000 − 250 − 10: f = 74, (√74 + 1) / 74 = 0.12976; n = 250: f = 25,
    # (5 + 1) / 25 = 0.24; n = 10: f = 1, (1 + 1) / 1 = 2: always kept.
    shares = [share / 2**32 for share in reference.keep_shares([740, 250, 10], 0.01)]
    assert shares == pytest.approx([0.12976, 0.24, 1], abs=1e-5)
    assert reference.keep_shares([740, 250, 10], 0) == [2**32 - 1] * 3


def trainer_arguments(counted: CountedCorpus, chosen: WordVocabulary, **changed: Any) -> list[Any]:
    arguments: dict[str, Any] = {
        "settings": word2vec.core_settings(VectorConfig(), 1, 0),
        "file": str(counted.file),
        "numbers": counted.numbers,
        "number_of": chosen.number_of,
        "counts": chosen.counts,
        "begins": np.zeros(0, np.uint64),
        "rows": np.zeros(0, np.uint32),
        "buckets": 0,
    }
    return list((arguments | changed).values())


@pytest.mark.native
def test_word2vec_rejects_inconsistent_arguments(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    core: Any = system.load_extension()
    settings, V = word2vec.core_settings(VectorConfig(), 1, 0), len(text[1].words)
    for changed, message in (
        ({"number_of": text[1].number_of.astype(np.int64)}, "number_of must be an array of int32"),
        ({"number_of": np.repeat(text[1].number_of, 2)[::2]}, "number_of must lie in a row"),
        ({"number_of": text[1].number_of[None]}, "number_of has 2 axes, not 1"),
        ({"number_of": np.full(V, V, np.int32)}, "number_of contains an id that is out of range"),
        ({"counts": np.zeros(V, np.uint64)}, "noise needs words"),
        ({"counts": np.zeros(0, np.uint64)}, "no words"),
        ({"begins": np.zeros(3, np.uint64)}, "begins of subwords"),
        ({"rows": np.zeros(3, np.uint32)}, "need begins"),
        ({"file": "/nowhere/at/all"}, "cannot be read"),
        ({"settings": settings | {"window": 0}}, "window"),
        ({"settings": settings | {"window": -1}}, "the setting window has the invalid value -1"),
        ({"settings": settings | {"dimensions": "many"}}, "the setting dimensions has the invalid value 'many'"),
        ({"settings": settings | {"method": "glove"}}, "skipgram or cbow"),
        ({"settings": settings | {"simd": "sse9"}}, "choose auto"),
        ({"settings": {"method": "cbow"}}, "the setting dimensions is missing"),
    ):
        with pytest.raises(ChainruleError, match=message):
            core.Word2vec(*trainer_arguments(*text, **changed))


def test_word2vec_rejects_a_damaged_file(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    core: Any = system.load_extension()
    learner = core.Word2vec(*trainer_arguments(*text, numbers=text[0].numbers + 1))
    with pytest.raises(ChainruleError, match="truncated while it was being read"):
        learner.run(9)
    for wrong in (15, -2):  # valid numbers are 0 … 14
        np.full(text[0].numbers, wrong, np.int32).tofile(text[0].file)
        with pytest.raises(ChainruleError, match="a word id that is out of range"):
            core.Word2vec(*trainer_arguments(*text)).run(9)


@pytest.mark.native
def test_array_view_keeps_the_trainer_alive(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    core: Any = system.load_extension()
    learner = core.Word2vec(*trainer_arguments(*text))
    learner.run(0.01)
    view, output = learner.input(), learner.output()
    assert view.shape == (15, 100)
    assert output.shape == (15, 100)
    expected = view.copy()
    learner.finish()
    with pytest.raises(ChainruleError, match="training is finished"):
        learner.run(0.01)
    with pytest.raises(ChainruleError, match="were released"):
        learner.output()
    del learner
    gc.collect()
    assert (view == expected).all()
    assert not view.flags.writeable


@pytest.mark.native
def test_training_releases_the_gil(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    core: Any = system.load_extension()
    settings = word2vec.core_settings(VectorConfig(epochs=60_000), 1, 0)
    learner = core.Word2vec(*trainer_arguments(*text, settings=settings))
    assert releases_lock(lambda: learner.run(0.0))


@pytest.mark.native
def test_words_of_rejects_invalid_numbers(tmp_path: Path) -> None:
    core: Any = system.load_extension()
    counter = core.WordCounter(str(tmp_path / "numbers"))
    counter.feed(b"a b ")
    for wrong in (-1, 2):
        with pytest.raises(ChainruleError, match=f"there is no word with the id {wrong}"):
            counter.words_of(np.array([wrong]))


def recorded_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], **settings: Any
) -> list[tuple[Any, Any]]:
    """Context and targets of every step of one epoch, as word numbers, without training."""
    counted = count(lines, folder / "numbers")
    chosen = build_vocabulary(counted)
    steps_: list[tuple[Any, Any]] = []

    def record_step(_: object, __: object, x: list[int], y: list[int], ___: float) -> float:
        steps_.append((x, y))
        return 0.0

    monkeypatch.setattr(reference, "window", record_step)
    config = VectorConfig(epochs=1, dimensions=1, sample=0.0, **settings)
    learner = reference.Word2vec(*trainer_arguments(counted, chosen, settings=word2vec.core_settings(config, 1, 0)))
    while learner.run(1):
        pass
    return steps_


def test_window_sizes_are_uniform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only words with 4 neighbours on both sides show the size of their window: half the size of the context.
    lines = [" ".join(f"w{i % 7}" for i in range(900))] * 12
    steps_ = recorded_steps(tmp_path, monkeypatch, lines, window=4, negative=0)
    within = [x for at, (x, _) in enumerate(steps_) if 4 <= at % 900 < 896]
    reaches = np.bincount([len(x) // 2 for x in within], minlength=5)
    n = 12 * 892
    assert reaches.sum() == n
    assert reaches[0] == 0
    # Each occurs n / 4 = 2676 times; the standard deviation is √(n · 1/4 · 3/4) = 44.8, five of which are 224.
    assert np.abs(reaches[1:] - n / 4).max() < 5 * (n * 3 / 16) ** 0.5


def test_noise_follows_the_power_of_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Counts 16 : 1 become 16^0.75 = 8 : 1 in the noise; a word of count 81 has 27. Noise equal to the word itself
    # is dropped, so a word's share is taken over the steps of the other words: p = 27, 8 and 1 of 36.
    lines = ["a " * 81 + "b " * 16 + "c"] * 150
    steps_ = recorded_steps(tmp_path, monkeypatch, lines, window=2, negative=1)
    for word, weight in enumerate((27, 8, 1)):
        others = [y for _, y in steps_ if y[0] != word]
        share, p = np.mean([y[1:] == [word] for y in others]), weight / 36
        assert share == pytest.approx(p, abs=5 * (p * (1 - p) / len(others)) ** 0.5)


CRASH = """
import resource, sys
import numpy as np
from chainrule import system
from chainrule.errors import ChainruleError
core, file, way = system.load_extension(), sys.argv[1], sys.argv[2]
np.array([0, 1, -1] * 1000, np.int32).tofile(file)
record = np.dtype([("i", "i4"), ("j", "i4"), ("x", "f4")])
np.array([(0, 1, 1.0)] * 1000, record).tofile(file + "r")
numbers = np.arange(2, dtype=np.int32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)  # not enough for the stacks of 200 threads
if way == "pairs":
    made = core.Cooccurrence(file, 3000, numbers, 2, file + "o", window=2, bytes=1 << 20, threads=200, seed=0)
else:
    made = core.Glove(file + "r", 1000, 2, dimensions=2, epochs=1, rate=0.1, x_max=10, alpha=1, threads=200,
                      seed=0, simd="none")
try:
    made.run(0.01)
except ChainruleError as error:
    print(error)
"""


@pytest.mark.native
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by the way of Linux")
@pytest.mark.parametrize("way", ["pairs", "glove"])
def test_failure_to_start_threads_raises(tmp_path: Path, way: str) -> None:
    command = [sys.executable, "-c", CRASH, str(tmp_path / "numbers"), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "cannot start 200 threads; choose fewer\n"
