"""What all tests share: where the benchmark data is, and models small enough to check by hand."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The benchmark data; the test is skipped where there is none, except in CI, which requires it."""
    folder = Path(os.environ.get("CHAINRULE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "ptb" / "ptb.train.txt").exists():
        pytest.skip(f"the benchmark data is not at {folder}; set CHAINRULE_DATA")
    return folder


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The worked example of the syllabus."""
    path = tmp_path / "toy.txt"
    path.write_text("i love cats\ni love dogs\ncats chase mice\n")
    return path
