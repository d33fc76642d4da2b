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


def test_a_packed_file(model: Path, tmp_path: Path) -> None:
    done("convert", model, "--to", "arpa", "--out", tmp_path / "m.arpa.gz")
    assert (tmp_path / "m.arpa.gz").read_bytes().startswith(b"\x1f\x8b")
    done("convert", tmp_path / "m.arpa.gz", "--out", tmp_path / "back")
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


def test_a_mixture_cannot_become_arpa(laplace: Path, toy_text: Path, tmp_path: Path) -> None:
    done("mix", laplace, laplace, "--held-out", toy_text, "--out", tmp_path / "mix")
    message = refused(2, "convert", tmp_path / "mix", "--to", "arpa", "--out", tmp_path / "m.arpa")
    assert "only n-gram models can become ARPA" in message


def test_a_file_that_is_no_arpa(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.arpa", "\\data\\\nngram 1=-5\n")
    message = refused(3, "convert", bad, "--out", tmp_path / "m")
    assert "bad.arpa" in message
    assert "line 2" in message
    assert not (tmp_path / "m").exists()


def test_wrong_usage(model: Path, tmp_path: Path) -> None:
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
