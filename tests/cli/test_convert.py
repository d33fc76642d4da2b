"""`chainrule convert`: ARPA round trips, and models that ARPA cannot hold."""

from pathlib import Path

import pytest

from cli.command import QUIET, run_error, run_ok, trained, write

LINES = "the cat sees a dog today\na zebra\n\nnow now\none bird likes the fish in the old garden\n"


def test_convert_arpa_round_trip_keeps_scores(model: Path, tmp_path: Path) -> None:
    outcome = run_ok("convert", model, "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert outcome.out == ""
    assert outcome.err == f"wrote {tmp_path / 'm.arpa'}\n"
    assert (tmp_path / "m.arpa").read_text().startswith("\\data\\\nngram 1=")
    run_ok("convert", tmp_path / "m.arpa", "--out", tmp_path / "back")
    ours, theirs = (run_ok("score", m, "--json", stdin=LINES).json_lines() for m in (model, tmp_path / "back"))
    for mine, other in zip(ours, theirs, strict=True):
        assert other["tokens"] == mine["tokens"]
        assert other["log_probs"] == pytest.approx(mine["log_probs"], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("suffix", "magic"), [(".gz", b"\x1f\x8b"), (".bz2", b"BZh9"), (".xz", b"\xfd7zXZ")])
def test_convert_compressed_arpa(model: Path, tmp_path: Path, suffix: str, magic: bytes) -> None:
    packed = tmp_path / f"m.arpa{suffix}"
    run_ok("convert", model, "--to", "arpa", "--out", packed)
    assert packed.read_bytes().startswith(magic)
    run_ok("convert", packed, "--out", tmp_path / "back")
    first, second = (run_ok("score", m, stdin="the cat\n").out for m in (model, tmp_path / "back"))
    assert float(first.split()[0]) == pytest.approx(float(second.split()[0]), rel=1e-5)


def test_convert_keeps_a_closed_vocabulary(closed: Path, tmp_path: Path) -> None:
    run_ok("convert", closed, "--to", "arpa", "--out", tmp_path / "m.arpa")
    run_ok("convert", tmp_path / "m.arpa", "--out", tmp_path / "back")
    assert run_ok("info", tmp_path / "back", "--json").json()["tokenizer"]["closed"] is True
    assert run_ok("score", tmp_path / "back", "--json", stdin="a zebra\n").json()["infinite"] is True


def test_convert_rejects_models_arpa_cannot_hold(tmp_path: Path, english_text: Path) -> None:
    options = {
        "a score, not a probability": ("--smoothing", "stupid-backoff"),
        "stream n-gram cannot become ARPA": (*QUIET, "--context", "stream"),
    }
    for number, (reason, chosen) in enumerate(options.items()):
        source = trained(tmp_path / str(number), english_text, "--order", 2, *chosen)
        assert reason in run_error(2, "convert", source, "--to", "arpa", "--out", tmp_path / "m.arpa")
    source = trained(tmp_path / "char", english_text, "--order", 2, *QUIET, "--tokenizer", "char")
    assert "' '" in run_error(3, "convert", source, "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert not (tmp_path / "m.arpa").exists()


@pytest.fixture(scope="module")
def mixture(model: Path, english_text: Path, shelf: Path) -> Path:
    """A mixture of two n-grams of different orders and smoothings."""
    bigram = trained(shelf / "bigram", english_text, "--order", 2, "--smoothing", "laplace", "--tokenizer", model)
    run_ok("mix", model, bigram, "--held-out", english_text, "--out", shelf / "mixture")
    return shelf / "mixture"


def test_convert_mixture_to_one_ngram(mixture: Path, english_text: Path, tmp_path: Path) -> None:
    run_ok("convert", mixture, "--to", "ngram", "--out", tmp_path / "one")
    run_ok("convert", mixture, "--to", "arpa", "--out", tmp_path / "one.arpa")
    run_ok("convert", tmp_path / "one.arpa", "--out", tmp_path / "back")
    facts = run_ok("info", tmp_path / "one", "--json").json()
    assert (facts["family"], facts["config"]["order"]) == ("ngram", 3)
    assert facts["config"]["smoothing"] == "interpolated"
    assert facts["command"].startswith("chainrule convert")
    results = [
        run_ok("evaluate", folder, english_text, "--json").json()["perplexity"]
        for folder in (mixture, tmp_path / "one", tmp_path / "back")
    ]
    assert results[1] == pytest.approx(results[0], rel=0.02)
    assert results[2] == pytest.approx(results[1], rel=1e-4)


def test_convert_rejects_mixtures_with_networks(
    mixture: Path, model: Path, toy_text: Path, english_text: Path, tmp_path: Path
) -> None:
    network = ("--hidden", 4, "--epochs", 1, "--tokenizer", model)
    run_ok("train", "feedforward", english_text, "--out", tmp_path / "network", *network)
    run_ok("mix", model, tmp_path / "network", "--held-out", english_text, "--out", tmp_path / "both")
    message = run_error(2, "convert", tmp_path / "both", "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert "contains a feedforward model" in message
    message = run_error(2, "convert", tmp_path / "network", "--to", "ngram", "--out", tmp_path / "m")
    assert "only n-gram models" in message
    stream = trained(tmp_path / "stream", english_text, "--tokenizer", model, *QUIET, "--context", "stream")
    run_ok("mix", model, stream, "--held-out", english_text, "--out", tmp_path / "two")
    assert "line context and some stream context" in run_error(
        2, "convert", tmp_path / "two", "--to", "ngram", "--out", tmp_path / "m"
    )
    assert not (tmp_path / "m").exists()


def test_convert_entropy_prunes_an_existing_model(model: Path, english_text: Path, tmp_path: Path) -> None:
    run_ok("convert", model, "--to", "ngram", "--entropy-prune", "1e-3", "--out", tmp_path / "small")
    trained(tmp_path / "same", english_text, "--order", 3, *QUIET, "--min-count", 20, "--entropy-prune", "1e-3")
    whole, small, same = (
        run_ok("info", folder, "--json").json() for folder in (model, tmp_path / "small", tmp_path / "same")
    )
    assert small["parameters"] < whole["parameters"]
    assert small["parameters"] == same["parameters"]
    assert small["config"]["entropy_prune"] == same["config"]["entropy_prune"] == 1e-3
    scores = [run_ok("score", folder, stdin=LINES).out for folder in (tmp_path / "small", tmp_path / "same")]
    assert scores[0] == scores[1]
    # Through ARPA and back.
    run_ok("convert", model, "--to", "arpa", "--entropy-prune", "1e-3", "--out", tmp_path / "m.arpa")
    run_ok("convert", model, "--to", "arpa", "--out", tmp_path / "whole.arpa")
    run_ok("convert", tmp_path / "whole.arpa", "--entropy-prune", "1e-3", "--out", tmp_path / "back")
    run_ok("convert", tmp_path / "m.arpa", "--out", tmp_path / "pruned")
    counts = [run_ok("info", tmp_path / name, "--json").json()["parameters"] for name in ("back", "pruned")]
    assert counts[0] == counts[1] < whole["parameters"]


def test_convert_layout_and_quantisation(model: Path, tmp_path: Path) -> None:
    for name, options in {
        "small": ("--layout", "small"),
        "bytes": ("--quantize", 8),
        "again": ("--layout", "fast"),
    }.items():
        source = tmp_path / "small" if name == "again" else model
        run_ok("convert", source, "--to", "ngram", *options, "--out", tmp_path / name)
        converted = run_ok("info", tmp_path / name, "--json").json()
        assert converted["command"].startswith(f"chainrule convert {source} --to ngram {options[0]} ")
        assert converted["metrics"] == {}  # the metrics of the source model do not apply
        assert converted["training_text"] == run_ok("info", source, "--json").json()["training_text"]
    result = {
        name: run_ok("info", tmp_path / name, "--json").json()["config"] for name in ("small", "bytes", "again")
    }
    layouts = {name: (config["layout"], config["bits"]) for name, config in result.items()}
    assert layouts == {"small": ("small", 0), "bytes": ("small", 8), "again": ("fast", 0)}
    whole, small, again = (
        run_ok("score", m, stdin=LINES).out for m in (model, tmp_path / "small", tmp_path / "again")
    )
    assert whole == small == again
    one, other = (float(run_ok("score", m, stdin="the cat\n").out.split()[0]) for m in (model, tmp_path / "bytes"))
    assert other == pytest.approx(one, rel=0.02)
    message = run_error(2, "convert", model, "--to", "ngram", "--layout", "tiny", "--out", tmp_path / "m")
    assert "layout is 'tiny'" in message
    assert "model folders" in run_error(2, "convert", model, "--to", "arpa", "--layout", "small", "--out", "m.arpa")


@pytest.mark.parametrize("threshold", ["0", "-1e-8", "nan", "inf"])
def test_convert_rejects_invalid_thresholds(model: Path, tmp_path: Path, threshold: str) -> None:
    message = run_error(2, "convert", model, "--to", "ngram", "--entropy-prune", threshold, "--out", tmp_path / "m")
    assert "such as 1e-8" in message


def test_convert_rejects_an_invalid_arpa_file(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.arpa", "\\data\\\nngram 1=-5\n")
    message = run_error(3, "convert", bad, "--out", tmp_path / "m")
    assert "bad.arpa" in message
    assert "line 2" in message
    assert not (tmp_path / "m").exists()


def test_convert_wrong_usage(model: Path, tmp_path: Path) -> None:
    message = run_error(2, "convert", model, "--to", "word2vec", "--entropy-prune", "1e-8", "--out", tmp_path / "m")
    assert "not for word vectors" in message
    assert "choose arpa" in run_error(2, "convert", model, "--to", "onnx", "--out", tmp_path / "m")
    assert "choose the output format with --to, for example --to arpa" in run_error(
        2, "convert", model, "--out", tmp_path / "m"
    )
    run_error(4, "convert", tmp_path / "nowhere.arpa", "--out", tmp_path / "m")
    run_error(4, "convert", tmp_path / "nowhere", "--to", "arpa", "--out", tmp_path / "m")


def test_convert_arpa_through_pipes(laplace: Path, tmp_path: Path) -> None:
    output = run_ok("convert", laplace, "--to", "arpa", "--out", "-").out
    assert output.startswith("\\data\\\n")
    run_ok("convert", "-", "--out", tmp_path / "back", stdin=output)
    line = "i love mice\n"
    before, after = (float(run_ok("score", m, stdin=line).out.split()[0]) for m in (laplace, tmp_path / "back"))
    assert after == pytest.approx(before, abs=1e-5)
    assert run_ok("info", tmp_path / "back", "--json").json()["config"]["smoothing"] == "imported"


def test_imported_model_spells_unknown_words(laplace: Path, tmp_path: Path) -> None:
    run_ok("convert", laplace, "--to", "arpa", "--out", tmp_path / "a.arpa")
    run_ok("convert", tmp_path / "a.arpa", "--out", tmp_path / "m")
    figures = run_ok("evaluate", tmp_path / "m", "-", "--json", stdin="i love zebras\n").json()
    assert figures["oov"] == 1
    assert figures["bits_per_byte"] > 0


def test_convert_to_shards_and_back(model: Path, english_text: Path, tmp_path: Path) -> None:
    run_ok("convert", model, "--to", "shards", "--shards", 3, "--out", tmp_path / "parts")
    assert run_ok("info", tmp_path / "parts", "--json").json()["family"] == "sharded-ngram"
    expected, result = (
        run_ok("evaluate", folder, english_text, "--json").json() for folder in (model, tmp_path / "parts")
    )
    assert result["perplexity"] == expected["perplexity"]
    whole, parts = (run_ok("score", folder, stdin=LINES).out for folder in (model, tmp_path / "parts"))
    assert parts == whole
    run_ok("convert", tmp_path / "parts", "--to", "ngram", "--out", tmp_path / "joined")
    assert (tmp_path / "joined" / "model.ngram").read_bytes() == (model / "model.ngram").read_bytes()
    run_ok("convert", tmp_path / "parts", "--to", "arpa", "--out", tmp_path / "parts.arpa")
    run_ok("convert", model, "--to", "arpa", "--out", tmp_path / "whole.arpa")
    assert (tmp_path / "parts.arpa").read_bytes() == (tmp_path / "whole.arpa").read_bytes()


def test_convert_to_shards_requires_both_options(model: Path, tmp_path: Path) -> None:
    for options in (["--to", "shards"], ["--shards", 2], ["--to", "ngram", "--shards", 2]):
        assert "--to shards and --shards N go together" in run_error(
            2, "convert", model, *options, "--out", tmp_path / "parts"
        )
