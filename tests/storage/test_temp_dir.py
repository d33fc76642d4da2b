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


def test_a_folder_is_private_and_goes_with_its_block(temp_dir: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temp_dir
        assert folder.name.startswith(f"chainrule-{os.getpid()}-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "data").write_text("something")
        assert remove_orphans() == []
        assert (folder / "data").exists()
    assert list(temp_dir.iterdir()) == []


def test_a_folder_goes_with_its_object(temp_dir: Path) -> None:
    folder = ScratchFolder()
    assert folder.path.is_dir()
    del folder
    assert list(temp_dir.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_holds_is_kept(temp_dir: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1) as live,
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=-1, stdout=-1) as killed,
    ):
        assert live.stdout
        assert killed.stdout
        held, left = (Path(os.fsdecode(process.stdout.readline().strip())) for process in (live, killed))  # type: ignore[union-attr]
        killed.kill()
        killed.wait()
        assert (left / "data").exists()
        assert remove_orphans() == [left]
        assert not left.exists()
        assert (held / "data").read_text() == "in use"
        live.communicate()
    assert not held.exists()


def test_a_process_number_decides_nothing(temp_dir: Path) -> None:
    number_in_use = temp_dir / f"chainrule-{os.getpid()}-abcdefgh"  # of a process of another machine, long dead
    number_in_use.mkdir()
    with scratch_folder() as held:
        renamed = held.rename(temp_dir / "chainrule-999999999-abcdefgh")  # no such process, but somebody holds it
        assert remove_orphans() == [number_in_use]
        assert renamed.exists()
        renamed.rename(held)


@pytest.mark.parametrize("name", ["chainrule-fuzz-abcdefgh", "chainrule-12", "other-12-abcdefgh"])
def test_other_folders_are_left_alone(temp_dir: Path, name: str) -> None:
    (temp_dir / name).mkdir()
    assert remove_orphans() == []
    assert (temp_dir / name).exists()


def test_links_and_files_are_left_alone(temp_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
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


def test_a_folder_that_is_taken_for_an_orphan_before_it_is_locked_is_made_anew(
    temp_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    made: list[str] = []

    def made_and_removed(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            assert remove_orphans() == [Path(made[0])]
        return made[-1]

    monkeypatch.setattr("tempfile.mkdtemp", made_and_removed)
    with scratch_folder() as folder:
        assert folder == Path(made[1])
        assert folder.is_dir()


def test_every_start_of_the_command_removes_orphans(temp_dir: Path) -> None:
    left = temp_dir / "chainrule-1-abcdefgh"
    left.mkdir()
    ended = subprocess.run([sys.executable, "-m", "chainrule", "--version"], capture_output=True, check=True)
    assert ended.stderr == b""
    assert not left.exists()
