"""`chainrule evaluate`: worked numbers, documented keys, and errors for damaged models."""

import json
import math
import os
import random
import shutil
from pathlib import Path

import pytest

from cli.command import QUIET, call, english, run_error, run_ok, trained, write

KEYS = {
    "model",
    "family",
    "tokenizer",
    "context",
    "sentences",
    "tokens",
    "oov",
    "bytes",
    "nats_per_token",
    "bits_per_token",
    "perplexity",
    "perplexity_excluding_oov",
    "perplexity_per_word",
    "bits_per_character",
    "bits_per_byte",
    "infinite",
    "seconds",
    "tokens_per_second",
}


def test_evaluate_json_has_the_documented_keys(closed: Path) -> None:
    document = run_ok("evaluate", closed, "-", "--json", stdin="i love mice\n").json()
    assert document.keys() >= {"schema_version", *KEYS}
    assert document["schema_version"] == 1
    assert (document["model"], document["family"]) == (str(closed), "ngram")
    assert (document["tokenizer"], document["context"]) == ("word", "line")
    assert (document["sentences"], document["tokens"], document["oov"], document["bytes"]) == (1, 4, 0, 12)


def test_evaluate_add_one_worked_example(closed: Path, laplace: Path) -> None:
    document = run_ok("evaluate", closed, "-", "--json", stdin="i love mice\n").json()
    assert document["perplexity"] == pytest.approx(5.0100, abs=5e-5)  # 630^(1/4)
    assert document["nats_per_token"] == pytest.approx(math.log(630) / 4, rel=1e-6)
    assert document["bits_per_token"] == pytest.approx(math.log2(630) / 4, rel=1e-6)
    assert document["bits_per_byte"] == pytest.approx(math.log2(630) / 12, rel=1e-6)  # 11 bytes and the line break
    assert document["bits_per_character"] == pytest.approx(math.log2(630) / 12, rel=1e-6)
    assert document["perplexity_per_word"] == pytest.approx(630 ** (1 / 4), rel=1e-6)  # 3 words and a line
    document = run_ok("evaluate", laplace, "-", "--json", stdin="i love mice\n").json()
    assert document["perplexity"] == pytest.approx(5.5919, abs=5e-5)  # (8800/9)^(1/4)


def test_evaluate_maximum_likelihood_worked_example(mle: Path) -> None:
    document = run_ok("evaluate", mle, "-", "--json", stdin="i love cats\n").json()
    assert document["perplexity"] == pytest.approx(1.3161, abs=5e-5)  # 3^(1/4)
    assert document["infinite"] is False
    assert document["cause"] is None


def test_evaluate_infinite_perplexity_names_its_cause(mle: Path) -> None:
    text = "i love cats\ni love mice\ndogs\n"
    document = run_ok("evaluate", mle, "-", "--json", stdin=text).json()
    assert document["infinite"] is True
    for key in ("perplexity", "nats_per_token", "bits_per_token", "bits_per_byte", "perplexity_per_word"):
        assert document[key] is None
    assert document["cause"] == "'mice' on line 2, token 3"
    output = run_ok("evaluate", mle, "-", stdin=text).out
    assert "'mice' on line 2, token 3" in output
    assert "inf" in output


def test_evaluate_names_an_impossible_unknown_word(closed: Path) -> None:
    document = run_ok("evaluate", closed, "-", "--json", stdin="i love zebras\n").json()
    assert (document["infinite"], document["oov"]) == (True, 1)
    assert document["cause"] == "'zebras' on line 1, token 3"


def test_evaluate_text_of_unknown_words(laplace: Path) -> None:
    document = run_ok("evaluate", laplace, "-", "--json", stdin="zebra\nzebu\n").json()
    assert (document["oov"], document["tokens"], document["infinite"]) == (2, 4, False)
    # Each line: p(<unk> | <s> <s>) = 1/11, p(</s> | an unseen context) = 1/8.
    assert document["perplexity"] == pytest.approx(math.sqrt(88), rel=1e-6)
    assert document["perplexity_excluding_oov"] == pytest.approx(8, rel=1e-6)
    assert document["bits_per_byte"] > math.log2(88) * 2 / document["bytes"]  # spelling costs extra
    assert document["bytes"] == 11


def test_evaluate_counts_blank_lines_unless_dropped(laplace: Path) -> None:
    document = run_ok("evaluate", laplace, "-", "--json", stdin="\ni love cats\n\n").json()
    assert (document["sentences"], document["tokens"], document["bytes"]) == (3, 6, 14)
    document = run_ok("evaluate", laplace, "-", "--json", "--drop-blank-lines", stdin="\ni love cats\n\n").json()
    assert (document["sentences"], document["tokens"], document["bytes"]) == (1, 4, 12)


def test_evaluate_counts_replaced_bytes(laplace: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "bad.txt", b"i \xff love\n\xe2\x82 mice\n")
    assert "bad.txt is not UTF-8 at byte 2 (0xff)" in run_error(3, "evaluate", laplace, text)
    document = run_ok("evaluate", laplace, text, "--errors", "replace", "--json").json()
    assert document["replaced"] == 2
    assert run_ok("evaluate", laplace, "-", "--json", stdin="i \ufffd love\n").json()["replaced"] == 0


@pytest.mark.parametrize(
    "command",
    [["score"], ["filter", "--keep", "1"], ["filter", "--buckets", "a,b", "--json"], ["correct"], ["identify"]],
)
def test_replaced_bytes_are_reported_once(laplace: Path, tmp_path: Path, command: list[str]) -> None:
    text = write(tmp_path / "bad.txt", b"i \xff love\n\xe2\x82 mice\n")
    models = [f"a={laplace}", f"b={laplace}"] if command == ["identify"] else [laplace]
    result = run_ok(command[0], *models, text, *command[1:], "--errors", "replace")
    assert result.err.count("bad.txt: 2 sequences are not UTF-8 and were read as U+FFFD") == 1
    assert "sequences" not in run_ok(command[0], *models, "-", *command[1:], stdin="i \ufffd love\n").err


def test_evaluate_rejects_an_empty_text(laplace: Path, tmp_path: Path) -> None:
    assert "the text is empty" in run_error(3, "evaluate", laplace, write(tmp_path / "empty.txt", ""))
    assert "nowhere.txt" in run_error(4, "evaluate", laplace, tmp_path / "nowhere.txt")


def test_evaluate_warns_about_the_training_text(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", english(400))
    model = trained(tmp_path / "m", text, "--order", 2, *QUIET)
    part = write(tmp_path / "part.txt", "".join(english(400).splitlines(keepends=True)[:100]))
    outcome = run_ok("evaluate", model, part, "--json")
    assert outcome.json()["sentences"] == 100  # the result is printed nevertheless
    assert outcome.err.startswith("warning: about 100% of the lines of this text were in the training text")
    other = write(tmp_path / "other.txt", english(100).replace("garden", "house").replace("now", "now and then"))
    fresh = "".join(f"line number {i} is quite unlike all the others\n" for i in range(100))
    assert run_ok("evaluate", model, write(other, fresh)).err == ""


def test_evaluate_labels_upper_bounds_and_scores(tmp_path: Path, english_text: Path) -> None:
    model = trained(tmp_path / "bpe", english_text, "--tokenizer", "bpe", "--vocab-size", 300, "--order", 2, *QUIET)
    document = run_ok("evaluate", model, "-", "--json", stdin="the zebra sees\n").json()
    assert (document["is_upper_bound"], document["is_normalized"], document["oov"]) == (True, True, 0)
    model = trained(tmp_path / "stupid", english_text, "--order", 2, "--smoothing", "stupid-backoff")
    assert run_ok("evaluate", model, "-", "--json", stdin="the cat\n").json()["is_normalized"] is False
    assert "scores, not probabilities" in run_ok("evaluate", model, "-", stdin="the cat\n").out


@pytest.fixture(scope="module")
def mixture(shelf: Path, english_text: Path) -> Path:
    tokenizer = trained(shelf / "part1", english_text, "--order", 1, *QUIET)
    second = trained(shelf / "part2", english_text, "--order", 2, *QUIET, "--tokenizer", tokenizer)
    held_out = write(shelf / "held_out.txt", english(30, seed=9))
    run_ok("mix", tokenizer, second, "--held-out", held_out, "--out", shelf / "damageable")
    return shelf / "damageable"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["model", "mixture"])
def test_evaluate_never_uses_a_damaged_model(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(request.getfixturevalue(kind), folder)
    rng = random.Random(5)
    trials = 0
    for name, content in sorted(contents(folder).items()):
        flipped = bytearray(content)
        cut = b""
        if content:
            flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            cut = content[: rng.randrange(len(content))]
        for changed in {bytes(flipped), cut, content[:-1], content + b"\0"} - {content}:
            (folder / name).write_bytes(changed)
            message = run_error(3, "evaluate", folder, "-", stdin="the cat\n")
            assert str(folder / name) in message
            trials += 1
        (folder / name).write_bytes(content)
    assert trials >= 25
    assert call("evaluate", folder, "-", stdin="the cat\n").status == 0


def test_evaluate_rejects_a_file_of_another_model(model: Path, laplace: Path, tmp_path: Path) -> None:
    for name in ("model.ngram", "tokenizer.json", "config.json", "manifest.json", "speller.safetensors"):
        folder = tmp_path / name.replace(".", "-")
        shutil.copytree(model, folder)
        shutil.copy(laplace / name, folder / name)
        message = run_error(3, "evaluate", folder, "-", stdin="the cat\n")
        assert str(folder) in message


@pytest.mark.parametrize("name", ["model.ngram", "manifest.json", "README.md"])
def test_evaluate_names_a_missing_file(model: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    assert name in run_error(3, "evaluate", tmp_path / "m", "-", stdin="the cat\n")


def test_evaluate_rejects_other_files_as_models(tmp_path: Path, toy_text: Path) -> None:
    for name in ("model.pt", "model.pkl", "model.joblib"):
        write(tmp_path / name, b"cos\nsystem\n(S'touch pwned'\ntR.")
        assert "never unpickles" in run_error(3, "evaluate", tmp_path / name, toy_text)
    os.mkfifo(tmp_path / "pipe")
    run_error(3, "evaluate", tmp_path / "pipe", toy_text)
    write(tmp_path / "model.arpa", "\\data\\\n")
    assert "chainrule convert" in run_error(3, "evaluate", tmp_path / "model.arpa", toy_text)
    assert "nowhere does not exist" in run_error(4, "evaluate", tmp_path / "nowhere", toy_text)
    assert "manifest.json" in run_error(3, "evaluate", tmp_path, toy_text)


def test_evaluate_does_not_hang_on_a_pipe(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / "model.ngram").unlink()
    os.mkfifo(tmp_path / "m" / "model.ngram")
    assert "model.ngram is not a regular file" in run_error(3, "evaluate", tmp_path / "m", "-", stdin="a\n")
    assert "is a pipe" in run_error(3, "evaluate", model, tmp_path / "m" / "model.ngram")


def test_evaluate_rejects_a_newer_format_with_advice(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_bytes())
    write(tmp_path / "m" / "manifest.json", json.dumps(manifest | {"format_version": 2}))
    assert "pip install --upgrade chainrule" in run_error(3, "evaluate", tmp_path / "m", "-", stdin="a\n")


@pytest.fixture(scope="module")
def network(shelf: Path, english_text: Path) -> Path:
    """A small Transformer trained for one epoch on the small English text."""
    small = ("--hidden", 16, "--layers", 1, "--epochs", 1, "--set", "window=8", "--device", "cpu")
    run_ok("train", "transformer", english_text, "--context", "stream", "--out", shelf / "network", *small)
    return shelf / "network"


def test_evaluate_adapted_figures_in_json(network: Path, tmp_path: Path) -> None:
    test, valid = (
        write(tmp_path / "test.txt", "zebra cat\n" * 40),
        write(tmp_path / "valid.txt", "cat cat dog\n" * 40),
    )
    static = run_ok("evaluate", network, test, "--json").json()
    assert "adapted" not in static
    every = ("--valid", valid, "--train", valid, "--temperature", "--cache", "--dynamic", "--stride", 4)
    document_ = run_ok("evaluate", network, test, *every, "--json").json()
    adapted = document_.pop("adapted")
    for document in (static, document_):
        del document["seconds"], document["tokens_per_second"]
    assert document_ == static
    assert set(adapted) == {"temperature", "cache", "dynamic", "stride"}
    for figures in adapted.values():
        names = {"perplexity", "bits_per_byte", "nats_per_token", "infinite", "settings", "seconds"}
        assert figures.keys() == names
        assert math.exp(figures["nats_per_token"]) == pytest.approx(figures["perplexity"])
    assert adapted["stride"]["settings"] == {"stride": 4}
    assert adapted["temperature"]["settings"].keys() == {"temperature"}
    assert adapted["cache"]["settings"].keys() == {"theta", "lambda", "size"}
    assert adapted["dynamic"]["settings"].keys() == {"rate", "decay", "segment", "epsilon"}
    assert adapted["dynamic"]["settings"]["segment"] == 8
    assert adapted["cache"]["perplexity"] < static["perplexity"]


def test_evaluate_prints_one_line_per_adaptation(network: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "cat dog\n" * 20)
    output = run_ok("evaluate", network, text, "--valid", text, "--cache", "--stride", 2).out.splitlines()
    assert [line.split()[:3] for line in output[-2:]] == [
        ["adapted:", "stride", "perplexity"],
        ["adapted:", "cache", "perplexity"],
    ]
    assert output[-2].endswith("(stride 2)")
    assert "size 2000)" in output[-1]
    assert any(line.startswith("perplexity ") for line in output[:-2])


def test_evaluate_adaptation_requires_validation_text(network: Path, laplace: Path, toy_text: Path) -> None:
    for option in ("--temperature", "--cache", "--dynamic"):
        message = run_error(2, "evaluate", network, toy_text, option)
        assert option in message
        assert "--valid FILE" in message
    assert "leave it out" in run_error(2, "evaluate", network, toy_text, "--valid", toy_text)
    assert "--dynamic" in run_error(2, "evaluate", network, toy_text, "--train", toy_text)
    message = run_error(2, "evaluate", laplace, toy_text, "--valid", toy_text, "--cache")
    assert "this is an ngram" in message
    assert "choose 1 to 8" in run_error(2, "evaluate", network, toy_text, "--stride", 9)
    assert "choose auto, cpu or cuda" in run_error(2, "evaluate", network, toy_text, "--device", "tpu")
