"""Shared fixtures: the location of the benchmark data and models small enough to check by hand."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cli.fork_server import forking

ROOT = Path(__file__).parents[1]

# No test fails for being slow on a busy machine; in CI the examples are always the same.
settings.register_profile(
    "chainrule", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("chainrule")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the benchmark data; the test is skipped if it is missing, except in CI."""
    folder = Path(os.environ.get("CHAINRULE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "ptb" / "ptb.train.txt").exists():
        pytest.skip(f"the benchmark data is not at {folder}; set CHAINRULE_DATA")
    return folder


@pytest.fixture(scope="session")
def quick_path() -> Iterator[str]:
    """A PATH with fast-starting `chainrule` and `python -c`."""
    with forking() as path:
        yield path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The toy corpus of the worked examples."""
    path = tmp_path / "toy.txt"
    path.write_text("i love cats\ni love dogs\ncats chase mice\n")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that no worker waits for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
