"""Training skip-gram and CBOW."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chainrule import system
from chainrule.embeddings import word2vec
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import CountedCorpus, TrainedVectors, WordVocabulary, build_vocabulary, count
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.word2vec import train
from chainrule.errors import ChainruleError, InputError, UsageError
from chainrule.text.corpus import Corpus
from embeddings import reference
from embeddings.two_clusters import clusters

SETS = ["none", "avx2", "avx512"]
METHODS = ["skipgram", "cbow"]


@pytest.fixture
def text(tmp_path: Path) -> tuple[CountedCorpus, WordVocabulary]:
    counted = count(clusters(150), tmp_path / "numbers")
    return counted, build_vocabulary(counted)


def learn(
    text: tuple[CountedCorpus, WordVocabulary], *, threads: int = 1, seed: int = 0, **settings: Any
) -> TrainedVectors:
    config = VectorConfig(**{"dimensions": 10, "epochs": 3, "sample": 0.02, "learning_rate": 0.1} | settings)
    return train(*text, config, threads=threads, seed=seed)


def use_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "load", lambda: reference)


def cluster_separation(made: NDArray[np.float32], words: tuple[str, ...]) -> float:
    """Mean cosine within the clusters less that between them."""
    unit = made / np.linalg.norm(made, axis=1, keepdims=True)
    cosines = unit @ unit.T
    sides = np.array([word[0] for word in words])
    of_clusters = (sides[:, None] != "t") & (sides != "t") & ~np.eye(len(words), dtype=bool)
    is_same = sides[:, None] == sides
    return float(cosines[of_clusters & is_same].mean() - cosines[of_clusters & ~is_same].mean())


@pytest.mark.native
@pytest.mark.parametrize("subwords", [{}, {"shortest": 1, "longest": 3, "buckets": 30}], ids=["words", "subwords"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("simd", SETS)
def test_compiled_training_matches_the_reference(
    text: tuple[CountedCorpus, WordVocabulary],
    monkeypatch: pytest.MonkeyPatch,
    simd: str,
    method: str,
    subwords: dict[str, int],
) -> None:
    core: Any = system.load()
    if simd not in core.kernel_names():
        pytest.skip(f"{simd} does not run on this processor")
    # σ is looked up in cells, so that sums rounded otherwise may fall to two sides of a border; at a low rate that
    # is little: 1/256 · 0.005 · |y| each time.
    settings: dict[str, Any] = {"method": method, "learning_rate": 0.005} | subwords
    fast = learn(text, simd=simd, **settings)
    use_reference(monkeypatch)
    slow = learn(text, **settings)
    assert fast.matrix == pytest.approx(slow.matrix, abs=1e-4)
    assert np.abs(slow.matrix).max() > 0.1  # far from where it began: a tenth of a half
    assert fast.metrics["loss"] == pytest.approx(slow.metrics["loss"], abs=0.01)
    assert (fast.metrics["words"], fast.metrics["simd"]) == (slow.metrics["words"], simd)
    assert slow.metrics["simd"] == "python"
    if subwords:
        assert fast.buckets == pytest.approx(slow.buckets, abs=1e-4)


@pytest.mark.native
def test_the_rate_falls_alike_and_long_sentences_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count(clusters(7, length=3500), tmp_path / "numbers")
    chosen = build_vocabulary(counted, vocab_size=14)  # one word has no vector
    settings: dict[str, Any] = {"sample": 0.002, "epochs": 1, "dimensions": 4, "learning_rate": 0.005}
    fast = learn((counted, chosen), **settings)
    use_reference(monkeypatch)
    slow = learn((counted, chosen), **settings)
    assert fast.matrix == pytest.approx(slow.matrix, abs=1e-4)
    assert fast.metrics["words"] == slow.metrics["words"] == int(chosen.counts.sum()) > 2 * reference.RATE_EVERY


@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
def test_one_thread_is_reproducible(text: tuple[CountedCorpus, WordVocabulary], method: str) -> None:
    first, again, other = (learn(text, method=method, seed=seed) for seed in (1, 1, 2))
    assert first.matrix.tobytes() == again.matrix.tobytes()
    assert np.abs(first.matrix - other.matrix).max() > 0.01


@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threads", [1, 2])
def test_two_clusters_are_parted(tmp_path: Path, method: str, threads: int) -> None:
    counted = count(clusters(2000), tmp_path / "numbers")
    made = learn((counted, build_vocabulary(counted)), method=method, threads=threads, sample=1e-3)
    assert cluster_separation(made.matrix, build_vocabulary(counted).words) > 0.5
    assert made.metrics["threads"] == threads
    assert made.metrics["words"] == 3 * 20_000
    # Words of a cluster are 1 of 7, the noise 1 of 15: better than the 6 log 2 = 4.16 of vectors that know nothing.
    assert 0 < made.metrics["loss"] < 4
    assert made.metrics["words_per_second"] == pytest.approx(60_000 / made.metrics["seconds"])


def test_the_reference_separates_them_too(
    text: tuple[CountedCorpus, WordVocabulary], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_reference(monkeypatch)
    assert cluster_separation(learn(text, epochs=6).matrix, text[1].words) > 0.3


@pytest.mark.native
def test_unknown_words_have_a_vector_by_their_n_grams(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    made = learn(text, shortest=1, longest=3, buckets=500, epochs=5)
    assert made.buckets is not None
    assert made.matrix.shape == (15, 10)
    assert made.buckets.shape == (500, 10)
    rows = Subwords(1, 3, 500).rows("a99")  # never seen, but begins as the words of cluster a
    unknown = made.buckets[rows].mean(axis=0)
    sides = {
        side: np.mean([made.matrix[i] for i, word in enumerate(text[1].words) if word[0] == side], axis=0)
        for side in "ab"
    }
    assert unknown @ sides["a"] / np.linalg.norm(sides["a"]) > unknown @ sides["b"] / np.linalg.norm(sides["b"])


@pytest.mark.native
def test_the_matrix_holds_words_with_their_n_grams(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    counted, chosen = text
    config = VectorConfig(dimensions=5, epochs=1, shortest=2, longest=2, buckets=9)
    begins, rows = Subwords(2, 2, 9).table(chosen.words)
    core: Any = system.load()
    told = word2vec.core_settings(config, 1, 0)
    learner = core.Word2vec(
        told, str(counted.file), counted.numbers, chosen.number_of, chosen.counts, begins, rows, 9
    )
    while learner.run(1):
        pass
    made = train(counted, chosen, config, threads=1)
    raw = learner.input()
    for i in range(len(chosen.words)):
        parts = [i, *rows[int(begins[i]) : int(begins[i + 1])]]
        assert made.matrix[i] == pytest.approx(raw[parts].mean(axis=0), abs=1e-7)


@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (["a a a"], {}),
        (["a b"], {"window": 500}),
        (["a b c", "b c"], {"negative": 0}),
        (["a b c", "b c"], {"negative": 50}),
        (["a b c", "b c"], {"dimensions": 1}),
        (["a b c", "b c"], {"dimensions": 1000}),
        (["a b c", "b c"], {"power": 0.0, "sample": 0.0}),
        (["a b c", "b c"], {"shortest": 3, "longest": 6, "buckets": 1}),
    ],
)
def test_small_and_large(tmp_path: Path, method: str, lines: list[str], settings: dict[str, Any]) -> None:
    counted = count(lines, tmp_path / "numbers")
    made = learn((counted, build_vocabulary(counted)), method=method, threads=8, **settings)
    assert made.matrix.shape == (len(counted.words), settings.get("dimensions", 10))
    assert made.matrix.flags.c_contiguous or "buckets" in settings  # those are views of padded rows
    assert np.isfinite(made.matrix).all()
    assert made.metrics["words"] == 3 * counted.total


def test_no_words_to_learn(tmp_path: Path) -> None:
    counted = count(["a b", "c"], tmp_path / "numbers")
    with pytest.raises(InputError, match="lower min_count"):
        train(counted, build_vocabulary(counted, 5), VectorConfig())
    with pytest.raises(InputError, match="no two words with a vector stand in one line"):
        train(counted, build_vocabulary(counted, vocab_size=1), VectorConfig())
    with pytest.raises(UsageError, match="threads is 0"):
        train(counted, build_vocabulary(counted), VectorConfig(), threads=0)


@pytest.mark.native
def test_vectors_that_grow_without_bound_are_refused(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    with pytest.raises(ChainruleError, match=r"lower vectors\.learning_rate"):
        learn(text, learning_rate=1e30, epochs=20)


def test_the_loss_is_the_last_epochs_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = count(clusters(20), tmp_path / "numbers")
    losses: dict[int, list[float]] = {}
    for epochs in (1, 30):
        config = VectorConfig(epochs=epochs, sample=0.0, learning_rate=0.05)
        for stretch in (0.0, 1e6):
            monkeypatch.setattr(word2vec, "POLL_SECONDS", stretch)
            made = train(counted, build_vocabulary(counted), config, threads=1)
            losses.setdefault(epochs, []).append(made.metrics["loss"])
            assert made.metrics["learning_rate"] == 0.05
    assert losses[1][0] == losses[1][1]
    assert losses[30][0] == losses[30][1]
    assert 0 < losses[30][0] < losses[1][0]


@pytest.mark.native
def test_progress_and_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "POLL_SECONDS", 0.0)  # a sentence at a time
    counted = count(clusters(20), tmp_path / "numbers")
    told: list[tuple[str, int, int | None]] = []
    config = VectorConfig(epochs=1, sample=0.0)
    train(counted, build_vocabulary(counted), config, threads=1, progress=lambda *what: told.append(what))
    assert [done for _, done, _ in told] == [*range(10, 201, 10), 200]
    assert all(of == 200 for _, _, of in told)
    assert told[0][0].startswith("learning, loss ")
    assert told[0][0].endswith(" words/s")

    def stop(what: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(counted, build_vocabulary(counted), VectorConfig(epochs=1), progress=stop)


@pytest.mark.data
@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
def test_many_threads_learn_as_well_as_one(data_folder: Path, tmp_path: Path, method: str) -> None:
    # Threads that added up what each had learnt apart once went too far, the more threads the further.
    counted = count(Corpus.of(data_folder / "wikitext2" / "wiki.train.tokens"), tmp_path / "numbers")
    chosen = build_vocabulary(counted, min_count=5)
    settings: dict[str, Any] = {"method": method, "dimensions": 50, "epochs": 2}
    config = VectorConfig(**settings)
    losses = {n: train(counted, chosen, config, threads=n, seed=0).metrics["loss"] for n in (1, 2, 3, 4, 8)}
    assert max(losses.values()) < 1.06 * losses[1], losses
