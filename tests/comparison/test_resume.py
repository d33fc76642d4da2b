"""Which models are kept on disk, and how an interrupted comparison resumes."""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import chainrule
from chainrule.comparison import measurement, page
from chainrule.comparison.journal import NAME
from chainrule.comparison.model_store import Output
from chainrule.comparison.results import Results, Row
from chainrule.errors import ConfigError, UsageError
from chainrule.model import Model
from chainrule.ngram import family as ngram
from chainrule.ngram.config import Config
from chainrule.storage.atomic import atomic_file
from comparison.test_plan import compare, lines, tiny_candidates

__all__ = ["tiny_candidates"]


def figures(results: Results) -> list[tuple[Any, ...]]:
    """What two runs of one comparison share: everything but times."""
    timed: dict[str, Any] = {
        "train_seconds": 0.0,
        "train_tokens_per_second": 0.0,
        "size_bytes": 0,
    }  # logs contain times
    return [tuple(dataclasses.replace(row, **timed).to_json().items()) for row in results.rows]


def models(out: Path) -> set[str]:
    return {path.name for path in (out / "models").glob("*")}


def test_best_model_of_each_family_is_kept(tiny_candidates: None, tmp_path: Path) -> None:
    results = compare(out=tmp_path)
    best: dict[str, Row] = {}
    for row in results.rows:
        best.setdefault(row.family, row)
    assert models(tmp_path) == {row.name for row in best.values()}
    assert results.rows[0].name in models(tmp_path)
    for row in best.values():
        assert chainrule.load(tmp_path / "models" / row.name, device="cpu").parameters == row.parameters


def test_keep_all_or_none(tiny_candidates: None, tmp_path: Path) -> None:
    results = compare(out=tmp_path / "all", keep="all")
    assert models(tmp_path / "all") == {row.name for row in results.rows}
    compare(out=tmp_path / "none", keep="none")
    assert {path.name for path in (tmp_path / "none").iterdir()} == {"report.html", "results.json"}


def test_models_share_tokenizer_and_speller_files(tiny_candidates: None, tmp_path: Path) -> None:
    """By hard links, also where a model is replaced; every folder is complete by itself."""
    for _ in range(2):
        compare(out=tmp_path / "out", keep="all", force=True)
        paths = sorted((tmp_path / "out" / "models").iterdir())
        for name in ("tokenizer.json", "speller.safetensors", "training_lines.sketch"):
            assert len({(path / name).stat().st_ino for path in paths}) == 1
            assert (paths[0] / name).stat().st_nlink == len(paths)
    first, *others = paths
    for path in others:
        shutil.rmtree(path)
    assert chainrule.load(first, device="cpu", verify=True).speller is not None


class Interruption:
    """Interrupt a comparison, as Ctrl-C would, after this many measured models."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.measured = 0
        measure = measurement.measure

        def interrupted(*arguments: Any) -> Any:
            if self.measured == after:
                raise KeyboardInterrupt
            self.measured += 1
            return measure(*arguments)

        monkeypatch.setattr(measurement, "measure", interrupted)


@pytest.mark.parametrize(("after", "seeds"), [(1, 1), (2, 1), (3, 2)])
def test_interrupted_comparison_resumes(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, seeds: int
) -> None:
    """Between two n-grams, before the RNN, and between its two seeds."""
    uninterrupted = compare(seeds=seeds, budget=600)
    options: dict[str, Any] = {"seeds": seeds, "budget": 600, "out": tmp_path}
    with monkeypatch.context() as context:
        Interruption(context, after)
        with pytest.raises(KeyboardInterrupt):
            compare(**options)
    assert (tmp_path / NAME).exists()
    trained = record_trained_names(monkeypatch)
    resumed = compare(resume=True, **options)
    assert figures(resumed) == figures(uninterrupted)
    assert len(trained) == 2 + seeds - after
    assert not (tmp_path / NAME).exists()
    assert resumed.rows[0].name in models(tmp_path)


def test_network_resumes_from_its_checkpoint(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chainrule.training.trainer import Trainer

    uninterrupted = compare(budget=600)
    conclude = Trainer._end_epoch

    def interrupted(trainer: Trainer) -> None:
        conclude(trainer)
        trainer._save_checkpoint()
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Trainer, "_end_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compare(budget=600, out=tmp_path)
    assert (tmp_path / "models" / "rnn-1-4" / "checkpoint").is_dir()
    with pytest.raises(UsageError, match="unfinished run"):
        compare(budget=600, out=tmp_path)
    epochs: list[int] = []

    def counted(trainer: Trainer) -> None:
        epochs.append(trainer.position.epoch)
        conclude(trainer)

    monkeypatch.setattr(Trainer, "_end_epoch", counted)
    resumed = compare(budget=600, out=tmp_path, resume=True)
    assert epochs[:1] == [1]  # the first epoch is not repeated
    assert figures(resumed) == figures(uninterrupted)


def record_trained_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models trained from now on, without learning curves."""
    names: list[str] = []
    train = measurement.train

    def recorded(candidate: Any, *arguments: Any, **others: Any) -> Any:
        if "run_dir" in others:
            names.append(candidate.name)
        return train(candidate, *arguments, **others)

    monkeypatch.setattr(measurement, "train", recorded)
    return names


def interrupt_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a comparison, as Ctrl-C would, while its report is drawn."""

    def interrupted(results: Results) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(page, "render_page", interrupted)


@pytest.mark.parametrize("seeds", [1, 2])
def test_missing_model_is_trained_again(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int
) -> None:
    options: dict[str, Any] = {"seeds": seeds, "budget": 600, "out": tmp_path}
    uninterrupted = compare(seeds=seeds, budget=600)
    with monkeypatch.context() as context:
        interrupt_report(context)
        with pytest.raises(KeyboardInterrupt):
            compare(**options)
    for path in (tmp_path / "models").iterdir():
        if path.name != "ngram-2-modified-kneser-ney":
            shutil.rmtree(path)
    names = record_trained_names(monkeypatch)
    resumed = compare(resume=True, **options)
    assert sorted(names) == ["ngram-1-modified-kneser-ney", *["rnn-1-4"] * seeds]
    assert figures(resumed) == figures(uninterrupted)
    best = {row.family: row.name for row in reversed(resumed.rows)}
    assert models(tmp_path) == set(best.values())


def test_second_interruption_does_not_restore_a_missing_model_s_row(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two seeds the folder contains the model of the first one again; the old row is of both."""
    options: dict[str, Any] = {"seeds": 2, "budget": 600, "out": tmp_path}
    with monkeypatch.context() as context:
        interrupt_report(context)
        with pytest.raises(KeyboardInterrupt):
            compare(**options)
    shutil.rmtree(tmp_path / "models" / "rnn-1-4")
    with monkeypatch.context() as context:
        Interruption(context, 1)
        with pytest.raises(KeyboardInterrupt):
            compare(resume=True, **options)
    names = record_trained_names(monkeypatch)
    compare(resume=True, **options)
    assert names == ["rnn-1-4"]  # its second seed


def test_keep_all_trains_discarded_models_again(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=2), Config(order=3), Config(order=1)])
    with monkeypatch.context() as context:
        interrupt_report(context)
        with pytest.raises(KeyboardInterrupt):
            compare(families=("ngram",), out=tmp_path)
    results = compare(families=("ngram",), out=tmp_path, resume=True, keep="all")
    assert models(tmp_path) == {row.name for row in results.rows}


@pytest.mark.parametrize("stopped", ["results.json", "report.html", "models"])
def test_interruption_at_the_end_is_resumed_or_complete(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    """Before either file is written, between the two, and while discarded models are removed."""
    uninterrupted = compare(budget=600)

    @contextmanager
    def interrupted_file(path: Path) -> Iterator[BinaryIO]:
        if path.name == stopped:
            raise KeyboardInterrupt
        with atomic_file(path) as file:
            yield file

    def interrupted_removal(output: Output, names: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(page, "atomic_file", interrupted_file)
        if stopped == "models":
            context.setattr(Output, "remove_others", interrupted_removal)
        with pytest.raises(KeyboardInterrupt):
            compare(budget=600, out=tmp_path)
    if stopped == "models":
        assert {path.name for path in tmp_path.iterdir()} == {"models", "results.json", "report.html"}
        return
    assert (tmp_path / NAME).exists()
    names = record_trained_names(monkeypatch)
    resumed = compare(budget=600, out=tmp_path, resume=True)
    assert names == []
    assert figures(resumed) == figures(uninterrupted)
    assert {path.name for path in tmp_path.iterdir()} == {"models", "results.json", "report.html"}


def test_invalid_resume_is_rejected(tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="give out"):
        compare(resume=True)
    with monkeypatch.context() as context:
        Interruption(context, 1)
        with pytest.raises(KeyboardInterrupt):
            compare(out=tmp_path)
    with pytest.raises(UsageError, match="with other options or of another text"):
        compare(out=tmp_path, resume=True, seed=3)
    with pytest.raises(UsageError, match="with other options or of another text"):
        chainrule.compare(lines(70), families=("ngram", "rnn"), size="fixed", out=tmp_path, resume=True)
    compare(out=tmp_path, resume=True)
    with pytest.raises(UsageError, match="contains a finished comparison; remove --resume"):
        compare(out=tmp_path, resume=True)


def test_truncated_journal_line_is_ignored(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        Interruption(context, 2)
        with pytest.raises(KeyboardInterrupt):
            compare(out=tmp_path)
    journal = tmp_path / NAME
    journal.write_bytes(journal.read_bytes()[:-10])
    saved: list[str] = []
    save = Model.save

    def recorded(model: Model, path: Path, **options: Any) -> None:
        saved.append(path.name)
        save(model, path, **options)

    monkeypatch.setattr(Model, "save", recorded)
    compare(out=tmp_path, resume=True)
    assert saved
