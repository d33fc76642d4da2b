"""A folder is replaced whole or not at all, whatever fails and whenever the process dies."""

import errno
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chainrule import folder, replacement
from chainrule.errors import ChainruleError

DEAD = 999_999_999  # above the largest process id any Linux gives


@pytest.fixture(params=["exchange", "renames"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of version 1; the second time on a system that cannot exchange two folders."""
    if request.param == "renames":
        monkeypatch.setattr(replacement, "_exchange_at_once", lambda *_: errno.ENOSYS)
    path = tmp_path / "models" / "model"
    write(path, 1)
    return path


def write(path: Path, version: int) -> None:
    def fill(root: Path) -> None:
        (root / "deep").mkdir()
        for name in ("config.json", "deep/model.ngram"):
            (root / name).write_bytes(b"%d" % version * 300)

    folder.write(path, fill, {"version": version})


def version_of(path: Path) -> int:
    """The version all parts of the folder agree on."""
    sealed = folder.read(path)
    (version,) = {sealed.bytes(name) for name in ("config.json", "deep/model.ngram")}
    assert version == str(sealed.facts["version"]).encode() * 300
    return int(str(sealed.facts["version"]))


def names_beside(path: Path) -> list[str]:
    return [p.name for p in path.parent.iterdir() if p != path]


def test_the_old_folder_gives_way_to_the_new(model: Path) -> None:
    write(model, 2)
    assert version_of(model) == 2
    assert names_beside(model) == []


def test_the_mode_of_the_folder_follows_the_umask(model: Path) -> None:
    before = os.umask(0o027)
    try:
        write(model, 2)
    finally:
        os.umask(before)
    assert model.stat().st_mode & 0o777 == 0o750


def test_every_file_and_folder_is_flushed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.add(os.fstat(descriptor).st_ino))
    write(model, 2)
    assert flushed == {path.stat().st_ino for path in (model.parent, model, *model.rglob("*"))}


class Failing:
    """The n-th of all calls of some functions finds the disk full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.left = n
        for module, name in [
            (os, "fsync"),
            (os, "rename"),
            (os, "mkdir"),
            (replacement, "_exchange"),
            (Path, "write_bytes"),
        ]:
            monkeypatch.setattr(module, name, self.wrapped(getattr(module, name)))

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*args, **kwargs)

        return counted


def calls_of_a_write(path: Path) -> int:
    with pytest.MonkeyPatch.context() as monkeypatch:
        never = Failing(monkeypatch, 1000)
        write(path, 2)
    # Made: two folders, three files. Flushed: these and the parent. And the swap.
    assert 1000 - never.left >= 2 + 3 + 5 + 1 + 1
    return 1000 - never.left


@pytest.mark.parametrize("is_new", [False, True], ids=["over an old one", "new"])
def test_every_failing_call_leaves_everything_as_it_was(model: Path, is_new: bool) -> None:
    path = model.with_name("new") if is_new else model
    calls = calls_of_a_write(model.with_name("another") if is_new else model)
    write(model, 1)
    before = sorted(names_beside(path))
    for n in range(1, calls):  # call 0 makes the parent, which is there: its failure is none
        with pytest.MonkeyPatch.context() as monkeypatch:
            Failing(monkeypatch, n)
            with pytest.raises(ChainruleError, match=rf"cannot write {path}: No space left on device"):
                write(path, 2)
        assert sorted(names_beside(path)) == before
        assert not path.exists() if is_new else version_of(path) == 1
    write(path, 2)
    assert version_of(path) == 2


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A real limit of the system: no file may grow beyond this many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 1, 299, 400])
def test_a_write_the_system_refuses_leaves_the_old_folder(model: Path, size: int) -> None:
    with largest_file(size), pytest.raises(ChainruleError, match=r"cannot write .*: File too large"):
        write(model, 2)
    assert version_of(model) == 1
    assert names_beside(model) == []


def test_a_read_only_parent_is_a_clear_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:  # the mode of a folder would not stop root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "mkdir", denied)
    with pytest.raises(ChainruleError, match=r"cannot write .*: Permission denied"):
        write(model, 2)
    assert version_of(model) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fill_that_raises_leaves_the_old_folder(model: Path, error: type[BaseException]) -> None:
    def fill(root: Path) -> None:
        (root / "half").write_bytes(b"1")
        raise error

    with pytest.raises(error):
        folder.write(model, fill, {})
    assert version_of(model) == 1
    assert names_beside(model) == []


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_kept(model: Path) -> None:
    kept = [f".model.{os.getpid()}.0a.partial", f".other.{DEAD}.0a.partial", f".model.{DEAD}.0a.txt"]
    for name in [*kept, f".model.{DEAD}.0a.partial", f".model.{DEAD}.0b.aside"]:
        (model.parent / name / "deep").mkdir(parents=True)
    write(model, 2)
    assert sorted(names_beside(model)) == sorted(kept)
    assert version_of(model) == 2


def test_an_old_folder_cut_off_between_two_renames_is_put_back(model: Path) -> None:
    model.rename(model.with_name(f".model.{DEAD}.0a.aside"))
    with largest_file(0), pytest.raises(ChainruleError, match="File too large"):
        write(model, 2)
    assert version_of(model) == 1


def test_an_unexpected_failure_of_the_exchange_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "_exchange_at_once", lambda *_: errno.EIO)
    with pytest.raises(ChainruleError, match="Input/output error"):
        write(model, 2)
    assert version_of(model) == 1


WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
from chainrule import folder

def fill(root):
    (root / "deep").mkdir()
    for name in ("config.json", "deep/model.ngram"):
        (root / name).write_bytes(b"%d" % version * 300)

for version in itertools.count(int(sys.argv[2])):
    folder.write(Path(sys.argv[1]), fill, {"version": version})
    print(version, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders at once")
def test_kill_at_any_moment_leaves_a_whole_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write(path, 1)
    rng = random.Random(1)
    kills_in_the_middle = 0
    for trial in range(1, 26):
        command = [sys.executable, "-c", WRITE_FOR_EVER, str(path), str(1000 * trial)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.02))
            process.kill()
            written = [int(line) for line in process.stdout.read().split()]
        # What was reported done is done; at most one more was under way.
        assert version_of(path) - max(written, default=1000 * trial) in (0, 1)
        leftovers = names_beside(path)
        assert len(leftovers) <= 1  # those of earlier trials are gone
        kills_in_the_middle += len(leftovers)
    assert kills_in_the_middle > 5
    write(path, 2)
    assert version_of(path) == 2
    assert names_beside(path) == []
