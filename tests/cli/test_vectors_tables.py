"""`chainrule vectors evaluate`: the same figures however vectors are stored, for every method."""

from pathlib import Path

import pytest

import chainrule
from cli.command import english, run_ok, write

TINY = ("--dimensions", 8, "--epochs", 3, "--min-count", 1, "--threads", 1)
METHODS = ("skipgram", "cbow", "glove", "ppmi", "one-hot")

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All lower case, trained without --lowercase."""
    text = english(300)
    assert text == text.lower()
    return write(tmp_path_factory.mktemp("figures") / "corpus.txt", text)


def test_vector_folder_and_file_have_the_same_figures(corpus: Path, tmp_path: Path) -> None:
    """Capitalised pairs and questions are found in both or in neither."""
    pairs = write(tmp_path / "p.tsv", "Cat\tDog\t9\nsees\tLikes\t8\nThe\ttoday\t1\none\tfish\t2\nmouse\tbird\t7\n")
    questions = write(tmp_path / "q.txt", ": s\nCat Sees Dog Likes\ncat fish dog mouse\nThe cat One dog\n")
    arguments = ("--pairs", pairs, "--analogies", questions, "--json")
    for name, text in (("lower", corpus.read_text()), ("mixed", corpus.read_text() + "Paris " * 5 + "\n")):
        folder, back = tmp_path / name, tmp_path / f"{name}-back"
        run_ok("vectors", "train", write(tmp_path / f"{name}.txt", text), "--out", folder, *TINY)
        stored = [folder]
        for format in ("word2vec", "word2vec-binary", "glove"):
            stored.append(tmp_path / f"{name}.{format}")
            run_ok("vectors", "export", folder, "--format", format, "--out", stored[-1])
        run_ok("vectors", "import", stored[1], "--out", back)
        rows = run_ok("vectors", "evaluate", *stored, back, *arguments).json()["rows"]
        for row in rows:
            assert row["pairs"] == rows[0]["pairs"]
            assert row["analogies"] == rows[0]["analogies"]
        is_lower = name == "lower"
        assert rows[0]["pairs"][0]["found"] == (5 if is_lower else 2)
        assert rows[0]["analogies"]["all"]["asked"] == (3 if is_lower else 1)


def test_rare_words_of_every_method(corpus: Path, tmp_path: Path) -> None:
    rows = [("the", "cat"), ("a", "dog"), ("one", "fish"), ("today", "garden"), ("sees", "likes"), ("in", "mouse")]
    pairs = write(tmp_path / "p.tsv", "".join(f"{a}\t{b}\t{i}\n" for i, (a, b) in enumerate(rows)))
    trainings = [(method, ("--method", method)) for method in METHODS]
    for name, chosen in [*trainings, ("subwords", ("--subwords", "2-3"))]:
        run_ok("vectors", "train", corpus, *chosen, "--out", tmp_path / name, *TINY)
    skipgram = chainrule.load(tmp_path / "skipgram")
    counts = dict(zip(skipgram.words, skipgram.counts.tolist(), strict=True))
    rarest = sorted(rows, key=lambda pair: min(counts[word] for word in pair))[:2]
    rare_pairs = write(tmp_path / "r.tsv", "".join(f"{a}\t{b}\t{rows.index((a, b))}\n" for a, b in rarest))
    models = [tmp_path / name for name in (*METHODS, "subwords")]
    rows_ = run_ok("vectors", "evaluate", *models, "--pairs", pairs, "--rare", "--json").json()["rows"]
    alone = run_ok("vectors", "evaluate", *models, "--pairs", rare_pairs, "--json").json()["rows"]
    for all_pairs, few in zip(rows_, alone, strict=True):
        rare, expected = all_pairs["pairs"][0]["rare"], dict(few["pairs"][0])
        del expected["file"]
        assert rare == expected
        assert (rare["found"], rare["of"]) == (2, 2)
        assert (rare["spearman"] is None) == (all_pairs["method"] == "one-hot")


def test_perfect_rank_correlation_has_no_interval(tmp_path: Path) -> None:
    """Cosines √½, ½, 0 and −√½ with king, in the order of the scores."""
    court = write(tmp_path / "court.txt", "king 1 0 1\nman 1 0 0\nqueen 0 1 1\nwoman 0 1 0\ndoor -1 0 0\n")
    pairs = write(tmp_path / "pairs.txt", "king man 9\nking queen 7\nking woman 5\nking door 1\n")
    judged = run_ok("vectors", "evaluate", court, "--pairs", pairs, "--json").json()["rows"][0]["pairs"][0]
    assert (judged["spearman"], judged["low"], judged["high"]) == (1.0, None, None)
    assert run_ok("vectors", "evaluate", court, "--pairs", pairs).out.splitlines()[1].split()[-3:] == [
        *("1.000", "-", "4/4")
    ]


def test_missing_neighbors_have_a_reason(corpus: Path, tmp_path: Path) -> None:
    run_ok("vectors", "train", corpus, "--method", "one-hot", "--out", tmp_path / "one-hot", *TINY)
    one_hot = "none: one-hot vectors have nothing in common\n"
    assert run_ok("vectors", "neighbors", tmp_path / "one-hot", "cat").out == one_hot
    assert run_ok("vectors", "analogy", tmp_path / "one-hot", "cat", "dog", "fish").out == one_hot
    alone = write(tmp_path / "alone.txt", "cat 1 2\n")
    assert run_ok("vectors", "neighbors", alone, "cat").out == "none: there is no other word\n"
    assert run_ok("vectors", "analogy", alone, "cat", "cat", "cat").out == "none: there is no other word\n"
