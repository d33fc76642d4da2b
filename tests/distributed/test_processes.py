"""The process engine: map, shuffle, stored stages, dead workers and resumed jobs."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Record
from chainrule.distributed.start import start_engine
from chainrule.errors import ChainruleError, InputError, UsageError
from chainrule.text.corpus import Corpus
from distributed.word_count import count_in_memory, word_counts, write_texts


@dataclass(frozen=True)
class DieOnce:
    """Kill the worker process on the first attempt (every attempt without `marker`)."""

    marker: str | None

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        if self.marker is None or not os.path.exists(f"{self.marker}-{partition}"):
            if self.marker is not None:
                Path(f"{self.marker}-{partition}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from records


def fail(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    raise InputError("line 3 is wrong; correct it")


@contextmanager
def process_engine(corpus: Corpus, **options: object) -> Iterator[Engine]:
    settings = EngineOptions(**{"workers": 2} | options)  # type: ignore[arg-type]
    with start_engine(settings, corpus, {"job": "test"}) as engine:
        yield engine


@pytest.fixture
def text(tmp_path: Path) -> Corpus:
    return write_texts(tmp_path / "texts")


def test_shuffled_word_counts(text: Corpus) -> None:
    with process_engine(text, partition="100") as engine:
        assert len(engine.read_text(text)) > 5
        assert word_counts(engine, text) == count_in_memory(text)
        folder = engine.work.path
    assert not folder.exists()


def test_dead_worker_is_retried(text: Corpus, tmp_path: Path) -> None:
    with process_engine(text, partition="300") as engine:
        source = engine.read_text(text)
        copied = engine.run("copy", source, DieOnce(str(tmp_path / "died")))
        assert engine.collect(copied) == [record for p in range(len(source)) for record in source[p]]


def test_worker_that_always_dies_is_an_error(text: Corpus) -> None:
    with process_engine(text) as engine, pytest.raises(ChainruleError, match="died 3 times"):
        engine.run("copy", engine.read_text(text), DieOnce(None))


def test_error_of_a_task_reaches_the_driver(text: Corpus, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with process_engine(text, work=work) as engine, pytest.raises(InputError, match="line 3 is wrong"):
        engine.run("fail", engine.read_text(text), fail)
    assert not (work / "fail" / "_SUCCESS").exists()


def test_resume_continues_after_the_last_complete_stage(text: Corpus, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with process_engine(text, work=work) as engine:
        expected = word_counts(engine, text)
    with pytest.raises(UsageError, match="--resume"), process_engine(text, work=work):
        pass
    (work / "counts" / "_SUCCESS").unlink()
    before = (work / "words" / "000000.records").stat().st_mtime_ns
    with process_engine(text, work=work, resume=True, workers=1) as engine:
        assert word_counts(engine, text) == expected
    assert (work / "words" / "000000.records").stat().st_mtime_ns == before
    with (
        pytest.raises(UsageError, match="another text"),
        process_engine(Corpus.of(tmp_path / "texts" / "a.txt"), work=work, resume=True),
    ):
        pass


def test_work_folder_in_use_or_with_other_files_is_refused(text: Corpus, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with (
        process_engine(text, work=work),
        pytest.raises(UsageError, match="in use"),
        process_engine(text, work=work, resume=True),
    ):
        pass
    with pytest.raises(UsageError, match="contains other files"), process_engine(text, work=tmp_path / "texts"):
        pass


def test_damaged_stage_is_an_error(text: Corpus, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with process_engine(text, work=work) as engine:
        word_counts(engine, text)
    path = work / "words" / "000000.records"
    path.write_bytes(path.read_bytes()[:-3])
    (work / "counts" / "_SUCCESS").unlink()
    with (
        process_engine(text, work=work, resume=True) as engine,
        pytest.raises(ChainruleError, match="not a complete"),
    ):
        word_counts(engine, text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True, "workers": 1}, "add --work"),
        ({"work": Path("work")}, "add --workers"),
        ({"partition": "much", "workers": 1}, "partition is 'much'"),
        ({"workers": 0}, "workers is 0"),
        ({"on": "mars"}, "choose one of processes"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EngineOptions(**options)  # type: ignore[arg-type]
