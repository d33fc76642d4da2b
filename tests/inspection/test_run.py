"""`chainrule.inspect`: who is asked what, what is left out and why, and the whole of the answers."""

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
from chainrule.inspection.sample import Sample
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
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every section answers with its name, and what each was asked is kept; attention has nothing to say."""
    kept: Asked = {}

    def make(name: str) -> Any:
        def section(samples: Sequence[Sample], **settings: Any) -> Section | None:
            kept[name] = {"samples": list(samples), **settings}
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
    return kept


def test_every_section_is_asked_in_the_order_of_the_page(asked: Asked) -> None:
    found = inspect(model(), LINES, lags=7, positions=5, seed=3, track=["quotes"])
    assert list(asked) == list(SECTIONS)
    assert list(found) == [name for name in SECTIONS if name != "attention"]
    settings = {name: set(given) - {"samples", "progress"} for name, given in asked.items()}
    assert settings["gradient_flow"] == {"lags", "positions", "seed"}
    assert settings["gates"] == {"track"}
    assert {name for name, given in settings.items() if not given} == set(SECTIONS) - {"gradient_flow", "gates"}
    flow = asked["gradient_flow"]
    assert (flow["lags"], flow["positions"], flow["seed"]) == (7, 5, 3)
    assert asked["gates"]["track"] == ("quotes",)
    assert found.left_out == {"attention": "not applicable to these models"}
    assert found["gates"].title == "gates"
    assert "gates" in found
    assert "attention" not in found
    with pytest.raises(UsageError, match="there is no section 'attention'; available: gradient_flow"):
        found["attention"]
    assert found.seconds > 0
    assert found.peak_memory is None or found.peak_memory > 10_000_000  # a Python with numpy takes more


@pytest.mark.usefixtures("asked")
def test_some_sections_by_name() -> None:
    assert list(inspect(model(), LINES, only="training, gradient-flow")) == ["gradient_flow", "training"]
    assert list(inspect(model(), LINES, only=["gates"])) == ["gates"]
    with pytest.warns(ChainruleWarning, match="attention is left out: not applicable"):
        found = inspect(model(), LINES, only="attention")
    assert str(found) == "There are no findings."
    with pytest.raises(
        ConfigError, match="there is no section 'gate'; choose among gradient_flow, recurrent_matrix"
    ):
        inspect(model(), LINES, only="gate")
    with pytest.raises(UsageError, match="add gates to only"):
        inspect(model(), LINES, only="training", track="quotes")


def test_models_with_tokenizers_of_their_own(asked: Asked) -> None:
    found = inspect([model(), model("char")], LINES, tokens=6, only="gates")
    first, second = asked["gates"]["samples"]
    assert first.tokens == ("i", "love", "cats", "</s>", "i", "love")
    assert second.tokens == tuple("i love")
    assert found.names == (first.name, second.name) == ("ngram", "ngram (2)")
    assert [subject.tokenizer.split(",")[0] for subject in found.subjects] == ["word", "char"]
    assert [subject.looked_at for subject in found.subjects] == ["6 tokens", "6 tokens"]
    assert [paragraph.model for paragraph in found.verdict] == ["ngram", "ngram (2)"]


def test_models_of_folders(asked: Asked, tmp_path: Path) -> None:
    for parent in "ab":
        model().save(tmp_path / parent / "same")
    text = tmp_path / "text.txt"
    text.write_text("cats\n")
    found = inspect([tmp_path / "a" / "same", str(tmp_path / "b" / "same")], text, only="training")
    assert found.names == ("a/same", "b/same")
    assert found.text == str(text)
    assert asked["training"]["samples"][0].tokens == ("cats", "</s>")
    assert inspect(chainrule.load(tmp_path / "a" / "same"), text, only="training").names == ("same",)


def test_names_tell_apart() -> None:
    assert unique_names([("r", "lstm"), ("r", "gru")]) == ["lstm", "gru"]
    assert unique_names([("x", "b", "m"), ("y", "b", "m"), ("y", "c", "m")]) == ["x/b/m", "y/b/m", "c/m"]
    assert unique_names([("m",), ("a", "m")]) == ["m", "a/m"]
    assert unique_names([("m",)] * 3) == ["m", "m (2)", "m (3)"]
    assert unique_names([("bad\udc80\x1b",)]) == ["bad?␛"]
    assert unique_names([("gru (2)",), ("gru",), ("gru",)]) == ["gru (2)", "gru", "gru (3)"]
    assert unique_names([("gru",), ("gru",), ("gru (2)",), ("gru",)]) == ["gru", "gru (3)", "gru (2)", "gru (4)"]


@pytest.mark.skipif(sys.platform == "win32", reason="has no resource")
@pytest.mark.parametrize(("platform", "expected"), [("linux", 5000 * 1024), ("darwin", 5000)])
def test_memory_is_in_bytes_everywhere(platform: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=5000))
    monkeypatch.setattr(sys, "platform", platform)
    assert peak_memory() == expected


def test_without_a_text_the_embedded_one(asked: Asked) -> None:
    found = inspect(model(), tokens=50, only="gates")
    assert found.text == "Pride and Prejudice (embedded), the default text"
    assert len(asked["gates"]["samples"][0].ids) == 50


def test_one_that_fails_does_not_take_the_others_along(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(samples: Sequence[Sample], **settings: Any) -> Section:
        raise InputError("the text has no line in it")

    stand_in(monkeypatch, "recurrent_matrix", fails)
    with pytest.warns(ChainruleWarning, match="recurrent_matrix is left out: the text has no line in it"):
        found = inspect(model(), LINES)
    assert found.left_out["recurrent_matrix"] == "the text has no line in it"
    assert "training" in found

    def refuses(samples: Sequence[Sample], **settings: Any) -> Section:
        raise ConfigError("there is no property 'quote'")

    stand_in(monkeypatch, "gates", refuses)
    with pytest.raises(ConfigError, match="no property 'quote'"):
        inspect(model(), LINES, only="gates", track="quote")


def test_numbers_do_not_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def section(samples: Sequence[Sample], **settings: Any) -> Section:
        drawing = figures.plot_bars({"a": 1.0}, title="Bars", quantity="bits")
        figure = Figure(name="bars", drawing=drawing, caption="Bars.")
        return Section(name="gates", title="Gates", figures=(figure,), data={"a": 1.0})

    stand_in(monkeypatch, "gates", section)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.warns(ChainruleWarning, match=r"no figures are drawn: .*pip install 'chainrule\[plots\]'"):
        found = inspect(model(), LINES, only="gates")
    assert found.to_json()["sections"]["gates"]["data"] == {"a": 1.0}
    assert "pip install" in found["gates"]["bars"].drawing
    with pytest.raises(MissingExtra):
        figures.plot_bars({"a": 1.0}, title="Bars", quantity="bits")  # as before


@pytest.mark.usefixtures("asked")
def test_progress_goes_from_nothing_to_all() -> None:
    told: list[tuple[str, int, int | None]] = []
    inspect(model(), LINES, only="gates,training", progress=lambda *step: told.append(step))
    assert told == [
        ("gates", 0, 300),  # the gates take about twice as long as the training log
        ("gates: looking", 100, 300),
        ("training", 200, 300),
        ("training: looking", 250, 300),
        ("inspecting", 300, 300),
    ]


@pytest.mark.usefixtures("asked")
def test_the_whole_as_json() -> None:
    found = inspect(model(), LINES, only=("gates", "training"), command="chainrule inspect m")
    whole = found.to_json()
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
    assert str(found) == "Gates was seen. Training was seen."


def test_a_page_takes_the_place_of_a_file(tmp_path: Path) -> None:
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


def test_in_a_notebook() -> None:
    shown = full()._repr_html_()
    assert shown.index("The signal halves every 4.2 tokens.") < shown.index("<h3>Gradient flow</h3>")
    assert shown.count("<figure>") == 5
    assert repr(full()) == "<inspection of lstm, rnn: gradient_flow, attention, probability>"


@pytest.mark.parametrize("name", ["tokens", "lags", "positions"])
def test_counts_are_checked(name: str) -> None:
    counts: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name} is 0; choose an integer of at least 1"):
        inspect(model(), LINES, **counts)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UsageError, match="no model was given"):
        inspect([], LINES)
    with pytest.raises(UsageError, match="3 is not a model"):
        inspect(3, LINES)
    with pytest.raises(UsageError, match="pairs are for translators"):
        inspect(model(), SentencePairs(["a"], ["b"]))
    tagger = SimpleNamespace(task="tag")
    with pytest.raises(UsageError, match=r"is not a language model or translator.*chainrule tag predict"):
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


def test_a_translator_is_looked_into_on_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[SentencePairs] = []

    def translator_section(model: Any, pairs: SentencePairs, *, progress: Progress) -> Section:
        heard.append(pairs)
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
        found = inspect(translator(), text)
        assert list(found) == ["attention"]
        assert str(found) == "It looks ahead."
        assert found.subjects[0].looked_at == "1 of 2 pairs"
        assert found.to_json()["models"][0]["looked_at"] == "1 of 2 pairs"
    assert {(pairs.sources, pairs.targets) for pairs in heard} == {(("ein", "zwei"), ("one", "two"))}
    with pytest.raises(UsageError, match="give a source and a target file, or one table"):
        inspect(translator())
    with pytest.raises(UsageError, match="inspected alone"):
        inspect([translator(), model()], table)


def test_sections_are_of_modules_that_exist() -> None:
    folder = Path(sys.modules[inspect.__module__].__file__ or "").parent
    assert SECTIONS == ("gradient_flow", "recurrent_matrix", "gates", "attention", "probability", "training")
    for name in SECTIONS:
        source = folder / f"{name}.py"
        assert re.search(r"^def section\(", source.read_text(encoding="utf-8"), re.MULTILINE)
