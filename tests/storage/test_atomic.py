"""Atomic replacement of folders under I/O errors and killed processes."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chainrule.errors import ChainruleError, ChainruleWarning, UsageError
from chainrule.storage import atomic, verified_dir
from storage.failing_disk import FailingDisk, largest_file

DEAD = 999_999_999  # larger than any Linux process id


@pytest.fixture(params=["exchange", "renames"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of version 1; the second parameter simulates a system without atomic exchange."""
    if request.param == "renames":
        monkeypatch.setattr(atomic, "_exchange", lambda *_: errno.ENOSYS)
    path = tmp_path / "models" / "model"
    write(path, 1)
    return path


def write(path: Path, version: int) -> None:
    def fill(root: Path) -> None:
        (root / "deep").mkdir()
        for name in ("config.json", "deep/model.ngram"):
            (root / name).write_bytes(b"%d" % version * 300)

    verified_dir.write(path, fill, {"version": version}, force=True)


def version_of(path: Path) -> int:
    """The version that all files of the folder agree on."""
    sealed = verified_dir.open_dir(path)
    (version,) = {sealed.bytes(name) for name in ("config.json", "deep/model.ngram")}
    assert version == str(sealed.facts["version"]).encode() * 300
    return int(str(sealed.facts["version"]))


def sibling_names(path: Path) -> list[str]:
    return [p.name for p in path.parent.iterdir() if p != path]


def test_write_replaces_the_folder_and_leaves_no_temporaries(model: Path) -> None:
    write(model, 2)
    assert version_of(model) == 2
    assert sibling_names(model) == []


def test_new_folder_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "new", 1)
        with atomic.atomic_file(tmp_path / "new.txt") as file:
            file.write(b"1")
    finally:
        os.umask(before)
    assert modes(tmp_path / "new") == {".": 0o750, "deep": 0o750} | dict.fromkeys(FILES, 0o640)
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o640


FILES = ("config.json", "deep/model.ngram", "manifest.json")


def modes(path: Path) -> dict[str, int]:
    return {str(p.relative_to(path)): p.stat().st_mode & 0o777 for p in (path, *path.rglob("*"))}


def test_replaced_files_keep_their_modes(model: Path) -> None:
    expected_modes = {
        ".": 0o700,
        "deep": 0o710,
        "config.json": 0o600,
        "deep/model.ngram": 0o640,
        "manifest.json": 0o600,
    }
    for name, mode in expected_modes.items():
        (model / name).chmod(mode)
    write(model, 2)
    assert version_of(model) == 2
    assert modes(model) == expected_modes


def test_new_files_in_a_private_folder_are_private(model: Path) -> None:
    for name in (".", "deep", *FILES):
        (model / name).chmod(0o700 if name in (".", "deep") else 0o600)

    def fill(root: Path) -> None:
        (root / "wide").mkdir()
        (root / "wide" / "speller").write_bytes(b"")
        assert root.stat().st_mode & 0o077 == 0  # also during the write

    verified_dir.write(model, fill, {}, force=True)
    assert modes(model) == {".": 0o700, "wide": 0o700, "wide/speller": 0o600, "manifest.json": 0o600}


@pytest.mark.parametrize("is_permitted", [True, False])
def test_write_keeps_the_owner_where_permitted(
    model: Path, monkeypatch: pytest.MonkeyPatch, is_permitted: bool
) -> None:
    """The folder belongs to another user and group; only root may call chown, so its calls are recorded."""
    changes: list[tuple[str, int, int]] = []
    really = Path.stat

    def chown(path: Path, uid: int, gid: int) -> None:
        changes.append((Path(path).name, uid, gid))
        if not is_permitted:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def stat_of_another_owner(path: Path, **options: Any) -> os.stat_result:
        result = really(path, **options)
        if path != model:
            return result
        return os.stat_result([result[0] & ~0o777 | 0o751, *result[1:4], 4321, 8765, *result[6:]])

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(Path, "stat", stat_of_another_owner)
    write(model, 2)
    monkeypatch.undo()
    temporary = changes[0][0]
    assert changes == [(temporary, 4321, -1), (temporary, -1, 8765)]
    assert model.stat().st_mode & 0o777 == (
        0o751 if is_permitted else 0o711
    )  # a different group gets no more than others


def test_atomic_file_keeps_mode_and_symlink(tmp_path: Path) -> None:
    target, link = tmp_path / "out.txt", tmp_path / "link.txt"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    with atomic.atomic_file(link) as file:
        assert next(tmp_path.glob("*.partial")).stat().st_mode & 0o077 == 0
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"out.txt", "link.txt"}


def test_write_fsyncs_every_file_and_folder(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.add(os.fstat(descriptor).st_ino))
    write(model, 2)
    assert flushed == {path.stat().st_ino for path in (model.parent, model, *model.rglob("*"))}


def count_write_calls(path: Path, root: Path) -> int:
    with FailingDisk(root) as disk:
        write(path, 2)
    # Two folders and three files created; these and the parent flushed; one exchange.
    assert disk.calls >= 2 + 3 + 5 + 1 + 1
    return disk.calls


@pytest.mark.filterwarnings("ignore:.* cannot be removed")
@pytest.mark.parametrize("for_good", [False, True], ids=["single failure", "persistent failure"])
@pytest.mark.parametrize("is_new", [False, True], ids=["replace", "new"])
def test_error_message_matches_disk_state_after_any_failing_call(model: Path, is_new: bool, for_good: bool) -> None:
    path = model.with_name("new") if is_new else model
    calls = count_write_calls(model.with_name("another") if is_new else model, model.parent)
    states = set()
    for n in range(calls):
        if not is_new:
            with FailingDisk(model.parent):  # flushes nothing, which is fast
                write(model, 1)
        try:
            with FailingDisk(model.parent, n, for_good=for_good):
                write(path, 2)
        except ChainruleError as error:
            states.add(check_reported_state(error, path))
        else:
            assert (
                version_of(path) == 2
            )  # the failing call did not matter: fsync of a parent, removal of an old file
        if is_new and path.exists():
            shutil.rmtree(path)
    write(path, 2)
    assert version_of(path) == 2
    assert set(sibling_names(path)) <= {"model", "another"}
    assert (
        states == {"unchanged"} if not for_good else "unchanged" in states
    )  # a single failing call is rolled back


def check_reported_state(error: ChainruleError, path: Path) -> str:
    """Return the disk state that the message reports, after checking that it is true."""
    assert type(error) is ChainruleError
    assert str(error).startswith(f"cannot write {path}: Input/output error; ")
    if "the existing content is unchanged" in str(error):
        assert version_of(path) == 1 if path.name == "model" else not path.exists()
        return "unchanged"
    if "the new content is in place, but the disk did not confirm it" in str(error):
        assert version_of(path) == 2
        return "new"
    aside = re.search(
        r"the previous content was moved to (\S+); the next command that writes to this path restores it",
        str(error),
    )
    assert aside is not None, error
    assert version_of(Path(aside[1])) == 1
    with largest_file(0), pytest.raises(ChainruleError):
        write(path, 2)
    assert version_of(path) == 1
    return "aside"


@pytest.mark.parametrize("size", [0, 1, 299, 400])
def test_write_error_leaves_the_old_folder(model: Path, size: int) -> None:
    with largest_file(size), pytest.raises(ChainruleError, match=r"cannot write .*: File too large"):
        write(model, 2)
    assert version_of(model) == 1
    assert sibling_names(model) == []


def test_old_folder_that_cannot_be_removed_causes_a_warning(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rmdir", denied)
    with pytest.warns(
        ChainruleWarning, match=r"/\.model\..* cannot be removed: Permission denied; remove it"
    ) as warned:
        write(model, 2)
    assert version_of(model) == 2
    (left,) = sibling_names(model)
    assert [str(warning.message).split()[0] for warning in warned] == [str(model.with_name(left))]
    monkeypatch.undo()
    write(model, 3)
    assert sibling_names(model) == []


@pytest.mark.parametrize("name", ["\0", "a\0b", "/"])
def test_write_rejects_invalid_paths(name: str) -> None:
    with pytest.raises(UsageError, match="choose another --out"):
        write(Path(name), 1)
    with pytest.raises(UsageError, match="choose another --out"), atomic.atomic_file(Path(name)):
        pass


def test_write_refuses_to_replace_the_current_directory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = model.with_name("link")
    link.symlink_to(model)
    monkeypatch.chdir(model / "deep")
    for path in (Path(), Path(".."), Path("../.."), Path("/"), model, model.parent, link):
        with pytest.raises(UsageError, match="choose another --out"):
            write(path, 2)
    assert version_of(model) == 1
    write(Path("../../beside"), 1)
    assert sorted(sibling_names(model)) == ["beside", "link"]


def test_write_from_a_removed_current_directory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model.parent / "gone").mkdir()
    monkeypatch.chdir(model.parent / "gone")
    (model.parent / "gone").rmdir()
    with pytest.raises(ChainruleError, match="cannot write out: No such file or directory"):
        write(Path("out"), 1)
    write(model, 2)
    assert version_of(model) == 2


def test_write_to_a_read_only_parent_raises(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:  # a folder's mode would not stop root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "mkdir", denied)
    with pytest.raises(ChainruleError, match=r"cannot write .*: Permission denied"):
        write(model, 2)
    assert version_of(model) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_exception_while_filling_leaves_the_old_folder(model: Path, error: type[BaseException]) -> None:
    def fill(root: Path) -> None:
        (root / "half").write_bytes(b"1")
        raise error

    with pytest.raises(error):
        verified_dir.write(model, fill, {}, force=True)
    assert version_of(model) == 1
    assert sibling_names(model) == []


def test_write_removes_temporaries_of_dead_processes_only(model: Path) -> None:
    not_removed = [f".model.{os.getppid()}.0a.partial", f".other.{DEAD}.0a.partial", f".model.{DEAD}.0a.txt"]
    reused = f".model.{os.getpid()}.0a.partial"  # left by a dead process that had this process's id
    for name in [*not_removed, reused, f".model.{DEAD}.0a.partial", f".model.{DEAD}.0b.aside"]:
        (model.parent / name / "deep").mkdir(parents=True)
    write(model, 2)
    assert sorted(sibling_names(model)) == sorted(not_removed)
    assert version_of(model) == 2


def test_folder_moved_aside_by_a_killed_write_is_restored(model: Path) -> None:
    model.rename(model.with_name(f".model.{DEAD}.0a.aside"))
    with largest_file(0), pytest.raises(ChainruleError, match="File too large"):
        write(model, 2)
    assert version_of(model) == 1


def test_unexpected_exchange_error_is_reported(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda *_: errno.EIO)
    with pytest.raises(ChainruleError, match="Input/output error"):
        write(model, 2)
    assert version_of(model) == 1


WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from chainrule.storage import verified_dir

def fill(root):
    (root / "deep").mkdir()
    for name in ("config.json", "deep/model.ngram"):
        (root / name).write_bytes(sys.argv[2].encode() * 300)

calls_left = int(sys.argv[3])

def count_calls(event, arguments):
    global calls_left
    if event.split(".")[0] in ("open", "os", "shutil", "ctypes", "fcntl"):
        calls_left -= 1
        if calls_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count_calls)
verified_dir.write(Path(sys.argv[1]), fill, {"version": int(sys.argv[2])}, force=True)
"""
"""Write version argv[2]; be killed before the argv[3]-th audited system call."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders at once")
def test_kill_at_any_call_leaves_the_old_or_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write(path, 1)
    versions, with_leftovers = [1], 0
    for calls in range(1, 500):
        command = [sys.executable, "-c", WRITE_AND_DIE, str(path), str(calls + 1), str(calls)]
        status = subprocess.run(command, check=False).returncode
        versions.append(version_of(path))
        assert versions[-1] in (versions[-2], calls + 1)  # completely old or completely new
        leftovers = sibling_names(path)
        assert len(leftovers) <= 1  # those of earlier trials were removed
        with_leftovers += len(leftovers)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert status == 0  # it was killed before each of its calls
    assert with_leftovers > 5
    assert len(set(versions)) > 2  # some were killed after the exchange, so the new folder is in place
    assert sibling_names(path) == []
    write(path, 2)
    assert version_of(path) == 2
    assert sibling_names(path) == []
