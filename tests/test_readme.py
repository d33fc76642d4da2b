"""README: its commands and Python code run and print the shown output."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def console_steps() -> list[tuple[str, str]]:
    """Each command and what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    steps = []
    for block in blocks:
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            steps.append((command, output))
    return steps


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    steps = console_steps()
    assert len(steps) > 8
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path, "TERM": "dumb"},
            check=False,
        )
        assert done.returncode == 0 or "| head" in command, f"{command}\n{done.stderr}"
        assert done.stdout == expected, command
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.REPORT_NDIFF)
    assert result.attempted > 8
    assert result.failed == 0
