"""`chainrule inspect`: arguments, output, errors."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainrule.inspection.report import Finding, Section
from chainrule.inspection.run import SECTIONS
from chainrule.inspection.text_excerpt import Sample
from cli.command import QUIET, call, english, process, run_error, run_ok, write


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Sections that report the tokens they read and record their arguments."""
    recorded: dict[str, Any] = {}

    def make(name: str) -> Any:
        def section(samples: Sequence[Sample], **settings: Any) -> Section:
            recorded[name] = settings
            findings = tuple(Finding(sample.name, f"saw {' '.join(sample.tokens[:4])}.") for sample in samples)
            return Section(name=name, title=name.title(), findings=findings, data={"nan": float("nan")})

        return section

    for name in SECTIONS:
        monkeypatch.setitem(sys.modules, f"chainrule.inspection.{name}", SimpleNamespace(section=make(name)))
    return recorded


@pytest.mark.usefixtures("sections")
def test_inspect_prints_summary_and_findings(mle: Path, toy_text: Path) -> None:
    output = run_ok("inspect", mle, toy_text, "--only", "gates,training").out
    finding = "Saw i love cats </s>."
    sections = "Gates\n  - mle: saw i love cats </s>.\n\nTraining\n  - mle: saw i love cats </s>.\n"
    assert output == f"{finding} {finding}\n\n{sections}"


@pytest.mark.usefixtures("sections")
def test_inspect_several_models_from_stdin(mle: Path, laplace: Path) -> None:
    document = run_ok("inspect", mle, "-", laplace, "--only", "gates", "--json", stdin="cats chase mice\n").json()
    assert document["schema_version"] == 1
    assert [model["name"] for model in document["models"]] == ["mle", "laplace"]
    assert document["text"] == "standard input"
    assert document["sections"]["gates"]["data"] == {"nan": None}
    assert document["command"].startswith("chainrule inspect ")
    assert document["verdict"][1] == {"model": "laplace", "text": "Saw cats chase mice </s>."}


@pytest.mark.usefixtures("sections")
def test_inspect_writes_a_page(mle: Path, toy_text: Path, tmp_path: Path) -> None:
    page = write(tmp_path / "page.html", "old")
    outcome = run_ok("inspect", mle, toy_text, "--out", page, "--only", "gates")
    assert outcome.out == "Saw i love cats </s>.\n"  # the rest is on the page
    assert outcome.err == f"wrote {page}\n"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert f"chainrule inspect {mle} {toy_text} --out {page} --only gates" in text
    both = run_ok("inspect", mle, toy_text, "--out", page, "--only", "gates", "--json")
    assert both.json()["sections"].keys() == {"gates"}


@pytest.mark.usefixtures("sections")
def test_inspect_defaults_to_the_embedded_text(mle: Path) -> None:
    document = run_ok("inspect", mle, "--tokens", 20, "--only", "gates", "--json").json()
    assert "embedded" in document["text"]
    assert document["models"][0]["looked_at"] == "20 tokens"


def test_inspect_passes_its_settings(sections: dict[str, Any], mle: Path, toy_text: Path) -> None:
    options = ("--lags", 9, "--positions", 3, "--seed", 5, "--track", "quotes", "--track", "/c.t/")
    run_ok("inspect", mle, toy_text, *options)
    flow = sections["gradient_flow"]
    assert (flow["lags"], flow["positions"], flow["seed"]) == (9, 3, 5)
    assert sections["gates"]["track"] == ("quotes", "/c.t/")


@pytest.mark.usefixtures("sections")
def test_inspect_text_options(mle: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "bad.txt", b"\n\xff i\n")
    assert "is not UTF-8" in run_error(3, "inspect", mle, text, "--only", "gates")
    document = run_ok(
        "inspect", mle, text, "--only", "gates", "--errors", "replace", "--drop-blank-lines", "--json"
    ).json()
    assert document["verdict"][0]["text"] == "Saw <unk> i </s>."
    records = write(tmp_path / "records.jsonl", '{"body": "cats"}\n')
    document = run_ok("inspect", mle, records, "--only", "gates", "--column", "body", "--json").json()
    assert document["verdict"][0]["text"] == "Saw cats </s>."


@pytest.mark.usefixtures("sections")
def test_inspect_escapes_terminal_control_sequences(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "\x1b[31mred \x1b[31mred\n" * 3)
    model = tmp_path / "model"
    options = ("--order", 2, "--smoothing", "witten-bell", "--tokenizer", "whitespace")
    run_ok("train", "ngram", text, *options, "--out", model)
    assert "␛[31mred" in run_ok("inspect", model, text, "--only", "gates").out


@pytest.mark.usefixtures("sections")
def test_inspect_escapes_c1_and_bidirectional_controls(tmp_path: Path) -> None:
    # U+009B is ESC [ in one character; U+202E reverses the following text, as do isolates (U+2067) and marks
    # (U+200F).
    text = write(tmp_path / "text.txt", "\x9b31mred a\u202eb c\u2067d e\u200ff\n" * 3)
    model = tmp_path / "model"
    run_ok("train", "ngram", text, "--order", 2, "--smoothing", "witten-bell", "--out", model)
    output = run_ok("inspect", model, text, "--only", "gates").out
    assert "�31mred a⟨U+202E⟩b c⟨U+2067⟩d e⟨U+200F⟩f" in output
    page = tmp_path / "page.html"
    output += run_ok("inspect", model, text, "--only", "gates", "--out", page).out
    assert not set(output) & {"\x9b", "\u202e", "\u2067", "\u200f"}
    assert "�31mred a\u202eb" in page.read_text(encoding="utf-8")  # a page isolates the direction of each text


def test_inspect_without_a_model(mle: Path, toy_text: Path, tmp_path: Path) -> None:
    assert "no model folder among them" in run_error(2, "inspect", toy_text)
    assert "no model folder among them" in run_error(2, "inspect", "-")
    assert "missing argument" in run_error(2, "inspect").lower()
    assert "nowhere does not exist; give the folder of a model" in run_error(4, "inspect", tmp_path / "nowhere")
    assert "nowhere" in run_error(4, "inspect", mle, tmp_path / "nowhere")
    assert f"{mle.parent} contains models but is not a model; give one of them" in run_error(
        2, "inspect", mle.parent, toy_text
    )
    (tmp_path / "empty").mkdir()
    assert "contains no files" in run_error(4, "inspect", mle, tmp_path / "empty")
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    assert "unfinished run" in run_error(3, "inspect", tmp_path / "run", toy_text)
    run_ok("tokenizer", "train", toy_text, "--out", tmp_path / "tokenizer")
    assert "contains a tokenizer, not a model" in run_error(3, "inspect", tmp_path / "tokenizer", toy_text)


def test_inspect_rejects_a_damaged_model(mle: Path, toy_text: Path, tmp_path: Path) -> None:
    for file in mle.iterdir():
        content = file.read_bytes()
        write(tmp_path / file.name, content if file.name != "model.ngram" else content[:-1] + b"?")
    assert "model.ngram" in run_error(3, "inspect", tmp_path, toy_text)


def test_inspect_wrong_usage(mle: Path, toy_text: Path, tmp_path: Path) -> None:
    assert "is a folder; give a file" in run_error(2, "inspect", mle, toy_text, "--out", tmp_path)
    text = write(tmp_path / "text.txt", "cats\n")
    os.link(text, tmp_path / "link.html")
    assert "is the text itself" in run_error(2, "inspect", mle, text, "--out", tmp_path / "link.html")
    assert text.read_text() == "cats\n"
    assert "there is no section 'gate'" in run_error(2, "inspect", mle, toy_text, "--only", "gate")
    assert "device is 'tpu'" in run_error(2, "inspect", mle, toy_text, "--device", "tpu")
    assert call("inspect", mle, toy_text, "--tokens", 0).status == 2
    empty = write(tmp_path / "empty.txt", "")
    assert "the text is empty" in run_error(3, "inspect", mle, empty)


@pytest.mark.slow
def test_inspect_help_has_an_example_and_every_section() -> None:
    output = process("inspect", "--help").stdout.decode()
    assert "chainrule inspect runs/lstm test.txt --out lstm.html" in output
    assert all(name in output for name in SECTIONS)


@pytest.mark.slow
def test_inspect_page_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "test.txt", english(40))
    small = ("--hidden", 8, "--epochs", 1)
    for family, name, options in (
        ("ngram", "ngram5", QUIET),
        ("lstm", "lstm", small),
        ("gru", "gru", small),
        ("transformer", "attention", (*small, "--set", "window=16")),
    ):
        run_ok("train", family, "test.txt", *options, "--out", f"runs/{name}")
    page = (Path(__file__).parents[2] / "docs" / "inspection.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (chainrule .*)$", page, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        run_ok(*shlex.split(command)[1:])
    script = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    ran = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "lstm: " in ran.stdout
