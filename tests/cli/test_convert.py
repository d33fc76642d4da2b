"""`chainrule convert`: out as ARPA and in again is the same model; what ARPA cannot hold is refused."""

from pathlib import Path

import pytest

from cli.command import QUIET, done, refused, trained, write

LINES = "the cat sees a dog today\na zebra\n\nnow now\none bird likes the fish in the old garden\n"


def test_out_and_in_gives_the_same_scores(model: Path, tmp_path: Path) -> None:
    outcome = done("convert", model, "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert outcome.out == ""
    assert outcome.err == f"wrote {tmp_path / 'm.arpa'}\n"
    assert (tmp_path / "m.arpa").read_text().startswith("\\data\\\nngram 1=")
    done("convert", tmp_path / "m.arpa", "--out", tmp_path / "back")
    ours, theirs = (done("score", m, "--json", stdin=LINES).json_lines() for m in (model, tmp_path / "back"))
    for mine, other in zip(ours, theirs, strict=True):
        assert other["tokens"] == mine["tokens"]
        assert other["log_probs"] == pytest.approx(mine["log_probs"], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("suffix", "magic"), [(".gz", b"\x1f\x8b"), (".bz2", b"BZh9"), (".xz", b"\xfd7zXZ")])
def test_a_packed_file(model: Path, tmp_path: Path, suffix: str, magic: bytes) -> None:
    packed = tmp_path / f"m.arpa{suffix}"
    done("convert", model, "--to", "arpa", "--out", packed)
    assert packed.read_bytes().startswith(magic)
    done("convert", packed, "--out", tmp_path / "back")
    first, second = (done("score", m, stdin="the cat\n").out for m in (model, tmp_path / "back"))
    assert float(first.split()[0]) == pytest.approx(float(second.split()[0]), rel=1e-5)


def test_a_closed_model_comes_back_closed(closed: Path, tmp_path: Path) -> None:
    done("convert", closed, "--to", "arpa", "--out", tmp_path / "m.arpa")
    done("convert", tmp_path / "m.arpa", "--out", tmp_path / "back")
    assert done("info", tmp_path / "back", "--json").json()["tokenizer"]["closed"] is True
    assert done("score", tmp_path / "back", "--json", stdin="a zebra\n").json()["infinite"] is True


def test_what_arpa_cannot_hold(tmp_path: Path, english_text: Path) -> None:
    options = {
        "a score, not a probability": ("--smoothing", "stupid-backoff"),
        "stream n-gram cannot become ARPA": (*QUIET, "--context", "stream"),
    }
    for number, (reason, chosen) in enumerate(options.items()):
        source = trained(tmp_path / str(number), english_text, "--order", 2, *chosen)
        assert reason in refused(2, "convert", source, "--to", "arpa", "--out", tmp_path / "m.arpa")
    source = trained(tmp_path / "char", english_text, "--order", 2, *QUIET, "--tokenizer", "char")
    assert "' '" in refused(3, "convert", source, "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert not (tmp_path / "m.arpa").exists()


@pytest.fixture(scope="module")
def mixture(model: Path, english_text: Path, shelf: Path) -> Path:
    """Two n-grams of different orders and smoothings, mixed."""
    bigram = trained(shelf / "bigram", english_text, "--order", 2, "--smoothing", "laplace", "--tokenizer", model)
    done("mix", model, bigram, "--held-out", english_text, "--out", shelf / "mixture")
    return shelf / "mixture"


def test_a_mixture_of_n_grams_becomes_one(mixture: Path, english_text: Path, tmp_path: Path) -> None:
    done("convert", mixture, "--to", "ngram", "--out", tmp_path / "one")
    done("convert", mixture, "--to", "arpa", "--out", tmp_path / "one.arpa")
    done("convert", tmp_path / "one.arpa", "--out", tmp_path / "back")
    facts = done("info", tmp_path / "one", "--json").json()
    assert (facts["family"], facts["config"]["order"]) == ("ngram", 3)
    assert facts["config"]["smoothing"] == "interpolated"
    assert facts["command"].startswith("chainrule convert")
    found = [
        done("evaluate", folder, english_text, "--json").json()["perplexity"]
        for folder in (mixture, tmp_path / "one", tmp_path / "back")
    ]
    assert found[1] == pytest.approx(found[0], rel=0.02)
    assert found[2] == pytest.approx(found[1], rel=1e-4)


def test_what_cannot_become_one_n_gram(
    mixture: Path, model: Path, toy_text: Path, english_text: Path, tmp_path: Path
) -> None:
    network = ("--hidden", 4, "--epochs", 1, "--tokenizer", model)
    done("train", "feedforward", english_text, "--out", tmp_path / "network", *network)
    done("mix", model, tmp_path / "network", "--held-out", english_text, "--out", tmp_path / "both")
    message = refused(2, "convert", tmp_path / "both", "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert "holds a feedforward model" in message
    message = refused(2, "convert", tmp_path / "network", "--to", "ngram", "--out", tmp_path / "m")
    assert "only n-gram models" in message
    stream = trained(tmp_path / "stream", english_text, "--tokenizer", model, *QUIET, "--context", "stream")
    done("mix", model, stream, "--held-out", english_text, "--out", tmp_path / "two")
    assert "as a stream" in refused(2, "convert", tmp_path / "two", "--to", "ngram", "--out", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_entropy_pruning_of_a_model_that_is_there(model: Path, english_text: Path, tmp_path: Path) -> None:
    done("convert", model, "--to", "ngram", "--entropy-prune", "1e-3", "--out", tmp_path / "small")
    trained(tmp_path / "same", english_text, "--order", 3, *QUIET, "--min-count", 20, "--entropy-prune", "1e-3")
    whole, small, same = (
        done("info", folder, "--json").json() for folder in (model, tmp_path / "small", tmp_path / "same")
    )
    assert small["parameters"] < whole["parameters"]
    assert small["parameters"] == same["parameters"]
    assert small["config"]["entropy_prune"] == same["config"]["entropy_prune"] == 1e-3
    scores = [done("score", folder, stdin=LINES).out for folder in (tmp_path / "small", tmp_path / "same")]
    assert scores[0] == scores[1]
    # On the way to ARPA and back.
    done("convert", model, "--to", "arpa", "--entropy-prune", "1e-3", "--out", tmp_path / "m.arpa")
    done("convert", model, "--to", "arpa", "--out", tmp_path / "whole.arpa")
    done("convert", tmp_path / "whole.arpa", "--entropy-prune", "1e-3", "--out", tmp_path / "back")
    done("convert", tmp_path / "m.arpa", "--out", tmp_path / "pruned")
    counts = [done("info", tmp_path / name, "--json").json()["parameters"] for name in ("back", "pruned")]
    assert counts[0] == counts[1] < whole["parameters"]


def test_another_layout(model: Path, tmp_path: Path) -> None:
    for name, options in {
        "small": ("--layout", "small"),
        "bytes": ("--quantize", 8),
        "again": ("--layout", "fast"),
    }.items():
        source = tmp_path / "small" if name == "again" else model
        done("convert", source, "--to", "ngram", *options, "--out", tmp_path / name)
        converted = done("info", tmp_path / name, "--json").json()
        assert converted["command"].startswith(f"chainrule convert {source} --to ngram {options[0]} ")
        assert converted["metrics"] == {}  # those of the source model are not of this one
        assert converted["training_text"] == done("info", source, "--json").json()["training_text"]
    found = {name: done("info", tmp_path / name, "--json").json()["config"] for name in ("small", "bytes", "again")}
    layouts = {name: (config["layout"], config["bits"]) for name, config in found.items()}
    assert layouts == {"small": ("small", 0), "bytes": ("small", 8), "again": ("fast", 0)}
    whole, small, again = (
        done("score", m, stdin=LINES).out for m in (model, tmp_path / "small", tmp_path / "again")
    )
    assert whole == small == again
    one, other = (float(done("score", m, stdin="the cat\n").out.split()[0]) for m in (model, tmp_path / "bytes"))
    assert other == pytest.approx(one, rel=0.02)
    message = refused(2, "convert", model, "--to", "ngram", "--layout", "tiny", "--out", tmp_path / "m")
    assert "layout is 'tiny'" in message
    assert "model folders" in refused(2, "convert", model, "--to", "arpa", "--layout", "small", "--out", "m.arpa")


@pytest.mark.parametrize("threshold", ["0", "-1e-8", "nan", "inf"])
def test_thresholds_that_mean_nothing(model: Path, tmp_path: Path, threshold: str) -> None:
    message = refused(2, "convert", model, "--to", "ngram", "--entropy-prune", threshold, "--out", tmp_path / "m")
    assert "such as 1e-8" in message


def test_a_file_that_is_no_arpa(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.arpa", "\\data\\\nngram 1=-5\n")
    message = refused(3, "convert", bad, "--out", tmp_path / "m")
    assert "bad.arpa" in message
    assert "line 2" in message
    assert not (tmp_path / "m").exists()


def test_wrong_usage(model: Path, tmp_path: Path) -> None:
    message = refused(2, "convert", model, "--to", "word2vec", "--entropy-prune", "1e-8", "--out", tmp_path / "m")
    assert "not for word vectors" in message
    assert "choose arpa" in refused(2, "convert", model, "--to", "onnx", "--out", tmp_path / "m")
    assert "say what to make of it with --to arpa" in refused(2, "convert", model, "--out", tmp_path / "m")
    refused(4, "convert", tmp_path / "nowhere.arpa", "--out", tmp_path / "m")
    refused(4, "convert", tmp_path / "nowhere", "--to", "arpa", "--out", tmp_path / "m")


def test_arpa_through_pipes(laplace: Path, tmp_path: Path) -> None:
    shown = done("convert", laplace, "--to", "arpa", "--out", "-").out
    assert shown.startswith("\\data\\\n")
    done("convert", "-", "--out", tmp_path / "back", stdin=shown)
    line = "i love mice\n"
    before, after = (float(done("score", m, stdin=line).out.split()[0]) for m in (laplace, tmp_path / "back"))
    assert after == pytest.approx(before, abs=1e-5)
    assert done("info", tmp_path / "back", "--json").json()["config"]["smoothing"] == "imported"


def test_an_imported_model_spells_unknown_words(laplace: Path, tmp_path: Path) -> None:
    done("convert", laplace, "--to", "arpa", "--out", tmp_path / "a.arpa")
    done("convert", tmp_path / "a.arpa", "--out", tmp_path / "m")
    figures = done("evaluate", tmp_path / "m", "-", "--json", stdin="i love zebras\n").json()
    assert figures["oov"] == 1
    assert figures["bits_per_byte"] > 0
