"""Temporary folders are removed with their process, or by the next one if it was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from chainrule.storage.temp_dir import ScratchFolder, remove_orphans, scratch_folder

HOLD = """
import sys
from chainrule.storage.temp_dir import ScratchFolder
folder = ScratchFolder()
(folder.path / "data").write_text("in use")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_scratch_folder_is_private_and_removed_after_its_block(temp_dir: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temp_dir
        assert folder.name.startswith(f"chainrule-{os.getpid()}-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "data").write_text("something")
        assert remove_orphans() == []
        assert (folder / "data").exists()
    assert list(temp_dir.iterdir()) == []


def test_scratch_folder_is_removed_with_its_object(temp_dir: Path) -> None:
    folder = ScratchFolder()
    assert folder.path.is_dir()
    del folder
    assert list(temp_dir.iterdir()) == []


def test_remove_orphans_removes_only_folders_of_dead_processes(temp_dir: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1) as live,
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1) as killed,
    ):
        assert live.stdout
        assert killed.stdout
        held, orphan = (Path(os.fsdecode(process.stdout.readline().strip())) for process in (live, killed))  # type: ignore[union-attr]
        killed.kill()
        killed.wait()
        assert (orphan / "data").exists()
        assert remove_orphans() == [orphan]
        assert not orphan.exists()
        assert (held / "data").read_text() == "in use"
        live.communicate()
    assert not held.exists()


def test_remove_orphans_relies_on_locks_not_process_ids(temp_dir: Path) -> None:
    number_in_use = (
        temp_dir / f"chainrule-{os.getpid()}-abcdefgh"
    )  # left by a dead process of another machine with the same id
    number_in_use.mkdir()
    with scratch_folder() as held:
        renamed = held.rename(
            temp_dir / "chainrule-999999999-abcdefgh"
        )  # there is no such process, but the folder is locked
        assert remove_orphans() == [number_in_use]
        assert renamed.exists()
        renamed.rename(held)


@pytest.mark.parametrize("name", ["chainrule-fuzz-abcdefgh", "chainrule-12", "other-12-abcdefgh"])
def test_remove_orphans_ignores_other_folders(temp_dir: Path, name: str) -> None:
    (temp_dir / name).mkdir()
    assert remove_orphans() == []
    assert (temp_dir / name).exists()


def test_remove_orphans_ignores_links_and_files(temp_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("precious")
    (target / "data").write_text("precious")
    (temp_dir / "chainrule-1-abcdefgh").symlink_to(target)
    (temp_dir / "chainrule-2-abcdefgh").write_text("a file")
    assert remove_orphans() == []
    assert (target / "data").exists()
    (temp_dir / "chainrule-3-abcdefgh").mkdir()
    (temp_dir / "chainrule-3-abcdefgh" / "link").symlink_to(target)
    assert remove_orphans() == [temp_dir / "chainrule-3-abcdefgh"]
    assert (target / "data").exists()


def test_scratch_folder_removed_before_locking_is_created_again(
    temp_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    created: list[str] = []

    def create_and_remove_first(prefix: str) -> str:
        created.append(make(prefix=prefix))
        if len(created) == 1:
            assert remove_orphans() == [Path(created[0])]
        return created[-1]

    monkeypatch.setattr("tempfile.mkdtemp", create_and_remove_first)
    with scratch_folder() as folder:
        assert folder == Path(created[1])
        assert folder.is_dir()


def test_command_start_removes_orphans(temp_dir: Path) -> None:
    orphan = temp_dir / "chainrule-1-abcdefgh"
    orphan.mkdir()
    completed = subprocess.run([sys.executable, "-m", "chainrule", "--version"], capture_output=True, check=True)
    assert completed.stderr == b""
    assert not orphan.exists()
