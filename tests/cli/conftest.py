"""Models used by many command tests; trained once, never changed."""

from pathlib import Path

import pytest

from cli.command import QUIET, TOY, english, trained, write


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="session")
def toy_text(shelf: Path) -> Path:
    return write(shelf / "toy.txt", TOY)


@pytest.fixture(scope="session")
def mle(shelf: Path, toy_text: Path) -> Path:
    """Maximum-likelihood trigram of the worked example."""
    return trained(shelf / "mle", toy_text, "--order", 3, "--smoothing", "mle")


@pytest.fixture(scope="session")
def laplace(shelf: Path, toy_text: Path) -> Path:
    """Add-one trigram of the worked example, with `<unk>`."""
    return trained(shelf / "laplace", toy_text, "--order", 3, "--smoothing", "laplace")


@pytest.fixture(scope="session")
def closed(shelf: Path, toy_text: Path) -> Path:
    """Add-one trigram of the worked example, without `<unk>`."""
    return trained(shelf / "closed", toy_text, "--order", 3, "--smoothing", "laplace", "--closed")


@pytest.fixture(scope="session")
def english_text(shelf: Path) -> Path:
    return write(shelf / "english.txt", english())


@pytest.fixture(scope="session")
def model(shelf: Path, english_text: Path) -> Path:
    """A smoothed trigram of the small English text; about every third word is out of vocabulary."""
    return trained(shelf / "model", english_text, "--order", 3, *QUIET, "--min-count", 20)
