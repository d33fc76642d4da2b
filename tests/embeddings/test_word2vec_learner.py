"""The compiled learner and its twin: what they refuse, what they keep, and how words are thinned out."""

import gc
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule import native
from chainrule.embeddings import word2vec, word2vec_twin
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted, count
from chainrule.embeddings.vocabulary import Chosen, choose
from chainrule.errors import ChainruleError
from embeddings.two_clusters import clusters


@pytest.fixture
def text(tmp_path: Path) -> tuple[Counted, Chosen]:
    counted = count(clusters(150), tmp_path / "numbers")
    return counted, choose(counted)


def test_sub_sampling_by_hand() -> None:
    # Σ n = 1000, sample 0.01: f = n / 10. n = 1000 − 250 − 10: f = 74, (√74 + 1) / 74 = 0.12976; n = 250: f = 25,
    # (5 + 1) / 25 = 0.24; n = 10: f = 1, (1 + 1) / 1 = 2: always.
    kept = [share / 2**32 for share in word2vec_twin.keep_shares([740, 250, 10], 0.01)]
    assert kept == pytest.approx([0.12976, 0.24, 1], abs=1e-5)
    assert word2vec_twin.keep_shares([740, 250, 10], 0) == [2**32 - 1] * 3


def parts(counted: Counted, chosen: Chosen, **changed: Any) -> list[Any]:
    made: dict[str, Any] = {
        "settings": word2vec.settings(VectorConfig(), 1, 0),
        "file": str(counted.file),
        "numbers": counted.numbers,
        "number_of": chosen.number_of,
        "counts": chosen.counts,
        "begins": np.zeros(0, np.uint64),
        "rows": np.zeros(0, np.uint32),
        "buckets": 0,
    }
    return list((made | changed).values())


@pytest.mark.native
def test_what_does_not_fit_is_refused(text: tuple[Counted, Chosen]) -> None:
    core: Any = native.load()
    told, V = word2vec.settings(VectorConfig(), 1, 0), len(text[1].words)
    for changed, message in (
        ({"number_of": text[1].number_of.astype(np.int64)}, "number_of must be an array of int32"),
        ({"number_of": np.repeat(text[1].number_of, 2)[::2]}, "number_of must lie in a row"),
        ({"number_of": text[1].number_of[None]}, "number_of has 2 axes, not 1"),
        ({"number_of": np.full(V, V, np.int32)}, "number_of names a word that has no count"),
        ({"counts": np.zeros(V, np.uint64)}, "noise needs words"),
        ({"counts": np.zeros(0, np.uint64)}, "no words"),
        ({"begins": np.zeros(3, np.uint64)}, "begins of subwords"),
        ({"rows": np.zeros(3, np.uint32)}, "need begins"),
        ({"file": "/nowhere/at/all"}, "cannot be read"),
        ({"settings": told | {"window": 0}}, "window"),
        ({"settings": told | {"window": -1}}, "the setting window is -1"),
        ({"settings": told | {"dimensions": "many"}}, "the setting dimensions is 'many'"),
        ({"settings": told | {"method": "glove"}}, "skipgram or cbow"),
        ({"settings": told | {"simd": "sse9"}}, "choose auto"),
        ({"settings": {"method": "cbow"}}, "the setting dimensions is missing"),
    ):
        with pytest.raises(ChainruleError, match=message):
            core.Word2vec(*parts(*text, **changed))


@pytest.mark.parametrize("way", ["python", pytest.param("native", marks=pytest.mark.native)])
def test_a_damaged_file_is_refused(text: tuple[Counted, Chosen], way: str) -> None:
    core: Any = word2vec_twin if way == "python" else native.load()
    learner = core.Word2vec(*parts(*text, numbers=text[0].numbers + 1))
    with pytest.raises(ChainruleError, match="shorter than it was"):
        learner.run(9)
    for wrong in (15, -2):  # the words are 0 … 14
        np.full(text[0].numbers, wrong, np.int32).tofile(text[0].file)
        with pytest.raises(ChainruleError, match="a number of no word"):
            core.Word2vec(*parts(*text)).run(9)


@pytest.mark.native
def test_the_view_keeps_the_vectors_alive(text: tuple[Counted, Chosen]) -> None:
    core: Any = native.load()
    learner = core.Word2vec(*parts(*text))
    learner.run(0.01)
    view, output = learner.input(), learner.output()
    assert view.shape == (15, 100)
    assert output.shape == (15, 100)
    wanted = view.copy()
    learner.forget_output()
    with pytest.raises(ChainruleError, match="forgotten"):
        learner.run(0.01)
    with pytest.raises(ChainruleError, match="forgotten"):
        learner.output()
    del learner
    gc.collect()
    assert (view == wanted).all()
    assert not view.flags.writeable


@pytest.mark.native
def test_python_runs_on_while_words_are_learnt(text: tuple[Counted, Chosen]) -> None:
    core: Any = native.load()
    told = word2vec.settings(VectorConfig(epochs=60_000), 1, 0)
    learner = core.Word2vec(*parts(*text, settings=told))
    worker = threading.Thread(target=learner.run, args=(0.5,))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0.01)
        turns += 1
    assert turns > 5
