"""The log is strict JSON in whole lines and truncates exactly; TensorBoard shows the same numbers."""

import errno
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from chainrule.errors import ChainruleError, MissingExtra
from chainrule.training.log import TrainLog


def reject_constant(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def lines(content: bytes) -> list[dict[str, Any]]:
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line, parse_constant=reject_constant) for line in content.splitlines()]


def test_log_write_appends_a_line_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "train_log.jsonl"
    with TrainLog(path) as log:
        log.write(step=1, loss=0.5)
        assert lines(path.read_bytes()) == [{"step": 1, "loss": 0.5}]
        log.write(event="advice", words="größer")
        assert lines(path.read_bytes())[1] == {"event": "advice", "words": "größer"}
        assert log.size == path.stat().st_size
        assert log.content() == path.read_bytes()


def test_log_writes_non_finite_numbers_as_null(tmp_path: Path) -> None:
    with TrainLog(tmp_path / "log") as log:
        log.write(loss=float("nan"), inner={"norms": [1.0, float("inf")], "pair": (-float("inf"), 2)}, on=True)
        assert lines(log.content()) == [
            {"loss": None, "inner": {"norms": [1.0, None], "pair": [None, 2]}, "on": True}
        ]


def test_resumed_log_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with TrainLog(path) as log:
        sizes = []
        for step in range(10):
            log.write(step=step)
            sizes.append(log.size)
        whole = log.content()
    with TrainLog(path) as log:  # the run died after step 9; its checkpoint is from step 5
        log.truncate(sizes[5])
        assert lines(log.content())[-1] == {"step": 5}
        for step in range(6, 10):
            log.write(step=step)
    assert path.read_bytes() == whole


def test_log_without_a_path_is_kept_in_memory() -> None:
    with TrainLog(None) as log:
        log.write(step=1)
        size = log.size
        log.write(step=2)
        log.truncate(size)
        log.write(step=3)
        assert lines(log.content()) == [{"step": 1}, {"step": 3}]


def test_deferred_log_replaces_the_file_when_stored(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 9}\n')
    with TrainLog(path, is_deferred=True) as log:
        log.write(step=1)
        assert path.read_bytes() == b'{"step": 9}\n'
        assert log.size == len(b'{"step": 1}\n')
        log.store()
        assert path.read_bytes() == b'{"step": 1}\n'
        log.write(step=2)
        log.store()
        assert log.content() == path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_truncating_to_zero_starts_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"step": 1}\n')
    with TrainLog(path) as log:
        log.truncate(0)
        log.write(step=7)
        assert lines(log.content()) == [{"step": 7}]


@pytest.mark.parametrize("size", [20, 10**6])
def test_truncate_drops_a_partial_line_and_never_pads(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"step": 1}\n{"step": 2')  # 12 bytes, and a line cut off by a power failure
    with TrainLog(path) as log:
        log.truncate(size)
        log.write(step=3)
        assert lines(log.content()) == [{"step": 1}, {"step": 3}]


def test_full_disk_leaves_complete_log_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    with TrainLog(path) as log:
        log.write(step=1)
        before, real = path.read_bytes(), log._file

        class Full:
            """Accepts five bytes and no more."""

            room = 5

            def write(self, data: bytes) -> int:
                if not self.room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                written = real.write(data[: self.room])
                self.room = 0
                return written

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        monkeypatch.setattr(log, "_file", Full())
        with pytest.raises(ChainruleError, match=rf"cannot write {path}: No space left on device; make room"):
            log.write(step=2)
        assert path.read_bytes() == before


def test_unwritable_log_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ChainruleError, match=r"cannot write .*file/log"):
        TrainLog(tmp_path / "file" / "log")


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_receives_the_logged_numbers(tmp_path: Path) -> None:
    with TrainLog(tmp_path / "log", tmp_path / "events") as log:
        log.write(step=50, loss=4.5, epoch=0, is_best=True, event="report")
        log.write(step=100, loss=float("nan"), epoch=1)
        log.write(loss=9.0)  # without a step
        log.write(step=150, loss=3.25, epoch=1)
    assert scalars(tmp_path / "events", "loss") == [(50, 4.5), (150, 3.25)]
    assert scalars(tmp_path / "events", "epoch") == [(50, 0.0), (100, 1.0), (150, 1.0)]
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "epoch"}


def test_tensorboard_names_nested_fields_by_both_names(tmp_path: Path) -> None:
    with TrainLog(None, tmp_path) as log:
        log.write(step=1, update_ratio={"layers.0.R": 0.5, "embedding": float("nan")}, clipped_by={})
        log.write(step=2, update_ratio={"layers.0.R": 0.25, "embedding": 0.125}, words={"a": "b"})
    assert scalars(tmp_path, "update_ratio/layers.0.R") == [(1, 0.5), (2, 0.25)]
    assert scalars(tmp_path, "update_ratio/embedding") == [(2, 0.125)]


def test_tensorboard_drops_steps_rewritten_by_a_resumed_run(tmp_path: Path) -> None:
    with TrainLog(None, tmp_path) as log:
        for step in (1, 2, 3, 4):
            log.write(step=step, loss=float(step))
    with TrainLog(None, tmp_path) as log:
        for step in (3, 4):
            log.write(step=step, loss=10.0 * step)
    assert scalars(tmp_path, "loss") == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]


def test_missing_tensorboard_names_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[tensorboard\]'"):
        TrainLog(tmp_path / "log", tmp_path / "events")
    assert not (tmp_path / "log").exists()
    TrainLog(tmp_path / "log").close()  # not requested, not needed
