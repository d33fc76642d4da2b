import os
import socket
from pathlib import Path

import pytest

from chainrule.errors import InputError, NotFoundError, UsageError
from chainrule.text.readers import Sources, find_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [
        "b.txt",
        "a.txt",
        "sub/c.txt",
        "sub/deep/a.txt",
        "sub.txt",
        ".hidden",
        ".git/a.txt",
        "[1].txt",
    ]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(sources: Sources) -> list[str]:
    return [file.path.as_posix() for file in find_files(sources)]


ALL = [
    "[1].txt",
    "a.txt",
    "b.txt",
    "sub/c.txt",
    "sub/deep/a.txt",
    "sub.txt",
]  # sorted by path component: "sub" < "sub.txt"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("b.txt", ["b.txt"]),
        (Path("b.txt"), ["b.txt"]),
        (["b.txt", Path("a.txt"), "b.txt"], ["b.txt", "a.txt", "b.txt"]),
        ("sub", ["sub/c.txt", "sub/deep/a.txt"]),
        (".", ALL),
        ("?.txt", ["a.txt", "b.txt"]),
        ("**", ALL),
        (Path("s*"), ["sub/c.txt", "sub/deep/a.txt", "sub.txt"]),
        (".hidden", [".hidden"]),
        ("[1].txt", ["[1].txt"]),  # an existing file of this name wins over the pattern
        (["[b].txt", "sub"], ["b.txt", "sub/c.txt", "sub/deep/a.txt"]),
    ],
)
def test_find_files_returns_files_in_order(sources: Sources, expected: list[str]) -> None:
    assert names(sources) == expected


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("source", ["missing.txt", "a.txt/b.txt", "*.csv", "", "missing/*", "nul\0.txt"])
def test_missing_source_is_named(source: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_files(source)
    assert (source if source.isprintable() else repr(source)) in str(caught.value)
    assert os.getcwd() in str(caught.value)


def test_empty_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").write_text("hidden")
    with pytest.raises(NotFoundError, match=f"{tmp_path} contains no files"):
        find_files(tmp_path)


def test_broken_symlink_in_a_folder_is_named(folder: Path) -> None:
    (folder / "link").symlink_to("nowhere")
    with pytest.raises(NotFoundError, match="link"):
        find_files(folder)


def test_circular_symlink_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(InputError, match="link cannot be read"):
        find_files(tmp_path / "link")


def test_symlinks_to_folders_are_not_followed(folder: Path) -> None:
    (folder / "sub" / "up").symlink_to("..")
    assert names(".") == ALL


def test_empty_source_list_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no text was given"):
        find_files([])


def test_pipe_is_rejected_without_blocking(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError, match="pipe is a pipe, socket or device"):
        find_files("pipe")
    with pytest.raises(InputError, match="pipe is a pipe, socket or device"):
        find_files(".")


@pytest.mark.usefixtures("folder")
def test_sockets_and_devices_are_rejected() -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("door")
        with pytest.raises(InputError, match="door is a pipe, socket or device"):
            find_files("door")
    with pytest.raises(InputError, match=f"{os.devnull} is a pipe, socket or device"):
        find_files(os.devnull)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders_are_rejected(folder: Path) -> None:
    (folder / "a.txt").chmod(0)
    with pytest.raises(InputError, match=r"a\.txt may not be read"):
        find_files(folder)
    (folder / "a.txt").chmod(0o600)
    (folder / "sub").chmod(0)
    with pytest.raises(InputError, match="sub cannot be read"):
        find_files(folder)
    (folder / "sub").chmod(0o700)
