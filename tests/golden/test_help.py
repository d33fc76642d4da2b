"""`--help` of every command, as recorded."""

import re
from pathlib import Path
from typing import Final

import pytest

from cli.command import run_ok
from golden.normalizer import normalize
from golden.recorded import GOLDEN, check, check_names

HELP: Final = GOLDEN / "help"


def help_pages(*command: str) -> dict[str, str]:
    """The help of a command and of all below it, by file name."""
    page = normalize(run_ok(*command, "--help").out)
    pages = {"-".join(["chainrule", *command]) + ".txt": page}
    _, _, listed = page.partition("\nCommands:\n")
    for name in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        pages |= help_pages(*command, name)
    return pages


def test_help_pages_equal_the_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    pages = help_pages()
    for name, page in pages.items():
        check(HELP / name, page)
    check_names(HELP, set(pages))
