"""`chainrule vectors contextual` and `senses`: numbers, files, figures, errors."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule.neural.probes.contextual import contextual
from chainrule.text.labelled import read_labelled
from cli.command import run_error, run_ok, write

DATA = Path(__file__).parents[1] / "data" / "senses"
CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [line for name in ("bank", "spring") for line in read_labelled(DATA / f"{name}.tsv").texts]
    return write(tmp_path_factory.mktemp("contextual") / "text.txt", "".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def encoder(sentences: Path) -> Path:
    out = sentences.with_name("encoder")
    run_ok("pretrain", "lstm", sentences, "--out", out, "--hidden", 8, "--epochs", 1, "--lowercase", *CPU)
    return out


@pytest.fixture(scope="module")
def model(sentences: Path) -> Path:
    out = sentences.with_name("gru")
    run_ok("train", "gru", sentences, "--out", out, "--hidden", 8, "--epochs", 1, "--lowercase", *CPU)
    return out


@pytest.mark.parametrize(
    ("name", "senses"), [("bank", {"river": 12, "money": 12}), ("spring", {"season": 10, "water": 10})]
)
def test_sense_sentences_contain_their_word_once(name: str, senses: dict[str, int]) -> None:
    examples = read_labelled(DATA / f"{name}.tsv")
    assert {sense: list(examples.labels).count(sense) for sense in examples.labels} == senses
    assert all(text.split().count(name) == 1 for text in examples.texts)
    assert len(set(examples.texts)) == len(examples)


@pytest.mark.parametrize("kind", ["encoder", "model"])
def test_vectors_contextual_json(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    lines = ["The old bank .", "", "A spring"]
    documents = run_ok("vectors", "contextual", folder, "--json", *CPU, stdin="\n".join(lines) + "\n").json_lines()
    expected = contextual(chainrule.load(folder, device="cpu"), lines)
    assert [line["words"] for line in documents] == [line.split() for line in lines]
    for line, layers in zip(documents, expected, strict=True):
        assert list(line["layers"]) == [str(k) for k in layers.vectors]
        for k, x in layers.vectors.items():
            assert_allclose(np.reshape(line["layers"][str(k)], x.shape), x, rtol=1e-5)


def test_vectors_contextual_text(encoder: Path) -> None:
    out = run_ok("vectors", "contextual", encoder, "-", *CPU, stdin="old bank\na spring\n").out
    first, second = contextual(chainrule.load(encoder, device="cpu"), ["old bank", "a spring"])
    rows = [line.split("\t") for line in out.split("\n")]
    assert [row[0] for row in rows] == ["old", "bank", "", "a", "spring", ""]
    last = max(first.vectors)
    assert_allclose([float(x) for x in rows[1][1].split()], first.vectors[last][1], rtol=1e-5)
    assert_allclose([float(x) for x in rows[3][1].split()], second.vectors[last][0], rtol=1e-5)
    own = run_ok("vectors", "contextual", encoder, "-", "--layer", 0, *CPU, stdin="old bank\n").out
    assert_allclose([float(x) for x in own.split("\n")[1].split("\t")[1].split()], first.vectors[0][1], rtol=1e-5)


def test_vectors_contextual_npz_file(encoder: Path, sentences: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "vectors.npz"
    outcome = run_ok("vectors", "contextual", encoder, sentences, "--out", out, *CPU)
    assert outcome.out == ""
    assert "44 sentences, layer0, layer1" in outcome.err
    expected = contextual(chainrule.load(encoder, device="cpu"), sentences.read_text().splitlines())
    with np.load(out, allow_pickle=False) as file:
        assert file["words"].tolist() == [word for item in expected for word in item.words]
        assert file["sentence"].tolist() == [i for i, item in enumerate(expected) for _ in item.words]
        for k in expected[0].vectors:
            assert_allclose(file[f"layer{k}"], np.concatenate([item.vectors[k] for item in expected]))
    run_ok("vectors", "contextual", encoder, sentences, "--layer", 1, "--out", out, *CPU)
    with np.load(out) as file:
        assert sorted(file) == ["layer1", "sentence", "words"]


def senses_json(folder: Path, *more: object) -> Any:
    return run_ok("vectors", "senses", folder, "bank", DATA / "bank.tsv", "--json", *CPU, *more).json()


@pytest.mark.parametrize("kind", ["encoder", "model"])
def test_vectors_senses_json_and_text(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    document = senses_json(folder)
    assert (document["word"], document["majority"]) == ("bank", 0.5)
    assert document["senses"] == {"river": 12, "money": 12}
    static, *layers = document["layers"]
    assert static["is_static"] is True
    assert (static["layer"], static["accuracy"], static["separation"]) == (0, 0.5, 0.0)
    assert [layer["layer"] for layer in layers] == list(range(1, len(layers) + 1))
    for layer in layers:
        assert layer["is_static"] is False
        assert layer["separation"] == pytest.approx(layer["cosine_within"] - layer["cosine_across"])
    assert document["best_layer"] == max(layers, key=lambda item: (item["accuracy"], item["separation"]))["layer"]
    text = run_ok("vectors", "senses", folder, "bank", DATA / "bank.tsv", *CPU).out
    assert "layer 0 has the same vector in all 24 sentences: it cannot separate the senses" in text
    assert f"{layers[-1]['accuracy']:.4f}" in text


def test_static_vectors_may_differ_at_the_line_start(tmp_path: Path, sentences: Path) -> None:
    """Byte-pair pieces of a line's first word have no space, so its static vector differs."""
    run_ok(
        "train", "rnn", sentences, "--out", tmp_path / "m", "--tokenizer", "bpe", "--hidden", 8, "--epochs", 1, *CPU
    )
    file = write(tmp_path / "x.tsv", "a\tthe bank was\na\tbank was\nb\tour bank\nb\tbank notes\n")
    output = run_ok("vectors", "senses", tmp_path / "m", "bank", file, *CPU).out
    assert "layer 0 has 2 different vectors in 4 sentences" in output


def test_vectors_senses_figures(encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("senses.svg", "senses.html"):
        outcome = run_ok("vectors", "senses", encoder, "bank", DATA / "bank.tsv", "--out", tmp_path / name, *CPU)
        assert f"wrote {tmp_path / name}" in outcome.err
    root = ElementTree.fromstring((tmp_path / "senses.svg").read_text())
    assert len(list(root.iter("{http://www.w3.org/2000/svg}title"))) == 1 + 24
    assert (tmp_path / "senses.html").read_text().count("<mark>bank</mark>") == 24


def test_vectors_contextual_and_senses_wrong_usage(encoder: Path, tmp_path: Path, laplace: Path) -> None:
    bank = DATA / "bank.tsv"
    assert "choose a name that ends in .npz" in run_error(
        2, "vectors", "contextual", encoder, bank, "--out", tmp_path / "x.txt"
    )
    message = run_error(2, "vectors", "contextual", encoder, bank, "--out", tmp_path / "x.npz", "--json")
    assert "choose one of them" in message
    lines = write(tmp_path / "bank.txt", bank.read_text())
    assert "layers 0 (the words' own" in run_error(2, "vectors", "contextual", encoder, lines, "--layer", 7, *CPU)
    assert "(ngram) is neither" in run_error(2, "vectors", "contextual", laplace, lines)
    assert "ends in neither" in run_error(2, "vectors", "senses", encoder, "bank", bank, "--out", "senses.png")
    assert f"{bank}, line 1 does not contain 'shore'" in run_error(
        3, "vectors", "senses", encoder, "shore", bank, *CPU
    )
    one = write(tmp_path / "one.tsv", "river\tthe bank\nriver\ta bank\n")
    assert "only one sense, 'river'" in run_error(3, "vectors", "senses", encoder, "bank", one, *CPU)
    bare = write(tmp_path / "bare.tsv", "river\tthe bank\na bank\n")
    assert f"{bare}, line 2 has no label" in run_error(3, "vectors", "senses", encoder, "bank", bare, *CPU)
    empty = write(tmp_path / "empty.txt", "")
    message = run_error(3, "vectors", "contextual", encoder, empty, "--out", tmp_path / "x.npz", *CPU)
    assert "the text is empty" in message
    assert not list(tmp_path.glob("x.*"))
    assert run_error(4, "vectors", "senses", tmp_path / "none", "bank", bank, *CPU)


def test_vectors_contextual_prints_json_lines(encoder: Path) -> None:
    lines = run_ok("vectors", "contextual", encoder, "--json", *CPU, stdin="a bank\n").out.splitlines()
    assert [json.loads(line)["schema_version"] for line in lines] == [1]
