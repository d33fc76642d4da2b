"""Training skip-gram and CBOW."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chainrule import system
from chainrule.embeddings import word2vec
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import CountedCorpus, TrainedVectors, WordVocabulary, build_vocabulary
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.word2vec import train
from chainrule.errors import ChainruleError, InputError
from chainrule.text.corpus import Corpus
from embeddings import reference
from embeddings.small_texts import count
from embeddings.two_clusters import clusters

SETS = ["none", "avx2", "avx512"]
METHODS = ["skipgram", "cbow"]


@pytest.fixture
def text(tmp_path: Path) -> tuple[CountedCorpus, WordVocabulary]:
    counted = count(clusters(150), tmp_path / "numbers")
    return counted, build_vocabulary(counted)


def train_small(
    text: tuple[CountedCorpus, WordVocabulary], *, threads: int = 1, seed: int = 0, **settings: Any
) -> TrainedVectors:
    config = VectorConfig(**{"dimensions": 10, "epochs": 3, "sample": 0.02, "learning_rate": 0.1} | settings)
    return train(*text, config, threads=threads, seed=seed)


def use_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "load_extension", lambda: reference)


def cluster_separation(matrix: NDArray[np.float32], words: tuple[str, ...]) -> float:
    """Mean cosine within the clusters minus that between them."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    cosines = unit @ unit.T
    sides = np.array([word[0] for word in words])
    of_clusters = (sides[:, None] != "t") & (sides != "t") & ~np.eye(len(words), dtype=bool)
    is_same = sides[:, None] == sides
    return float(cosines[of_clusters & is_same].mean() - cosines[of_clusters & ~is_same].mean())


@pytest.mark.native
@pytest.mark.parametrize("subwords", [{}, {"shortest": 1, "longest": 3, "buckets": 30}], ids=["words", "subwords"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("simd", SETS)
def test_compiled_training_equals_the_reference(
    text: tuple[CountedCorpus, WordVocabulary],
    monkeypatch: pytest.MonkeyPatch,
    simd: str,
    method: str,
    subwords: dict[str, int],
) -> None:
    core: Any = system.load_extension()
    if simd not in core.kernel_names():
        pytest.skip(f"{simd} does not run on this processor")
    # σ is looked up in cells, so differently rounded sums may fall on either side of a boundary; at a low rate that
    settings: dict[str, Any] = {"method": method, "learning_rate": 0.005} | subwords
    fast = train_small(text, simd=simd, **settings)
    use_reference(monkeypatch)
    slow = train_small(text, **settings)
    assert fast.matrix == pytest.approx(slow.matrix, abs=1e-4)
    assert np.abs(slow.matrix).max() > 0.1  # far from the initial range: a tenth of a half
    assert fast.metrics["loss"] == pytest.approx(slow.metrics["loss"], abs=0.01)
    assert (fast.metrics["words"], fast.metrics["simd"]) == (slow.metrics["words"], simd)
    assert slow.metrics["simd"] == "python"
    if subwords:
        assert fast.buckets == pytest.approx(slow.buckets, abs=1e-4)


@pytest.mark.native
def test_rate_decay_and_sentence_splitting_equal_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = count(clusters(7, length=3500), tmp_path / "numbers")
    chosen = build_vocabulary(counted, vocab_size=14)  # one word has no vector
    settings: dict[str, Any] = {"sample": 0.002, "epochs": 1, "dimensions": 4, "learning_rate": 0.005}
    fast = train_small((counted, chosen), **settings)
    use_reference(monkeypatch)
    slow = train_small((counted, chosen), **settings)
    assert fast.matrix == pytest.approx(slow.matrix, abs=1e-4)
    assert fast.metrics["words"] == slow.metrics["words"] == int(chosen.counts.sum()) > 2 * reference.RATE_EVERY


@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
def test_word2vec_on_one_thread_is_reproducible(text: tuple[CountedCorpus, WordVocabulary], method: str) -> None:
    first, again, other_seed = (train_small(text, method=method, seed=seed) for seed in (1, 1, 2))
    assert first.matrix.tobytes() == again.matrix.tobytes()
    assert np.abs(first.matrix - other_seed.matrix).max() > 0.01


@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threads", [1, 2])
def test_word2vec_separates_two_clusters(tmp_path: Path, method: str, threads: int) -> None:
    counted = count(clusters(2000), tmp_path / "numbers")
    trained = train_small((counted, build_vocabulary(counted)), method=method, threads=threads, sample=1e-3)
    assert cluster_separation(trained.matrix, build_vocabulary(counted).words) > 0.5
    assert trained.metrics["threads"] == threads
    assert trained.metrics["words"] == 3 * 20_000
    # Words of a cluster are 1 of 7, noise 1 of 15: better than the 6 log 2 = 4.16 of untrained vectors.
    assert 0 < trained.metrics["loss"] < 4
    assert trained.metrics["words_per_second"] == pytest.approx(60_000 / trained.metrics["seconds"])


def test_reference_separates_two_clusters(
    text: tuple[CountedCorpus, WordVocabulary], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_reference(monkeypatch)
    assert cluster_separation(train_small(text, epochs=6).matrix, text[1].words) > 0.3


@pytest.mark.native
def test_unseen_word_of_a_cluster_is_near_its_cluster(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    trained = train_small(text, shortest=1, longest=3, buckets=500, epochs=5)
    assert trained.buckets is not None
    assert trained.matrix.shape == (15, 10)
    assert trained.buckets.shape == (500, 10)
    rows = Subwords(1, 3, 500).rows("a99")  # unseen, but begins like the words of cluster a
    unknown = trained.buckets[rows].mean(axis=0)
    sides = {
        side: np.mean([trained.matrix[i] for i, word in enumerate(text[1].words) if word[0] == side], axis=0)
        for side in "ab"
    }
    assert unknown @ sides["a"] / np.linalg.norm(sides["a"]) > unknown @ sides["b"] / np.linalg.norm(sides["b"])


@pytest.mark.native
def test_finished_matrix_averages_words_with_their_ngrams(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    counted, chosen = text
    config = VectorConfig(dimensions=5, epochs=1, shortest=2, longest=2, buckets=9)
    begins, rows = Subwords(2, 2, 9).table(chosen.words)
    core: Any = system.load_extension()
    settings = word2vec.core_settings(config, 1, 0)
    learner = core.Word2vec(
        settings, str(counted.file), counted.numbers, chosen.number_of, chosen.counts, begins, rows, 9
    )
    while learner.run(1):
        pass
    trained = train(counted, chosen, config, threads=1)
    raw = learner.input()
    for i in range(len(chosen.words)):
        parts = [i, *rows[int(begins[i]) : int(begins[i + 1])]]
        assert trained.matrix[i] == pytest.approx(raw[parts].mean(axis=0), abs=1e-7)


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
def test_word2vec_on_edge_case_sizes(
    tmp_path: Path, method: str, lines: list[str], settings: dict[str, Any]
) -> None:
    counted = count(lines, tmp_path / "numbers")
    trained = train_small((counted, build_vocabulary(counted)), method=method, threads=8, **settings)
    assert trained.matrix.shape == (len(counted.words), settings.get("dimensions", 10))
    assert trained.matrix.flags.c_contiguous or "buckets" in settings  # those are views of padded rows
    assert np.isfinite(trained.matrix).all()
    assert trained.metrics["words"] == 3 * counted.total


def test_training_without_word_pairs_is_rejected(tmp_path: Path) -> None:
    counted = count(["a b", "c"], tmp_path / "numbers")
    with pytest.raises(InputError, match="lower min_count"):
        train(counted, build_vocabulary(counted, 5), VectorConfig())
    with pytest.raises(InputError, match="no two words with a vector stand in one line"):
        train(counted, build_vocabulary(counted, vocab_size=1), VectorConfig())


@pytest.mark.native
def test_diverging_vectors_are_rejected(text: tuple[CountedCorpus, WordVocabulary]) -> None:
    with pytest.raises(ChainruleError, match=r"lower vectors\.learning_rate"):
        train_small(text, learning_rate=1e30, epochs=20)


def test_reported_loss_is_of_the_last_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count(clusters(20), tmp_path / "numbers")
    losses: dict[int, list[float]] = {}
    for epochs in (1, 30):
        config = VectorConfig(epochs=epochs, sample=0.0, learning_rate=0.05)
        for stretch in (0.0, 1e6):
            monkeypatch.setattr(word2vec, "POLL_SECONDS", stretch)
            trained = train(counted, build_vocabulary(counted), config, threads=1)
            losses.setdefault(epochs, []).append(trained.metrics["loss"])
            assert trained.metrics["learning_rate"] == 0.05
    assert losses[1][0] == losses[1][1]
    assert losses[30][0] == losses[30][1]
    assert 0 < losses[30][0] < losses[1][0]


@pytest.mark.native
def test_training_reports_progress_and_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "POLL_SECONDS", 0.0)  # one sentence at a time
    counted = count(clusters(20), tmp_path / "numbers")
    calls: list[tuple[str, int, int | None]] = []
    config = VectorConfig(epochs=1, sample=0.0)
    train(counted, build_vocabulary(counted), config, threads=1, progress=lambda *what: calls.append(what))
    assert [done for _, done, _ in calls] == [*range(10, 201, 10), 200]
    assert all(of == 200 for _, _, of in calls)
    assert calls[0][0].startswith("learning, loss ")
    assert calls[0][0].endswith(" words/s")

    def stop(what: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(counted, build_vocabulary(counted), VectorConfig(epochs=1), progress=stop)


@pytest.mark.data
@pytest.mark.native
@pytest.mark.parametrize("method", METHODS)
def test_many_threads_train_as_well_as_one(data_folder: Path, tmp_path: Path, method: str) -> None:
    # An earlier version summed the updates of all threads and overshot, the more the more threads.
    counted = count(Corpus.of(data_folder / "wikitext2" / "wiki.train.tokens"), tmp_path / "numbers")
    chosen = build_vocabulary(counted, min_count=5)
    settings: dict[str, Any] = {"method": method, "dimensions": 50, "epochs": 2}
    config = VectorConfig(**settings)
    losses = {n: train(counted, chosen, config, threads=n, seed=0).metrics["loss"] for n in (1, 2, 3, 4, 8)}
    assert max(losses.values()) < 1.06 * losses[1], losses
