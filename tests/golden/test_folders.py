"""Folders that an earlier version wrote can still be read, and give the recorded numbers."""

from pathlib import Path

import pytest

from golden.folders import STORED, numbers
from golden.recorded import FOLDERS, NGRAM, STORED_NETWORK, check_stored
from golden.session import working_folder


@pytest.mark.parametrize("name", STORED)
def test_stored_folder_gives_the_recorded_numbers(tmp_path: Path, name: str) -> None:
    with working_folder(tmp_path, [f"models/{name}"]):
        results = numbers(name)
    check_stored(FOLDERS / f"{name}.json", results, STORED_NETWORK if STORED[name].is_network else NGRAM)


def test_every_stored_folder_is_used() -> None:
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == set(STORED)
