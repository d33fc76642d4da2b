"""Progress lines, with a fake clock."""

import ast
import io
from pathlib import Path
from typing import Any

import pytest

import chainrule
from chainrule.applications import rerank
from chainrule.embeddings import train
from chainrule.progress import ProgressLines, as_progress, silent
from chainrule.tasks import classify, pretrain, tag
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from tasks.toy_tags import TINY, grammar

PUBLIC = ("tasks", "applications", "embeddings", "inspection/run.py", "api.py", "model.py")
INNER = {
    *("classify.train", "api.train_prepared", "model.evaluate_encoded", "model.evaluate_lines"),
    *("corpus.count_blocks", "corpus.count_cooccurrences", "corpus.feed_words"),
    *("glove.fit", "glove.train", "ppmi.fit", "ppmi.train", "word2vec.train"),
}
"""Internal functions that receive a progress callback from their callers."""


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_line_every_thirty_seconds() -> None:
    clock, file = Clock(), io.StringIO()
    show = ProgressLines(file, clock)
    for second in range(0, 100, 10):
        clock.now = 100.0 + second
        show("training", second, 200)
    assert file.getvalue() == (
        "training: 15 %, 0:30 elapsed\ntraining: 30 %, 1:00 elapsed\ntraining: 45 %, 1:30 elapsed\n"
    )


def test_progress_of_unknown_length() -> None:
    clock, file = Clock(), io.StringIO()
    show = ProgressLines(file, clock)
    clock.now += 3605
    show("counting", 7, None)
    assert file.getvalue() == "counting: 60:05 elapsed\n"


def test_as_progress_accepts_booleans() -> None:
    assert isinstance(as_progress(True), ProgressLines)
    assert as_progress(False) is silent
    assert as_progress(silent) is silent


def test_api_accepts_progress_true(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("chainrule.progress.LINE_SECONDS", 0.0)
    text = Corpus.from_lines(["a b", "b a"])
    model = chainrule.train("ngram", text, order=1, smoothing="laplace", progress=True)
    model.evaluate(Corpus.from_lines(["a a"]), progress=True)
    chainrule.mix([model, model], held_out=text, progress=True)
    assert "scoring: 100 %" in capsys.readouterr().err


def public_functions() -> list[tuple[str, str]]:
    """Module and name of each public function with an optional progress, and its annotation."""
    source = Path(chainrule.__file__).parent
    results = []
    for place in PUBLIC:
        files = [source / place] if place.endswith(".py") else sorted((source / place).glob("*.py"))
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    named = {arg.arg: arg.annotation for arg in (*node.args.args, *node.args.kwonlyargs)}
                    if isinstance(named.get("progress"), ast.expr) and _has_default(node):
                        results.append((f"{file.stem}.{node.name}", ast.unparse(named["progress"])))  # type: ignore[arg-type]
    return results


def _has_default(node: ast.FunctionDef) -> bool:
    positional = node.args.args[len(node.args.args) - len(node.args.defaults) :]
    keyword = [arg for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default]
    return any(arg.arg == "progress" for arg in (*positional, *keyword))


def test_every_public_function_with_progress_accepts_true() -> None:
    functions = public_functions()
    assert len(functions) > 30
    assert [name for name, annotation in functions if "bool" not in annotation and name not in INNER] == []


def lines_of(capsys: pytest.CaptureFixture[str]) -> set[str]:
    return {line.split(":")[0] for line in capsys.readouterr().err.splitlines()}


def test_tasks_and_applications_accept_progress_true(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("chainrule.progress.LINE_SECONDS", 0.0)
    network: dict[str, Any] = {"epochs": 1, "device": "cpu", "progress": True}
    small: dict[str, Any] = {"hidden": 4, "embedding": 4, "batch_size": 4}
    examples = LabelledTexts(("a b", "b c", "a c", "c c"), ("x", "y", "x", "y"), "toy")
    classifier = classify.train("lstm", examples, **small, **network)
    assert "training" in lines_of(capsys)
    assert classifier.predict(["a b"], progress=True) == classifier.predict(["a b"])
    assert lines_of(capsys)
    tagger = tag.train("lstm", grammar(8, 0), **TINY | small, **network)
    assert "training" in lines_of(capsys)
    assert tagger.tag_all([("the", "dog")], progress=True) == tagger.tag_all([("the", "dog")])
    assert lines_of(capsys)
    text = Corpus.from_lines(["a b c a", "b c a b"] * 4)
    pretrain.train("lstm", text, **small, **network).evaluate(text, progress=True)
    assert "training" in lines_of(capsys)
    train.train(text, method="cbow", dimensions=2, min_count=1, threads=1, epochs=1, progress=True)
    assert lines_of(capsys)
    model = chainrule.train("ngram", text, order=2, smoothing="witten-bell")
    rerank.score_texts(model, ["a b", "b a"], progress=True)
    assert "scoring" in lines_of(capsys)
    chainrule.inspect(model, text, only="probability", progress=True)
    assert lines_of(capsys)
