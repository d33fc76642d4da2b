"""The Spark engine: the same records as by processes, with failing tasks and a killed driver."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Record
from chainrule.distributed.start import start_engine
from chainrule.errors import ChainruleError, ChainruleWarning, InputError
from chainrule.text.corpus import Corpus
from distributed.word_count import count_in_memory, word_counts, write_texts


@dataclass(frozen=True)
class FailOnce:
    """Fail on the first attempt of each partition, after half of the records."""

    marker: str

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        path = Path(f"{self.marker}-{partition}")
        is_first = not path.exists()
        path.touch()
        for key, payload in records:
            yield key, payload
            if is_first:
                raise RuntimeError("made to fail")


def warn_and_copy(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    warnings.warn("a word is too long", ChainruleWarning, stacklevel=2)
    yield from records


def refuse(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    raise InputError("line 3 is wrong; correct it")
    yield


def emit_wrong_key(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    yield 9, b""


@pytest.fixture
def text(tmp_path: Path) -> Corpus:
    return write_texts(tmp_path / "texts")


def test_word_counts(session: Any, text: Corpus) -> None:
    stages = []
    options = EngineOptions(on="spark", partition="100")
    with start_engine(options, text, {}, lambda *progress: stages.append(progress), session=session) as engine:
        assert engine.parallelism == 2
        assert word_counts(engine, text) == count_in_memory(text)
    assert {name for name, *_ in stages} <= {"words", "counts"}


def test_failed_tasks_are_repeated(session: Any, text: Corpus, tmp_path: Path) -> None:
    with start_engine(EngineOptions(on="spark", partition="400"), text, {}, session=session) as engine:
        source = engine.read_text(text)
        copied = engine.run("copy", source, FailOnce(str(tmp_path / "failed")))
        assert engine.collect(copied) == [record for p in range(len(source)) for record in source[p]]
        assert list(tmp_path.glob("failed-*"))
        assert not list(copied.folder.glob("*.partial"))  # type: ignore[attr-defined]


def test_warnings_and_errors_of_tasks_reach_the_driver(session: Any, text: Corpus) -> None:
    with start_engine(EngineOptions(on="spark"), text, {}, session=session) as engine:
        source = engine.read_text(text)
        with pytest.warns(ChainruleWarning, match="a word is too long"):
            engine.run("warn", source, warn_and_copy)
        with pytest.raises(InputError, match="line 3 is wrong"):
            engine.run("refuse", source, refuse)
        with pytest.raises(
            ChainruleError, match=r"stage fail failed on Spark: .*ValueError: a record has the key 9"
        ):
            engine.run("fail", source, emit_wrong_key, partitions=1)


def test_stages_by_processes_are_continued_on_spark(session: Any, text: Corpus, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with start_engine(EngineOptions(workers=1, work=work), text, {}) as engine:
        expected = word_counts(engine, text)
    (work / "counts" / "_SUCCESS").unlink()
    with start_engine(EngineOptions(on="spark", work=work, resume=True), text, {}, session=session) as engine:
        assert word_counts(engine, text) == expected
