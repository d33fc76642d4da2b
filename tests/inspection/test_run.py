"""`chainrule.inspect`: which sections run, what is skipped and why, and the complete result."""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, InputError, MissingExtra, UsageError
from chainrule.inspection.report import Figure, Finding, Section
from chainrule.inspection.run import SECTIONS, inspect, peak_memory, unique_names
from chainrule.inspection.text_excerpt import Sample
from chainrule.model import Model
from chainrule.plots import figures
from chainrule.progress import Progress
from chainrule.text.corpus import Corpus
from chainrule.text.parallel import SentencePairs
from inspection.example_models import full

LINES = Corpus.from_lines(["i love cats", "i love dogs", "cats chase mice"])
Asked = dict[str, dict[str, Any]]


@cache
def model(tokenizer: str = "word") -> Model:
    return chainrule.train("ngram", LINES, tokenizer=tokenizer, order=2, smoothing="witten-bell")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, section: Any) -> None:
    monkeypatch.setitem(sys.modules, f"chainrule.inspection.{name}", SimpleNamespace(section=section))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every section returns its name and records its arguments; attention returns nothing."""
    recorded: Asked = {}

    def make(name: str) -> Any:
        def section(samples: Sequence[Sample], **settings: Any) -> Section | None:
            recorded[name] = {"samples": list(samples), **settings}
            settings["progress"]("looking", 1, 2)
            findings = tuple(Finding(sample.name, f"{name} was seen.") for sample in samples)
            data: Any = {
                "infinite": float("inf"),
                "array": np.array([1, 2]),
                "number": np.float32(0.5),
                3: (None, True),
            }
            return None if name == "attention" else Section(name=name, title=name, findings=findings, data=data)

        return section

    for name in SECTIONS:
        stand_in(monkeypatch, name, make(name))
    return recorded


def test_sections_run_in_page_order(calls: Asked) -> None:
    inspection = inspect(model(), LINES, lags=7, positions=5, seed=3, track=["quotes"])
    assert list(calls) == list(SECTIONS)
    assert list(inspection) == [name for name in SECTIONS if name != "attention"]
    settings = {name: set(arguments) - {"samples", "progress"} for name, arguments in calls.items()}
    assert settings["gradient_flow"] == {"lags", "positions", "seed"}
    assert settings["gates"] == {"track"}
    assert {name for name, arguments in settings.items() if not arguments} == set(SECTIONS) - {
        "gradient_flow",
        "gates",
    }
    flow = calls["gradient_flow"]
    assert (flow["lags"], flow["positions"], flow["seed"]) == (7, 5, 3)
    assert calls["gates"]["track"] == ("quotes",)
    assert inspection.left_out == {"attention": "not applicable to these models"}
    assert inspection["gates"].title == "gates"
    assert "gates" in inspection
    assert "attention" not in inspection
    with pytest.raises(UsageError, match="there is no section 'attention'; available: gradient_flow"):
        inspection["attention"]
    assert inspection.seconds > 0
    assert inspection.peak_memory is None or inspection.peak_memory > 10_000_000  # Python with NumPy takes more


@pytest.mark.usefixtures("calls")
def test_sections_selected_by_name() -> None:
    assert list(inspect(model(), LINES, only="training, gradient-flow")) == ["gradient_flow", "training"]
    assert list(inspect(model(), LINES, only=["gates"])) == ["gates"]
    with pytest.warns(ChainruleWarning, match="attention is left out: not applicable"):
        inspection = inspect(model(), LINES, only="attention")
    assert str(inspection) == "There are no findings."
    with pytest.raises(
        ConfigError, match="there is no section 'gate'; choose among gradient_flow, recurrent_matrix"
    ):
        inspect(model(), LINES, only="gate")
    with pytest.raises(UsageError, match="add gates to only"):
        inspect(model(), LINES, only="training", track="quotes")


def test_inspect_models_with_different_tokenizers(calls: Asked) -> None:
    inspection = inspect([model(), model("char")], LINES, tokens=6, only="gates")
    first, second = calls["gates"]["samples"]
    assert first.tokens == ("i", "love", "cats", "</s>", "i", "love")
    assert second.tokens == tuple("i love")
    assert inspection.names == (first.name, second.name) == ("ngram", "ngram (2)")
    assert [subject.tokenizer.split(",")[0] for subject in inspection.subjects] == ["word", "char"]
    assert [subject.looked_at for subject in inspection.subjects] == ["6 tokens", "6 tokens"]
    assert [paragraph.model for paragraph in inspection.verdict] == ["ngram", "ngram (2)"]


def test_inspect_models_from_folders(calls: Asked, tmp_path: Path) -> None:
    for parent in "ab":
        model().save(tmp_path / parent / "same")
    text = tmp_path / "text.txt"
    text.write_text("cats\n")
    inspection = inspect([tmp_path / "a" / "same", str(tmp_path / "b" / "same")], text, only="training")
    assert inspection.names == ("a/same", "b/same")
    assert inspection.text == str(text)
    assert calls["training"]["samples"][0].tokens == ("cats", "</s>")
    assert inspect(chainrule.load(tmp_path / "a" / "same"), text, only="training").names == ("same",)


def test_unique_names_of_models() -> None:
    assert unique_names([("r", "lstm"), ("r", "gru")]) == ["lstm", "gru"]
    assert unique_names([("x", "b", "m"), ("y", "b", "m"), ("y", "c", "m")]) == ["x/b/m", "y/b/m", "c/m"]
    assert unique_names([("m",), ("a", "m")]) == ["m", "a/m"]
    assert unique_names([("m",)] * 3) == ["m", "m (2)", "m (3)"]
    assert unique_names([("bad\udc80\x1b",)]) == ["bad?␛"]
    assert unique_names([("gru (2)",), ("gru",), ("gru",)]) == ["gru (2)", "gru", "gru (3)"]
    assert unique_names([("gru",), ("gru",), ("gru (2)",), ("gru",)]) == ["gru", "gru (3)", "gru (2)", "gru (4)"]


@pytest.mark.skipif(sys.platform == "win32", reason="has no resource")
@pytest.mark.parametrize(("platform", "expected"), [("linux", 5000 * 1024), ("darwin", 5000)])
def test_peak_memory_is_in_bytes_on_all_platforms(
    platform: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=5000))
    monkeypatch.setattr(sys, "platform", platform)
    assert peak_memory() == expected


def test_inspect_uses_the_embedded_text_by_default(calls: Asked) -> None:
    inspection = inspect(model(), tokens=50, only="gates")
    assert inspection.text == "Pride and Prejudice (embedded), the default text"
    assert len(calls["gates"]["samples"][0].ids) == 50


def test_failing_section_does_not_stop_the_others(calls: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_section(samples: Sequence[Sample], **settings: Any) -> Section:
        raise InputError("the text has no line in it")

    stand_in(monkeypatch, "recurrent_matrix", failing_section)
    with pytest.warns(ChainruleWarning, match="recurrent_matrix is left out: the text has no line in it"):
        inspection = inspect(model(), LINES)
    assert inspection.left_out["recurrent_matrix"] == "the text has no line in it"
    assert "training" in inspection

    def rejecting_section(samples: Sequence[Sample], **settings: Any) -> Section:
        raise ConfigError("there is no property 'quote'")

    stand_in(monkeypatch, "gates", rejecting_section)
    with pytest.raises(ConfigError, match="no property 'quote'"):
        inspect(model(), LINES, only="gates", track="quote")


def test_inspect_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def section(samples: Sequence[Sample], **settings: Any) -> Section:
        drawing = figures.plot_bars({"a": 1.0}, title="Bars", quantity="bits")
        figure = Figure(name="bars", drawing=drawing, caption="Bars.")
        return Section(name="gates", title="Gates", figures=(figure,), data={"a": 1.0})

    stand_in(monkeypatch, "gates", section)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.warns(ChainruleWarning, match=r"no figures are drawn: .*pip install 'chainrule\[plots\]'"):
        inspection = inspect(model(), LINES, only="gates")
    assert inspection.to_json()["sections"]["gates"]["data"] == {"a": 1.0}
    assert "pip install" in inspection["gates"]["bars"].drawing
    with pytest.raises(MissingExtra):
        figures.plot_bars({"a": 1.0}, title="Bars", quantity="bits")  # as before


@pytest.mark.usefixtures("calls")
def test_inspect_reports_progress_from_start_to_end() -> None:
    steps: list[tuple[str, int, int | None]] = []
    inspect(model(), LINES, only="gates,training", progress=lambda *step: steps.append(step))
    assert steps == [
        ("gates", 0, 300),  # the gates take about twice as long as the training log
        ("gates: looking", 100, 300),
        ("training", 200, 300),
        ("training: looking", 250, 300),
        ("inspecting", 300, 300),
    ]


@pytest.mark.usefixtures("calls")
def test_inspection_json() -> None:
    inspection = inspect(model(), LINES, only=("gates", "training"), command="chainrule inspect m")
    whole = inspection.to_json()
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    assert set(whole) == {
        "models",
        "text",
        "verdict",
        "sections",
        "left_out",
        "command",
        "versions",
        "seconds",
        "peak_memory_bytes",
    }
    assert whole["sections"]["gates"] == {
        "title": "gates",
        "findings": ["ngram: gates was seen."],
        "data": {"infinite": None, "array": [1, 2], "number": 0.5, "3": [None, True]},
    }
    assert whole["verdict"] == [{"model": "ngram", "text": "Gates was seen. Training was seen."}]
    assert whole["models"][0]["family"] == "ngram"
    assert whole["models"][0]["sizes"] == {"order": 2, "smoothing": "witten-bell"}
    assert whole["models"][0]["parameters"] == model().parameters
    assert str(inspection) == "Gates was seen. Training was seen."


def test_saved_page_replaces_a_file(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    full().save(page)
    page.write_text("old")
    full().save(str(page))
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    with pytest.raises(UsageError, match="is not a file"):
        full().save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ChainruleError, match="cannot write"):
        full().save(tmp_path / "file" / "page.html")


def test_inspection_notebook_representation() -> None:
    html = full()._repr_html_()
    assert html.index("The signal halves every 4.2 tokens.") < html.index("<h3>Gradient flow</h3>")
    assert html.count("<figure>") == 5
    assert repr(full()) == "<inspection of lstm, rnn: gradient_flow, attention, probability>"


@pytest.mark.parametrize("name", ["tokens", "lags", "positions"])
def test_inspect_rejects_invalid_counts(name: str) -> None:
    counts: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name} is 0; choose an integer of at least 1"):
        inspect(model(), LINES, **counts)


def test_inspect_rejects_invalid_models() -> None:
    with pytest.raises(UsageError, match="no model was given"):
        inspect([], LINES)
    with pytest.raises(UsageError, match="3 is not a model"):
        inspect(3, LINES)
    with pytest.raises(UsageError, match="pairs are for translation models"):
        inspect(model(), SentencePairs(["a"], ["b"]))
    tagger = SimpleNamespace(task="tag")
    with pytest.raises(
        UsageError, match=r"is neither a language model nor a translation model.*chainrule tag predict"
    ):
        inspect(tagger, LINES)


def translator() -> Any:
    tokenizer = model().tokenizer
    config = SimpleNamespace(family="gru", layers=1, hidden=8, attention="additive", joint=False)
    return SimpleNamespace(
        task="translate",
        config=config,
        source=tokenizer,
        target=tokenizer,
        parameters=12,
        origin=SimpleNamespace(text="train.tsv"),
    )


def test_translator_is_inspected_on_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    received: list[SentencePairs] = []

    def translator_section(model: Any, pairs: SentencePairs, *, progress: Progress) -> Section:
        received.append(pairs)
        return Section(
            name="attention", title="Attention", findings=(Finding(None, "It looks ahead."),), data={"pairs": 1}
        )

    attention = SimpleNamespace(translator_section=translator_section)
    monkeypatch.setitem(sys.modules, "chainrule.inspection.attention", attention)
    table, source, target = (tmp_path / name for name in ("pairs.tsv", "a.de", "a.en"))
    table.write_text("ein\tone\nzwei\ttwo\n")
    source.write_text("ein\nzwei\n")
    target.write_text("one\ntwo\n")
    for text in (
        str(table),
        [source, target],
        Corpus.of([source, target]),
        SentencePairs(["ein", "zwei"], ["one", "two"]),
    ):
        inspection = inspect(translator(), text)
        assert list(inspection) == ["attention"]
        assert str(inspection) == "It looks ahead."
        assert inspection.subjects[0].looked_at == "1 of 2 pairs"
        assert inspection.to_json()["models"][0]["looked_at"] == "1 of 2 pairs"
    assert {(pairs.sources, pairs.targets) for pairs in received} == {(("ein", "zwei"), ("one", "two"))}
    with pytest.raises(UsageError, match="give a source and a target file, or one table"):
        inspect(translator())
    with pytest.raises(UsageError, match="inspected alone"):
        inspect([translator(), model()], table)


def test_section_modules_exist() -> None:
    folder = Path(sys.modules[inspect.__module__].__file__ or "").parent
    assert SECTIONS == ("gradient_flow", "recurrent_matrix", "gates", "attention", "probability", "training")
    for name in SECTIONS:
        source = folder / f"{name}.py"
        assert re.search(r"^def section\(", source.read_text(encoding="utf-8"), re.MULTILINE)
