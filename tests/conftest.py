"""What all tests share: where the benchmark data is, and models small enough to check by hand."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cli.forks import forking

ROOT = Path(__file__).parents[1]

# No test fails for being slow on a busy machine; in CI the same examples come every time.
settings.register_profile(
    "chainrule", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("chainrule")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The benchmark data; the test is skipped where there is none, except in CI, which requires it."""
    folder = Path(os.environ.get("CHAINRULE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "ptb" / "ptb.train.txt").exists():
        pytest.skip(f"the benchmark data is not at {folder}; set CHAINRULE_DATA")
    return folder


@pytest.fixture(scope="session")
def quick_path() -> Iterator[str]:
    """A PATH whose `chainrule` and `python -c` need not import anything first."""
    with forking() as path:
        yield path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The worked example of the syllabus."""
    path = tmp_path / "toy.txt"
    path.write_text("i love cats\ni love dogs\ncats chase mice\n")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no core waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
