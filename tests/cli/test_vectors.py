"""`chainrule vectors`: train, query, evaluate, import and export."""

import json
import math
from pathlib import Path

import pytest

import chainrule
from cli.command import call, digests, english, process, run_error, run_ok, write

TINY = ("--dimensions", 8, "--epochs", 3, "--min-count", 1, "--threads", 1)
FILE = "king 1 0 1\nqueen 0 1 1\nman 1 0 0\nwoman 0 1 0\napple 0 -1 0\n"

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def shelf_of_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vectors")


@pytest.fixture(scope="module")
def corpus(shelf_of_vectors: Path) -> Path:
    return write(shelf_of_vectors / "corpus.txt", english(300))


@pytest.fixture(scope="module")
def learnt(shelf_of_vectors: Path, corpus: Path) -> Path:
    run_ok("vectors", "train", corpus, "--out", shelf_of_vectors / "learnt", *TINY)
    return shelf_of_vectors / "learnt"


@pytest.fixture(scope="module")
def court(shelf_of_vectors: Path) -> Path:
    return write(shelf_of_vectors / "court.txt", FILE)


@pytest.fixture(scope="module")
def pairs(shelf_of_vectors: Path) -> Path:
    """In the file above the cosines are ½, √½, √½, −√½ and 0: man–king and woman–queen tie."""
    rows = "king queen 8\nman king 7\nwoman queen 9\nqueen apple 1\nman apple 3\nking dragon 5\n"
    return write(shelf_of_vectors / "pairs.txt", rows)


@pytest.fixture(scope="module")
def questions(shelf_of_vectors: Path) -> Path:
    semantic = ": family\nman king woman queen\nman king dragon queen\n"
    syntactic = ": gram1-none\nman woman king queen\nman king woman apple\n"
    return write(shelf_of_vectors / "questions.txt", semantic + syntactic)


def test_vectors_train_reports_its_result(corpus: Path, tmp_path: Path) -> None:
    outcome = run_ok("vectors", "train", corpus, "--out", tmp_path / "m", "--method", "cbow", *TINY, "--json")
    document = outcome.json()
    assert (document["schema_version"], document["method"], document["dimensions"]) == (1, "cbow", 8)
    assert document["vocab_size"] == len(set(english(300).split()))
    assert document["train_words"] == len(english(300).split())
    assert f"saved {tmp_path / 'm'}: {document['vocab_size']} words, 8 dimensions" in outcome.err
    assert len(chainrule.load(tmp_path / "m")) == document["vocab_size"]


def test_vectors_train_settings(corpus: Path, tmp_path: Path) -> None:
    run_ok("vectors", "train", corpus, "--out", tmp_path / "m", "--subwords", "2-4", "--window", 3, "--negative", 2,
         "--sample", 0, "--learning-rate", 0.03, "--lowercase", "--vocab-size", 9, "--set", "power=0.5",
         "--set", "buckets=100", "--memory", "64M", *TINY)  # fmt: skip
    config = run_ok("info", tmp_path / "m", "--json").json()["config"]
    expected: dict[str, object] = {
        "shortest": 2,
        "longest": 4,
        "window": 3,
        "negative": 2,
        "sample": 0.0,
        "learning_rate": 0.03,
    }
    expected |= {"lowercase": True, "vocab_size": 9, "power": 0.5, "buckets": 100, "memory": "64M", "epochs": 3}
    assert {name: config[name] for name in expected} == expected
    # An unseen word has a vector from its n-grams.
    assert len(run_ok("vectors", "neighbors", tmp_path / "m", "cats", "--top", 2).out.splitlines()) == 2


def test_vectors_train_is_deterministic_for_a_seed(corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_ok("vectors", "train", corpus, "--out", tmp_path / name, "--seed", seed, *TINY)
    first, second, other = (digests(tmp_path / name)["model.safetensors"] for name in "abc")
    assert first == second != other


def test_vectors_train_reads_any_text_source(tmp_path: Path) -> None:
    lines = english(50).splitlines()
    write(tmp_path / "t.jsonl", "".join(json.dumps({"body": line}) + "\n" for line in lines))
    run_ok("vectors", "train", tmp_path / "t.jsonl", "--column", "body", "--out", tmp_path / "a", *TINY)
    run_ok("vectors", "train", "-", "--out", tmp_path / "b", *TINY, stdin=english(50))
    first, second = (digests(tmp_path / name)["model.safetensors"] for name in "ab")
    assert first == second


def test_vectors_train_wrong_usage(corpus: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    assert "choose one of skipgram" in run_error(2, "vectors", "train", corpus, *out, "--method", "lsa")
    assert "e.g. 3-6" in run_error(2, "vectors", "train", corpus, *out, "--subwords", "3")
    assert "shortest" in run_error(2, "vectors", "train", corpus, *out, "--subwords", "6-3")
    assert "did you mean 'power'" in run_error(2, "vectors", "train", corpus, *out, "--set", "powre=1")
    assert "no file" in run_error(4, "vectors", "train", tmp_path / "nowhere", *out)
    assert "contains no words" in run_error(3, "vectors", "train", write(tmp_path / "e", "\n"), *out)
    assert "not a model folder" in run_error(2, "vectors", "train", corpus, "--out", corpus)
    assert "min_count" in run_error(3, "vectors", "train", corpus, *out, "--min-count", 10_000)
    assert not (tmp_path / "m").exists()


def test_vectors_neighbors(court: Path) -> None:
    output = run_ok("vectors", "neighbors", court, "king", "--top", 2).out
    assert output == "man    0.7071\nqueen  0.5000\n"
    both = run_ok("vectors", "neighbors", court, "king", "apple", "--top", 1).out
    assert both == "king\nman  0.7071\n\napple\nking  0.0000\n"  # and man, which comes later in the file
    neighbors = run_ok("vectors", "neighbors", court, "King", "--json").json()["neighbors"]
    assert neighbors[0]["word"] == "King"
    assert [item["word"] for item in neighbors[0]["neighbors"]] == ["man", "queen", "woman", "apple"]
    assert neighbors[0]["neighbors"][0]["cosine"] == pytest.approx(math.sqrt(0.5))


def test_vectors_unknown_word(court: Path, learnt: Path) -> None:
    message = run_error(3, "vectors", "neighbors", court, "king", "quen")
    assert message == "error: 'quen' is not among the 5 words; did you mean 'queen'?\n"
    assert "'dogg'" in run_error(3, "vectors", "analogy", learnt, "cat", "dog", "dogg")


def test_vectors_analogy(court: Path) -> None:
    """queen: (1 + √½)·√½ / √(1.5858 …), as in tests/embeddings/test_vectors.py; only apple remains beside it."""
    output = run_ok("vectors", "analogy", court, "man", "king", "woman").out.split()
    assert output[0] == "queen"
    assert float(output[1]) == pytest.approx(0.9586, abs=1e-4)
    document = run_ok(
        "vectors", "analogy", court, "man", "king", "woman", "--method", "mul", "--top", 1, "--json"
    ).json()
    assert document["question"] == ["man", "king", "woman"]
    assert [item["word"] for item in document["answers"]] == ["queen"]
    assert document["answers"][0]["score"] == pytest.approx(0.75 * (1 + math.sqrt(0.5)) / 2 / 0.501, rel=1e-5)
    assert "choose add or mul" in run_error(2, "vectors", "analogy", court, "a", "b", "c", "--method", "sub")


def test_vectors_evaluate_worked_by_hand(court: Path, learnt: Path, pairs: Path, questions: Path) -> None:
    """Cosine ranks 3, 4½, 4½, 1, 2, score ranks 4, 3, 5, 1, 2: deviations 0, 1½, 1½, −2, −1 and 1, 0, 2, −2, −1;
    (3 + 4 + 1) / √(9½ · 10).
    """
    document = run_ok(
        "vectors", "evaluate", court, learnt, "--pairs", pairs, "--analogies", questions, "--json"
    ).json()
    first, second = document["rows"]
    judged = first["pairs"][0]
    assert judged["spearman"] == pytest.approx(8 / math.sqrt(95))
    assert (judged["found"], judged["of"], judged["coverage"]) == (5, 6, 5 / 6)
    assert judged["low"] < judged["spearman"] < judged["high"]
    solved = first["analogies"]
    assert solved["semantic"] == {"accuracy": 1.0, "right": 1, "asked": 1, "of": 2}
    assert solved["syntactic"] == {"accuracy": 0.5, "right": 1, "asked": 2, "of": 2}
    assert solved["all"]["right"] == 2
    assert list(solved["sections"]) == ["family", "gram1-none"]
    assert (first["method"], second["method"]) == ("imported", "skipgram")
    # None of these words are in the other text: the figures are null.
    assert second["pairs"][0]["spearman"] is None
    assert second["pairs"][0]["found"] == 0
    assert second["analogies"]["all"] == {"accuracy": None, "right": 0, "asked": 0, "of": 4}


def test_vectors_evaluate_table(court: Path, learnt: Path, pairs: Path, questions: Path) -> None:
    arguments = ("--pairs", pairs, "--pairs", pairs, "--analogies", questions, "--sections", "--rare")
    lines = run_ok("vectors", "evaluate", court, learnt, *arguments).out.splitlines()
    assert lines[0].split()[:3] == ["model", "method", "words"]
    assert lines[0].split()[-4:] == ["semantic", "syntactic", "all", "asked"]
    assert lines[1].split()[0] == str(court)
    assert lines[1].split()[-4:] == ["100.0", "50.0", "66.7", "3/4"]
    assert lines[1].count("5/6") == 2
    assert lines[2].split()[-4:] == ["-", "-", "-", "0/4"]
    section = next(line for line in lines if line.startswith("gram1-none"))
    assert section.split()[:5] == ["gram1-none", "2", "50.0", "of", "2"]


def test_vectors_evaluate_rare_words(learnt: Path, court: Path, tmp_path: Path) -> None:
    """Of six pairs, the two whose rarer word is least frequent in the training text."""
    counts = dict(zip(*(lambda v: (v.words, v.counts.tolist()))(chainrule.load(learnt)), strict=True))
    rows = [("the", "cat"), ("a", "dog"), ("one", "fish"), ("today", "garden"), ("sees", "likes"), ("in", "mouse")]
    file = write(tmp_path / "p.tsv", "".join(f"{a}\t{b}\t{i}\n" for i, (a, b) in enumerate(rows)))
    rows_ = run_ok("vectors", "evaluate", learnt, court, "--pairs", file, "--rare", "--json").json()["rows"]
    rarest = sorted(rows, key=lambda pair: min(counts[word] for word in pair))[:2]
    rare_pairs = write(tmp_path / "r.tsv", "".join(f"{a}\t{b}\t{rows.index((a, b))}\n" for a, b in rarest))
    again = run_ok("vectors", "evaluate", learnt, "--pairs", rare_pairs, "--json").json()["rows"][0]["pairs"][0]
    assert rows_[0]["pairs"][0]["rare"]["spearman"] == again["spearman"]
    assert rows_[0]["pairs"][0]["rare"]["of"] == 2
    assert rows_[1]["pairs"][0]["rare"] is None  # a file has no counts


def test_vectors_evaluate_wrong_usage(court: Path, tmp_path: Path) -> None:
    assert "give --pairs FILE" in run_error(2, "vectors", "evaluate", court)
    bad = write(tmp_path / "bad.tsv", "a\tb\t1\na\tb\n")
    assert "bad.tsv, line 2" in run_error(3, "vectors", "evaluate", court, "--pairs", bad)
    assert "bad.tsv, line 1: 3 words" in run_error(3, "vectors", "evaluate", court, "--analogies", bad)
    run_error(4, "vectors", "evaluate", court, "--pairs", tmp_path / "nowhere")
    run_error(4, "vectors", "evaluate", tmp_path / "nowhere", "--pairs", write(tmp_path / "p", "a b 1\n"))


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "glove"])
def test_vectors_export_import_round_trip(learnt: Path, tmp_path: Path, format: str) -> None:
    run_ok("vectors", "export", learnt, "--format", format, "--out", tmp_path / "v")
    run_ok("vectors", "import", tmp_path / "v", "--out", tmp_path / "m")
    ours, file, back = (
        run_ok("vectors", "neighbors", m, "cat").out for m in (learnt, tmp_path / "v", tmp_path / "m")
    )
    assert ours == file == back
    document = run_ok("info", tmp_path / "m", "--json").json()
    assert (document["task"], document["family"], document["training_text"]) == (
        "vectors",
        "imported",
        "imported from v",
    )
    assert document["command"].startswith("chainrule vectors import ")


@pytest.mark.parametrize("text", ["a 1 2\nb 1 3\n", "2 2\na 1 2\nb 1 3\n"], ids=["glove", "word2vec"])
def test_vectors_import_from_stdin(tmp_path: Path, text: str) -> None:
    outcome = run_ok("vectors", "import", "-", "--out", tmp_path / "m", stdin=text)
    assert "2 words, 2 dimensions" in outcome.err
    imported = chainrule.load(tmp_path / "m")
    assert (imported.words, imported.matrix.tolist()) == (("a", "b"), [[1, 2], [1, 3]])
    assert run_ok("info", tmp_path / "m", "--json").json()["training_text"] == "imported from standard input"
    again = ("vectors", "import", "-", "--out", tmp_path / "m")
    assert "its input - may have changed" in run_error(2, *again, stdin="a 1\n")
    assert "1 word, 1 dimension" in run_ok(*again, "--force", stdin="a 1\n").err


def test_vectors_exchange_wrong_usage(learnt: Path, court: Path, tmp_path: Path) -> None:
    message = run_error(2, "vectors", "export", learnt, "--format", "csv", "--out", tmp_path / "v")
    assert "choose one of word2vec, word2vec-binary, glove" in message
    cut = write(tmp_path / "cut.bin", b"2 2\na \0\0\0\0\0")
    assert "cut.bin, word 1 (byte 4): the file ends here" in run_error(
        3, "vectors", "import", cut, "--out", tmp_path / "m"
    )
    assert "not a model folder" in run_error(2, "vectors", "import", court, "--out", tmp_path)
    assert not (tmp_path / "m").exists()


def test_vectors_convert(learnt: Path, court: Path, tmp_path: Path, model: Path) -> None:
    run_ok("convert", learnt, "--to", "word2vec", "--out", tmp_path / "a.txt")
    run_ok("vectors", "export", learnt, "--out", tmp_path / "b.txt")
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert "does not contain word vectors" in run_error(
        3, "convert", model, "--to", "word2vec", "--out", tmp_path / "c"
    )


def test_other_commands_recognise_vectors(learnt: Path, model: Path) -> None:
    assert "chainrule vectors neighbors" in run_error(3, "score", learnt, stdin="a\n")
    assert "does not contain word vectors" in run_error(3, "vectors", "neighbors", model, "cat")
    output = run_ok("info", learnt).out
    assert "skipgram" in output
    assert digests(learnt)["words.txt"] in output


def test_vectors_evaluate_all_methods_in_one_table(corpus: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path / "p.tsv", "cat\tdog\t9\nsees\tlikes\t8\nthe\ttoday\t1\n")
    methods = ("skipgram", "cbow", "glove", "ppmi", "one-hot")
    for method in methods:
        run_ok("vectors", "train", corpus, "--method", method, "--out", tmp_path / method, *TINY)
    arguments = [tmp_path / method for method in methods]
    rows = run_ok("vectors", "evaluate", *arguments, "--pairs", pairs, "--json").json()["rows"]
    assert [row["method"] for row in rows] == list(methods)
    assert all(row["pairs"][0]["found"] == 3 for row in rows)
    assert rows[-1]["pairs"][0]["spearman"] is None  # all other words are equally far away
    assert run_ok("vectors", "neighbors", tmp_path / "one-hot", "cat").out.startswith("none: ")
    assert "cannot be exported" in run_error(2, "vectors", "export", tmp_path / "one-hot", "--out", tmp_path / "v")


def test_vectors_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    output = call("vectors", "--help").out + capsys.readouterr().out
    for name in ("train", "neighbors", "analogy", "evaluate", "export", "import", "map", "contextual", "senses"):
        assert name in output


@pytest.mark.slow
def test_vectors_neighbors_as_a_process(court: Path) -> None:
    outcome = process("vectors", "neighbors", court, "king", "--top", 1)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout == b"man  0.7071\n"
